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
    "order of operands": SOURCE.replace("a * b + BLOCK", "b * a + BLOCK"),
    "two locals merged": SOURCE.replace("value", "gate"),
    "statement dropped": SOURCE.replace("    total = total + torch.sigmoid(a) * b\n", ""),
    "default argument": SOURCE.replace("def _helper(a, b):", "def _helper(a, b=1):"),
    "import effect": SOURCE + "\ntorch.manual_seed(1)\n",
}


@pytest.mark.parametrize("name", DIFFERENT)
def test_work_counts(name: str) -> None:
    """Another computation has another fingerprint."""
    assert single(DIFFERENT[name]) != single(SOURCE)


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
