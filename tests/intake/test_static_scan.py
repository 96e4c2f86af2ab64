"""The source policy: recorded bypasses are refused, recorded good sources pass."""

from __future__ import annotations

from typing import Any

import pytest

from config.errors import ErrorDocument, IntakeError
from config.limits import INTAKE
from intake import static_scan
from intake.closure import LocalModules
from intake.refusal import Findings
from intake.static_scan import check_reexports, scan_module
from intake.syntax import parse_python
from tests.intake.support import golden

VECTORS = golden("static_scan_vectors")


def scan(source: str, **others: str) -> tuple[ErrorDocument, ...]:
    """Scan `k.py` with this source next to other modules given as name=source."""
    sources = {"k.py": source, **{f"{name}.py": text for name, text in others.items()}}
    modules = LocalModules(sources)
    findings = Findings()
    scanned = {}
    for path, text in sources.items():
        try:
            scanned[path] = scan_module(path, parse_python(path, text.encode()), modules, findings)
        except IntakeError as error:
            findings.take(error)
    check_reexports(scanned, modules, findings)
    return findings.documents()


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["name"])
def test_golden_sources_get_the_recommended_answer(vector: dict[str, Any]) -> None:
    """Every recorded source is accepted or refused as recommended; the row's reason stands in the vector."""
    assert (not scan(vector["source"])) == vector["recommended_accept"]


REFUSED = {
    "coding cookie": "# -*- coding: utf-7 -*-\n",
    "cookie on line two": "\n# vim: set fileencoding=latin-1 :\n",
    "byte-order mark": "\ufeffx = 1\n",
    "lone carriage return": "# a\rimport os\n",
    "attributes by the positions of a pattern": (
        "class A:\n    __match_args__ = ('__globals__',)\nmatch x:\n    case A(g):\n        pass\n"
    ),
    "positions of a named tuple": (
        "from collections import namedtuple\nA = namedtuple('A', 'f_globals')\nmatch x:\n    case A(g):\n        pass\n"
    ),
    "positions of a type renamed": "class int:\n    pass\nmatch x:\n    case int(g):\n        pass\n",
    "hasattr redefined": "import torch\ndef hasattr(m):\n    return m\nhasattr(torch).load('x')\n",
    "hasattr a parameter": "import torch\ndef f(hasattr):\n    return hasattr(torch)\n",
    "hasattr imported": "import torch\nfrom math import sqrt as hasattr\nhasattr(torch)\n",
    "module of an error": "import torch\ntry:\n    torch.zzz\nexcept AttributeError as e:\n    e.obj.hub\n",
    "module of an error by a pattern": "match x:\n    case object(obj=m):\n        pass\n",
    "builtins under another name": "import enum\nenum.bltns.vars(enum.bltns)\n",
    "restricted module of another module": "import typing\ntyping.operator.attrgetter('x')\n",
    "source text of a kernel": "def f(kernel):\n    kernel._unsafe_update_src('x')\n",
    "starred text annotation": "def f(*x: '*eval(1)'):\n    pass\n",
    "text annotation with blanks": "def f(x: ' \\t eval(1)'):\n    pass\n",
    "mutation through a walrus": "import torch\n(T := torch.Tensor).add = 1\n",
    "mutation through getattr": "import torch\ngetattr(torch, 'Tensor').add = 1\n",
    "mutation through a choice": "import torch\n(x if x else torch.Tensor).add = 1\n",
    "mutation through or": "import torch\n(x or torch.Tensor).add = 1\n",
    "mutation through a list": "import torch\n[torch.Tensor][0].add = 1\n",
    "mutation through a dictionary": "import torch\ndel {1: torch.Tensor}[1].add\n",
    "mutation by a dunder": "import os\nos.environ.__setitem__('A', 'b')\n",
    "checkpoint files": "import torch.distributed.checkpoint as c\nc.FileSystemWriter('x')\n",
    "profiler files": "import torch\ntorch.autograd.profiler.profile().export_chrome_trace('x')\n",
    "restricted member": "import os\nos.listdir('.')\n",
    "restricted member by getattr": "import os\ngetattr(os, 'listdir')('.')\n",
    "restricted module as value": "import os\nf = [os]\n",
    "restricted module renamed": "import os as o\n",
    "restricted module assigned": "import os\no = os\n",
    "restricted from-import": "from sys import settrace\n",
    "module in a tuple": "import numpy\na, b = numpy, 1\n",
    "module as default": "import numpy\ndef f(m=numpy):\n    pass\n",
    "module returned": "import numpy\ndef f():\n    return numpy\n",
    "module in a class": "import numpy\nclass A:\n    n = numpy\n",
    "import in a class": "class A:\n    import numpy\n",
    "module through a lambda": "import numpy\nf = lambda: numpy\n",
    "alias of a loader": "import torch\nj = torch.jit\nj.load('x')\n",
    "alias chain": "import torch\nt = torch\nj = t.jit\nk = j\nk.load('x')\n",
    "alias rebound to its member": "import torch\nt = torch\nt = t.jit\nt.load('x')\n",
    "alias of two members": "import torch\nc = torch\na = c.jit\nb = c.hub\nz = a\nz = b\nz.list('x')\n",
    "global at module level": "import os\nglobal os\nos.listdir('.')\n",
    "walrus in an annotation": "def f(x: '(a := b)'):\n    pass\n",
    "loader container as value": "import torch\nf = (torch.jit,)\n",
    "alias by walrus": "import torch\nf = (t := torch)\n",
    "import as other name": "import torch as t\nt.load('x')\n",
    "from-import of a loader": "from torch import load\n",
    "numpy pickle": "import numpy as np\nnp.load('x', allow_pickle=True)\n",
    "leaked module": "import dataclasses\ndataclasses.inspect.stack()\n",
    "private module": "import collections\ncollections._sys.exit()\n",
    "private torch": "import torch\ntorch._C._jit_compile()\n",
    "global import": "def f():\n    global np\n    import numpy as np\ndef g():\n    np.load('x')\n",
    "comprehension does not shadow": "import os\ndef f():\n    [os for os in ()]\n    os.listdir('.')\n",
    "class scope does not shadow": "import os\nclass A:\n    os = 1\n    def f(self):\n        os.listdir('.')\n",
    "class pattern": "match x:\n    case object(__class__=c):\n        pass\n",
    "builtin in a pattern subject": "match eval:\n    case f:\n        pass\n",
    "text annotation": 'def f(x: "open(1)"):\n    pass\n',
    "nested text annotation": "def f(x: \"'open(1)'\"):\n    pass\n",
    "variable annotation": 'x: "eval(1)" = 1\n',
    "return annotation": 'def f() -> "eval(1)":\n    pass\n',
    "decorator": "@eval\ndef f():\n    pass\n",
    "decorator compile": "import torch\n@torch.compile\ndef f():\n    pass\n",
    "compile reference used": "import torch\nf = torch.compile\nf(g)\n",
    "compile reference in a class": "import torch\nclass A:\n    f = torch.compile\nA.f(g)\n",
    "compile reference in a list": "import torch\nf = [torch.compile]\n",
    "self of a builtin used": "m = print.__self__\nm.abs(1)\n",
    "module table used": "from sys import modules\nmodules['os']\n",
    "module table under another name": "from sys import modules as m\nm['os']\n",
    "starred getattr": "import torch\ngetattr(*(torch, 'load'))\n",
    "loader attribute anywhere": "x.load_library('y')\n",
    "module spec": "__spec__.loader\n",
    "assignment into an import": "import torch\ntorch.nn.functional.silu = f\n",
    "assignment through an alias": "import torch.nn.functional as F\nF.silu = f\n",
    "assignment through from-import": "from torch import Tensor\nTensor.add = f\n",
    "assignment through a subscript": "import torch\ntorch.x[0].y = 1\n",
    "augmented assignment": "import torch\ntorch.backends.x += 1\n",
    "deletion": "import torch\ndel torch.x\n",
    "loop target": "import torch\nfor torch.x in y:\n    pass\n",
    "with target": "import torch\nwith a as torch.x:\n    pass\n",
    "class of an argument": "def f(x):\n    type(x).add = 1\n",
    "class of an argument by a name": "def f(x):\n    T = type(x)\n    T.add = 1\n",
    "class of an argument called self": "def f(self, out):\n    type(self).add = 1\n",
    "class of what self was bound to": "class A:\n    def f(self, x):\n        self = x\n        type(self).add = 1\n",
    "class of an argument by setattr": "def f(x):\n    setattr(type(x), 'add', 1)\n",
    "class of an argument by delattr": "def f(x):\n    delattr(type(x), 'add')\n",
    "setattr on a choice": "import torch\nsetattr(torch.Tensor if x else y, 'add', f)\n",
    "setattr on an element": "import torch\nsetattr([torch.Tensor][0], 'add', f)\n",
    "mutation through a loop": "import torch\nfor T in (torch.Tensor, torch.nn.Module):\n    T.add = f\n",
    "mutation through a comprehension": "import torch\n[setattr(T, 'add', f) for T in [torch.Tensor]]\n",
    "mutation through unpacking": "import torch\nT, other = torch.Tensor, 1\nT.add = f\n",
    "mutation through a rest": "import torch\n*T, other = [torch.Tensor, 1]\nT[0].add = f\n",
    "mutation through a pattern": "import torch\nmatch [torch.Tensor]:\n    case [T]:\n        T.add = f\n",
    "mutation through a with": (
        "import contextlib\nimport torch\nwith contextlib.nullcontext(torch.Tensor) as T:\n    T.add = f\n"
    ),
    "mutation through a default": "import torch\ndef g(x, T=torch.Tensor):\n    T.add = f\n",
    "mutation through a keyword default": "import torch\ndef g(*, T=torch.Tensor):\n    T.add = f\n",
    "mutation through self": "import torch\nclass A:\n    def g(self=torch.Tensor):\n        self.add = f\n",
    "mutation through a kept list": "import torch\nkept = [torch.Tensor]\nkept[0].add = f\n",
    "mutation through a kept element": "import torch\nkept = {}\nkept['T'] = torch.Tensor\nkept['T'].add = f\n",
    "mutation through an attribute": (
        "import torch\nclass A:\n    def g(self):\n        self.T = torch.Tensor\n        self.T.add = f\n"
    ),
    "mutation through a class attribute": "import torch\nclass A:\n    T = torch.Tensor\nA.T.add = f\n",
    "mutation through another function": (
        "import torch\ndef g():\n    global T\n    T = [torch.Tensor][0]\ndef h():\n    T.add = f\n"
    ),
    "annotation put together": "def f(x: 'ev' + 'al(1)'):\n    pass\n",
    "annotation formatted": "def f(x: f'int'):\n    pass\n",
    "annotation joined": "def f() -> ''.join(['ev', 'al(1)']):\n    pass\n",
    "traced text, formatted": "import cutlass.cute as cute\ncute.compile(f'x')\n",
    "traced text, put together": "import cutlass.cute as cute\ncute.compile('x' + y)\n",
    "traced text, joined": "import cutlass.cute as cute\ncute.compile(''.join(y))\n",
    "traced text, chosen": "import cutlass.cute as cute\ncute.compile('x' if y else z)\n",
    "traced text, named": "import cutlass.cute as cute\ncute.compile(s := 'x')\n",
    "traced with a text option, put together": "import cutlass.cute as cute\ncute.compile(k, options='-O' + n)\n",
    "setattr on an import": "import torch\nsetattr(torch.Tensor, 'add', f)\n",
    "environment written": "import os\nos.environ['A'] = '1'\n",
    "environment updated": "import os\nos.environ.update(A='1')\n",
    "wildcard": "from math import *\n",
    "unknown module": "import flashattention\n",
    "frame": "f.gi_frame\n",
    "type hints": "import typing\ntyping.get_type_hints(f)\n",
    "string formatter": "import string\nstring.Formatter().get_field('0.x', [1], {})\n",
    "global hook": "import torch\ntorch.nn.modules.module.register_module_forward_hook(f)\n",
}


@pytest.mark.parametrize("name", REFUSED)
def test_ways_around_are_refused_with_a_line(name: str) -> None:
    """Each form of reaching something forbidden is a finding in the right file."""
    findings = scan(REFUSED[name])
    assert findings
    assert all(document.location.startswith("k.py") for document in findings)


ACCEPTED = {
    "patterns of builtin types": (
        "match x:\n    case int(n) | str(n):\n        pass\n    case slice(start=s):\n        pass\n"
    ),
    "assignment into what was just made": "import torch\n(x or torch.zeros(1))[0] = 1\n",
    "guarded device import": (
        "try:\n    import cutlass\n    import cutlass.cute as cute\n\n    @cute.jit\n    def f(a):\n        pass\n"
        "except ImportError:\n    pass\n"
    ),
    "optional triton": (
        "try:\n    import triton\nexcept ImportError:\n    triton = None\nif triton is not None:\n    pass\n"
    ),
    "triton kernel": (
        "import triton\nimport triton.language as tl\n\n@triton.jit\ndef k(p, n: tl.constexpr):\n"
        "    i = tl.program_id(0)\n    tl.store(p + i, tl.load(p + i))\n"
    ),
    "threads": "import threading\nthreading.Thread(target=print).start()\n",
    "names of builtins as parameters": "def forward(input, open=None):\n    return input * 2\n",
    "module alias": "import torch\nF = torch.nn.functional\ndef f(x):\n    return F.silu(x)\n",
    "shadowed by a parameter": "import time\ndef f(time):\n    time.x = 1\n    return [time]\n",
    "own attributes": "class A:\n    def __init__(self):\n        self.x = 1\n        self.y[0] = 2\n",
    "own class": (
        "class A:\n    count = 0\n    def __init__(self):\n        type(self).count += 1\n"
        "    @classmethod\n    def reset(cls):\n        cls.count = 0\n"
    ),
    "types kept and own objects changed": (
        "import torch\nTYPES = {'half': torch.float16}\nTYPES['full'] = torch.float32\nclass A:\n"
        "    def __init__(self, dtype=torch.float16, x=None):\n        self.dtype, self.x = dtype, x\n"
        "        for name, kind in TYPES.items():\n            self.plan.kind = kind\n"
        "def f(plan, x):\n    plan.dtype = torch.float32\n    plan.out.buffer = x\n"
    ),
    "a union annotation": "def f(x: 'int | None', y: list[int] | None = None):\n    pass\n",
    "tracing functions": "import cutlass.cute as cute\ncute.compile(k if x else g, n=1 + m)\n",
    "super": "class A(B):\n    def __init__(self):\n        super().__init__()\n",
    "feature probe": "import torch\nok = hasattr(torch, 'float8_e4m3fn')\nd = getattr(torch, 'float8_e4m3fn', None)\n",
    "environment read": "import os\nx = os.environ.get('A', '')\ny = os.environ['B'] if 'B' in os.environ else ''\n",
    "path helper": "import os.path\nx = os.path.join('a', 'b')\n",
    "interpreter facts": "import sys\nif sys.version_info >= (3, 12):\n    x = sys.platform\n",
    "literal annotation": "from typing import Literal\ndef f(x: Literal['a b', 'c d']):\n    pass\n",
    "forward reference": "def f(x: 'torch.Tensor') -> 'int':\n    pass\n",
    "custom autograd": (
        "import torch\nclass F(torch.autograd.Function):\n    @staticmethod\n    def forward(ctx, x):\n"
        "        return x\n"
    ),
    "scaled matmul": "import torch\ndef f(a, b):\n    return torch._scaled_mm(a, b)\n",
    "utf-8 cookie": "# -*- coding: utf-8 -*-\nx = 1\n",
    "walking a structure": (
        "import torch\nnode = torch.empty(1)\n" + "".join(f"node = node.a{i}\n" for i in range(9)) + "node.x = [node]\n"
    ),
    "many plain aliases": "a0 = 1\n" + "".join(f"a{i + 1} = a{i}\n" for i in range(3000)) + "b = [a3000]\n",
    "local state": (
        "import torch\ncache = {}\ndef f(x):\n    cache[x.shape] = torch.empty(1)\n    cache[x.shape][0] = 1\n"
    ),
}


@pytest.mark.parametrize("name", ACCEPTED)
def test_ordinary_kernel_code_passes(name: str) -> None:
    """Forms that honest kernels use are not findings."""
    assert scan(ACCEPTED[name]) == ()


@pytest.mark.parametrize(
    ("source", "helper"),
    [
        ("from helper import np\nnp.load('x')\n", "import numpy as np\n"),
        ("import helper\nhelper.np.load('x')\n", "import numpy as np\n"),
        ("from helper import j\nj.load('x')\n", "import torch\nj = torch.jit\n"),
        ("from . import helper\nhelper.np.load('x')\n", "import numpy as np\n"),
        ("from .helper import environ\nenviron.clear()\n", "from os import environ\n"),
        ("import helper\nhelper.os.listdir('.')\n", "import os\n"),
        ("from helper import f\nf(g)\n", "import torch\nf = torch.compile\n"),
        ("import helper\nhelper.m.abs(1)\n", "m = print.__self__\n"),
        ("from helper import modules as m\nm['os']\n", "from sys import modules\n"),
    ],
)
def test_modules_do_not_travel_through_other_files(source: str, helper: str) -> None:
    """An outside module is used only in files that import it themselves."""
    assert scan(source, helper=helper)


def test_own_helpers_travel_freely() -> None:
    """Functions and constants of the bundle may be imported from any of its files."""
    assert (
        scan("from helper import f, N\nimport helper\nhelper.f(N)\n", helper="N = 1\ndef f(x):\n    return x\n") == ()
    )


def test_every_breach_is_reported_once_with_its_line() -> None:
    """All findings come in one pass, in source order, each with file and line."""
    findings = scan("import socket\nx = 1\neval('1')\n")
    assert [(document.code, document.location) for document in findings] == [
        ("SCAN_IMPORT", "k.py:1"),
        ("SCAN_NAME", "k.py:3"),
    ]


@pytest.mark.parametrize(
    "source",
    [
        "x = " + "a + " * 3000 + "a\n",
        "x = " + "-" * 20000 + "1\n",
        "x = " + "[" * 150 + "]" * 150 + "\n",
        "x = " + "f(" * 110 + ")" * 110 + "\n",
        "if a:\n  b\n" + "elif a:\n  b\n" * 400,
        "x = [" + "1," * 900_000 + "]\n",
        "x = 9" + "9" * 5000 + "\n",
        "def f(x: '" + "a" + ".b" * 5000 + "'):\n  pass\n",
        "import torch\n" + "".join(f"a = a.b{i}\na = torch.c{i}\n" for i in range(40)) + "a.x\n",
        "".join(f"from torch import a{i} as x\n" for i in range(1000)) + "x.y\n",
    ],
)
def test_sources_made_to_exhaust_the_scan_are_refused(source: str) -> None:
    """Depth and size are bounded before they cost anything."""
    assert scan(source)[0].code in ("PYTHON_TOO_COMPLEX", "PYTHON_SYNTAX")


def test_a_flood_of_unknown_imports_costs_no_flood_of_hints(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once the list of findings is full, nothing more is spent on them."""
    asked: list[str] = []
    monkeypatch.setattr(static_scan, "nearest", lambda word, _: str(asked.append(word)))
    assert len(scan("".join(f"import unknown{index}\n" for index in range(1000)))) == len(asked) == INTAKE.findings
