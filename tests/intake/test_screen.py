"""The whole pipeline, from archive bytes to a report."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from config.errors import ErrorDocument, IntakeError, NotFoundError
from intake.content_hash import hash_files
from intake.manifest import LEGACY_ABI
from intake.package import package_bytes
from intake.refusal import BundleRefused, HashMismatch
from intake.report import IntakeReport, decode_report, encode_report, refusal_report
from intake.scan import scan_directory
from intake.screen import screen_archive, screen_files
from tests.intake.support import KERNEL, MANIFEST, bundle, write_tree

EXAMPLES = Path(__file__).parent.parent.parent / "examples"


def test_a_good_bundle_gives_a_complete_report() -> None:
    """Identity, target, features, variants, files, closure and fingerprint are all there."""
    metadata = b'{"graph_safe": true, "capabilities": {"num_tokens": {"min": 1, "max": 4096}}, "dtypes": ["bf16"]}'
    manifest = MANIFEST + b'metadata = "metadata/m.json"\ndtypes = ["bfloat16", "float16"]\narchitectures = ["SM_90"]\n'
    files = bundle(**{"manifest.toml": manifest, "metadata/m.json": metadata})
    report = screen_archive(package_bytes(files), hash_files(files)).report
    assert report.accepted
    assert (report.bundle_id, report.target_id, report.target_kind) == ("alice-silu", "activation.silu_and_mul", "slot")
    assert report.features == ("entry",)
    (variant,) = report.variants
    assert (variant.source, variant.entry, variant.prepare) == ("kernels/kernel.py", "silu_and_mul", None)
    assert (variant.dtypes, variant.architectures) == (("bfloat16",), ("sm90",))
    assert variant.metadata["capabilities"] == {"num_tokens": {"min": 1, "max": 4096}}
    assert [entry.path for entry in report.files] == sorted(files, key=lambda path: path.split("/"))
    assert report.closure == ("kernels/kernel.py",)
    assert len(report.fingerprint) == 64


def test_other_bytes_are_refused_and_both_hashes_named() -> None:
    """An archive with other bytes is never accepted under a committed hash."""
    files = bundle()
    committed = hash_files(bundle(**{"README.md": b"other\n"}))
    with pytest.raises(HashMismatch) as caught:
        screen_archive(package_bytes(files), committed)
    error = caught.value
    assert error.code == "BUNDLE_HASH_MISMATCH"
    assert (error.expected_hash, error.seen_hash) == (committed, hash_files(files))
    assert committed in error.message
    assert hash_files(files) in error.message


@pytest.mark.parametrize("text", ["", "0" * 63, "G" * 64, "A" * 64])
def test_a_malformed_expected_hash_is_refused(text: str) -> None:
    """A hash that is none cannot match anything."""
    with pytest.raises(IntakeError) as caught:
        screen_archive(package_bytes(bundle()), text)
    assert caught.value.code == "BUNDLE_HASH_INVALID"


def test_all_findings_come_at_once() -> None:
    """One pass names every broken rule; the first is the refusal, and none is named twice."""
    files = bundle(
        **{
            "manifest.toml": MANIFEST.replace(b"alice-silu", b"al ice") + b'prepare = "1x"\n',
            "kernels/kernel.py": b"import socket\nopen('x')\n",
            "x.bin": b"\x00",
        }
    )
    with pytest.raises(BundleRefused) as caught:
        screen_files(files)
    codes = [item.code for item in caught.value.findings]
    assert codes == ["MANIFEST_VALUE", "MANIFEST_VALUE", "TREE_BINARY", "SCAN_IMPORT", "SCAN_NAME"]
    assert caught.value.code == codes[0]
    assert len(set(caught.value.findings)) == len(codes)


def test_the_number_of_findings_is_bounded() -> None:
    """A hostile bundle cannot make the answer large."""
    files = bundle(**{"kernels/kernel.py": KERNEL + b"open(1)\n" * 5000})
    with pytest.raises(BundleRefused) as caught:
        screen_files(files)
    assert len(caught.value.findings) == 200


def test_variants_need_disjoint_domains() -> None:
    """Overlapping variants are refused, disjoint ones are reported in row order."""
    row = MANIFEST[MANIFEST.index(b"[[ops]]") :]
    manifest = (
        MANIFEST
        + b'variant = "a"\nmetadata = "metadata/a.json"\n'
        + row
        + b'variant = "b"\nmetadata = "metadata/b.json"\n'
    )
    low, high = b'{"capabilities": {"num_tokens": {"max": 127}}}', b'{"capabilities": {"num_tokens": {"min": 128}}}'
    files = bundle(**{"manifest.toml": manifest, "metadata/a.json": low, "metadata/b.json": high})
    report = screen_files(files).report
    assert [variant.variant for variant in report.variants] == ["a", "b"]
    assert report.features == ("entry", "variants")
    with pytest.raises(BundleRefused) as caught:
        screen_files({**files, "metadata/b.json": low})
    assert caught.value.code == "VARIANTS_OVERLAP"


def test_the_legacy_abi_depends_on_the_caller() -> None:
    """The same bytes are accepted or refused by when they were finalized; they are never rewritten."""
    files = bundle(**{"manifest.toml": MANIFEST.replace(b"cacheon-op-abi-v0", LEGACY_ABI.encode())})
    archive, digest = package_bytes(files), hash_files(files)
    assert screen_archive(archive, digest, allow_legacy_abi=True).report.abi_version == LEGACY_ABI
    with pytest.raises(IntakeError):
        screen_archive(archive, digest)


@pytest.mark.parametrize(
    "folder", sorted(path for path in EXAMPLES.glob("*") if path.is_dir()), ids=lambda path: path.name
)
def test_every_example_passes(folder: Path) -> None:
    """The bundles we publish are acceptable, unless their README says that intake is meant to refuse them."""
    first_line = (folder / "README.md").read_text("utf-8").split("\n", 1)[0]
    if "refused" in first_line.lower():
        assert scan_directory(folder)
    else:
        assert scan_directory(folder) == ()


def test_scanning_a_folder_reports_and_does_not_raise(tmp_path: Path) -> None:
    """A folder that cannot be a bundle gives findings; a folder that is not there is an error."""
    root = write_tree(tmp_path / "b", bundle(**{"manifest.toml": b"x ="}))
    (root / "link").symlink_to("README.md")
    assert [item.code for item in scan_directory(root)] == ["TREE_LINK"]
    (root / "link").unlink()
    assert [item.code for item in scan_directory(root)] == ["MANIFEST_SYNTAX"]
    with pytest.raises(NotFoundError):
        scan_directory(tmp_path / "none")


def test_reports_survive_their_encoding() -> None:
    """Reports of accepted and refused bundles read back equal, and only canonically."""
    good = screen_files(bundle()).report
    with pytest.raises(BundleRefused) as caught:
        screen_files({"manifest.toml": b""})
    bad = refusal_report(caught.value, content_hash="0" * 64)
    assert not bad.accepted
    assert bad.findings[0] == bad.error
    for report in (good, bad, refusal_report(IntakeError("X", "y."), content_hash="0" * 64)):
        data = encode_report(report)
        assert decode_report(data) == report
        with pytest.raises(IntakeError) as refused:
            decode_report(data.replace(b'":', b'": ', 1))
        assert refused.value.code == "REPORT_MALFORMED"


@pytest.mark.parametrize(
    "data",
    [b"", b"{}", b"[]", encode_report(IntakeReport("0" * 64)).replace(b"v1", b"v9"), b'{"content_hash":"x","y":1}'],
)
def test_foreign_reports_are_refused(data: bytes) -> None:
    """Another schema, missing or extra fields are not a report."""
    with pytest.raises(IntakeError) as caught:
        decode_report(data)
    assert caught.value.code == "REPORT_MALFORMED"


@settings(deadline=None, max_examples=150)
@given(
    st.dictionaries(
        st.sampled_from(
            ["manifest.toml", "kernels/kernel.py", "metadata/m.json", "README.md", "rebuild.json", "a.py", "b/c.py"]
        ),
        st.binary(max_size=60) | st.text(max_size=60).map(lambda text: text.encode("utf-8", "surrogatepass")),
    )
)
def test_only_intake_errors_leave_the_screen(changes: dict[str, bytes]) -> None:
    """Any content in any file gives a report or an `IntakeError`."""
    with contextlib.suppress(IntakeError):
        assert isinstance(screen_files(bundle(**changes)).report, IntakeReport)


SNIPPETS = st.sampled_from(
    [
        "import os",
        "os",
        ".x",
        "[0]",
        "(",
        ")",
        "=",
        ":",
        "\n",
        "    ",
        "def f(a: 'os.x'):",
        "class A:",
        "lambda: 0",
        "getattr(os, 'x')",
        "for a in b:",
        "match a:",
        "case {'k': os, **r}:",
        "with a as os.b:",
        "global os",
        "del os.a",
        "@f",
        "f'{os}'",
        "(a := os)",
        "[os for os in a]",
        "async def g():",
        "import cutlass.cute as c",
        "c.compile(f)",
        "from . import x",
        "try:",
        "except E as os:",
    ]
)


@settings(deadline=None, max_examples=300)
@given(st.lists(SNIPPETS, max_size=14).map("".join))
def test_no_python_makes_the_scan_fall(source: str) -> None:
    """Any arrangement of statements gives a report or findings."""
    with contextlib.suppress(IntakeError):
        screen_files(bundle(**{"kernels/kernel.py": source.encode() + b"\n" + KERNEL}))


def test_findings_are_plain_documents() -> None:
    """Messages hold no raw bytes of the bundle that could steer a terminal."""
    evil = "\x1b[31m\u202ex"
    manifest = MANIFEST + f'entry2 = 1\n"{"k" * 500}" = 2\n'.encode() + b'prepare = "\\u001b[31m"\n'
    with pytest.raises(BundleRefused) as caught:
        screen_files({**bundle(**{"manifest.toml": manifest}), f"{evil}.txt": b""})
    for item in caught.value.findings:
        assert isinstance(item, ErrorDocument)
        assert item.message.isprintable()
        assert len(item.message) < 400


def test_the_screen_starts_light() -> None:
    """The sandboxed child preloads the screen without network, chain, GPU or database packages."""
    code = (
        "import sys, intake.screen, intake.file_stream; "
        "heavy = 'torch numpy aiohttp asyncio bittensor sqlalchemy structlog tarfile socket ssl'.split(); "
        "print(sorted(set(heavy) & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=EXAMPLES.parent)
    assert done.stdout.strip() == "[]"


def test_long_import_chains_are_followed_without_recursion() -> None:
    """Thousands of files that import one name from the next are one closure and one fingerprint."""
    count = 3000
    manifest = MANIFEST.replace(b"kernels/kernel.py", b"m0.py")
    files = {f"m{index}.py": f"from m{index + 1} import silu_and_mul\n".encode() for index in range(count)}
    chained = screen_files({**files, f"m{count}.py": KERNEL, "manifest.toml": manifest}).report
    assert len(chained.closure) == count + 1
    assert chained.pieces == screen_files(bundle()).report.pieces


def test_import_circles_end() -> None:
    """A name that two files import from each other is nobody's definition, and no endless loop."""
    files = {
        "kernels/kernel.py": b"from a import silu_and_mul\n",
        "a.py": b"from b import silu_and_mul\n",
        "b.py": b"from a import silu_and_mul\n",
    }
    assert screen_files(bundle(**files)).report.accepted
