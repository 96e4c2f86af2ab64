"""What a CUDA file says, apart from how it is laid out, as one digest.

Invariants
1. Two files have one digest exactly when their tokens and literals are equal: comments, blanks, line ends and joined
   lines do not count. An include of a file of the bundle counts as such, whatever the file is called.
2. Time is linear in the size of the file, and only a window of it is in pieces at a time.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterator

from intake.cuda_text import CudaText

_WINDOW = 16 * 1024  # characters laid out anew at a time: they stay in the processor's cache
_BLANKS = "".join(filter(str.isspace, map(chr, range(256))))
_WORD = re.compile(rf"[0-9A-Za-z_$\x80-\xff](?<![{_BLANKS}])")
_LONG_BLANK = " " * 16
# Each maps a byte to what stands for it in one of three texts, which are worked on as one large number each.
_IN_BLANKS = bytes(0xFF if chr(code) in _BLANKS else 0 for code in range(256))
_IN_WORDS = bytes(1 if _WORD.match(chr(code)) else 0 for code in range(256))
_SPACED = bytes(ord(" ") if chr(code) in _BLANKS else code for code in range(256))
_LOCAL_INCLUDE = '"include local"'
_BEFORE_INCLUDE = re.compile(r"#\s*include\s*\Z")
_REACH = 64  # characters before an included name in which `# include` stands


def token_digest(text: CudaText, includes: Collection[str]) -> str:
    """Return the digest of a file; `includes` are the paths of the bundle's files that it includes."""
    code, literals = _without_names(text, {path.rpartition("/")[2] for path in includes})
    digest = hashlib.sha256()
    for piece in _canonical(code):
        digest.update(piece)
    # Blanks count inside literals, which stand in the code without them.
    digest.update("\x1f".join(["", *literals]).encode("latin-1"))
    return digest.hexdigest()


def _without_names(text: CudaText, names: Collection[str]) -> tuple[str, list[str]]:
    """Return the code and its literals with one name for every included file of the bundle."""
    pieces: list[str] = []
    literals: list[str] = []
    end = 0
    for item in text.strings:
        if item.text.rpartition("/")[2] in names and _includes(text.code, item.start):
            pieces += (text.code[end : item.start], _LOCAL_INCLUDE)
            literals.append(_LOCAL_INCLUDE)
            end = item.end
        else:
            literals.append(item.text)
    return "".join([*pieces, text.code[end:]]) if pieces else text.code, literals


def _includes(code: str, start: int) -> bool:
    return _BEFORE_INCLUDE.search(code[max(0, start - _REACH) : start]) is not None


def _canonical(code: str) -> Iterator[bytes]:
    """Yield the text without blanks, but for a mark where they stand between two words."""
    before = ""  # the last character that was yielded, and a blank if blanks follow it
    for start in range(0, len(code), _WINDOW):
        window = (before + code[start : start + _WINDOW]).replace(_LONG_BLANK, " ")
        written = _without_blanks(window.encode("latin-1"))
        yield written[len(before.rstrip()) :]
        before = written[-1:].decode("latin-1") + (" " if window[-1].isspace() else "")


def _without_blanks(text: bytes) -> bytes:
    r"""Return a text without blanks, but for \x1f, which is no part of any token, where they part two words."""
    blanks = int.from_bytes(text.translate(_IN_BLANKS), "little")
    words = int.from_bytes(text.translate(_IN_WORDS), "little")
    # One, added to the first byte of blanks after a word, is carried through them to the byte that follows.
    parted = (blanks + (words << 8 & blanks)) & words
    marked = int.from_bytes(text.translate(_SPACED), "little") - (parted >> 8)  # a space less one is the mark
    return marked.to_bytes(len(text), "little").translate(None, b" ")
