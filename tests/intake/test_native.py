"""The build side of a bundle in the one intake path: everything is checked at once, and nothing else leaves."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from config.errors import IntakeError
from intake.refusal import BundleRefused
from intake.screen import screen_files
from tests.intake.support import MANIFEST, bundle

CUDA_ROW = MANIFEST + b'cuda_sources = ["c.cu", "h.cuh"]\n'
UNIT = b'#include "h.cuh"\n#include <cuda_fp16.h>\n__global__ void k() {}\n'
STEPS = b'{"steps": [{"type": "repo_python", "path": "build_cuda_ext.py"}]}'
GOOD: dict[str, bytes | None] = {"manifest.toml": CUDA_ROW, "c.cu": UNIT, "h.cuh": b"int a;\n", "rebuild.json": STEPS}
PATCH_ROW = b'\n[[dep_patches]]\ntarget = "flashinfer"\npath = "p.patch"\n'
DIFF = b"--- a/flashinfer/data/csrc/fused_moe/x.cu\n+++ b/flashinfer/data/csrc/fused_moe/x.cu\n@@ -1 +1 @@\n-a\n+b\n"


def codes(changes: dict[str, Any]) -> list[str]:
    """Return the codes of everything that is wrong with a bundle."""
    with pytest.raises(BundleRefused) as caught:
        screen_files(bundle(**changes))
    return [item.code for item in caught.value.findings]


def test_a_bundle_that_is_only_not_served_has_one_finding() -> None:
    """A bundle in order ends with the one code that says what this validator lacks."""
    assert codes(GOOD) == ["FEATURE_NOT_SERVED"]
    assert screen_files(bundle(**GOOD), served=None).report.features == (
        "cuda_sources",
        "entry",
        "rebuild:build_cuda_ext",
    )


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"rebuild.json": None}, ["REBUILD_DISAGREES"]),
        ({"rebuild.json": b'{"steps": []}'}, ["REBUILD_DISAGREES"]),
        ({"rebuild.json": b"{"}, ["REBUILD_MALFORMED"]),
        ({"c.cu": UNIT.replace(b"h.cuh", b"g.cuh"), "g.cuh": b""}, ["TREE_UNDECLARED", "CUDA_INCLUDE"]),
        ({"c.cu": UNIT + b"%: include <x>\n"}, ["CUDA_LEXICAL"]),
        ({"manifest.toml": CUDA_ROW + PATCH_ROW, "p.patch": DIFF}, ["REBUILD_DISAGREES", "TARGET_FEATURE"]),
        (
            {"manifest.toml": CUDA_ROW + PATCH_ROW, "p.patch": DIFF.replace(b"fused_moe", b"other")},
            ["PATCH_DESTINATION", "REBUILD_DISAGREES", "TARGET_FEATURE"],
        ),
        ({"c.py": b"", "manifest.toml": CUDA_ROW}, ["CUDA_UNIT"]),
        (
            {"torch.cu": UNIT, "manifest.toml": CUDA_ROW.replace(b"c.cu", b"torch.cu"), "c.cu": None},
            ["LOCAL_SHADOWS_EXTERNAL"],
        ),
    ],
)
def test_every_part_is_checked_before_what_is_not_served(changes: dict[str, Any], expected: list[str]) -> None:
    """What is wrong comes first, all of it, and what is not served comes last."""
    assert codes(GOOD | changes) == [*expected, "FEATURE_NOT_SERVED"]


PIECES = st.sampled_from(
    [
        *(
            b"--- a/flashinfer/data/csrc/fused_moe/x.cu\n",
            b"--- /dev/null\n",
            b"+++ b/flashinfer/data/csrc/fused_moe/x.cu\n",
        ),
        *(
            b"@@ -1 +1 @@\n",
            b"@@ -0,0 +1,2 @@\n",
            b"-a\n",
            b"+b\n",
            b" \n",
            b"\n",
            b"diff --git a/x b/x\n",
            b"\\ No newline\n",
        ),
        *(
            b'#include "h.cuh"\n',
            b"#include <",
            b"/*",
            b"*/",
            b'R"(',
            b')"',
            b"'",
            b'"',
            b"\\\n",
            b"??/",
            b"#define A",
            b"__has_include(",
        ),
        *(b'{"steps": [', b"]}", b'{"type": "repo_python", "path": "build_cuda_ext.py"}', b",", b"\xff", b"\x00"),
    ]
)
TEXTS = st.lists(PIECES, max_size=12).map(b"".join)


@settings(deadline=None, max_examples=200)
@given(TEXTS, TEXTS, TEXTS, TEXTS)
def test_only_intake_errors_leave(unit: bytes, header: bytes, steps: bytes, diff: bytes) -> None:
    """Any arrangement of native text gives a report or an `IntakeError`."""
    files = {
        "c.cu": unit,
        "h.cuh": header,
        "rebuild.json": steps,
        "manifest.toml": CUDA_ROW + PATCH_ROW,
        "p.patch": diff,
    }
    for changes in (files, GOOD | {"c.cu": unit, "h.cuh": header}):
        with contextlib.suppress(IntakeError):
            screen_files(bundle(**changes), served=None)
