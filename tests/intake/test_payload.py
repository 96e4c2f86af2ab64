"""What the fingerprint forgives and counts in CUDA sources, patches and direct declarations."""

from __future__ import annotations

import base64

import pytest

from intake.screen import screen_files
from tests.intake.support import KERNEL, MANIFEST, golden

REBUILD = b'{"steps": [{"type": "repo_python", "path": "build_cuda_ext.py"}]}'
UNIT = b'#include "h.cuh"\n__global__ void k(float* a) { a[0] = F(1.0f); const char* s = "a  b"; }\n'
HEADER = b"#define F(x) ((x) + 1)\n"
DIFF = b"--- a/flashinfer/data/csrc/fused_moe/x.cu\n+++ b/flashinfer/data/csrc/fused_moe/x.cu\n"


def cuda(unit: bytes, header: bytes = HEADER, shim: bytes = KERNEL, names: tuple[str, str] = ("c.cu", "h.cuh")) -> str:
    """Return the piece of a bundle with one unit and one header."""
    manifest = MANIFEST + f"cuda_sources = {list(names)}\n".encode()
    files = {names[0]: unit, names[1]: header, "kernels/kernel.py": shim, "rebuild.json": REBUILD}
    (piece,) = screen_files({"manifest.toml": manifest, **files}, served=None).report.pieces
    return piece


@pytest.mark.parametrize(
    ("unit", "header", "names"),
    [
        (UNIT.replace(b"{ a", b"{\n  // note\n  a"), HEADER, ("c.cu", "h.cuh")),
        (UNIT.replace(b"void k", b"void \\\n k"), HEADER + b"/* x */\n", ("c.cu", "h.cuh")),
        (UNIT.replace(b"h.cuh", b"../x/g.cuh"), HEADER, ("kernels/d.cu", "x/g.cuh")),
    ],
)
def test_spelling_of_cuda_does_not_count(unit: bytes, header: bytes, names: tuple[str, str]) -> None:
    """Comments, blanks, joined lines and file names leave the piece as it is, and so does the shim."""
    assert cuda(unit, header, names=names) == cuda(UNIT)
    assert cuda(unit, header, KERNEL.replace(b"half", b"h") + b"print(1)\n", names) == cuda(UNIT)


@pytest.mark.parametrize(
    ("unit", "header"),
    [
        (UNIT.replace(b"1.0f", b"2.0f"), HEADER),
        (UNIT.replace(b"a  b", b"a b"), HEADER),
        (UNIT, HEADER.replace(b"+", b"-")),
        (UNIT.replace(b'#include "h.cuh"\n', b"#define F(x) ((x) + 1)\n"), HEADER),
    ],
)
def test_other_cuda_counts(unit: bytes, header: bytes) -> None:
    """Constants, literals, headers and what is included make another piece."""
    assert cuda(unit, header) != cuda(UNIT)


def test_a_unit_is_imported_by_its_stem() -> None:
    """The shim may import a unit of the bundle, and nothing below it."""
    assert cuda(UNIT, shim=b"import c\n" + KERNEL) == cuda(UNIT, shim=b"from c import run\n" + KERNEL)
    for line in (b"import c.x\n", b"import d\n"):
        with pytest.raises(Exception, match="IMPORT"):
            cuda(UNIT, shim=line + KERNEL)


def test_python_kernels_beside_cuda_count() -> None:
    """Where Python holds a kernel of its own, a shared CUDA file alone makes no copy."""
    kernel = b"import triton\n\n\n@triton.jit\ndef _k(a):\n    return a + 1\n\n\n"
    shim = kernel + KERNEL.replace(b"    half =", b"    _k(x)\n    half =")
    assert cuda(UNIT, shim=shim) != cuda(UNIT, shim=shim.replace(b"a + 1", b"a + 2"))


def patched(body: bytes) -> tuple[str, ...]:
    """Return the pieces of a bundle with one dependency patch."""
    for vector in golden("target_resolution_vectors"):
        if vector["name"] == "dep_patch_on_deep":
            files = {item["path"]: base64.b64decode(item["data_b64"]) for item in vector["entries"]}
    return screen_files({**files, "p.patch": DIFF + body}, served=None).report.pieces


def test_context_of_a_patch_does_not_count() -> None:
    """More context, merged hunks and blanks leave the pieces as they are; lines and places count."""
    apart = patched(b"@@ -2 +2 @@\n-a\n+b\n@@ -4 +4 @@\n-c\n+d\n")
    assert apart == patched(b"@@ -1,4 +1,4 @@\n x\n-a\n+b\n y\n-c\n+d\n")
    assert apart == patched(b"@@ -2,3 +2,3 @@\n-a\n+  b\n y\n-c\n+d \n")
    assert apart != patched(b"@@ -2 +2 @@\n-a\n+b\n@@ -4 +4 @@\n-c\n+e\n")
    assert apart != patched(b"@@ -2 +2 @@\n-a\n+b\n@@ -5 +5 @@\n-c\n+d\n")
    assert patched(b"@@ -2,0 +3 @@\n+n\n") == patched(b"@@ -2,2 +2,3 @@\n x\n+n\n y\n")


def direct(manifest_edit: tuple[str, str] = ("", ""), source: bytes = b"def f(*a):\n    pass\n") -> tuple[str, ...]:
    """Return the pieces of the recorded direct bundle after an edit."""
    for vector in golden("target_resolution_vectors"):
        if vector["name"] == "direct":
            files = {item["path"]: base64.b64decode(item["data_b64"]) for item in vector["entries"]}
    manifest = files["manifest.toml"].decode().replace(*manifest_edit).encode()
    return screen_files({**files, "manifest.toml": manifest, "k.py": source}, served=None).report.pieces


def test_names_of_direct_exports_do_not_count() -> None:
    """Renaming the entry, the export or the factory changes nothing; the plan and what the factory does count."""
    assert direct() == direct(('entry = "f"', 'entry = "other"'))
    assert direct() == direct(('name = "main"', 'name = "renamed"'))
    assert direct() == direct(('factory = "f"', 'factory = "g"'), b"def g(*a):\n    pass\n")
    assert direct() != direct(("value = 0}", "value = 16}"))
    assert direct() != direct(source=b"def f(*a):\n    return a\n")


def test_the_factory_of_an_export_has_to_exist() -> None:
    """A direct row is refused when its source does not define a factory it names."""
    with pytest.raises(Exception, match="ENTRY_NOT_DEFINED"):
        direct(('factory = "f"', 'factory = "nope"'))
