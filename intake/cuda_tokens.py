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

_WINDOW = 64 * 1024  # characters laid out anew at a time
_WORD = r"0-9A-Za-z_$\x80-\xff"
_NEEDED = re.compile(rf" (?=[{_WORD}])(?<=[{_WORD}] )")  # between two words; all other blanks separate nothing
_BLANK = re.compile(r"\s")
_WORD_END = re.compile(rf"[{_WORD}]")
_LOCAL_INCLUDE = '"include local"'
_BEFORE_INCLUDE = re.compile(r"#\s*include\s*\Z")
_REACH = 64  # characters before an included name in which `# include` stands


def token_digest(text: CudaText, includes: Collection[str]) -> str:
    """Return the digest of a file; `includes` are the paths of the bundle's files that it includes."""
    code, literals = _without_names(text, {path.rpartition("/")[2] for path in includes})
    digest = hashlib.sha256()
    for piece in _canonical(code):
        digest.update(piece.encode("latin-1"))
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


def _canonical(code: str) -> Iterator[str]:
    """Yield the text without blanks, but for a mark where they stand between two words."""
    start = 0
    last = ""
    while start < len(code):
        cut = _BLANK.search(code, start + _WINDOW)
        end = cut.start() if cut else len(code)
        piece = "\x1f".join(_NEEDED.split(" ".join(code[start:end].split()))).replace(" ", "")
        if piece:
            if last and _WORD_END.match(last) and _WORD_END.match(piece):
                yield "\x1f"
            yield piece
            last = piece[-1]
        start = end
