"""Files that are not read node by node: the quick answer never differs from the full one."""

from __future__ import annotations

import ast
import inspect
import random
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from config.errors import IntakeError
from config.limits import INTAKE, IntakeLimits
from intake import closure, file_facts, quiet, scan_policy, scopes, static_scan, syntax
from intake.closure import LocalModules, imports_of
from intake.nodes import sort_nodes
from intake.quiet import quiet_module
from intake.refusal import BundleRefused, Findings
from intake.screen import screen_files
from intake.static_scan import scan_module
from intake.syntax import bounded, parse_python, parse_tree, walk
from tests.intake.support import bundle, golden
from tests.intake.test_static_scan import ACCEPTED, REFUSED
from tests.intake.test_syntax import EVERYTHING

ROOT = Path(__file__).parent.parent.parent
MODULES = LocalModules(["k.py", "helper.py", "pkg/__init__.py", "pkg/inner.py"])
KERNEL = '''
import math
import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch import Tensor
from helper import scale as rescale
import pkg.inner

DTYPE = torch.bfloat16
functional = torch.nn.functional
cache = {}


@triton.jit
def kernel(p, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(p + offsets, mask=offsets < n, other=0.0).to(tl.float32)
    tl.store(p + offsets, x * tl.sigmoid(x), mask=offsets < n)


class Plan:
    """What one shape needs."""

    def __init__(self, x: Tensor, out: "torch.Tensor", *rest, scale: float = 1.0, **options) -> None:
        self.shape = x.shape
        self.buffers[self.shape] = [torch.empty_like(out) for _ in range(2)]
        if not (0 < scale <= math.inf):
            raise ValueError(f"bad scale {scale!r:>10} of {x.dtype}")

    def run(self, x, out):
        grid = lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)
        kernel[grid](x, x.numel(), BLOCK=64)
        out.copy_(F.silu(x[..., :1]) * functional.relu(x[..., 1:]) * pkg.inner.half(rescale(DTYPE)))
'''


def compare(source: str, modules: LocalModules = MODULES, limits: IntakeLimits = INTAKE) -> bool:
    """Hold the quick answer against the full scan's; say whether the file is quiet, which needs a file that parses."""
    try:
        tree = parse_tree("k.py", source.encode("utf-8", "surrogatepass"), limits)
        parsed = bounded("k.py", tree, limits)
    except IntakeError:
        return False
    told = quiet_module("k.py", parsed, modules, limits)
    if told is None:
        return False
    findings = Findings()
    scanned = scan_module("k.py", parsed, modules, findings)
    assert findings.documents() == ()
    assert scanned.foreign <= told.scanned.foreign
    assert {use.dotted for use in scanned.local_uses} <= {use.dotted for use in told.scanned.local_uses}
    assert told.imports == imports_of(parsed.nodes)
    return True


def corpus() -> list[str]:
    """Return every source the project has a recorded opinion about, and some of its own."""
    files = [*ROOT.glob("tests/hostile/**/*.py"), *ROOT.glob("examples/**/*.py"), *ROOT.glob("intake/*.py")]
    recorded = [vector["source"] for vector in golden("static_scan_vectors")]
    return [
        KERNEL,
        EVERYTHING,
        *recorded,
        *REFUSED.values(),
        *ACCEPTED.values(),
        *(f.read_text("utf-8") for f in files),
    ]


CORPUS = corpus()
LINES = sorted({line for source in CORPUS for line in source.splitlines() if line.strip() and len(line) < 200})
WORDS = sorted(
    {word for source in CORPUS[:600] for word in re.findall(r"\w+|[^\w\s]", source)}
    | scan_policy.DENIED_ATTRIBUTES
    | scan_policy.IMPORTS.keys()
    | {part for path in scan_policy.DENIED_PATHS for part in path.split(".")}
)


def test_no_refused_source_is_quiet() -> None:
    """Every recorded source gets from the quick answer what it gets from the full scan."""
    for source in CORPUS:
        compare(source)


def test_ordinary_kernels_are_quiet() -> None:
    """The quick answer is of use: kernels as people write them are not read node by node."""
    assert compare(KERNEL)
    for path in ROOT.glob("examples/**/*.py"):
        assert compare(path.read_text("utf-8")), path


QUIET = [
    "ok = hasattr(torch, 'float8_e4m3fn')",
    "d = getattr(torch, 'float8_e4m3fn', None)",
    "c = getattr(torch.nn.functional, 'silu')\n\n\ndef h(x):\n    return c(x)",
    "if triton is not None:\n    pass",
    "def g(input, open=None):\n    return [input for _ in (1, open)]",
    "def g(x, *input):\n    def h():\n        return input[0]\n    return h",
]


@pytest.mark.parametrize("statement", QUIET)
def test_what_honest_kernels_do_stays_quiet(statement: str) -> None:
    """Feature probes and parameters called like builtins are no reason to read a file node by node."""
    assert compare(f"{KERNEL}\n{statement}\n")


BREACHES = [
    "open('x')",
    'def g(open, x=f"{open}"): return x',
    "x.__class__",
    "'''import_module'''",
    "y = 'import_' 'module'",
    "y = '\\x5f_import__'",
    "import socket",
    "torch.load('x')",
    "F.silu = kernel",
    "functional.silu = kernel",
    "f = (torch,)",
    "f = torch.jit",
    "y: 'open(1)' = 1",
    "y: \"'open(1)'\" = 1",
    "y: '(a := b)' = 1",
    "del pkg, torch.x",
    "[0 for torch.x in ()]",
    "y: '[0 for torch.x in ()]' = 1",
    "y: '[0 for torch.x[0] in ()]' = 1",
    "setattr(F, 'silu', kernel)",
    "for functional.silu in (): pass",
    "from helper import system",
    "y = pkg.inner.os",
    "torch.uint8 += 1",
    "\uff45val(1)",
    "x.\uff43ompile",
    "def g(input): return input('x')",
    "def g(input, x=input): pass",
    "def g(open): pass\ny = open",
    "def g(input):\n  class A:\n    def h(self):\n      global input\n      return input",
    "def g(input) -> input: pass",
    "def g(input):\n  x: 'input' = 1",
    "@input\ndef g(input): pass",
    "y = getattr(torch, 'compile')",
    "y = getattr(torch, 'load')",
    "y = getattr(torch, 'jit').load",
    "y = getattr(torch.jit, 'load')",
    "y = getattr(x, name)",
    "g = getattr\ng(torch, 'load')",
    "t = getattr(torch, 'nn')\nt.silu = 1",
    "ok = hasattr(os, 'x')\nimport os",
    "ok = hasattr(torch, torch)\nf(torch)",
    "ok = torch is torch == torch",
]


@pytest.mark.parametrize("breach", BREACHES)
def test_one_breach_makes_a_kernel_loud(breach: str) -> None:
    """A statement that may break a rule sends the file to the full scan, wherever it stands."""
    assert not compare(f"{KERNEL}\n{breach}\n")
    assert not compare(f"{KERNEL}\n        {breach}\n")


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 2**64))
def test_mutated_sources_get_the_same_answer(seed: int) -> None:
    """Words of kernels and of recorded bypasses exchanged, lines moved from one file to another."""
    dice = random.Random(seed)
    base = KERNEL if dice.random() < 0.6 else dice.choice(CORPUS)
    tokens = re.findall(r"\w+|[^\w\s]|\s+", base)
    for _ in range(dice.randrange(1, 4)):
        index = dice.randrange(len(tokens) or 1)
        tokens[index : index + 1] = [dice.choice(WORDS)]
    lines = "".join(tokens).split("\n")
    for _ in range(dice.randrange(3)):
        where = dice.randrange(len(lines) + 1)
        before = lines[where - 1] if where else ""
        indent = before[: len(before) - len(before.lstrip())]
        lines.insert(where, indent + dice.choice(LINES).lstrip())
    compare("\n".join(lines))


def screened(files: dict[str, bytes]) -> tuple[object, ...]:
    """Return all that screening says about a bundle."""
    try:
        return (screen_files(files).report,)
    except BundleRefused as refusal:
        return refusal.findings


ENTRY = "\n\ndef silu_and_mul(x, out):\n    pass\n"
REEXPORTS = [
    ("from helper import np", "import numpy as np", True),
    ("import helper\ny = helper.deep.np", "import numpy as np", False),
    ("from helper import np", "def f():\n    import numpy as np\n\n\ndef np():\n    pass", False),
    ("from helper import t", "import torch\nt = torch.nn", False),
    ("from helper import modules", "from sys import maxsize as modules", True),
    ("import helper as h\ng = h.np.load", "import numpy as np", True),
    ("import helper as h\ng = h\ng.math.pi", "import math", True),
]


@pytest.mark.parametrize(("source", "helper", "refused"), REEXPORTS)
def test_what_travels_through_quiet_files_is_judged_in_full(
    source: str, helper: str, refused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Quiet files are read again when one may hand an outside module to another, and only then refused."""
    files = bundle(**{"kernels/kernel.py": (source + ENTRY).encode(), "helper.py": (helper + "\n").encode()})
    answer = screened(files)
    assert ("SCAN_REEXPORT" in str(answer)) is refused
    monkeypatch.setattr(file_facts, "quiet_module", lambda *_: None)
    assert screened(files) == answer


def test_screening_says_the_same_without_the_quick_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reports and findings, in their order, do not depend on which files are read node by node."""
    dice = random.Random(3)
    recorded = [*REFUSED.values(), *ACCEPTED.values(), KERNEL]
    bundles = []
    for _ in range(60):
        files = {f"{name}.py": dice.choice(recorded).encode("utf-8") for name in ("helper", "a", "b")}
        kernel = "import helper, a, b\n" + dice.choice(recorded) + ENTRY
        bundles.append(bundle(**files, **{"kernels/kernel.py": kernel.encode("utf-8")}))
    quick = [screened(files) for files in bundles]
    monkeypatch.setattr(file_facts, "quiet_module", lambda *_: None)
    assert [screened(files) for files in bundles] == quick


NAMES = st.sampled_from(
    ["torch", "np", "os", "F", "x", "helper", "environ", "jit", "load", "open", "nn", "a", "Tensor"]
)
CHAINS = st.lists(NAMES, min_size=1, max_size=3).map(".".join)
STATEMENTS = st.one_of(
    st.builds("import {}".format, CHAINS),
    st.builds("import {} as {}".format, CHAINS, NAMES),
    st.builds("from {} import {} as {}".format, CHAINS, NAMES, NAMES),
    st.builds("{} = {}".format, CHAINS, CHAINS),
    st.builds("{}: {} = {}".format, NAMES, CHAINS, CHAINS),
    st.builds("{}({}, {}[{}])".format, CHAINS, CHAINS, CHAINS, CHAINS),
    st.builds("def {}({}={}): global {}; {} = {}".format, NAMES, NAMES, CHAINS, st.just("g"), NAMES, CHAINS),
    st.builds("def {}({}): return {}".format, NAMES, NAMES, CHAINS),
    st.builds("class {}({}): {} = {}".format, NAMES, CHAINS, NAMES, CHAINS),
    st.builds("{} = lambda {}: [{} for {} in {}]".format, NAMES, NAMES, CHAINS, NAMES, CHAINS),
    st.builds("print({} := {})".format, NAMES, CHAINS),
    st.builds("def f({}: '{}'): import {}; {} += 1".format, NAMES, CHAINS, CHAINS, CHAINS),
    st.builds("if {} is {}: del {}".format, CHAINS, CHAINS, CHAINS),
    st.builds("{} = getattr({}, '{}', {})".format, NAMES, CHAINS, NAMES, NAMES),
    st.builds("hasattr({}, '{}') and getattr(getattr({}, '{}'), '{}').{}".format, CHAINS, *[CHAINS, NAMES] * 2, NAMES),
    st.builds("def f({}, open): return [{} for {} in {}(open)]".format, NAMES, CHAINS, NAMES, CHAINS),
)


@settings(max_examples=400, deadline=None)
@given(st.lists(STATEMENTS, min_size=1, max_size=7))
def test_tangled_bindings_get_the_same_answer(statements: list[str]) -> None:
    """Imports, aliases and scopes in any combination."""
    compare("\n".join(statements))


@pytest.mark.parametrize(
    "source",
    [
        "import torch\na0 = torch\n" + "".join(f"a{i + 1} = a{i}\n" for i in range(20_000)),
        "class A: pass\nimport torch\n" * 20_000,
        "def f(input): input\n" * 20_000,
        "".join(f"from torch import a{i} as x\nx.b{i}\n" for i in range(20_000)),
    ],
    ids=["aliases", "classes", "parameters", "meanings"],
)
def test_what_would_take_too_long_is_left_to_the_full_scan(source: str) -> None:
    """The quick answer costs linear time; these would be quadratic, and none of them is answered."""
    assert quiet_module("k.py", bounded("k.py", parse_tree("k.py", source.encode())), MODULES, INTAKE) is None


def test_bounds_are_those_of_the_full_scan() -> None:
    """A file is too large or too deep for the quick answer exactly when it is for the full scan."""
    sources = ["x = " + "-" * depth + "1\n" for depth in range(92, 102)] + [KERNEL, EVERYTHING]
    for source in sources:
        for limits in (IntakeLimits(), IntakeLimits(syntax_nodes=len(parse_tree_nodes(source)) - 1)):
            fits = True
            try:
                parse_python("k.py", source.encode(), limits)
            except IntakeError:
                fits = False
            assert fits == (sort_nodes(ast.parse(source), limits.syntax_depth + 1, limits.syntax_nodes) is not None)


def parse_tree_nodes(source: str) -> list[ast.AST]:
    """Return the nodes of a source, whatever its depth."""
    return list(walk(ast.parse(source)))


def test_sorted_nodes_are_all_nodes() -> None:
    """Every node of every kind is found, once."""
    own = map(inspect.getsource, (closure, quiet, scopes, static_scan, syntax))
    for source in (EVERYTHING, KERNEL, *own):
        tree = ast.parse(source)
        kinds = sort_nodes(tree, 1000, 10**6)
        assert kinds is not None
        assert all(type(node) is kind for kind, nodes in kinds.items() for node in nodes)
        found = [id(node) for nodes in kinds.values() for node in nodes]
        assert len(found) == len(set(found))
        assert set(found) == {id(node) for node in walk(tree)}
