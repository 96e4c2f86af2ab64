"""Hostile tar.gz bytes -> an in-memory file table. Nothing is written anywhere.

Invariants
1. One gzip member, one tar archive, two zero blocks, then zeros only; anything after that is refused, as is any header
   that two readers could understand differently. One reading exists or none.
2. Only regular files and folders. Links, devices, pipes, sparse and multi-volume members are refused.
3. Only *produced* bytes count. Each limit is checked before the bytes it bounds are kept: members, headers, extension
   headers, bytes per file, bytes in all, scanned bytes per file and in all.
4. Work is linear in the bytes read: every step consumes at least one block, so no archive can make the reader loop.
5. Names follow `intake.names`; names outside the content hash are refused, so no unhashed byte comes along.
6. A single top-level folder is the wrapper and is removed, exactly once. Modes, owners and times are ignored.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator

from config.errors import IntakeError
from config.limits import INTAKE, IntakeLimits
from intake.names import check_no_collisions, check_not_excluded, check_path, suffix_of
from intake.refusal import clip
from intake.tar_header import BLOCK, Extension, Member, parse_extension, parse_header

SCANNED_SUFFIXES = frozenset({".py", ".cu", ".cuh", ".patch", ".diff", ".toml", ".json"})
_GZIP = b"\x1f\x8b\x08"
_STEP = 256 * 1024  # bytes produced per decompression step
_ZERO = bytes(BLOCK)


def unpack(archive: bytes | memoryview, *, limits: IntakeLimits = INTAKE) -> dict[str, bytes]:
    """Return the file table (path -> content) of a bundle archive, wrapper folder removed.

    Raises `IntakeError`: ARCHIVE_TOO_LARGE, ARCHIVE_NOT_GZIP, ARCHIVE_TRUNCATED, ARCHIVE_MALFORMED, ARCHIVE_EXTENSION,
    ARCHIVE_TRAILING_DATA, ARCHIVE_MEMBER_KIND, ARCHIVE_DUPLICATE, ARCHIVE_EMPTY_FOLDER, BUNDLE_EMPTY, BUNDLE_TOO_LARGE,
    NAME_*.
    """
    if len(archive) > limits.archive_bytes:
        raise IntakeError("ARCHIVE_TOO_LARGE", f"the archive is larger than {limits.archive_bytes} bytes.")
    if bytes(archive[:3]) != _GZIP:
        raise IntakeError(
            "ARCHIVE_NOT_GZIP", "the archive is not a gzip file.", hint="Host the .tar.gz that chain-package wrote."
        )
    table = _Table(limits)
    reader = _TarReader(_Blocks(_inflate(archive, limits)), table, limits)
    reader.run()
    return table.finish()


def _inflate(archive: bytes | memoryview, limits: IntakeLimits) -> Iterator[bytes]:
    """Yield the decompressed stream in bounded steps; refuses a second member, trailing bytes and bad checksums."""
    overhead = limits.headers * BLOCK + limits.members * BLOCK + limits.extension_total_bytes
    budget = limits.extracted_bytes + overhead + 40 * BLOCK
    inflater = zlib.decompressobj(wbits=31)
    feed: bytes | memoryview = archive
    try:
        while not inflater.eof:
            produced = inflater.decompress(feed, _STEP)
            feed = inflater.unconsumed_tail
            budget -= len(produced)
            if budget < 0:
                raise IntakeError("BUNDLE_TOO_LARGE", "the archive unpacks to more bytes than a bundle may have.")
            if produced:
                yield produced
            elif not feed and not inflater.eof:
                raise IntakeError("ARCHIVE_TRUNCATED", "the gzip stream ends early.", hint="Upload the archive again.")
    except zlib.error as error:
        raise IntakeError(
            "ARCHIVE_MALFORMED", f"the gzip stream is damaged: {error}.", hint="Upload the archive again."
        ) from error
    if inflater.unused_data:
        raise IntakeError(
            "ARCHIVE_TRAILING_DATA",
            "bytes follow the end of the gzip stream.",
            hint="The archive must be one gzip member and nothing else.",
        )


class _Blocks:
    """A byte stream cut into tar blocks."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks
        self._buffer = bytearray()
        self._start = 0

    def take(self, size: int) -> bytes:
        """Return the next `size` bytes. Raises `IntakeError` (ARCHIVE_TRUNCATED)."""
        while len(self._buffer) - self._start < size:
            chunk = next(self._chunks, None)
            if chunk is None:
                raise IntakeError("ARCHIVE_TRUNCATED", "the tar archive ends early.", hint="Upload it again.")
            if self._start:
                del self._buffer[: self._start]
                self._start = 0
            self._buffer += chunk
        end = self._start + size
        taken = bytes(memoryview(self._buffer)[self._start : end])
        self._start = end
        return taken

    def rest_is_zero(self) -> bool:
        """Consume everything that is left; say whether it is all zero."""
        clean = not any(memoryview(self._buffer)[self._start :])
        self._buffer.clear()
        self._start = 0
        for chunk in self._chunks:
            clean = clean and chunk.count(0) == len(chunk)
        return clean


class _TarReader:
    """Reads headers in order and files their members."""

    def __init__(self, blocks: _Blocks, table: _Table, limits: IntakeLimits) -> None:
        self._blocks = blocks
        self._table = table
        self._limits = limits
        self._headers = 0
        self._extension_bytes = 0

    def run(self) -> None:
        name_override: str | None = None
        while True:
            block = self._blocks.take(BLOCK)
            if block == _ZERO:
                break
            self._headers += 1
            if self._headers > self._limits.headers:
                raise IntakeError("BUNDLE_TOO_LARGE", f"the archive has more than {self._limits.headers} headers.")
            header = parse_header(block)
            if isinstance(header, Extension):
                name = parse_extension(header, self._extension(header))
                if name is not None:
                    if name_override is not None:
                        raise _malformed("two extension headers name one member")
                    name_override = name
                continue
            self._member(header, name_override)
            name_override = None
        if name_override is not None:
            raise _malformed("an extension header has no member")
        if self._blocks.take(BLOCK) != _ZERO:
            raise _malformed("only one zero block ends the archive")
        if not self._blocks.rest_is_zero():
            raise IntakeError(
                "ARCHIVE_TRAILING_DATA",
                "bytes follow the end of the tar archive.",
                hint="The archive must hold one tar archive and nothing else.",
            )

    def _extension(self, header: Extension) -> bytes:
        self._extension_bytes += header.size
        if (
            header.size > self._limits.extension_header_bytes
            or self._extension_bytes > self._limits.extension_total_bytes
        ):
            raise IntakeError("BUNDLE_TOO_LARGE", "the archive's extension headers are too large.")
        return self._content(header.size)

    def _member(self, member: Member, name_override: str | None) -> None:
        name = member.name if name_override is None else name_override
        if member.is_folder:
            self._table.add_folder(name.removesuffix("/"))
            return
        self._table.admit_file(name, member.size)
        self._table.add_file(name, self._content(member.size))

    def _content(self, size: int) -> bytes:
        content = self._blocks.take(size)
        padding = -size % BLOCK
        if padding:
            self._blocks.take(padding)
        return content


class _Table:
    """The members so far, with their budgets."""

    def __init__(self, limits: IntakeLimits) -> None:
        self._limits = limits
        self._files: dict[str, bytes] = {}
        self._folders: set[str] = set()
        self._bytes = 0
        self._scanned_bytes = 0

    def add_folder(self, path: str) -> None:
        self._claim(path)
        self._folders.add(path)

    def admit_file(self, path: str, size: int) -> None:
        """Check names and budgets before a single byte of the content is kept."""
        self._claim(path)
        self._bytes += size
        scanned = suffix_of(path) in SCANNED_SUFFIXES
        self._scanned_bytes += size if scanned else 0
        cap = self._limits.text_file_bytes if scanned else self._limits.file_bytes
        if size > cap:
            raise IntakeError("BUNDLE_TOO_LARGE", f"{clip(path)} is larger than {cap} bytes.")
        if self._bytes > self._limits.extracted_bytes or self._scanned_bytes > self._limits.text_total_bytes:
            raise IntakeError(
                "BUNDLE_TOO_LARGE",
                f"the bundle is larger than {self._limits.extracted_bytes} bytes, or its source files are larger than "
                f"{self._limits.text_total_bytes} bytes.",
            )

    def add_file(self, path: str, content: bytes) -> None:
        self._files[path] = content

    def _claim(self, path: str) -> None:
        check_path(path, self._limits)
        check_not_excluded(path)
        if path in self._files or path in self._folders:
            raise IntakeError("ARCHIVE_DUPLICATE", f"the archive holds {clip(path)} twice.")
        if len(self._files) + len(self._folders) >= self._limits.members:
            raise IntakeError("BUNDLE_TOO_LARGE", f"the archive has more than {self._limits.members} members.")

    def finish(self) -> dict[str, bytes]:
        """Return the files without their wrapper, after the checks that need the whole archive."""
        if not self._files:
            raise IntakeError("BUNDLE_EMPTY", "the archive holds no file.")
        check_no_collisions(self._files, self._folders)
        parents: set[str] = set()
        for path in self._files:
            parent = path.rpartition("/")[0]
            while parent and parent not in parents:
                parents.add(parent)
                parent = parent.rpartition("/")[0]
        hollow = self._folders - parents
        if hollow:
            raise IntakeError(
                "ARCHIVE_EMPTY_FOLDER",
                f"the folder {clip(min(hollow))} holds no file.",
                hint="Folders are outside the content hash; leave empty ones out.",
            )
        top = {path.partition("/")[0] for path in self._files}
        if len(top) == 1 and (wrapper := top.pop()) not in self._files:
            return {path[len(wrapper) + 1 :]: content for path, content in self._files.items()}
        return self._files


def _malformed(complaint: str) -> IntakeError:
    return IntakeError(
        "ARCHIVE_MALFORMED", f"the tar archive is malformed: {complaint}.", hint="Package it with chain-package."
    )
