"""Ways to something forbidden through members of allowed modules that run texts, open files, or read and set
attributes by names that are made while the program runs."""

from __future__ import annotations

import pytest

from config.limits import INTAKE
from intake.closure import LocalModules
from intake.quiet import quiet_module
from intake.syntax import parse_python
from tests.intake.test_static_scan import scan

_ENUM = "import enum\nclass E(enum.Enum):\n"
_META = "from dataclasses import dataclass\nclass M(type):\n"
_DATA = "@dataclass\nclass A(metaclass=M):\n    pass\n"

REFUSED = {
    "data class of a made class": (
        "import dataclasses\nX = type('X', (), {'__annot' + 'ations__': names})\ndataclasses.dataclass(X)\n",
        "SCAN_ATTRIBUTE",
    ),
    "data class of a typed dictionary": (
        "import dataclasses, typing\ndataclasses.dataclass(typing.TypedDict('X', {'a, print(1)': int}))\n",
        "SCAN_ATTRIBUTE",
    ),
    "data class above another decorator": (
        "import dataclasses\n@dataclasses.dataclass\n@other\nclass A:\n    pass\n",
        "SCAN_ATTRIBUTE",
    ),
    "data class as a value": ("from dataclasses import dataclass\nlist(map(dataclass, kinds))\n", "SCAN_ATTRIBUTE"),
    "data class kept": ("from dataclasses import dataclass\nfrozen = dataclass(frozen=True)\n", "SCAN_ATTRIBUTE"),
    "data class under another name": (
        "import dataclasses\nmake = dataclasses.dataclass\nmake(X)\n",
        "SCAN_ATTRIBUTE",
    ),
    "data class by its own call": ("import dataclasses\ndataclasses.dataclass.__call__(X)\n", "SCAN_ATTRIBUTE"),
    "data class by its own call as a decorator": (
        "from dataclasses import dataclass\n@dataclass.__call__\nclass A:\n    pass\n",
        "SCAN_ATTRIBUTE",
    ),
    "wrapping by its own call": ("import functools\nfunctools.wraps.__call__(x)\n", "SCAN_ATTRIBUTE"),
    "data class by getattr": ("import dataclasses\ngetattr(dataclasses, 'dataclass')(X)\n", "SCAN_ATTRIBUTE"),
    "data class by a class of classes": (
        _META + "    def __new__(m, n, b, ns):\n        return super().__new__(m, n, b, {**ns})\n" + _DATA,
        "SCAN_NAME",
    ),
    "data class with a keyword": (
        "import dataclasses\nfrom own import M\n@dataclasses.dataclass\nclass A(metaclass=M):\n    pass\n",
        "SCAN_NAME",
    ),
    "data class of a base made on the spot": (
        "import dataclasses\n@dataclasses.dataclass(init=False)\nclass A(f()):\n    pass\n",
        "SCAN_NAME",
    ),
    "class of classes from an import": (
        "from enum import EnumMeta\nclass M(EnumMeta):\n    def __new__(m, n, b, ns):\n        pass\n",
        "SCAN_NAME",
    ),
    "prepared namespace": (_META + "    @classmethod\n    def __prepare__(m, n, b):\n        return {}\n", "SCAN_NAME"),
    "fields of a data class": (
        "import dataclasses\ndataclasses.fields(A)[0].name = 'a, print(1)'\n",
        "SCAN_ATTRIBUTE",
    ),
    "fields in a class": ("class A:\n    __dataclass_fields__ = {'a': x}\n", "SCAN_NAME"),
    "fields by a pattern": (
        "class A:\n    match x:\n        case __dataclass_fields__:\n            pass\n",
        "SCAN_NAME",
    ),
    "annotations by a method": ("class A:\n    @property\n    def __annotations__(self):\n        pass\n", "SCAN_NAME"),
    "data class made of texts": (
        "import dataclasses\ndataclasses.make_dataclass('A', [], namespace=names)\n",
        "SCAN_ATTRIBUTE",
    ),
    "members into a module": (
        "import enum\n@enum.global_enum\nclass E(enum.Enum):\n    __module__ = 'torch'\n    add = 1\n",
        "SCAN_ATTRIBUTE",
    ),
    "members from a module": (
        _ENUM + "    pass\nE._convert_('X', 'builtins', lambda n: n == 'ev' + 'al')\n",
        "SCAN_ATTRIBUTE",
    ),
    "attributes copied": (
        "import functools\nfunctools.update_wrapper(own, print, ('__se' + 'lf__',), ())\n",
        "SCAN_ATTRIBUTE",
    ),
    "attributes copied by an import": ("from functools import update_wrapper\n", "SCAN_IMPORT"),
    "attributes wrapped": (
        "import functools, torch\nfunctools.wraps(own, assigned=('add',))(torch.Tensor)\n",
        "SCAN_ATTRIBUTE",
    ),
    "attributes wrapped by position": (
        "from functools import wraps\nimport torch\nwraps(own, ('add',))(torch.Tensor)\n",
        "SCAN_ATTRIBUTE",
    ),
    "attributes wrapped by unpacking": ("from functools import wraps\nwraps(*x)(y)\n", "SCAN_ATTRIBUTE"),
    "attributes wrapped partly": (
        "import functools\nfunctools.partial(functools.wraps, assigned=('add',))(x)(y)\n",
        "SCAN_ATTRIBUTE",
    ),
    "annotations dispatched": ("import functools\n@functools.singledispatch\ndef f(x):\n    pass\n", "SCAN_ATTRIBUTE"),
    "class changed": ("import functools, torch\nfunctools.total_ordering(torch.Tensor)\n", "SCAN_ATTRIBUTE"),
    "operator of a wrapped function": (
        "import torch\ntorch.library.custom_op('a::b', mutates_args=())(f)\n",
        "SCAN_ATTRIBUTE",
    ),
    "operator above a decorator": (
        "from torch.library import custom_op\n@custom_op('a::b', mutates_args=())\n@wrapped\ndef f(x):\n    pass\n",
        "SCAN_ATTRIBUTE",
    ),
    "schema of a function": ("import torch\ntorch.library.infer_schema(f, mutates_args=())\n", "SCAN_ATTRIBUTE"),
    "operator of torch replaced": ("import torch\ntorch.ops.aten.silu.default.py_impl(key)(f)\n", "SCAN_ATTRIBUTE"),
    "forward reference": (
        "import typing_extensions as t\nt.evaluate_forward_ref(t.List['a' + 'b'].__args__[0])\n",
        "SCAN_ATTRIBUTE",
    ),
    "redirection of any name": (
        "import contextlib\nclass R(contextlib.redirect_stdout):\n    _stream = 'modules'\n",
        "SCAN_ATTRIBUTE",
    ),
    "files from a stream": ("import sys\ntype(sys.stdout.detach().raw)('x').read()\n", "SCAN_ATTRIBUTE"),
    "opener of another module": (
        "import torch\n[torch.nn.parallel][0].distributed.inspect.linecache.tokenize._builtin_open('x')\n",
        "SCAN_ATTRIBUTE",
    ),
    "pickles of a module that travels": ("import torch\n[torch.nn][0].x.pickle.loads(b'')\n", "SCAN_ATTRIBUTE"),
    "file of a logger": (
        "import torch\n[torch.nn.parallel][0].distributed.logging.FileHandler('x')\n",
        "SCAN_ATTRIBUTE",
    ),
    "code of a module that travels": (
        "import torch\n[torch.optim.lr_scheduler][0].types.CodeType()\n",
        "SCAN_ATTRIBUTE",
    ),
    "file of an array": ("import numpy as np\nnp.ones(1).dump('x')\n", "SCAN_ATTRIBUTE"),
    "file of a script": ("import torch\ntorch.jit.script(f).save('x')\n", "SCAN_ATTRIBUTE"),
    "shared file of a storage": ("def f(s):\n    type(s)._new_shared_filename_cpu(a, b, 3)\n", "SCAN_ATTRIBUTE"),
    "tests of a package": ("import numpy as np\nnp.ma.test(extra_argv=['x'])\n", "SCAN_ATTRIBUTE"),
    "text file of records": ("import numpy.ma.mrecords\n", "SCAN_IMPORT"),
    "files on the device": ("import torch\ntorch.cuda.gds.GdsFile('x', 2)\n", "SCAN_ATTRIBUTE"),
    "files of tuning": ("import torch\ntorch.cuda.tunable.write_file('x')\n", "SCAN_ATTRIBUTE"),
    "groups by their own module": ("from torch.distributed.distributed_c10d import new_group\n", "SCAN_IMPORT"),
    "pickles between ranks": ("import torch\ntorch.distributed.broadcast_object_list([1])\n", "SCAN_ATTRIBUTE"),
    "processes of a launcher": ("import torch\ntorch.distributed.launcher.elastic_launch(c, f)()\n", "SCAN_ATTRIBUTE"),
    "artifacts of a compiler": ("import torch\ntorch.compiler.load_cache_artifacts(b'')\n", "SCAN_ATTRIBUTE"),
    "methods for a backend": (
        "import torch\ntorch.utils.generate_methods_for_privateuse1_backend()\n",
        "SCAN_ATTRIBUTE",
    ),
    "process of a test": ("import triton\ntriton.testing.nvsmi(['x'])\n", "SCAN_ATTRIBUTE"),
    "files of a profiler": ("import triton.profiler as proton\n", "SCAN_IMPORT"),
    "file of a traced kernel": (
        "import cutlass.cute as cute\ncute.compile(f).export_to_c('x', 'y')\n",
        "SCAN_ATTRIBUTE",
    ),
    "compiler of a language": ("import cutlass.base_dsl.compiler\n", "SCAN_IMPORT"),
    "clock": ("import time\ntime.clock_settime_ns(0, 0)\n", "SCAN_ATTRIBUTE"),
    "classes above": ("import torch\nclass A(torch.Tensor):\n    pass\nA.mro()[1].add = 1\n", "SCAN_ATTRIBUTE"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_ways_around_are_refused(name: str) -> None:
    """Each is a finding in the file with the code that says what is wrong; no file that holds one is quiet."""
    source, code = REFUSED[name]
    findings = scan(source)
    assert code in {item.code for item in findings}
    assert all(item.location.startswith("k.py") for item in findings)
    assert quiet_module("k.py", parse_python("k.py", source.encode()), LocalModules(["k.py"]), INTAKE) is None


ACCEPTED = {
    "data classes": (
        "from dataclasses import dataclass, field\nimport dataclasses\n@dataclass\nclass A:\n    a: int = 1\n"
        "@other\n@dataclasses.dataclass(frozen=True)\nclass B(A):\n    b: list = field(default_factory=list)\n"
        "x = dataclasses.replace(B(), a=2)\ny = dataclasses.asdict(x)\n"
    ),
    "a generic data class": (
        "from dataclasses import dataclass\nfrom typing import Generic, TypeVar\nT = TypeVar('T')\n"
        "@dataclass(slots=True)\nclass A(Generic[T]):\n    a: T\n"
    ),
    "a data class decorator renamed": "import dataclasses\ndata = dataclasses.dataclass\n@data\nclass A:\n    a: int\n",
    "an operator": (
        "import torch\n@torch.library.custom_op('a::b', mutates_args=('out',), device_types='cuda')\n"
        "def f(x: torch.Tensor, out: torch.Tensor) -> None:\n    out.copy_(x)\n"
        "@f.register_fake\ndef _(x, out):\n    return None\n"
    ),
    "a decorator of its own": (
        "import functools\ndef cached(f):\n    @functools.wraps(f)\n    def inner(*args, **kwargs):\n"
        "        return f(*args, **kwargs)\n    return inner\n"
    ),
    "an order": "import functools\n@functools.total_ordering\nclass A:\n    def __lt__(self, b):\n        return 1\n",
    "own objects made": "class A:\n    def __new__(cls, *args):\n        return super().__new__(cls)\n",
    "one object of a class": (
        "class Single(type):\n    made = {}\n    def __call__(cls, *args):\n"
        "        if cls not in cls.made:\n            cls.made[cls] = super().__call__(*args)\n"
        "        return cls.made[cls]\nclass A(metaclass=Single):\n    pass\n"
    ),
    "an interface": (
        "import abc\nclass A(abc.ABC):\n    @abc.abstractmethod\n    def f(self):\n        pass\n"
        "class B(metaclass=abc.ABCMeta):\n    pass\n"
    ),
    "buffers": "import torch\ndef f(self, x):\n    y = x.detach()\n    return json_text(y, self.buffer, self.raw)\n",
}


@pytest.mark.parametrize("name", ACCEPTED)
def test_their_honest_neighbours_pass(name: str) -> None:
    """What kernels do with the same members is no finding."""
    assert scan(ACCEPTED[name]) == ()


@pytest.mark.parametrize(
    "helper", ["from dataclasses import dataclass as d\n", "import dataclasses\nd = dataclasses.dataclass\n"]
)
def test_decorators_do_not_travel_through_other_files(helper: str) -> None:
    """What may be used in one way only may not be imported from a file in which nobody sees how."""
    found = scan("from helper import d\nd(X)\n", helper=helper)
    assert [item.code for item in found] == ["SCAN_REEXPORT"]
