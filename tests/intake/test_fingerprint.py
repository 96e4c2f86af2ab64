"""What a fingerprint forgives and what it does not."""

from __future__ import annotations

from typing import Any

import pytest

from intake.screen import screen_files
from tests.intake.support import golden

MANIFEST = """bundle_id = "c"
abi_version = "cacheon-op-abi-v0"
[competition]
target = "activation.silu_and_mul"
mode = "slot"
[[ops]]
slot = "activation.silu_and_mul"
source = "k.py"
entry = "ENTRY"
"""
SOURCE = '''import torch

BLOCK = 64


def _helper(a, b):
    """Combine."""
    total = a * b + BLOCK
    total = total + torch.sigmoid(a) * b
    return total - BLOCK


def silu_and_mul(x, out):
    d = x.shape[-1] // 2
    gate = torch.nn.functional.silu(x[..., :d].float()).to(x.dtype)
    value = _helper(gate, b=x[..., d:])
    out.copy_(value)
'''


def pieces(files: dict[str, str]) -> tuple[str, ...]:
    """Return the fingerprint of a bundle followed by its pieces."""
    report = screen_files({path: text.encode() for path, text in files.items()}, served=None).report
    return (report.fingerprint, *report.pieces)


def single(source: str, entry: str = "silu_and_mul", **others: str) -> tuple[str, ...]:
    """Return the pieces of a one-row bundle."""
    files = {f"{name}.py": text for name, text in others.items()}
    return pieces({"manifest.toml": MANIFEST.replace("ENTRY", entry), "k.py": source, **files})


SAME: dict[str, tuple[str, str, dict[str, str]]] = {
    "reformatted": (SOURCE.replace("a * b + BLOCK", "(a*b)   +\\\n  BLOCK"), "silu_and_mul", {}),
    "comments and docstrings": (SOURCE.replace('"""Combine."""', "# nothing\n    'other'"), "silu_and_mul", {}),
    "pass": (SOURCE.replace("    d = x", "    pass\n    d = x"), "silu_and_mul", {}),
    "annotations": (SOURCE.replace("def _helper(a, b):", "def _helper(a: int, b: 'x') -> int:"), "silu_and_mul", {}),
    "annotated assignment": (SOURCE.replace("    d = x", "    n: int\n    d: int = x"), "silu_and_mul", {}),
    "entry renamed": (SOURCE.replace("silu_and_mul", "fast"), "fast", {}),
    "locals renamed": (SOURCE.replace("gate", "g").replace("total", "t").replace("value", "v"), "silu_and_mul", {}),
    "parameters renamed": (
        SOURCE.replace("def _helper(a, b)", "def _helper(p, q)")
        .replace("a * b", "p * q")
        .replace("sigmoid(a) * b", "sigmoid(p) * q")
        .replace("b=x", "q=x"),
        "silu_and_mul",
        {},
    ),
    "helper renamed": (SOURCE.replace("_helper", "combine"), "silu_and_mul", {}),
    "import alias": (
        SOURCE.replace("import torch\n", "import torch as t\nimport torch.nn.functional as F\n")
        .replace("torch.nn.functional.silu", "F.silu")
        .replace("torch.sigmoid", "t.sigmoid"),
        "silu_and_mul",
        {},
    ),
    "from-import": (
        SOURCE.replace("import torch\n", "from torch import sigmoid\nfrom torch.nn.functional import silu as s\n")
        .replace("torch.nn.functional.silu", "s")
        .replace("torch.sigmoid", "sigmoid"),
        "silu_and_mul",
        {},
    ),
    "unused import": ("import math\n" + SOURCE, "silu_and_mul", {}),
    "unused function": (SOURCE + "\n\ndef extra(a):\n    return a + 1\n", "silu_and_mul", {}),
    "constant moved": (SOURCE.replace("BLOCK = 64\n", "") + "\n\nBLOCK = 64\n", "silu_and_mul", {}),
    "split into files": (
        "from helper import combine\n"
        + SOURCE.replace(SOURCE[SOURCE.index("BLOCK") : SOURCE.index("def silu")], "").replace("_helper", "combine"),
        "silu_and_mul",
        {
            "helper": "import torch\n"
            + SOURCE[SOURCE.index("BLOCK") : SOURCE.index("def silu")].replace("_helper", "combine")
        },
    ),
    "reached as an attribute": (
        "import helper\n"
        + SOURCE.replace(SOURCE[SOURCE.index("BLOCK") : SOURCE.index("def silu")], "").replace(
            "_helper", "helper._helper"
        ),
        "silu_and_mul",
        {"helper": "import torch\n" + SOURCE[SOURCE.index("BLOCK") : SOURCE.index("def silu")]},
    ),
    "other spelling of a constant": (SOURCE.replace("64", "0x4_0"), "silu_and_mul", {}),
    "folded constant": (SOURCE.replace("= 64", "= 4 * 8 + (1 << 5)"), "silu_and_mul", {}),
    "constant in place of a name": (
        SOURCE.replace("BLOCK = 64\n", "").replace("BLOCK", "64"),
        "silu_and_mul",
        {},
    ),
    "constant in a local name": (
        SOURCE.replace("BLOCK = 64\n", "").replace("    total = a *", "    BLOCK = 64\n    total = a *"),
        "silu_and_mul",
        {},
    ),
    "constant in another file": (
        SOURCE.replace("BLOCK = 64\n", "import tuning\n").replace("BLOCK", "tuning.SIZE"),
        "silu_and_mul",
        {"tuning": "BASE = 32\nSIZE = BASE * 2\n"},
    ),
    "product turned around": (SOURCE.replace("a * b + BLOCK", "BLOCK + b * a"), "silu_and_mul", {}),
    "temporary": (
        SOURCE.replace("    total = a * b + BLOCK", "    part = a * b\n    total = part + BLOCK"),
        "silu_and_mul",
        {},
    ),
    "temporary returned": (
        SOURCE.replace("    return total - BLOCK", "    result = total - BLOCK\n    return result"),
        "silu_and_mul",
        {},
    ),
    "temporary of a call": (
        SOURCE.replace(
            "    value = _helper(gate, b=x[..., d:])\n    out.copy_(value)", "    out.copy_(_helper(gate, x[..., d:]))"
        ),
        "silu_and_mul",
        {},
    ),
    "local written anew under another name": (
        SOURCE.replace("    total = total +", "    more = total +").replace("return total", "return more"),
        "silu_and_mul",
        {},
    ),
    "alias of a parameter": (
        SOURCE.replace("    d = x.shape", "    y = x\n    d = y.shape").replace("x[..., d:]", "y[..., d:]"),
        "silu_and_mul",
        {},
    ),
    "alias of a function": (
        SOURCE.replace("    total = a *", "    s = torch.sigmoid\n    total = a *").replace(
            "torch.sigmoid(a) * b", "s(a) * b"
        ),
        "silu_and_mul",
        {},
    ),
    "two locals in one name": (SOURCE.replace("value", "gate"), "silu_and_mul", {}),
    "unused locals": (
        SOURCE.replace("    d = x", "    pad = 3\n    unused = x.shape[0] * pad\n    d = x"),
        "silu_and_mul",
        {},
    ),
    "parallel assignment": (
        SOURCE.replace("    total = a * b + BLOCK", "    total, other = a * b + BLOCK, b"),
        "silu_and_mul",
        {},
    ),
    "dead branches": (
        SOURCE.replace(
            "    total = total",
            "    if 1 > 2:\n        return a\n    while False:\n        pass\n    if True:\n      total = total",
        ),
        "silu_and_mul",
        {},
    ),
    "code behind a return": (
        SOURCE.replace("return total - BLOCK", "return total - BLOCK\n    return a"),
        "silu_and_mul",
        {},
    ),
    "return of nothing": (SOURCE + "    return None\n", "silu_and_mul", {}),
    "main block": (SOURCE + "\nif __name__ == '__main__':\n    print(1)\n", "silu_and_mul", {}),
    "import inside": (
        SOURCE.replace("    total = a *", "    import torch as t\n    total = a *").replace(
            "torch.sigmoid", "t.sigmoid"
        ),
        "silu_and_mul",
        {},
    ),
    "helper written twice": (
        SOURCE.replace("_helper(gate", "_again(gate")
        + SOURCE[SOURCE.index("\ndef _helper") : SOURCE.index("def silu")].replace("_helper", "_again"),
        "silu_and_mul",
        {},
    ),
    "entry imported": ("from impl import silu_and_mul\n", "silu_and_mul", {"impl": SOURCE}),
}


@pytest.mark.parametrize("name", SAME)
def test_spelling_does_not_count(name: str) -> None:
    """The same computation under another spelling has the same fingerprint."""
    source, entry, others = SAME[name]
    assert single(source, entry, **others) == single(SOURCE)


DIFFERENT = {
    "constant": SOURCE.replace("64", "128"),
    "operator": SOURCE.replace("a * b + BLOCK", "a * b - BLOCK"),
    "called function": SOURCE.replace("sigmoid", "tanh"),
    "order of a sum": SOURCE.replace("total + torch.sigmoid(a) * b", "torch.sigmoid(a) * b + total"),
    "order of operands that are called": SOURCE.replace("torch.sigmoid(a) * b", "b * torch.sigmoid(a)"),
    "arguments swapped": SOURCE.replace("_helper(gate, b=x[..., d:])", "_helper(b=gate, a=x[..., d:])"),
    "in place": SOURCE.replace("total = total + torch.sigmoid(a) * b", "total += torch.sigmoid(a) * b"),
    "one of two constants": SOURCE.replace("return total - BLOCK", "return total - 65"),
    "dead branch taken": SOURCE.replace("    total = total +", "    if True:\n        return a\n    total = total +"),
    "keyword of a library": SOURCE.replace("x[..., :d].float()", "x[..., :d].to(dtype=torch.float64)"),
    "statement dropped": SOURCE.replace("    total = total + torch.sigmoid(a) * b\n", ""),
    "default argument": SOURCE.replace("def _helper(a, b):", "def _helper(a, b=1):"),
    "import effect": SOURCE + "\ntorch.manual_seed(1)\n",
}


@pytest.mark.parametrize("name", DIFFERENT)
def test_work_counts(name: str) -> None:
    """Another computation has another fingerprint."""
    assert single(DIFFERENT[name]) != single(SOURCE)


KERNEL = """import torch
import triton
import triton.language as tl


class Config:
    def small(self):
        return {"warps": 4, "block": 64}

    def large(self):
        return [n * 2 for n in range(3)]


@triton.jit
def _kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for step in range(0, n, BLOCK):
        total = total + tl.load(x_ptr + at + step, mask=at < n, other=0.0)
    tl.store(out_ptr + at, total)


def silu_and_mul(x, out):
    config = Config()
    if not x.is_contiguous():
        x = x.contiguous()
    else:
        x = x.view(-1)
    _kernel[(x.numel() // 64,)](x, out, x.numel(), BLOCK=64, num_warps=config.small()["warps"])
    for index in config.large():
        out[index] = [j + 1 for j in range(index)]
"""
KERNEL_SAME = {
    "in place in a kernel": KERNEL.replace("total = total + tl", "total += tl"),
    "sums in a kernel": KERNEL.replace("x_ptr + at + step", "step + (at + x_ptr)"),
    "flipped comparison": KERNEL.replace("at < n", "n > at"),
    "parameters of a kernel": KERNEL.replace("BLOCK", "WIDTH").replace("x_ptr", "source"),
    "order of keywords": KERNEL.replace("mask=at < n, other=0.0", "other=0.0, mask=at < n"),
    "keyword by place": KERNEL.replace("x.numel(), BLOCK=64", "x.numel(), 64"),
    "order of keys": KERNEL.replace('"warps": 4, "block": 64', '"block": 64, "warps": 4'),
    "one of two loop variables": KERNEL.replace("j + 1 for j", "n + 1 for n"),
    "inverted condition": KERNEL.replace("if not x.is", "if x.is")
    .replace("x.contiguous()\n", "x.AAA\n")
    .replace("x.view(-1)", "x.contiguous()")
    .replace("x.AAA", "x.view(-1)"),
    "order of methods": KERNEL.replace("small", "AAA")
    .replace("large", "small")
    .replace("AAA", "large")
    .replace("config.large", "config.BBB")
    .replace("config.small", "config.large")
    .replace("config.BBB", "config.small")
    .replace("def large", "def CCC")
    .replace("def small", "def large")
    .replace("def CCC", "def small"),
}


@pytest.mark.parametrize("name", KERNEL_SAME)
def test_spelling_of_kernels_does_not_count(name: str) -> None:
    """Kernels of a DSL and classes have fingerprints of the same kind."""
    if name == "order of methods":
        first, second = KERNEL.index("    def small"), KERNEL.index("    def large")
        end = KERNEL.index("\n\n\n@triton")
        turned = KERNEL[:first] + KERNEL[second:end] + "\n\n" + KERNEL[first:second].rstrip() + KERNEL[end:]
        assert single(turned) == single(KERNEL)
        return
    assert KERNEL_SAME[name] != KERNEL
    assert single(KERNEL_SAME[name]) == single(KERNEL)


# What a pair of bundles is, by our rule: equal pieces of the earlier one inside the later one make a copy.
COPIES = {
    "string_quote_style": True,
    "metadata_domain_changed": True,
    "moved_to_module": True,
    "file_renamed": True,
    "padding_function_same_file": True,
    "padding_extra_variant": True,
    "unused_import_added": True,
    "entry_function_renamed": True,
    "one_local_renamed": True,
    "all_renamed": True,
    "dead_statement_inserted": True,
    "annotation_added": True,
    "statements_swapped": True,
    "constant_changed": False,
    "shared_helper_only": False,
    "squat_separate_helper_file": False,
    "patch_totally_different": False,
    "cuda_reformatted_other_shim": True,
    "patch_context_width": True,
}


@pytest.mark.parametrize("vector", golden("copy_vectors")["vectors"], ids=lambda vector: vector["name"])
def test_golden_pairs(vector: dict[str, Any]) -> None:
    """Evasions recorded against the reference are caught, its abuses and false alarms are not repeated."""
    earlier = set(pieces({p: t for p, t in vector["earlier"].items() if t is not None})[1:])
    later = set(pieces({p: t for p, t in vector["later"].items() if t is not None})[1:])
    assert (earlier <= later) is COPIES[vector["name"]]
