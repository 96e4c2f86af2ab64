"""How commands speak.

Rules
1. Standard output carries data only; everything said to a person goes to standard error.
2. With `--json` standard output carries whole lines of JSON, one envelope per line, never ANSI, whatever FORCE_COLOR
   says (`node.envelope`).
3. Documents that others wrote may hold anything: control characters in names and values are shown as escapes, so that
   none of them moves a cursor, hides a line or writes one of its own.
4. Colour and progress need a terminal; NO_COLOR is honoured. A table fits 120 columns when nobody is looking.
"""

from __future__ import annotations

import sys
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, TextIO, cast

from node.envelope import success_line

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from rich.console import Console
    from rich.table import Table

PIPED_COLUMNS = 120
RAO_PER_TAO = 1_000_000_000
_BREAKS = "\u2028\u2029\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"  # lines, and changes of direction


class Output:
    """Where one command writes. `as_json` is whether `--json` was given."""

    def __init__(self, command: str, *, as_json: bool = False) -> None:
        self.command = command
        self.as_json = as_json

    def result(self, data: object, show: Callable[[Console], None]) -> None:
        """Write the result once: the envelope with `--json`, else whatever `show` prints."""
        if self.as_json:
            self.json_line(data)
        else:
            show(data_console())

    def json_line(self, data: object) -> None:
        """Write one success envelope and flush it, so that a reader of a stream sees it at once."""
        write_raw(success_line(self.command, data))

    def note(self, text: str) -> None:
        """Say something to the person; silent with `--json`."""
        if not self.as_json:
            talk_console().print(text, highlight=False, markup=False, soft_wrap=True)


def visible(text: str, *, lines: bool = False) -> str:
    """Return `text` with its control characters as escapes; with `lines` it may hold line breaks."""
    if text.isprintable():
        return text
    return "".join(
        one.encode("unicode_escape").decode()
        if (one < " " or "\x7f" <= one <= "\x9f" or one in _BREAKS) and not (lines and one == "\n") else one
        for one in text
    )


def write_raw(line: bytes) -> None:
    """Write bytes to standard output unchanged and flush."""
    sys.stdout.write(line.decode("utf-8"))
    sys.stdout.flush()


def data_console() -> Console:
    """Return the console of standard output."""
    return _console(sys.stdout)


def talk_console() -> Console:
    """Return the console of standard error."""
    return _console(sys.stderr)


def _console(stream: TextIO) -> Console:
    return _rich_console(stream) if stream.isatty() else cast("Console", _PipedConsole(stream))


def _rich_console(stream: TextIO) -> Console:
    from rich.console import Console

    width = None if stream.isatty() else PIPED_COLUMNS
    return Console(file=stream, width=width, highlight=False, emoji=False)


class _PipedConsole:
    """A console of a stream that is no terminal: prints plain lines itself, as the printing library would.

    That library, which takes longer to load than most commands take, is asked for everything else.
    """

    _PLAIN: ClassVar = ({"markup": False, "soft_wrap": True}, {"markup": False, "soft_wrap": True, "highlight": False})

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def print(self, *objects: object, **options: Any) -> None:
        """Print one text, or whatever the library can print."""
        text = objects[0] if len(objects) == 1 else None
        if isinstance(text, str) and options in self._PLAIN and all(map(str.isprintable, text.split("\n"))):
            self._stream.write(f"{text}\n")
            self._stream.flush()
        else:
            self._library.print(*objects, **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._library, name)

    @cached_property
    def _library(self) -> Console:
        return _rich_console(self._stream)


def table(
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    title: str | None = None,
    whole: Collection[str] = (),
) -> Table:
    """Return a plain table whose cells fold instead of losing characters; cell text is never read as markup.

    Columns named in `whole` are never folded: their cells can be searched for and copied.
    """
    from rich import box
    from rich.table import Table
    from rich.text import Text

    result = Table(title=title, box=box.SIMPLE_HEAD, title_justify="left", pad_edge=False)
    for column in columns:
        result.add_column(column, overflow="fold", no_wrap=column in whole)
    for row in rows:
        result.add_row(*(Text(visible(cell, lines=True)) for cell in row))
    return result


def facts(console: Console, pairs: Iterable[tuple[str, str]]) -> None:
    """Print one line per (name, value), names aligned; values are never cut or read as markup."""
    rows = list(pairs)
    width = max((len(name) for name, _ in rows), default=0)
    for name, value in rows:
        console.print(f"{name:{width}s}  {visible(value)}", markup=False, soft_wrap=True)


def tao_text(amount_rao: int) -> str:
    """Return an amount as a person reads it, exactly."""
    whole, rest = divmod(amount_rao, RAO_PER_TAO)
    return f"{whole}{f'.{rest:09d}'.rstrip('0') if rest else ''} TAO ({amount_rao} rao)"
