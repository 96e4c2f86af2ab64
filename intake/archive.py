"""Hostile tar.gz bytes -> an in-memory file table. Nothing is written anywhere.

Invariants
1. One gzip member, one tar archive, two zero blocks, then a bounded padding of zeros, inside the member or after it;
   anything else is refused, as is any header that two readers could understand differently. One reading exists or none.
2. Only regular files and folders. Links, devices, pipes, sparse and multi-volume members are refused.
3. Only *produced* bytes count. Each limit is checked before the bytes it bounds are kept: members, headers, extension
   headers, bytes per file, bytes in all, scanned bytes per file and in all.
4. Work is linear in the bytes read and produced: every step consumes input or a block, so no archive can make the
   reader loop.
5. More than `eager_bytes` of contents are kept only after the whole archive was read once and found in order, so what a
   refused archive can occupy is small and does not depend on its size.
6. Names follow `intake.names`; names outside the content hash are refused, so no unhashed byte comes along.
7. A single top-level folder is the wrapper and is removed, exactly once. Modes, owners and times are ignored.
"""

from __future__ import annotations

from config.errors import IntakeError
from config.limits import INTAKE, IntakeLimits
from intake.inflate import BlockReader, inflate
from intake.names import check_no_collisions, check_not_excluded, check_path, suffix_of
from intake.refusal import clip
from intake.tar_header import BLOCK, Extension, Member, parse_extension, parse_header

SCANNED_SUFFIXES = frozenset({".py", ".cu", ".cuh", ".patch", ".diff", ".toml", ".json"})
_GZIP = b"\x1f\x8b\x08"
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
    table = _read(archive, limits, keep_bytes=limits.eager_bytes)
    if not table.is_kept:
        table = _read(archive, limits, keep_bytes=limits.extracted_bytes)
    return table.bundle()


def _read(archive: bytes | memoryview, limits: IntakeLimits, *, keep_bytes: int) -> _Table:
    """Read and check the whole archive, keeping its contents if they have no more than `keep_bytes`."""
    table = _Table(limits, keep_bytes)
    _TarReader(BlockReader(inflate(archive, limits), limits), table, limits).run()
    table.check()
    return table


class _TarReader:
    """Reads headers in order and files their members."""

    def __init__(self, blocks: BlockReader, table: _Table, limits: IntakeLimits) -> None:
        self._blocks = blocks
        self._table = table
        self._limits = limits
        self._headers = 0
        self._extension_run = 0  # how many extension headers stand in a row
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
            header = parse_header(block, name_override)
            if isinstance(header, Extension):
                name = parse_extension(header, self._extension(header))
                if name is not None:
                    if name_override is not None:
                        raise _malformed("two extension headers name one member")
                    name_override = name
                continue
            self._member(header)
            name_override, self._extension_run = None, 0
        if name_override is not None:
            raise _malformed("an extension header has no member")
        if self._blocks.take(BLOCK) != _ZERO:
            raise _malformed("only one zero block ends the archive")
        if not self._blocks.rest_is_padding():
            raise IntakeError(
                "ARCHIVE_TRAILING_DATA",
                "bytes follow the end of the tar archive.",
                hint="The archive must hold one tar archive and nothing else.",
            )

    def _extension(self, header: Extension) -> bytes:
        self._extension_run += 1
        if self._extension_run > self._limits.extension_run:
            many = self._limits.extension_run
            raise IntakeError("BUNDLE_TOO_LARGE", f"the archive has more than {many} extension headers in a row.")
        self._extension_bytes += header.size
        if (
            header.size > self._limits.extension_header_bytes
            or self._extension_bytes > self._limits.extension_total_bytes
        ):
            raise IntakeError("BUNDLE_TOO_LARGE", "the archive's extension headers are too large.")
        return self._content(header.size)

    def _member(self, member: Member) -> None:
        if member.is_folder:
            self._table.add_folder(member.name.removesuffix("/"))
            return
        if self._table.admit_file(member.name, member.size):
            self._table.add_file(member.name, self._content(member.size))
        else:
            self._blocks.skip(member.size + -member.size % BLOCK)

    def _content(self, size: int) -> bytes:
        padding = -size % BLOCK
        if size < BLOCK:
            return self._blocks.take(size + padding)[:size]
        content = self._blocks.take(size)
        self._blocks.take(padding)
        return content


class _Table:
    """The members so far, with their budgets."""

    def __init__(self, limits: IntakeLimits, keep_bytes: int) -> None:
        self._limits = limits
        self._keep_bytes = keep_bytes
        self.is_kept = True
        self._files: dict[str, bytes] = {}  # without contents once these are too large to keep
        self._folders: set[str] = set()
        self._bytes = 0
        self._scanned_bytes = 0

    def add_folder(self, path: str) -> None:
        self._claim(path)
        self._folders.add(path)

    def admit_file(self, path: str, size: int) -> bool:
        """Check names and budgets before a single byte of the content is kept; say whether to keep it."""
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
        if self.is_kept and self._bytes > self._keep_bytes:
            self.is_kept = False
            self._files = dict.fromkeys(self._files, b"")
        if not self.is_kept:
            self._files[path] = b""
        return self.is_kept

    def add_file(self, path: str, content: bytes) -> None:
        self._files[path] = content

    def _claim(self, path: str) -> None:
        if path == "." or path.startswith("./"):
            raise IntakeError(
                "NAME_INVALID",
                f"the member {clip(path)} is named from the current folder, not by a plain relative path.",
                hint="Name the folder instead: tar -czf bundle.tar.gz FOLDER, run beside FOLDER.",
            )
        check_path(path, self._limits)
        check_not_excluded(path)
        if path in self._files or path in self._folders:
            raise IntakeError("ARCHIVE_DUPLICATE", f"the archive holds {clip(path)} twice.")
        if len(self._files) + len(self._folders) >= self._limits.members:
            raise IntakeError("BUNDLE_TOO_LARGE", f"the archive has more than {self._limits.members} members.")

    def check(self) -> None:
        """Make the checks that need the whole archive."""
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

    def bundle(self) -> dict[str, bytes]:
        """Return the files without their wrapper."""
        top = {path.partition("/")[0] for path in self._files}
        if len(top) == 1 and (wrapper := top.pop()) not in self._files:
            return {path[len(wrapper) + 1 :]: content for path, content in self._files.items()}
        return self._files


def _malformed(complaint: str) -> IntakeError:
    return IntakeError(
        "ARCHIVE_MALFORMED",
        f"the tar archive is malformed: {complaint}.",
        hint="Package it with `cacheon chain-package`.",
    )
