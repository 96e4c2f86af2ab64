"""Proves at a fraction of the cost of reading it that a JSON text is one that `config.canonical.read_json` accepts.

Invariants
1. Yes means that the strict reader would accept the text. No means nothing: the strict reader decides.
2. A text with two equal strings, with an escape or a character beyond ASCII is left to the strict reader, so that no
   key is repeated and every quotation mark begins or ends a string.
3. A text with a float, a long number or deep nesting is left to it, too.
"""

from __future__ import annotations

import msgspec

_BRACKETS = bytes(byte for byte in range(256) if byte not in b"[]{}")
_DEPTH = 32  # levels of nesting
_DIGITS = bytes(ord("0") if byte in b"0123456789" else byte for byte in range(256))
_LONG_NUMBER = b"0" * 1000  # readers differ in how long an integer may be


class _AnyObject(msgspec.Struct):
    """An object of which every member is passed over: its grammar is checked, and nothing is made of it."""


_GRAMMAR = msgspec.json.Decoder(_AnyObject)


def is_plain_json(data: bytes) -> bool:
    """Say whether `data` certainly is a strict JSON object without floats and repeated keys, moderately nested."""
    if not data.isascii() or b"\\" in data:
        return False
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
    except (msgspec.MsgspecError, RecursionError):
        return False
    return True


def _is_shallow(code: bytes) -> bool:
    brackets = code.translate(None, _BRACKETS)
    for _ in range(_DEPTH):
        if not brackets:
            return True
        brackets = brackets.replace(b"[]", b"").replace(b"{}", b"")
    return not brackets
