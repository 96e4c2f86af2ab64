"""`intake/cuda_text.py`, `intake/cuda_sources.py`: what CUDA sources can bring in."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from config.errors import IntakeError
from intake.cuda_sources import CudaSources, load_cuda
from intake.cuda_text import read_cuda
from intake.refusal import Findings
from tests.intake.source_differences import CUDA, PATCHES
from tests.intake.support import golden

VECTORS = golden("cuda_include_vectors")
COMPILER = shutil.which("g++")


def load(
    files: dict[str, str | bytes], declared: tuple[str, ...] = ("c.cu",), **more: Any
) -> tuple[CudaSources, list[str]]:
    """Return the sources of a bundle and the codes of the findings with their places."""
    findings = Findings()
    table = {path: text.encode() if isinstance(text, str) else text for path, text in files.items()}
    sources = load_cuda(dict.fromkeys(declared, 9), table, findings, **more)
    return sources, [f"{item.code} {item.location}" for item in findings.documents()]


def scan(text: str | bytes) -> list[str]:
    """Return the findings of one unit beside two headers that it does not declare."""
    return load({"c.cu": text, "x.cuh": "", "sub/y.cuh": ""})[1]


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["name"])
def test_golden_rows(vector: dict[str, Any]) -> None:
    """Recorded sources are accepted or refused as recorded, but for the listed differences."""
    files = {path: str(text) for path, text in vector["files"].items()} | {"c.cu": vector["cu"]}
    accept = vector["accept"] and vector["name"] not in CUDA
    assert (not load(dict(files), tuple(vector["declared"]))[1]) is accept


def test_differences_are_told_to_readers() -> None:
    """Every listed difference stands in the documentation."""
    page = (Path(__file__).parent.parent.parent / "docs/bundle-sources.md").read_text("utf-8")
    assert all(f"`{name}`" in page for name in (*CUDA, *PATCHES))


@pytest.mark.parametrize(
    "text",
    [
        '#include "x.cuh"\n',
        '  #\tinclude /* why */ "x.cuh" // here\n',
        '#/* two\nlines */include "x.cuh"\n',
        '/* first */ #include "x.cuh"\n',
        '/* first\n*/ #include "x.cuh"\n',
        '#inc\\\nlude "x.cuh"\n',
        '#inc\\ \t\nlude "x.cuh"\n',
        '#include "x.c\\\nuh"\n',
        '#include \\\r\n"x.cuh"\r\n',
        '// a comment that ends\n#include "x.cuh"\n',
        '// a comment \\\\\n that goes on\n#include "x.cuh"\n',
        'const char* s = "/*";\n#include "x.cuh"\n// */\n',
        "char c = '\"';\n#include \"x.cuh\"\nchar d = '\"';\n",
        "int n = 1'000;\n#include \"x.cuh\"\nint m = 1'0;\n",
        "auto c = u8'a';\n#include \"x.cuh\"\nauto d = u8'a';\n",
        'auto s = R"(/*)";\n#include "x.cuh"\nauto t = R"(*/)";\n',
        'auto s = R"x(")" /*)x";\n#include "x.cuh"\n/**/\n',
        '#error don\'t /*\n#include "x.cuh"\n// */\n',
        '#if 0\n#include "x.cuh"\n#endif\n',
        '#include "./x.cuh"\n',
        '#include "sub/../x.cuh"\n',
        '#include "sub//y.cuh"\n',
        "#include <x.cuh>\n",
        '#if __has_include("x.cuh")\n#endif\n',
        '#if __has_/**/include("x.cuh") || __has_include ( <x.cuh> )\n#endif\n',
    ],
)
def test_no_include_hides(text: str) -> None:
    """However an include of an undeclared header is written, it is found."""
    assert scan(text) or "__has_/**/" in text
    assert scan(text)[0].startswith("CUDA_INCLUDE c.cu:")


@pytest.mark.parametrize(
    ("text", "finding"),
    [
        ("#include HEADER\n", "CUDA_INCLUDE c.cu:1"),
        ("#include\n", "CUDA_INCLUDE c.cu:1"),
        ('#include "a.h" "b.h"\n', "CUDA_INCLUDE c.cu:1"),
        ("#include <a.h\n", "CUDA_INCLUDE c.cu:1"),
        ('#include ""\n', "CUDA_INCLUDE c.cu:1"),
        ('#include "/etc/hostname"\n', "CUDA_INCLUDE c.cu:1"),
        ("#include </etc/hostname>\n", "CUDA_INCLUDE c.cu:1"),
        ('#include "a\\b.h"\n', "CUDA_INCLUDE c.cu:1"),
        ('#include "../../x.h"\n', "CUDA_INCLUDE c.cu:1"),
        ("#include <a//b.h>\n", "CUDA_INCLUDE c.cu:1"),
        ('\n\n#include_next "a.h"\n', "CUDA_DIRECTIVE c.cu:3"),
        ('#import "a.h"\n', "CUDA_DIRECTIVE c.cu:1"),
        ('#embed "a.bin"\n', "CUDA_DIRECTIVE c.cu:1"),
        ('# 1 "a.h" 1\n', "CUDA_DIRECTIVE c.cu:1"),
        ('#pragma GCC dependency "a.h"\n', "CUDA_DIRECTIVE c.cu:1"),
        ('_Pragma("GCC dep" "endency \\"a.h\\"")\n', "CUDA_INCLUDE c.cu:1"),
        ('%:include "a.h"\n', "CUDA_LEXICAL c.cu:1"),
        ('??=include "a.h"\n', "CUDA_LEXICAL c.cu:1"),
        ("// why??/\nint x;\n", "CUDA_LEXICAL c.cu:1"),
        ('auto s = "??/"";\n', "CUDA_LEXICAL c.cu:1"),
        ("int x;\n/* open\n", "CUDA_LEXICAL c.cu:2"),
        ('auto s = R"(open";\n', "CUDA_LEXICAL c.cu:1"),
        ('auto s = R"a b()a b";\n', "CUDA_LEXICAL c.cu:1"),
        ('auto s = "a"R"(b)";\n', "CUDA_LEXICAL c.cu:1"),
        ('auto s = R"x()\\\nx";\n', "CUDA_LEXICAL c.cu:1"),
        ('#define A R"(\n)"\n', "CUDA_LEXICAL c.cu:1"),
        ('/*\n*/ #error R"(a" /*\n)" */\n', "CUDA_LEXICAL c.cu:2"),
        ("int a;\nint 1\u00e9'0;\n", "CUDA_LEXICAL c.cu:2"),
        ("int a;\rint b;\n", "CUDA_NOT_TEXT c.cu:1"),
        (b"int a;\n\xff\n", "CUDA_NOT_TEXT c.cu:2"),
        ("\0", "CUDA_NOT_TEXT c.cu:1"),
        ('asm(".incbin \\"f\\"");\n', "CUDA_INCLUDE c.cu:1"),
        ('asm(".inc"\n  "bin \\"f\\"");\n', "CUDA_INCLUDE c.cu:1"),
        ('asm(".inc" MIDDLE "bin");\n', "CUDA_INCLUDE c.cu:1"),
        ('asm(".\\151nc\\x62in");\n', "CUDA_INCLUDE c.cu:1"),
        ('asm(".in\\cbin");\n', "CUDA_INCLUDE c.cu:1"),
        ('asm(".in\\u0063bin");\n', "CUDA_INCLUDE c.cu:1"),
        ('asm(R"(.INCBIN "f")");\n', "CUDA_INCLUDE c.cu:1"),
        ('asm(".include \\"f\\"");\n', "CUDA_INCLUDE c.cu:1"),
        ('#define S(x) #x\nasm(S(.incbin "f"));\n', "CUDA_INCLUDE c.cu:2"),
        ('#define S(x) #x\nasm(S(.inc ## bin "f"));\n', "CUDA_INCLUDE c.cu:2"),
        ("#if __has_include(HEADER)\n#endif\n", "CUDA_INCLUDE c.cu:1"),
        ("#define HAS(x) __has_include(x)\n", "CUDA_INCLUDE c.cu:1"),
        ("#define HAS __has_include\n", "CUDA_INCLUDE c.cu:1"),
        ("#if __has_include_next(<a.h>)\n#endif\n", "CUDA_INCLUDE c.cu:1"),
        ("#if __has_embed(<a.h>)\n#endif\n", "CUDA_INCLUDE c.cu:1"),
        ('#define J __has_##include("x.cuh")\n', "CUDA_INCLUDE c.cu:1"),
        ("import <vector>;\n", "CUDA_INCLUDE c.cu:1"),
        ('export import "x.cuh";\n', "CUDA_INCLUDE c.cu:1"),
    ],
)
def test_other_ways_of_bringing_files_in_are_refused(text: str | bytes, finding: str) -> None:
    """Each has its code and the line it stands on in the original file."""
    assert scan(text)[0] == finding


@pytest.mark.parametrize(
    "text",
    [
        "",
        '#pragma once\n#\n#include <cuda_fp16.h>\n#include "cutlass/numeric_types.h"\n',
        '// #include "x.cuh"\n/* #include "x.cuh"\n#include "x.cuh" */\n',
        '// #include \\\n"x.cuh"\n',
        'auto s = R"(\n#include "x.cuh"\n)";\n',
        'auto s = R"(a \\\n b)";\n',
        '#define A R"(one line)"\nauto s = A R"(\n)"; // \u00e9t\u00e9\n',
        'auto s = "a\\\n#include <x.cuh>\\\n";\n',
        "#ifdef __has_include\n#if defined(__has_include) && __has_include(<cuda_fp8.h>)\n#endif\n#endif\n",
        "#ifndef __has_include\n#define __has_include(x) 0\n#endif\n",
        "int incbins = a % b ? x : y; bool kIncBin = 1'000 > 2;\n",
        'asm volatile("mov.u32 %0, %%tid.x;" : "=r"(x));\n',
        'const char* names[] = {"inc", "bin"};\n',
        "// what??! (a trigraph nobody would miss)\n",
        "#define CAT(a, b) a##b\n#if 0\n#elif 1\n#else\n#endif\n#undef CAT\n#line 7\n",
        "T importance = import_weights<float>(x);\n",
        '#include "donn\u00e9es.h"\n',
    ],
)
def test_ordinary_sources_pass(text: str) -> None:
    """What real kernels hold is not refused."""
    assert scan(text) == []


def test_the_closure_follows_declared_headers() -> None:
    """Edges, external names and the reach of a unit are reported."""
    files: dict[str, str | bytes] = {
        "k/c.cu": '#include "h/a.cuh"\n#include <cuda.h>\n',
        "k/h/a.cuh": '#include "../b.cuh"\n#include "root.cuh"\n',
        "k/b.cuh": '#include "h/a.cuh"\n#include "tk/none.h"\n',
        "root.cuh": "",
    }
    sources, findings = load(files, tuple(files))
    assert findings == []
    assert sources.units == {"c": "k/c.cu"}
    assert sources.edges["k/h/a.cuh"] == ("k/b.cuh", "root.cuh")
    assert sources.closure("k/c.cu") == ("k/b.cuh", "k/h/a.cuh", "root.cuh")
    assert sources.closure("root.cuh") == ()
    assert sources.external == ("cuda.h", "tk/none.h")
    assert sources.headers == ("k/b.cuh", "k/h/a.cuh", "root.cuh")


@pytest.mark.parametrize(
    ("text", "why"),
    [('#include "o.cu"\n', "a unit"), ('#include "README.md"\n', "a text"), ("#include <manifest.toml>\n", "data")],
)
def test_only_headers_are_included(text: str, why: str) -> None:
    """A file of the bundle that is no header is not included, declared or not."""
    _, findings = load({"c.cu": text, "o.cu": "", "README.md": "", "manifest.toml": ""}, ("c.cu", "o.cu"))
    assert findings == ["CUDA_INCLUDE c.cu:1"], why


@pytest.mark.parametrize(
    ("declared", "finding"),
    [
        (("a-b.cu",), "CUDA_UNIT"),
        (("class.cu",), "CUDA_UNIT"),
        (("caf\u00e9.cu",), "CUDA_UNIT"),
        (("a/k.cu", "b/k.cu"), "CUDA_UNIT"),
        (("a/k.cu", "b/K.cu"), "CUDA_UNIT"),
        (("kernels.cu",), "CUDA_UNIT"),
        (("x.h",), "CUDA_SUFFIX"),
        (("x.CU",), "CUDA_SUFFIX"),
    ],
)
def test_units_have_an_import_name_of_their_own(declared: tuple[str, ...], finding: str) -> None:
    """The manifest row is the place of a name that cannot be imported."""
    _, findings = load(dict.fromkeys(declared, ""), declared, modules={"kernels"})
    assert findings == [f"{finding} manifest.toml:9"]


def test_names_that_are_no_files_are_left_to_the_manifest() -> None:
    """A declared path that does not exist is reported once, elsewhere."""
    assert load({}, ("gone.cu",)) == (CudaSources({}, (), {}, (), {}), [])


@pytest.mark.parametrize(
    "text", ["//\n" * 300_000, "\\\n" * 300_000, '""' * 300_000, '#include "a.h"\n' * 9000, "#\n" * 300_000]
)
def test_hostile_amounts_are_refused(text: str) -> None:
    """Memory and time are bounded by counts, not only by bytes."""
    assert scan(text)[-1].startswith("CUDA_TOO_COMPLEX c.cu")


def test_lines_are_those_of_the_original_file() -> None:
    """Joined lines, long comments and raw strings do not shift places."""
    text = 'a\\\nb\n/*\n\n*/ auto s = R"(\n\n)";\n' + "\n" * 5000 + "#include X\n"
    assert scan(text) == [f"CUDA_INCLUDE c.cu:{text[: text.index('#include')].count(chr(10)) + 1}"]


FRAGMENTS = [
    *(
        '#include "x.cuh"',
        "#include <x.cuh>",
        "#",
        "include",
        '"x.cuh"',
        "#if 0\n",
        "#endif\n",
        "#define A ",
        "#error ",
    ),
    *("//", "/*", "*/", '"', "'", "\\\n", "\\ \n", "\n", "\n", "\\", '\\"', "??/", "/", "%", "::", "\t", " ", "<", ">"),
    *('R"(', ')"', 'R"a(', ')a"', "u8", "L", "1", "'0", "0x1", "e+", ".", "_", "$", "x", "import", "\u00e9"),
]
SOUP = st.lists(st.sampled_from(FRAGMENTS), max_size=14).map("".join)


@pytest.mark.skipif(COMPILER is None, reason="g++ is not installed")
@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(SOUP, SOUP)
def test_the_compiler_reads_nothing_that_the_scan_missed(before: str, after: str) -> None:
    """When a text passes, the preprocessor reads no header of the bundle: what hides an include here hides it there."""
    text = f'{before}\n#include "x.cuh"\n{after}'
    assert scan(text) or included_by_compiler(text) == set()


def included_by_compiler(text: str) -> set[str]:
    """Return the headers that g++ reads while preprocessing a text, whatever errors it reports after them."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        (root / "x.cuh").write_bytes(b"")
        (root / "c.cu").write_bytes(text.encode())
        command = [str(COMPILER), "-x", "c++", "-std=c++17", "-E", "-H", "-I.", "-o", "out", "c.cu"]
        ran = subprocess.run(command, cwd=folder, capture_output=True)
    lines = ran.stderr.decode("utf-8", "replace").splitlines()
    return {line.split()[-1].rpartition("/")[2] for line in lines if line.startswith(".")}


@pytest.mark.skipif(COMPILER is None, reason="g++ is not installed")
@pytest.mark.parametrize("text", ['#include "x.cuh"\n', '#/**/inc\\ \nlude "x.cuh"\n'])
def test_the_compiler_check_can_fail(text: str) -> None:
    """The comparison sees an include when there is one."""
    assert included_by_compiler(text) == {"x.cuh"}


@given(st.binary(max_size=80) | SOUP)
def test_only_findings_come_out(text: bytes | str) -> None:
    """Whatever the bytes, the answer is findings or sources; code keeps the length of the spliced text."""
    load({"c.cu": text})
    data = text.encode() if isinstance(text, str) else text
    try:
        read = read_cuda("c.cu", data)
    except IntakeError:
        return
    spliced = len(data.replace(b"\r\n", b"\n"))
    assert len(read.code) <= spliced
    assert all(0 <= item.start < item.end <= len(read.code) for item in read.strings)
