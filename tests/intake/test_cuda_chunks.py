"""CUDA text taken apart into declarations."""

from __future__ import annotations

import pytest

from intake.cuda_chunks import chunks_of
from intake.cuda_normal import cuda_units
from intake.cuda_sources import load_cuda
from intake.cuda_text import read_cuda
from intake.refusal import Findings


def chunks(text: str) -> list[tuple[list[str], set[str]]]:
    """Return the shared and the local names of each declaration."""
    return [(list(chunk.shared), chunk.local) for chunk in chunks_of(read_cuda("c.cu", text.encode()))]


@pytest.mark.parametrize(
    ("text", "shared", "local"),
    [
        ("float f(const float* __restrict__ a, int b) { float c = 1, d; return a[b]; }", ["f"], {"a", "b", "c", "d"}),
        ("template <typename T, int N> T f(T* a, const T& b) { return a[N]; }", ["f"], {"T", "N", "a", "b"}),
        ("struct S { float x, y; int* z; };", ["S", "x", "y", "z"], set()),
        ("#define F(x, y) ((x) + (y))\n", ["F"], {"x", "y"}),
        ("#define N (x)\n", ["N"], set()),
        ("constexpr int A = 4, B = 5;", ["A", "B"], set()),
        ("void f() { std::array<float, 4> a{}; auto g = [](int k) { return k; }; }", ["f"], {"a", "g", "k"}),
        ("void f(Pack<int>* p) { x = a * expf(b); y = a > expf(b); z(a < b, c > d(e)); }", ["f"], {"p"}),
        ("void f() { return expf(x); throw foo(x); using namespace std; }", ["f"], set()),
        (
            "void f() { int a = min(b, c), d = 2; for (int i = 0, n = 4; i < n; ++i) g(i, n); }",
            ["f"],
            {"a", "d", "i", "n"},
        ),
    ],
)
def test_declared_names(text: str, shared: list[str], local: set[str]) -> None:
    """Names are declared where a type stands before them; what is only called or compared is not."""
    assert chunks(text) == [(shared, local)]


def test_brackets_guards_and_includes_are_no_declarations() -> None:
    """What only wraps declarations is gone; conditional regions stay whole."""
    text = '#ifndef G\n#define G\n#include <a.h>\nnamespace n {\nextern "C" { void f(); }\n}\n#endif\n'
    assert [names for names, _ in chunks(text)] == [["f"]]
    assert len(chunks("#if A\nvoid f();\nvoid g();\n#endif\nvoid h();\n")) == 2
    assert len(chunks("#ifndef G\n#define G\nint a;\n#endif\nint b;\n")) == 2


@pytest.mark.parametrize(
    "text", ["}" * 400_000, "int a;" * 100_000, "a " * 200_000 + "=" + "}" * 200_000, "1" * 500_000]
)
def test_hostile_declarations_take_neither_quadratic_time_nor_much_memory(text: str) -> None:
    """Very many declarations are compared with their names as they are."""
    files = {"c.cu": text.encode()}
    sources = load_cuda({"c.cu": 1}, files, Findings())
    (unit,) = cuda_units(sources, files).values()
    assert len(unit.parts) == 1


def test_no_more_declarations_are_read_than_asked_for() -> None:
    """One more tells that there are more."""
    text = read_cuda("c.cu", b"#include <a.h>\nint a;\nint b;\nint c;\n")
    assert [len(chunks_of(text, most)) for most in (0, 1, 2, 3)] == [1, 2, 3, 3]
    assert len(chunks_of(text)) == 3
