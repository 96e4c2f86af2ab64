"""Different work whose difference stands where an entry does not lead by name: nobody is called a copy for it."""

from __future__ import annotations

import pytest

from tests.intake.test_fingerprint import MANIFEST, pieces, single

_ENTRY = "def silu_and_mul(x, out):\n    "
_REGISTRY = """REG = {}


def register(name):
    def keep(function):
        REG[name] = function
        return function
    return keep


@register("silu")
def implementation(x, out):
    out.copy_(x * 7)


def silu_and_mul(x, out):
    REG["silu"](x, out)
"""
_HOOK = """class Base:
    made = []

    def __init_subclass__(cls):
        Base.made.append(cls)


class Implementation(Base):
    def run(self, x, out):
        out.copy_(x * 7)


def silu_and_mul(x, out):
    Base.made[0]().run(x, out)
"""
_OPERATOR = """import torch


@torch.library.custom_op("mine::silu", mutates_args=())
def implementation(x: torch.Tensor) -> torch.Tensor:
    return x * 7


def silu_and_mul(x, out):
    out.copy_(torch.ops.mine.silu(x))
"""
_TABLE = "T = {}\n%s\n" + _ENTRY + "out.copy_(x * T['a'])\n"
_KERNEL = """import triton
import triton.language as tl
%s

@triton.autotune(configs=%s, key=["n"])
@triton.jit
def kernel(x, n, %s: tl.constexpr, %s: tl.constexpr):
    at = tl.program_id(0) * %s + tl.arange(0, %s)
    tl.store(x + at, tl.load(x + at) * 2)


def silu_and_mul(x, out):
    grid = lambda meta: (triton.cdiv(x.numel(), meta["%s"]),)
    kernel[grid](x, x.numel())
"""
_CONFIGS = '[triton.Config({"%s": 64, "%s": 128})]'


def _table(statement: str) -> tuple[str, str]:
    return _TABLE % statement, _TABLE % statement.replace("7", "9")


def _tuned(first: str, second: str, *, configs: str, setting: str = "", asked: str = "A") -> str:
    return _KERNEL % (setting, configs, first, second, first, second, asked)


_SWAPPED = {
    "in place": {"configs": _CONFIGS % ("A", "B")},
    "by keywords": {"configs": "[triton.Config(dict(A=64, B=128))]"},
    "elsewhere": {"configs": "CONFIGS", "setting": f"CONFIGS = {_CONFIGS % ('A', 'B')}\n"},
    "in the grid": {"configs": '[triton.Config({"A": 64, "B": 64})]'},
}
_CIRCLE = "".join(f"def f{n}(x):\n    return f{(n + 1) % 25}(x) + {7 if n == 14 else 1} * x\n" for n in range(25))
PAIRS: dict[str, tuple[str, str]] = {
    "registered by a decorator": (_REGISTRY, _REGISTRY.replace("7", "9")),
    "registered by being a subclass": (_HOOK, _HOOK.replace("7", "9")),
    "registered as an operator": (_OPERATOR, _OPERATOR.replace("7", "9")),
    "a call whose result is kept": _table("_ = T.setdefault('a', 7)"),
    "a walrus": _table("(y := T.setdefault('a', 7))"),
    "a loop": _table("for i in range(3):\n    T['a'] = 7 + i"),
    "a block that binds": _table("if len(T) == 0:\n    v = 1\n    T['a'] = 7"),
    "a handler": _table("try:\n    v = 1\n    T['a'] = 7\nexcept KeyError as e:\n    pass"),
    "a default": _table("def unused(a=T.setdefault('a', 7)):\n    pass"),
    "a class body": _table("class Unused:\n    T['a'] = 7"),
    "fields in another order": (
        "import typing\nclass P(typing.NamedTuple):\n    a: int\n    b: int\n" + _ENTRY + "out.copy_(x * P(2, 3).a)\n",
        "import typing\nclass P(typing.NamedTuple):\n    b: int\n    a: int\n" + _ENTRY + "out.copy_(x * P(2, 3).a)\n",
    ),
    "arguments by unpacked name": (
        "def f(a, b):\n    return a - b\n" + _ENTRY + "out.copy_(f(**{'a': x, 'b': 2}))\n",
        "def f(b, a):\n    return b - a\n" + _ENTRY + "out.copy_(f(**{'a': x, 'b': 2}))\n",
    ),
    "a generator that yields nothing": (
        "def f(x):\n    return x\n    yield\n" + _ENTRY + "out.copy_(f(x))\n",
        "def f(x):\n    return x\n" + _ENTRY + "out.copy_(f(x))\n",
    ),
    "what is tried": tuple(  # type: ignore[dict-item]
        _ENTRY + f"n = 1\n    try:\n        x[{index}]\n    except IndexError:\n        n = 2\n    out.copy_(x * n)\n"
        for index in (7, 9)
    ),
    "a parameter that is a constant": (
        _tuned("A", "B", configs=_CONFIGS % ("A", "B")),
        _tuned("A", "B", configs=_CONFIGS % ("A", "B")).replace("x, n,", "x, n: tl.constexpr,"),
    ),
    "far away in a circle": (_CIRCLE + _ENTRY + "f0(x)\n", _CIRCLE.replace("7", "9") + _ENTRY + "f0(x)\n"),
    **{
        f"tuned values in each other's place, {how}": (_tuned("A", "B", **texts), _tuned("B", "A", **texts))
        for how, texts in _SWAPPED.items()
    },
}


@pytest.mark.parametrize("name", PAIRS)
def test_work_that_no_name_leads_to_counts(name: str) -> None:
    """Registries, tables, tuned values and other state that importing a file sets up are part of the work."""
    ours, theirs = PAIRS[name]
    assert single(ours)[0] != single(theirs)[0]


IMPORTS = {
    "a fallback": "try:\n    from {} import run\nexcept ImportError:\n    from common import run\n",
    "a fallback defined here": "try:\n    from {} import run\nexcept ImportError:\n    run = None\n",
    "the later of two": "from common import run\nfrom {} import run\n",
    "for what it does": "import state\nimport {}\nrun = state.STATE.get\n",
}


@pytest.mark.parametrize("name", IMPORTS)
@pytest.mark.parametrize("module", ["aaa", "zzz"])
def test_every_module_that_may_be_meant_counts(name: str, module: str) -> None:
    """Of a name with several origins, all origins count, and so does a module imported only for its effects."""
    others = {"common": "def run(x):\n    return x\n", "state": "STATE = {}\n"}
    used = {key: text for key, text in others.items() if key in IMPORTS[name]}
    entry = IMPORTS[name].format(module) + _ENTRY + "out.copy_(run(x))\n"
    texts = [
        f"def run(x):\n    return x * {n}\n" + ("import state\nstate.STATE[1] = run\n" * ("state" in used))
        for n in (7, 9)
    ]
    first, second = (single(entry, **used, **{module: text})[0] for text in texts)
    assert first != second


def test_a_choice_inside_a_function_counts() -> None:
    """Which of two modules an import inside a function means is part of the work."""
    entry = "if x.is_cuda:\n        from {} import f\n    else:\n        from {} import f\n    out.copy_(f(x))\n"
    files = {"m": "def f(x):\n    return x * 2\n", "n": "def f(x):\n    return x * 9\n"}
    assert single(_ENTRY + entry.format("m", "n"), **files)[0] != single(_ENTRY + entry.format("n", "m"), **files)[0]


def test_renamed_parameters_of_a_tuned_kernel_are_the_same() -> None:
    """A parameter and the texts by which its tuner and its grid name it are renamed together."""
    ours = _tuned("A", "B", configs=_CONFIGS % ("A", "B"))
    theirs = _tuned("BLOCK", "B", configs=_CONFIGS % ("BLOCK", "B"), asked="BLOCK")
    assert single(ours) == single(theirs)


def test_definitions_nobody_reaches_do_not_count() -> None:
    """An unused kernel or constant beside the work is no other work."""
    ours = _tuned("A", "B", configs=_CONFIGS % ("A", "B"))
    more = "\n\n@triton.jit\ndef unused(x):\n    pass\n\n\nLIMIT = math.sqrt(2) * len((1, 2))\n"
    assert single("import math\n" + ours + more) == single(ours)


def test_renamed_parameters_of_a_constructor_are_the_same() -> None:
    """Keywords of a plain class's call are names of its parameters."""
    ours = "class R:\n    def __init__(self, size):\n        self.n = size\n" + _ENTRY + "out.copy_(x * R(size=2).n)\n"
    assert single(ours) == single(ours.replace("size", "count")) == single(ours.replace("size=2", "2"))


_UNIT = """template<int V> __global__ void kernel(const float* x, float* o, int n) { o[n] = x[n] * V; }
void go(const float* x, float* o, int n) { kernel<4><<<n, 256>>>(x, o, n); }
"""


@pytest.mark.parametrize(
    "made",
    [
        'static auto kept = torch::RegisterOperators().op("mine::silu7", &go);\n',
        "static int done = prepare(7);\n",
        "struct Maker { Maker() { prepare(7); } };\nstatic Maker maker;\n",
        "struct Maker { Maker(int n) { prepare(n); } };\nstatic Maker maker(7);\n",
    ],
)
def test_what_runs_when_a_cuda_unit_is_loaded_counts(made: str) -> None:
    """Objects that register or prepare something at load time are part of the work, though nothing names them."""
    manifest = MANIFEST.replace("ENTRY", "silu_and_mul") + 'cuda_sources = ["u.cu"]\n'
    rebuild = '{"steps": [{"type": "repo_python", "path": "build_cuda_ext.py"}]}'
    python = "import u\n" + _ENTRY + "u.go(x, out)\n"
    prints = [
        pieces({"manifest.toml": manifest, "k.py": python, "u.cu": text, "rebuild.json": rebuild})[0]
        for text in (_UNIT + made, _UNIT + made.replace("7", "9"))
    ]
    assert prints[0] != prints[1]
