"""What the fingerprint forgives and counts in CUDA sources, patches and direct declarations."""

from __future__ import annotations

import base64
import re

import pytest

from intake.report import IntakeReport
from intake.screen import screen_files
from tests.intake.support import KERNEL, MANIFEST, golden

REBUILD = b'{"steps": [{"type": "repo_python", "path": "build_cuda_ext.py"}]}'
UNIT = b"""#include "h.cuh"
#include <cuda_runtime.h>

constexpr int WIDTH = 256;

template <typename T>
__device__ __forceinline__ T gate(T value) { return value / (T(1) + expf(-value)); }

struct Row {
  const float* data;
  int width;
};

__global__ void silu(const float* __restrict__ x, float* out, int n) {
  __shared__ float cache[WIDTH];
  Row row{x, n};
  for (int i = threadIdx.x; i < row.width; i += blockDim.x) {
    float a = F(row.data[i]), b = row.data[i + n];
    cache[threadIdx.x] = gate<float>(a) * b;
    out[i] = cache[threadIdx.x] * 1.0f;
  }
}

void run(float* x, float* out, int n) {
  const char* note = "1  2";
  silu<<<n / WIDTH, WIDTH>>>(x, out, n);
}
"""
HEADER = b"#pragma once\n#define F(x) ((x) + 1)\n"
SHIM = b"import c\n\n\ndef silu_and_mul(x, out):\n    c.run(x, out, out.shape[-1])\n"
OTHER_SHIM = b"def silu_and_mul(a, b):\n    import c as d\n    print(1)\n    return d.run(a, b, 2)\n"
DIFF = b"--- a/flashinfer/data/csrc/fused_moe/x.cu\n+++ b/flashinfer/data/csrc/fused_moe/x.cu\n"


def cuda(unit: bytes, header: bytes = HEADER, shim: bytes = SHIM, names: tuple[str, str] = ("c.cu", "h.cuh")) -> str:
    """Return the piece of a bundle with one unit and one header."""
    (piece,) = cuda_report({names[0]: unit, names[1]: header}, shim).pieces
    return piece


def cuda_report(sources: dict[str, bytes], shim: bytes = SHIM) -> IntakeReport:
    """Return the report of a bundle with some CUDA sources."""
    manifest = MANIFEST + f"cuda_sources = {list(sources)}\n".encode()
    files = {"manifest.toml": manifest, "kernels/kernel.py": shim, "rebuild.json": REBUILD, **sources}
    return screen_files(files, served=None).report


def renamed(text: bytes, **names: str) -> bytes:
    """Return a text with whole words replaced."""
    for old, new in names.items():
        text = re.sub(rf"\b{old}\b".encode(), new.encode(), text)
    return text


MOVED = UNIT.replace(b"constexpr int WIDTH = 256;\n", b"").replace(
    b"void run(", b"constexpr int WIDTH = 256;\nvoid run("
)
SAME: dict[str, tuple[bytes, bytes]] = {
    "comment and line end": (UNIT.replace(b"{ return", b"{\n  // note\n  return"), HEADER),
    "joined line": (UNIT.replace(b"void silu", b"void \\\n silu"), HEADER + b"/* x */\n"),
    "local variables": (renamed(UNIT, a="first", b="second", i="index", cache="tile", n="count"), HEADER),
    "parameters of a template": (renamed(UNIT, T="Element", value="v"), HEADER),
    "kernel and functions": (renamed(UNIT, silu="kernel", gate="activation", WIDTH="THREADS"), HEADER),
    "record and members": (renamed(UNIT, Row="Span", data="base", width="length"), HEADER),
    "macro": (renamed(UNIT, F="ADD_ONE"), renamed(HEADER, F="ADD_ONE", x="what")),
    "integer spelling": (UNIT.replace(b"256", b"0x100"), HEADER),
    "toolchain header": (b"#include <math.h>\n" + UNIT, HEADER),
    "prototype": (UNIT.replace(b"constexpr int", b"void run(float* x, float* out, int n);\nconstexpr int", 1), HEADER),
    "order": (
        MOVED.replace(b"template", b"constexpr int WIDTH = 256;\n\ntemplate").replace(
            b"constexpr int WIDTH = 256;\nvoid run", b"void run"
        ),
        HEADER,
    ),
    "dead function": (UNIT + b"__device__ float unused(float x) { return x * 2.0f; }\n#define NOBODY 3\n", HEADER),
    "dead kernel": (UNIT + b"__global__ void never(float* x) { x[0] = 2.0f; }\n", HEADER),
    "namespace": (UNIT.replace(b"template", b"namespace mine {\ntemplate") + b"}\n", HEADER),
    "include guard": (UNIT, b"#ifndef H_\n#define H_\n#define F(x) ((x) + 1)\n#endif\n"),
    "macro moved": (UNIT.replace(b"constexpr", b"#define F(x) ((x) + 1)\nconstexpr", 1), b"#pragma once\n"),
}


@pytest.mark.parametrize("name", SAME)
def test_spelling_of_cuda_does_not_count(name: str) -> None:
    """Layout, names, order, dead code and the place of a declaration leave the piece as it is."""
    unit, header = SAME[name]
    assert cuda(unit, header) == cuda(UNIT)


def test_the_shim_does_not_count() -> None:
    """File names and the Python around the unit leave the piece as it is."""
    assert cuda(UNIT, shim=OTHER_SHIM) == cuda(UNIT)
    moved = UNIT.replace(b"h.cuh", b"../x/g.cuh")
    shim = SHIM.replace(b"import c\n", b"import d\n").replace(b"c.run", b"d.run")
    assert cuda(moved, HEADER, shim, ("kernels/d.cu", "x/g.cuh")) == cuda(UNIT)


OTHER: dict[str, tuple[bytes, bytes]] = {
    "constant": (UNIT.replace(b"1.0f", b"2.0f"), HEADER),
    "tuning": (UNIT.replace(b"256", b"512"), HEADER),
    "text": (UNIT.replace(b"1  2", b"a b"), HEADER),
    "macro": (UNIT, HEADER.replace(b"+", b"-")),
    "function of the toolchain": (UNIT.replace(b"expf", b"exp2f"), HEADER),
    "names swapped in one place": (UNIT.replace(b"gate<float>(a) * b", b"gate<float>(b) * a"), HEADER),
    "other member": (UNIT.replace(b"Row row{x, n}", b"Row row{x, row.width}"), HEADER),
    "condition": (UNIT.replace(b"void run", b"#if X\nvoid run") + b"#endif\n", HEADER),
    "qualifier": (UNIT.replace(b"__restrict__ ", b""), HEADER),
    "adjacent operators": (UNIT.replace(b"* b;", b"* b + +a;"), HEADER),
}


@pytest.mark.parametrize("name", OTHER)
def test_other_cuda_counts(name: str) -> None:
    """Constants, literals, calls and which name stands where make another piece."""
    unit, header = OTHER[name]
    assert cuda(unit, header) != cuda(UNIT)


def test_branches_of_a_condition_keep_their_places() -> None:
    """What stands under which condition counts."""
    one = b"#ifdef X\nvoid run(int* a) { a[0] = 1; }\n#else\nvoid run(int* a) { a[0] = 2; }\n#endif\n"
    assert cuda(one) != cuda(one.replace(b"ifdef", b"ifndef"))
    assert cuda(one) == cuda(renamed(one, a="b", run="go"))


def test_a_unit_is_imported_by_its_stem() -> None:
    """The shim may import a unit of the bundle, and nothing below it."""
    assert cuda(UNIT, shim=SHIM) == cuda(UNIT, shim=b"from c import run\n" + SHIM)
    for line in (b"import c.x\n", b"import d\n"):
        with pytest.raises(Exception, match="IMPORT"):
            cuda(UNIT, shim=line + SHIM)


def test_units_that_nothing_imports_do_not_count() -> None:
    """An unused unit beside an imported one hides nothing; without any import every unit counts."""
    more = {"c.cu": UNIT, "h.cuh": HEADER, "extra.cu": b"void extra(int* a) { a[0] = 1; }\n"}
    alone = cuda_report({"c.cu": UNIT, "h.cuh": HEADER})
    assert cuda_report(more).fingerprint == alone.fingerprint
    blind = b"def silu_and_mul(x, out):\n    pass\n"
    assert set(cuda_report(more, blind).pieces) > set(alone.pieces)


def test_python_kernels_beside_cuda_count() -> None:
    """Where Python holds a kernel of its own, or more than the unit does, a shared CUDA file alone makes no copy."""
    kernel = b"import triton\n\n\n@triton.jit\ndef _k(a):\n    return a + 1\n\n\n"
    shim = kernel + SHIM.replace(b"    c.run", b"    _k[(1,)](x)\n    c.run")
    one, other = (cuda_report({"c.cu": UNIT, "h.cuh": HEADER}, text) for text in (shim, shim.replace(b"+ 1", b"+ 2")))
    assert one.fingerprint != other.fingerprint
    assert len(set(one.pieces) & set(other.pieces)) == 1
    small = b"void tiny(int* a) { a[0] = 1; }\n"
    one, other = (cuda_report({"c.cu": small}, text) for text in (KERNEL, KERNEL.replace(b"// 2", b"// 3")))
    assert one.fingerprint != other.fingerprint


@pytest.mark.parametrize("text", [b"{" * 9000, b"}" * 9000, b"((((" * 3000 + b"int a", b"#if\n" * 5000, b"<" * 9000])
def test_odd_cuda_is_read_to_its_end(text: bytes) -> None:
    """Unbalanced and endless nesting costs nothing but its length."""
    assert cuda(text) == cuda(text + b"\n")


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
