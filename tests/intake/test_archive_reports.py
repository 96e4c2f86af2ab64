"""Faults that others published about archives and bundles, row by row; the letter is that of our catalogue of reports.

| row | published as | tested |
|---|---|---|
| B5 | a source is read a second time, and has changed | `test_publish.py::test_a_damaged_entry_is_refused_and_heals`, `::test_entries_are_sealed_whatever_the_umask`; `tests/qualify/test_referee.py` hashes a tree again before it runs |
| B7 | relative imports between a bundle's modules | below |
| B8 | `cutlass` is used where only `cutlass.cute` is imported | below |
| B49 | CVE-2025-8194, CVE-2019-20907: an offset that leads back | below; members and headers: `test_archive.py::test_headers_and_members_have_budgets` |
| B51 | cpython 136601, 149578: PAX sizes, sparse files, global records | below |
| B55 | cpython 83522, 132526: announced sizes, checksums | below; memory: `test_hostile_archives.py::test_a_refusal_needs_little_memory` |
| B56 | warehouse 18848, 19746: strict checks refuse common tools | `test_accepted_archives.py` |
| B57 | CVE-2021-41131: untrusted names become file names | below; `test_publish.py::test_only_digests_become_paths` |
| B59 | sigstore-python 1826: malformed input leaks another error | `tests/fuzz`; `test_archive.py::test_only_intake_errors_leave_damaged_archives` |
"""  # noqa: E501 - a table

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from config.errors import IntakeError
from intake.archive import unpack
from intake.content_hash import hash_files
from intake.dsl_jit_policy import check_package_import
from intake.file_stream import encode_stream
from intake.inflate import BlockReader
from intake.publish import publish
from intake.refusal import BundleRefused
from intake.screen import screen_archive, screen_files
from intake.syntax import parse_python
from intake.tar_header import _IGNORED_KEYS, _IGNORED_PREFIXES
from qualify.bundle_loader import BundleLoader
from tests.intake.hostile_archives import EXTENSION, EXTENSIONS, GZIP, HOSTILE, A, member, pax, record, tar
from tests.intake.support import MANIFEST, bundle


@pytest.fixture
def own_imports() -> Iterator[None]:
    """Drop what a test imported."""
    finders, modules = list(sys.meta_path), set(sys.modules)
    yield
    sys.meta_path[:] = finders
    for name in set(sys.modules) - modules:
        del sys.modules[name]


def code_of(archive: bytes) -> str:
    """Return the code of a refusal."""
    with pytest.raises(IntakeError) as caught:
        unpack(archive)
    return caught.value.code


@pytest.mark.parametrize(
    "name", ["member size negative in base 256", "extension size negative in base 256", "PAX record of length 0"]
)
def test_b49_every_step_reads_on(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """No size leads back: what is read is never more than what the archive holds, and the answer is one refusal."""
    taken: list[int] = []
    take = BlockReader.take

    def counted(reader: BlockReader, size: int) -> bytes:
        taken.append(size)
        return take(reader, size)

    monkeypatch.setattr(BlockReader, "take", counted)
    assert code_of(HOSTILE[name][0]()) == "ARCHIVE_MALFORMED"
    assert min(taken) > 0
    assert sum(taken) <= 8192


def test_b51_what_is_not_on_the_list_is_refused() -> None:
    """Records are an allow-list: facts about a file, never what or how much is read; also in global headers."""
    assert not _IGNORED_KEYS & {"size", "path", "linkpath", "hdrcharset"}
    for key in (*sorted(_IGNORED_KEYS), *(f"{prefix}user.x" for prefix in _IGNORED_PREFIXES)):
        for kind in (b"x", b"g"):
            assert unpack(tar(pax(record(key.encode(), b"1"), kind=kind), A)) == {"a": b"1"}
            assert code_of(tar(pax(record(key.upper().encode() + b".", b"1"), kind=kind), A)) == "ARCHIVE_EXTENSION"


@pytest.mark.parametrize("key", [name[len("PAX ") :] for name, row in EXTENSIONS.items() if row[1] == EXTENSION])
def test_b51_global_records_are_no_way_around(key: str) -> None:
    """A key that is refused for one member is refused for all."""
    assert code_of(tar(pax(record(key.encode(), b"1"), kind=b"g"), A)) == EXTENSION


@pytest.mark.parametrize("name", [name for name in GZIP if "announce" in name or "checksum" in name or "bomb" in name])
def test_b55_announcements_admit_nothing(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Produced bytes are counted, and reading stops at a bound whatever the trailer says."""
    produced = 0
    take = BlockReader.take

    def counted(reader: BlockReader, size: int) -> bytes:
        nonlocal produced
        produced += size
        return take(reader, size)

    monkeypatch.setattr(BlockReader, "take", counted)
    build, code = GZIP[name]
    assert code_of(build()) == code
    assert produced <= 32 << 20


def test_b57_names_of_a_store_are_digests_and_checked_paths(tmp_path: Path) -> None:
    """Nothing of an archive but its checked inner names, and nothing of a bundle's own id, becomes a file name."""
    files = bundle(**{"manifest.toml": MANIFEST.replace(b"alice-silu", b"..-id")})
    archive = tar(*(member(f"{'..' * 3}-w/{path}", content) for path, content in files.items()))
    assert screen_archive(archive, hash_files(files)).files == files
    published = publish(b"".join(encode_stream(files)), screen_files(files).report, tmp_path)
    digest = hash_files(files)
    assert published.tree == tmp_path / digest[:2] / digest / "tree"
    found = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file()}
    inside = {f"{digest[:2]}/{digest}/tree/{path}" for path in files}
    assert found == {*inside, f"{digest[:2]}/{digest}/report.json"}


IMPORTS = {
    "from . import near\nf = near.f": "kernels/k.py",
    "from .near import f": "kernels/k.py",
    "from ..top import f": "kernels/k.py",
    "from .. import top\nf = top.f": "kernels/k.py",
    "from .inner.deep import f": "kernels/k.py",
    "from kernels.near import f": "kernels/k.py",
    "from top import f": "kernels/k.py",
    "from .top import f": "k.py",
    "from ...top import f": "kernels/k.py",
    "from ..near import f": "kernels/k.py",
    "from .absent import f": "kernels/k.py",
    "from . import absent": "kernels/k.py",
    "from ..top import f  # beyond the root": "k.py",
    "import kernels.absent": "kernels/k.py",
}


@pytest.mark.parametrize("text", IMPORTS)
def test_b7_relative_imports_have_one_answer(text: str, tmp_path: Path, own_imports: None) -> None:
    """What intake resolves is what loads where the bundle runs, and what it refuses would not have loaded."""
    source = IMPORTS[text]
    helper = b"def f(x, out):\n    return out\n"
    modules = {"top.py": helper, "kernels/near.py": helper, "kernels/inner/deep.py": helper}
    kernel = f"{text}\n\n\ndef silu_and_mul(x, out):\n    return f(x, out)\n".encode()
    manifest = MANIFEST.replace(b"kernels/kernel.py", source.encode())
    files = {"manifest.toml": manifest, source: kernel, **modules}
    for path, content in files.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes(content)
    try:
        screen_files(files)
        codes = set()
    except BundleRefused as refusal:
        codes = {finding.code for finding in refusal.findings}
        places = {finding.location for finding in refusal.findings if finding.code == "IMPORT_UNRESOLVED"}
    load = BundleLoader(str(tmp_path), "cacheon_report_b7").entry
    if "IMPORT_UNRESOLVED" in codes:
        assert places == {f"{source}:1"}
        with pytest.raises(ImportError):
            load(source, "silu_and_mul")
    else:
        assert codes <= {"TREE_UNDECLARED"}
        assert load(source, "silu_and_mul")(1, 2) == 2


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("import cutlass.cute as cute\n\n\n@cute.jit\ndef k(a):\n    return cutlass.Int32(3)\n", 6),
        ("from cutlass import cute\n\n\n@cute.jit\ndef k(a: cutlass.Int32):\n    return a\n", 5),
        ("import cutlass\nimport cutlass.cute as cute\n\n\ndef k(a):\n    return cutlass.Int32(3)\n", 0),
        ("import cutlass.cute\n\n\ndef k(a):\n    return cutlass.Int32(3)\n", 0),
        ("import cutlass.cute as cute\n\n\n@cute.jit\ndef k(a):\n    return a\n", 0),
        ("import cutlass.cute as cute\n\n\ndef k(cutlass):\n    return cutlass.Int32(3)\n", 0),
    ],
)
def test_b8_a_missing_import_is_named_with_its_line(text: str, line: int) -> None:
    """Using `cutlass` where only `cutlass.cute` is imported names the missing import, at the place of its first use."""
    parsed = parse_python("k.py", text.encode())
    if not line:
        check_package_import("k.py", parsed)
        return
    with pytest.raises(IntakeError) as caught:
        check_package_import("k.py", parsed)
    assert (caught.value.code, str(caught.value.location)) == ("IMPORT_MISSING", f"k.py:{line}")
    assert "import cutlass" in caught.value.hint
    kernel = text.encode() + b"\n\ndef silu_and_mul(x, out):\n    return k(x)\n"
    with pytest.raises(BundleRefused) as refused:
        screen_files(bundle(**{"kernels/kernel.py": kernel}))
    assert [finding.code for finding in refused.value.findings] == ["IMPORT_MISSING"]
