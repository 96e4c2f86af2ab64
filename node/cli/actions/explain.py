"""`cacheon explain`: the long text behind every error code."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

import msgspec

from config.codes import CodeDocument, load_codes
from config.errors import NotFoundError
from node.cli.boundary import BLAME_TEXT
from node.cli.output import Output, table

if TYPE_CHECKING:
    from rich.console import Console


class Explanation(msgspec.Struct, frozen=True):
    """One code as `--json` shows it."""

    code: str
    blame: str
    summary: str
    explain: str


def run(code: str | None, *, as_json: bool) -> None:
    """Explain one code, or list all. Raises `NotFoundError` (CODE_UNKNOWN)."""
    out = Output("explain", as_json=as_json)
    codes = load_codes()
    if code is None:
        rows = [_row(name, codes[name]) for name in sorted(codes)]
        out.result(rows, lambda console: console.print(_listing(rows)))
        return
    name = code.strip().upper().replace("-", "_")
    if name not in codes:
        near = difflib.get_close_matches(name, codes, n=3, cutoff=0.6)
        hint = f"did you mean {', '.join(near)}?" if near else "`cacheon explain` lists every code"
        raise NotFoundError("CODE_UNKNOWN", f"there is no error code {code!r}", hint=hint)
    row = _row(name, codes[name])
    out.result(row, lambda console: _show(console, row))


def _row(name: str, document: CodeDocument) -> Explanation:
    return Explanation(name, document.blame, document.summary, document.explain.strip())


def _listing(rows: list[Explanation]) -> object:
    return table(("code", "blame", "meaning"), [(row.code, row.blame, row.summary) for row in rows], whole=("code",))


def _show(console: Console, row: Explanation) -> None:
    console.print(row.code, style="bold", markup=False)
    console.print(row.summary, markup=False)
    console.print(f"blame: {row.blame} ({BLAME_TEXT.get(row.blame, 'unknown')})", markup=False)
    console.print()
    console.print(row.explain, markup=False, soft_wrap=not console.is_terminal)
