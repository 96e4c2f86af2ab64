"""What kinds of file a bundle may hold, by exact name and by content.

Invariants
1. Every file has a kind from the closed table below or is refused; suffixes are compared case-sensitively.
2. Every file is text: UTF-8 without NUL or control characters. Compiled, archived or pickled bytes are not text, so a
   benign name cannot carry them.
3. Executable material is declared: CUDA files by a row, dependency patches by the manifest, Python files by being
   reachable from an entry (empty files and `__init__.py` markers aside).
4. No credentials and no absolute machine paths in sources and data.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum

from config.canonical import CanonicalJsonError, read_json, sorted_paths
from config.errors import IntakeError, SourceLocation
from config.limits import INTAKE, IntakeLimits
from intake.json_lines import fault_line
from intake.manifest import Manifest
from intake.manifest_fields import MANIFEST
from intake.names import check_no_collisions, check_not_excluded, check_path, suffix_of
from intake.quick_json import is_plain_json
from intake.refusal import Findings, clip
from intake.suggest import words

REBUILD = "rebuild.json"


class Kind(StrEnum):
    """What a file is for."""

    MANIFEST = "manifest"
    REBUILD = "rebuild"
    PYTHON = "python"
    CUDA = "cuda"
    PATCH = "patch"
    METADATA = "metadata"
    DOCUMENT = "document"


_DECLARED = {Kind.CUDA: "cuda_sources of the row that needs it", Kind.PATCH: "a [[dep_patches]] row"}
_DOCUMENT = re.compile(r"(?:README|LICENSE)(?:[-_][A-Za-z0-9]+)*(?:\.(?:md|txt|rst))?")
_INERT_NAMES = frozenset({MANIFEST, REBUILD, ".gitignore"})  # inert text when not at the root
_BINARY_SUFFIXES = words(
    ".so .o .a .dylib .dll .bin .exe .pyd .cubin .fatbin .ptx .whl .egg .zip .gz .tgz .tar .xz .bz2 .zst .pt "
    ".pth .ckpt .safetensors .npy .npz .pkl .onnx .gguf .h5"
)
_CONTROL_BYTES = bytes(byte for byte in (*range(32), 127) if byte not in b"\t\n\f\r")
_DELETE = b"\x7f"  # the one control character that strict JSON in ASCII may hold
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0e-\x1f\x7f\x80-\x9f]")
_BIDIRECTIONAL = re.compile("[\u202a-\u202e\u2066-\u2069]")
_MAGICS = {
    b"\x7fELF": "an ELF object",
    b"PK\x03\x04": "a zip archive",
    b"\x1f\x8b": "a gzip file",
    b"!<arch>": "a static library",
    b"\x80\x04": "a pickle",
    b"BZh": "a bzip2 file",
    b"\xfd7zXZ": "an xz file",
}
_CREDENTIALS = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----|\bAKIA[0-9A-Z]{16}\b|\bgh[pousr]_[0-9A-Za-z]{36}\b|\bhf_[0-9A-Za-z]{34}\b"
    r"|\bgithub_pat_[0-9A-Za-z_]{60,}|\bsk-(?:[a-z]+-)?[0-9A-Za-z_-]{40,}|\bxox[abeoprs]-[0-9A-Za-z-]{20,}"
    r"|\bAIza[0-9A-Za-z_-]{35}\b"
    r"""|["']secret(?:Seed|Phrase)["']\s*:\s*["'][^"']"""  # the key file of a wallet
)
_MACHINE_PATHS = re.compile(r"(?<![\w./])(?:/home/[\w.-]+/|/root/|/Users/[\w.-]+/)|\b[A-Z]:\\{1,2}Users\\")
# Plain searches that come before the expressions above; almost no file holds one of these. Each is asked for only where
# all its letters are, which costs next to nothing; where one is found, one of those that stand with it has to be there.
_Marks = dict[str, tuple[str, ...]]
_CREDENTIAL_MARKS: _Marks = {
    **dict.fromkeys(
        ("PRIVATE KEY", "AKIA", "AIza", "hf_", "github_pat_", "sk-", "xox", "secretSeed", "secretPhrase"), ()
    ),
    "gh": ("ghp_", "gho_", "ghu_", "ghs_", "ghr_"),
}
_MACHINE_MARKS: _Marks = dict.fromkeys(("/home/", "/root/", "/Users/", "Users\\"), ())
# Letters that are rare in code come first.
_LETTERS = {mark: sorted(set(mark), key=str.islower) for mark in (*_CREDENTIAL_MARKS, *_MACHINE_MARKS)}
_HINT_KIND = "A bundle holds sources, metadata/*.json, README and LICENSE texts; leave everything else out."


def kind_of(path: str) -> Kind | None:
    """Return the kind of the file at `path`, or None when a bundle may not hold it."""
    if path == MANIFEST:
        return Kind.MANIFEST
    if path == REBUILD:
        return Kind.REBUILD
    *folders, leaf = path.split("/")
    suffix = suffix_of(path)
    if suffix == ".py":
        return Kind.PYTHON
    if suffix in (".cu", ".cuh"):
        return Kind.CUDA
    if suffix in (".patch", ".diff"):
        return Kind.PATCH
    if suffix == ".json" and "metadata" in folders:
        return Kind.METADATA
    if leaf in _INERT_NAMES or _DOCUMENT.fullmatch(leaf):
        return Kind.DOCUMENT
    return None


def check_names(files: Mapping[str, bytes], findings: Findings, limits: IntakeLimits = INTAKE) -> None:
    """Apply the name rule to a whole file table."""
    for path in sorted_paths(files):
        findings.attempt(lambda path=path: check_path(path, limits))  # type: ignore[misc]
        findings.attempt(lambda path=path: check_not_excluded(path))  # type: ignore[misc]
    findings.attempt(lambda: check_no_collisions(files))


def check_tree(
    files: Mapping[str, bytes], manifest: Manifest | None, findings: Findings, limits: IntakeLimits = INTAKE
) -> None:
    """Check kind, content and declaration of every file but Python syntax, which `intake.static_scan` reads."""
    ops = manifest.ops if manifest else ()
    declared = {path for op in ops for path in op.cuda_sources}
    declared |= {row.path for row in manifest.dep_patches} if manifest else set()
    routed = {op.metadata for op in ops}  # read by intake.domain, which says more
    total = 0
    for path in sorted_paths(files):
        kind = kind_of(path)
        data = files[path]
        if kind is None:
            _refuse_kind(path, data, findings)
            continue
        total += 0 if kind is Kind.DOCUMENT else len(data)
        if len(data) > limits.text_file_bytes or total > limits.text_total_bytes:
            findings.add(
                "BUNDLE_TOO_LARGE",
                f"text files are limited to {limits.text_file_bytes} bytes each and {limits.text_total_bytes} in all.",
                path=path,
            )
            return
        # A manifest that cannot be read declares nothing, which is its fault and no other file's.
        if manifest is not None and kind in _DECLARED and path not in declared:
            hint = f"Name it in {_DECLARED[kind]}, or leave it out."
            findings.add("TREE_UNDECLARED", f"{clip(path)} is not declared in the manifest.", hint=hint, path=path)
        raw = bytes(data)
        # Only rows say what may hold floats.
        is_strict = kind is Kind.METADATA and manifest is not None and path not in routed
        is_plain = is_strict and is_plain_json(raw)
        text = raw.decode("ascii") if is_plain and _DELETE not in raw else _check_text(path, raw, findings)
        if text is not None:
            _check_content(path, kind, text, findings)
            if is_strict and not is_plain:
                findings.attempt(lambda path=path, raw=raw: _check_json(path, raw))  # type: ignore[misc]


def check_reachable(files: Mapping[str, bytes], closure: list[str], findings: Findings) -> None:
    """Refuse Python that no entry reaches; empty files are only markers."""
    reached = set(closure)
    for path in sorted_paths(files):
        if kind_of(path) is Kind.PYTHON and path not in reached and bytes(files[path]).strip():
            hint = "Import it from an entry source, or leave it out."
            findings.add("TREE_UNDECLARED", f"no entry reaches {clip(path)}.", hint=hint, path=path)


def _refuse_kind(path: str, data: bytes, findings: Findings) -> None:
    magic = _magic(data)
    if magic or suffix_of(path).lower() in _BINARY_SUFFIXES:
        what = magic or "a compiled, archived or binary file"
        hint = "Bundles are source only: everything executable is built from sources by the validator."
        findings.add("TREE_BINARY", f"{clip(path)} is {what}.", hint=hint, path=path)
    else:
        findings.add("TREE_FILE_KIND", f"a bundle may not hold {clip(path)}.", hint=_HINT_KIND, path=path)


def _check_text(path: str, raw: bytes, findings: Findings) -> str | None:
    magic = _magic(raw)
    if magic:
        findings.add("TREE_BINARY", f"{clip(path)} is {magic} under a text name.", path=path)
        return None
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        findings.add("TREE_NOT_TEXT", f"{clip(path)} is not UTF-8 text.", path=path, line=line)
        return None
    if text.isascii() and len(raw.translate(None, _CONTROL_BYTES)) == len(raw):
        return text
    control = _CONTROL.search(text)
    if control:
        message = f"{clip(path)} holds the control character U+{ord(control.group()):04X}."
        findings.add("TREE_NOT_TEXT", message, path=path, line=_line(text, control.start()))
        return None
    return text


def _check_content(path: str, kind: Kind, text: str, findings: Findings) -> None:
    secret = _search(_CREDENTIALS, _CREDENTIAL_MARKS, text)
    if secret:
        hint = "Remove it, and revoke it: a bundle is public."
        findings.add(
            "TREE_CREDENTIAL", "the file holds a credential.", hint=hint, path=path, line=_line(text, secret.start())
        )
    if kind is Kind.DOCUMENT:
        return
    hidden = None if text.isascii() else _BIDIRECTIONAL.search(text)
    if hidden:
        message = "the file holds a character that changes the reading direction."
        findings.add("TREE_NOT_TEXT", message, path=path, line=_line(text, hidden.start()))
    machine = _search(_MACHINE_PATHS, _MACHINE_MARKS, text)
    if machine:
        message = f"the file names the machine path {clip(machine.group())}."
        hint = "A bundle runs on other machines; use paths relative to the bundle, or none."
        findings.add("TREE_MACHINE_PATH", message, hint=hint, path=path, line=_line(text, machine.start()))


def _search(pattern: re.Pattern[str], marks: _Marks, text: str) -> re.Match[str] | None:
    for mark, candidates in marks.items():
        for letter in _LETTERS[mark]:
            if letter not in text:
                break
        else:
            if mark in text and (not candidates or any(candidate in text for candidate in candidates)):
                return pattern.search(text)
    return None


def _check_json(path: str, raw: bytes) -> None:
    try:
        read_json(raw)
    except CanonicalJsonError as error:
        raise IntakeError(
            "METADATA_MALFORMED",
            f"the file cannot be read: {error.message[:160]}.",
            hint="Write strict JSON; numbers are integers, or text.",
            location=SourceLocation(path, fault_line(raw, error)),
        ) from error


def _magic(data: bytes) -> str:
    head = bytes(data[:8])
    return next((what for magic, what in _MAGICS.items() if head.startswith(magic)), "")


def _line(text: str, offset: int) -> int:
    return text.count("\n", 0, offset) + 1
