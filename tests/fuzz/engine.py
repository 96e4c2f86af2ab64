"""A small mutation engine: known inputs in, damaged inputs out, everything that surprises kept.

Invariants
1. A run is a function of its seed and its number of executions; an input that fails is a file and needs neither.
2. What counts as new is the answer's *shape* (code and start of its sentence): inputs that reach a refusal nobody
   reached before join the corpus, and so do some that are accepted; so the engine walks deeper than one mutation.
3. An answer may be a refusal. Any other exception, an undocumented code, an unprintable or endless sentence, or work
   that does not end is a failure.
"""

from __future__ import annotations

import hashlib
import random
import re
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import FrameType

import tomli

from config.errors import CacheonError, ErrorDocument, IntakeError

SECONDS_PER_INPUT = 20  # far above what the largest legal input of any target needs
_CODES = Path(__file__).parents[2] / "config" / "codes"
_MAX_BYTES = 1 << 16
_INTERESTING = (0, 1, 0x7F, 0x80, 0xFF, 0x0A, 0x0D, 0x20, 0x22, 0x27, 0x2F, 0x5C)
_NUMBERS = (b"0", b"-1", b"1", b"255", b"65536", b"2147483648", b"9223372036854775808", b"1e999", b"0x10", b"9" * 400)
_NUMBER = re.compile(rb"[0-9]+")
_QUOTED = re.compile("['\"`0-9]")


class UnfinishedError(Exception):
    """An input that was still being read after `SECONDS_PER_INPUT`."""


@dataclass(frozen=True)
class Target:
    """One parser: its known inputs, the words of its grammar, and what reading an input means.

    `read` returns "" for an accepted input or says in a word how it was refused, and raises `allowed` errors only.
    """

    name: str
    seeds: Callable[[], Sequence[bytes]]
    read: Callable[[bytes], str]
    words: tuple[bytes, ...] = ()
    allowed: tuple[type[CacheonError], ...] = (IntakeError,)


@dataclass
class Report:
    """What a run did; `failures` maps each failing input to what happened."""

    target: str
    executions: int = 0
    accepted: int = 0
    shapes: set[str] = field(default_factory=set)
    failures: dict[bytes, str] = field(default_factory=dict)
    slowest: float = 0.0


def fuzz(target: Target, seed: str, *, seconds: float | None = None, executions: int | None = None) -> Report:
    """Run one target on its seeds and then on mutants, until the time or the number of executions is used up."""
    dice = random.Random(f"{seed}/{target.name}")
    report = Report(target.name)
    corpus = list(target.seeds())
    end = None if seconds is None else time.monotonic() + seconds
    failed_shapes: set[str] = set()
    for data in _inputs(target, corpus, dice):
        if (end is not None and time.monotonic() >= end) or report.executions == executions:
            break
        start = time.monotonic()
        shape, failure = run_one(target, data)
        report.slowest = max(report.slowest, time.monotonic() - start)
        report.executions += 1
        report.accepted += shape == "" and not failure
        if failure:
            if shape not in failed_shapes:
                report.failures[data] = failure
            failed_shapes.add(shape)
        elif shape not in report.shapes or (not shape and dice.random() < 10 / report.accepted):
            report.shapes.add(shape)
            corpus.append(data)
    return report


def run_one(target: Target, data: bytes) -> tuple[str, str]:
    """Read one input; return the shape of the answer and, for a failure, what happened."""
    try:
        with _deadline():
            return target.read(data), ""
    except target.allowed as error:
        document = error.to_document()
        wrong = complaint(document)
        return (f"complaint {document.code}" if wrong else shape_of(document)), wrong
    except Exception as error:  # noqa: BLE001 - any other exception is what a fuzzer looks for
        return (
            f"{type(error).__name__} {_where(error)}",
            f"{type(error).__name__}: {str(error)[:300]} at {_where(error)}",
        )


def shape_of(document: ErrorDocument) -> str:
    """Return what tells one refusal from another: its code and its sentence up to the input's own words and numbers."""
    return f"{document.code} {_QUOTED.split(document.message, maxsplit=1)[0]}"


def complaint(document: ErrorDocument) -> str:
    """Return what is wrong with a refusal, or "": every one has a documented code and one short printable sentence."""
    if document.code not in documented_codes():
        return f"the code {document.code} is not documented"
    text = f"{document.message} {document.hint} {document.location}"
    if len(text) > 4000 or not text.isprintable():
        return f"the refusal is not one short printable sentence: {text[:300]!r}"
    return ""


@cache
def documented_codes() -> frozenset[str]:
    """Return every code that `cacheon explain` knows."""
    return frozenset(code for path in _CODES.glob("*.toml") for code in tomli.loads(path.read_text("utf-8")))


def digest(data: bytes) -> str:
    """Return a short name for an input."""
    return hashlib.sha256(data).hexdigest()[:16]


def _where(error: Exception) -> str:
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return f"{Path(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno}" if trace else "?"


@contextmanager
def _deadline() -> Iterator[None]:
    def expire(number: int, frame: FrameType | None) -> None:
        raise UnfinishedError(f"still reading after {SECONDS_PER_INPUT} s")

    before = signal.signal(signal.SIGALRM, expire)
    signal.alarm(SECONDS_PER_INPUT)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def _inputs(target: Target, corpus: list[bytes], dice: random.Random) -> Iterator[bytes]:
    yield from list(corpus)
    while True:
        data = dice.choice(corpus)
        for _ in range(dice.choice((1, 1, 1, 2, 3, 5, 9))):
            data = _mutate(data, corpus, target.words, dice)
        yield data[:_MAX_BYTES]


def _mutate(data: bytes, corpus: list[bytes], words: tuple[bytes, ...], dice: random.Random) -> bytes:
    raw = bytearray(data)
    at = dice.randrange(len(raw) + 1)
    size = min(dice.choice((1, 1, 2, 4, 8, 64, 512)), len(raw) - at)
    match dice.randrange(12):
        case 0 if raw:
            raw[at % len(raw)] ^= 1 << dice.randrange(8)
        case 1 if raw:
            raw[at % len(raw)] = dice.choice(_INTERESTING)
        case 2:
            del raw[at : at + size]
        case 3:
            raw[at:at] = raw[at : at + size] * dice.choice((1, 2, 3, 100))
        case 4:
            other = dice.choice(corpus)
            start = dice.randrange(len(other) + 1)
            raw[at:] = other[start:]
        case 5:
            other = dice.choice(corpus)
            start = dice.randrange(len(other) + 1)
            raw[at : at + size] = other[start : start + dice.choice((4, 16, 64, 512))]
        case 6 | 7 if words:
            raw[at : at + dice.choice((0, 0, size))] = dice.choice(words)
        case 8:
            found = list(_NUMBER.finditer(raw))
            if found:
                match = dice.choice(found)
                raw[match.start() : match.end()] = dice.choice(_NUMBERS)
        case 9:
            del raw[at:]
        case 10:
            line = dice.choice(dice.choice(corpus).split(b"\n"))
            start = raw.rfind(b"\n", 0, at) + 1
            end = raw.find(b"\n", at) if dice.random() < 0.5 else start - 1
            raw[start : max(end, start - 1) + 1] = line + b"\n"
        case _:
            raw[at:at] = bytes(dice.choices(range(256), k=dice.choice((1, 2, 4, 32))))
    return bytes(raw)
