"""Digests of given programs, value by value: what makes the fingerprint faster must not change what it says."""

from __future__ import annotations

import ast
import gc
import hashlib

import pytest

from benchmarks.copy_seeds import PYTHON_SEEDS
from intake.closure import LocalModules
from intake.fingerprint.outline import ASK, File
from intake.fingerprint.program import Program
from intake.screen import screen_files
from tests.intake.support import MANIFEST

KERNEL = """
import math
import typing
import torch
import triton
import triton.language as tl
from triton.language import load as fetch
try:
    import fast
except ImportError:
    fast = None

BLOCK = 4 * 8 + (1 << 5)
NAME = "a" "b"
WIDE: int = BLOCK * 2
TABLE = {"b": 1, "a": torch.float32, **{}}
EAGER = math.cos(1.0)
torch.library.define("a::b", "()")

if typing.TYPE_CHECKING:
    from other import thing


@triton.autotune(configs=[triton.Config({"SIZE": 64}, num_warps=4)], key=["n", "m"])
@triton.heuristics({"EVEN": lambda args: args["n"] % args["SIZE"] == 0})
@triton.jit
def kernel(x, y, n, m, SIZE: tl.constexpr, EVEN: tl.constexpr):
    row, column = tl.program_id(0), tl.program_id(1)
    first = second = tl.arange(0, SIZE)
    inside = n > first
    total = tl.zeros((SIZE,), tl.float32)
    for index in range(0, m, SIZE):
        total += fetch(x + row * n + index + first, mask=inside, other=0.0)
        total += 3 * second + 2
    total = total * 2 + 1 + column
    tl.store(y + row * n + first, total, mask=inside)


class Pair(torch.nn.Module):
    size: int = 3
    other: "Pair"

    def second(self, value, *rest, flag=True, **named):
        def inner():
            nonlocal value
            value = [item for item in rest if item >= value and item]
            return {key: item for key, item in named.items()}, {1, *rest}
        global COUNT
        COUNT = (count := len(rest)) + 1
        del named
        return inner() if flag else (yield from rest)

    def first(self):
        pass

    @property
    def third(self):
        return -self.size, not self.other, ~1, +BLOCK


def choose(value):
    "What a docstring says does not count."
    match value:
        case {"a": 1, **rest} if rest:
            return rest
        case [Pair(size=3) as pair, *others] | (pair, others):
            return pair
        case None | 1.5:
            return f"{value!r:>{BLOCK}}" + f"x{1}"
        case _:
            pass
    try:
        value.close()
    except (OSError, ValueError) as error:
        raise RuntimeError("closed") from error
    else:
        assert value, "open"
    finally:
        value
    while 0:
        choose(value)
    if 1 > 2:
        return choose(value)
    elif not value:
        value = 1
    else:
        value.one, value["two"] = 1, 2
    with open(value) as file, value:
        for line in file:
            if line < BLOCK <= 3:
                continue
            break
        else:
            lines = file
    return (lambda a, *, b=2: a[b:, ::2, ...])(value, b=getattr(value, "size", 3).real)


async def wait(value):
    async with value as inner:
        async for item in inner:
            await item(*value, **value)
    return [part async for part in value]


def run(x, out, n=1):
    import os as system
    half = x.shape[-1] // 2
    gate = torch.nn.functional.silu(x[..., :half].float())
    scale = 2.0
    temporary = gate * scale
    temporary = temporary + gate
    grid = lambda meta: (triton.cdiv(n, meta["SIZE"]), meta["m"])
    kernel[grid](x, out, n=n, m=half, SIZE=BLOCK)
    kernel[(1,)](x, out, n, m=half, other=NAME)
    pair = Pair()
    pair.second(1, flag=fast is None, b=2, a=1)
    system.environ
    a = b = x
    a, b = b, a
    wait(EAGER or TABLE and WIDE)
    out.copy_(temporary + 3 * choose(a) * 4)
    return None
"""
# What was said of these before the fingerprint was made faster.
SYNTAX = "e8e443e4aca35789"
SEEDS = (
    "3035fcea4c83f42f",
    "86087281ba203441",
    "6352b0c3faa3370d",
    "370273cd35dbc9e0",
    "665f60a158ebc454",
    "d7ec9896a9607796",
    "3a4bf461d9f910be",
    "b9ea555106c3c2fd",
)
ITSELF = (
    ("", "from .k import g\n\ndef f(x, out):\n    g(x)\n"),
    ("from . import g\n", "import pkg\n\ndef f(x, out):\n    pkg.g(x)\n"),
    ("from . import g\n", "from pkg import g\n\ndef f(x, out):\n    g(x)\n"),
)


def told(*sources: str) -> str:
    """Return one digest of all that the top-level names of some files reach, and of how it is listed."""
    trees = {f"k{index}.py": ast.parse(source) for index, source in enumerate(sources)}
    program = Program(trees.__getitem__, LocalModules(trees))
    names = [(path, name) for path, tree in trees.items() for name in File(tree).defined]
    roots = [program.root(path, name) for path, name in names]
    nodes = program.below(roots)
    said = [program.deep(root) if isinstance(root, int) else root for root in roots]
    listed = [program.nodes[node] for node in nodes]
    text = repr(
        (said, [tuple(node) for node in listed], program.effects(roots, nodes), sorted(program.imported(nodes)))
    )
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def test_every_kind_of_syntax() -> None:
    """A program of all statements and expressions has the digests, shapes, weights and places it always had."""
    assert told(KERNEL) == SYNTAX


@pytest.mark.parametrize(("source", "expected"), list(zip(PYTHON_SEEDS, SEEDS, strict=True)))
def test_kernels(source: str, expected: str) -> None:
    """So have the kernels of which the benchmark of copies makes its mutants."""
    assert told(source) == expected


def test_nothing_goes_in_a_circle() -> None:
    """What was needed for writing a statement is gone after it: nobody collects cycles while a bundle is screened."""
    tree = ast.parse(KERNEL)
    program = Program(lambda _: tree, LocalModules(["k.py"]))
    gc.collect()
    gc.disable()
    try:
        for name in File(tree).defined:
            program.root("k.py", name)
        assert gc.collect() == 0
    finally:
        gc.enable()


@pytest.mark.parametrize(("package", "kernel"), ITSELF)
def test_a_file_that_imports_from_itself(package: str, kernel: str) -> None:
    """A name that a file imports from itself and does not have is just a name that is not there."""
    manifest = MANIFEST.replace(b"kernels/kernel.py", b"pkg/k.py").replace(b'entry = "silu_and_mul"', b'entry = "f"')
    files = {"manifest.toml": manifest, "pkg/__init__.py": package.encode(), "pkg/k.py": kernel.encode()}
    assert len(screen_files(files, served=None).report.pieces) == 1


def test_an_outline_says_what_may_be_a_constant() -> None:
    """Constants that the file alone decides are remembered, up to a bound; others are asked for, and calls never."""
    lines = ("A = 2 * 3", "B = A", "C = f(A)", f"D = {'x' * 300!r}", "E = 1", "E = 2", "F = G = 4", "H: int = -1")
    file = File(ast.parse("\n".join([*lines, "def f(a, /, b, *, c, **d): pass"])))
    assert file.values == {"A": 6, "B": ASK, "D": ASK, "H": -1}
    assert file.parameters == {"f": ("a", "b", "c")}
