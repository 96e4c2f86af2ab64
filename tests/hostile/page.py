"""docs/cheats.md, written from the catalogue and the corpus: `python -m tests.hostile.page > docs/cheats.md`.

Invariant: the page states no result of its own. It shows the endings that `expected.toml` accepts, and the test of the
corpus fails when a folder ends in any other way.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from itertools import groupby

import msgspec
import tomli

from tests.hostile.corpus import CONTROL, CORPUS, NAMES, OWN, Expected, expected_of

_HEAD = """\
# Cheats, defences, results

Generated from `tests/hostile` by `make docs`; do not edit.

The hostile corpus holds one bundle for every way to cheat that is known from public evaluators, and for those we found
by attacking this referee. `make hostile` puts each of them through the real intake, and then, with static intake
switched off, through the real referee: the scan is a filter, so the referee has to hold alone. `make hostile` prints
one line per bundle and fails when a cheat succeeds or a control is wrong; CI runs the same rows.

A result is `detected` with the code of the verdict, or `too slow`: all checks held, the bundle was measured against
the honest code that it is built on, and it gained nothing (NOT_FASTER). Rows that try to reach something rather than
to be fast get two launches, in which nobody can be crowned. Where several codes are listed, the ending depends on where
the cheat is met; any other ending fails the test.

"""

_TAIL = """\
## What the corpus does not show

- A bundle that is right, or fast, until some day and no longer after it. Nothing that runs before a crown can show it.
  As a baseline its outputs are checked like a candidate's, and its faults are never charged to a challenger
  (`240_poisoned_crown`); a baseline that only becomes slow makes the next crown easier, and is for people to notice.
- Approximation within the tolerance of a slot. The tolerance is the contract: its bounds per element and per row, or
  on a ranking, are what may be spent.
- The part of a timed call that lies between waking an arm and its entry, some fifteen microseconds. A bundle can do
  that faster than the arm does (`202_own_loop`): measured, nothing at 2 ms a call and 7 % at 0.2 ms. Arenas have to
  time calls of half a millisecond or more; `cacheon bench` and the node's log say where one does not
  (`ARENA_CALLS_SHORT`).
- Bits that arms leave for later ones. Processes share no memory and no writable file, but the kernel shows any of them
  how much memory the host has free and which pages of system files are cached. With that a bundle can tell launches
  apart, or that it is the crown and not the candidate. It cannot be wrong or late on that knowledge without failing,
  and a coin that nobody sees decides its place; to be slow as a crown is what crown checks are for.
- GPU rows without a folder, and what the others would do on a device. They need one.
"""


class CatalogueRow(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One cheat of the catalogue. `tier`: S static intake, C a process on a processor, G a GPU."""

    id: str
    group: str
    cheat: str
    defence: str
    tier: str
    absent: str = ""  # why there is no folder for it


def load_catalogue() -> tuple[CatalogueRow, ...]:
    """Read the catalogue, strictly, in its order."""
    document = tomli.loads((CORPUS / "catalogue.toml").read_text())
    return tuple(msgspec.convert(row, CatalogueRow) for row in document["row"])


def folders_by_row() -> dict[str, list[str]]:
    """Return the folders that cover each row; `own` and `control` are rows too."""
    folders: dict[str, list[str]] = {}
    for name in NAMES:
        for row in expected_of(name).rows:
            folders.setdefault(row, []).append(name)
    return folders


def render() -> str:
    """Return the page."""
    folders = folders_by_row()
    parts = [_HEAD]
    for group, rows in groupby(load_catalogue(), key=lambda row: row.group):
        parts.append(f"## {group}\n\n| Row | Cheat | Defence | Bundle: result |\n| --- | --- | --- | --- |\n")
        parts += [_catalogue_line(row, folders) for row in rows]
        parts.append("\n")
    parts.append("## Found by attacking this referee\n\n| Cheat | Defence | Bundle: result |\n| --- | --- | --- |\n")
    parts += list(_own_lines(folders[OWN]))
    parts.append("\n## Controls\n\n| Bundle | Result |\n| --- | --- |\n")
    parts += [f"| {expected_of(name).mechanism} | {_result(name)} |\n" for name in folders[CONTROL]]
    return "".join([*parts, "\n", _TAIL])


def _catalogue_line(row: CatalogueRow, folders: Mapping[str, list[str]]) -> str:
    shown = "; ".join(map(_result, folders.get(row.id, []))) or f"none: {row.absent}"
    return f"| {row.id} | {row.cheat} | {row.defence} | {shown} |\n"


def _own_lines(names: list[str]) -> Iterator[str]:
    for name in names:
        expected = expected_of(name)
        yield f"| {expected.mechanism} | {expected.defence} | {_result(name)} |\n"


def _result(name: str) -> str:
    expected = expected_of(name)
    return f"`{name}`: {'; '.join(_endings(expected))}"


def _endings(expected: Expected) -> Iterator[str]:
    if expected.intake:
        yield f"scan {' '.join(expected.intake)}"
    if expected.copies:
        yield "detected COPY_OF_EARLIER"
    caught = [code for code in expected.codes if code not in ("NOT_FASTER", "PASS")]
    if caught:
        yield f"detected {' or '.join(caught)}"
    if "NOT_FASTER" in expected.codes:
        yield "too slow"
    if "PASS" in expected.codes:
        yield "PASS"


if __name__ == "__main__":
    sys.stdout.write(render())
