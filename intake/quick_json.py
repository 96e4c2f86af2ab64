"""Proves at a fraction of the cost of reading it that a JSON text is one that `config.canonical.read_json` accepts.

Invariants
1. Yes means that the strict reader would accept the text. No means nothing: the strict reader decides.
2. A text with an escape or a character beyond ASCII is left to the strict reader, so that every quotation mark begins
   or ends a string. No key is repeated if there are two marks for every string that was read; of a large text nothing
   is made, because that could take much memory, and it must not hold two equal strings at all.
3. A text with a float, a long number or deep nesting is left to it, too.
4. Tables of numbers, and of rows of numbers, are most of what large bundles hold. They are read by a type that has no
   floats, so that nothing is left to be asked about their values.
"""

from __future__ import annotations

from itertools import chain
from typing import Any

import msgspec

_SMALL = 128 * 1024  # bytes of a text that is read into objects
_BRACKETS = bytes(byte for byte in range(256) if byte not in b"[]{}")
_DEPTH = 32  # levels of nesting
_DIGITS = bytes(ord("0") if byte in b"0123456789" else byte for byte in range(256))
_LONG_NUMBER = b"0" * 1000  # readers differ in how long an integer may be


class _AnyObject(msgspec.Struct):
    """An object of which every member is passed over: its grammar is checked, and nothing is made of it."""


_GRAMMAR = msgspec.json.Decoder(_AnyObject)
_OBJECT = msgspec.json.Decoder(dict[str, Any])
_Plain = bool | int | str | None
_Row = dict[str, _Plain | list[_Plain]]
_TABLE = msgspec.json.Decoder(dict[str, _Plain | list[_Plain] | _Row])
_FAULTS = (msgspec.MsgspecError, RecursionError, ValueError)  # the last of a number too long for Python


def is_plain_json(data: bytes) -> bool:
    """Say whether `data` certainly is a strict JSON object without floats and repeated keys, moderately nested."""
    if not data.isascii() or b"\\" in data:
        return False
    return _is_plain_when_read(data) if len(data) <= _SMALL else _is_plain_by_its_strings(data)


def _is_plain_when_read(data: bytes) -> bool:
    marks = data.count(b'"')
    try:
        table = _TABLE.decode(data)
        rows = [value for value in table.values() if value.__class__ is dict]
        if marks == 2 * (len(table) + sum(map(len, rows))):
            return True  # every string is a key, and every key was kept
        objects: list[dict[str, Any]] = [table]
    except msgspec.ValidationError:
        try:
            objects = [_OBJECT.decode(data)]
        except _FAULTS:
            return False
    except _FAULTS:
        return False
    return _is_plain_object(objects, marks)


def _is_plain_object(objects: list[dict[str, Any]], marks: int) -> bool:
    """Say whether an object holds no float, and as many strings as its text has pairs of `marks`."""
    arrays: list[list[Any]] = []
    strings = 0
    for _ in range(_DEPTH):  # a level at a time, in few steps
        strings += sum(map(len, objects))
        values = [*chain.from_iterable(map(dict.values, objects)), *chain.from_iterable(arrays)]
        kinds = [*map(type, values)]
        found = set(kinds)
        if float in found:
            return False
        if str in found:
            strings += kinds.count(str)
        objects = [value for value in values if value.__class__ is dict] if dict in found else []
        arrays = [value for value in values if value.__class__ is list] if list in found else []
        if not objects and not arrays:
            return marks == 2 * strings  # of a repeated key only one value was kept
    return False


def _is_plain_by_its_strings(data: bytes) -> bool:
    pieces = data.split(b'"')
    strings = pieces[1::2]
    if len(set(strings)) != len(strings):
        return False
    code = b"".join(pieces[0::2])
    if b"." in code or b"E" in code or code.count(b"e") != code.count(b"true") + code.count(b"false"):
        return False
    if not _is_shallow(code) or _LONG_NUMBER in code.translate(_DIGITS):
        return False
    try:
        _GRAMMAR.decode(data)
    except _FAULTS:
        return False
    return True


def _is_shallow(code: bytes) -> bool:
    brackets = code.translate(None, _BRACKETS)
    for _ in range(_DEPTH):
        if not brackets:
            return True
        brackets = brackets.replace(b"[]", b"").replace(b"{}", b"")
    return not brackets
