"""Loading a bundle's Python: its own import space, found from its root, without side effects on the validator's."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from qualify.bundle_loader import BundleLoader, BundleLoadError

COUNTER = iter(range(1000))


@pytest.fixture(autouse=True)
def _restore_imports() -> Iterator[None]:
    """Drop what a test imported."""
    finders, modules = list(sys.meta_path), set(sys.modules)
    yield
    sys.meta_path[:] = finders
    for name in set(sys.modules) - modules:
        del sys.modules[name]


def loader(root: Path, files: dict[str, str]) -> BundleLoader:
    """Write `files` below `root` and return a loader over them."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return BundleLoader(str(root), f"test_bundle_{next(COUNTER)}")


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("k.py", "from helper import f"),
        ("k.py", "from . import helper\nf = helper.f"),
        ("k.py", "import helper\nf = helper.f"),
        ("kernels/k.py", "from helper import f"),
        ("kernels/k.py", "from .. import helper\nf = helper.f"),
        ("kernels/k.py", "from .near import f"),
        ("kernels/k.py", "from kernels.near import f"),
        ("kernels/k.py", "import kernels.near\nf = kernels.near.f"),
        ("kernels/k.py", "import kernels.near as near\nf = near.f"),
        ("kernels/k.py", "from kernels import near\nf = near.f"),
        ("pkg/k.py", "from pkg import f"),
        ("pkg/k.py", "from . import inner\nf = inner.f"),
    ],
)
def test_imports_between_bundle_modules_resolve(tmp_path: Path, source: str, text: str) -> None:
    """Absolute imports start at the bundle root, relative ones reach up to it."""
    files = {
        "helper.py": "def f(): return 7",
        "kernels/near.py": "from helper import f",
        "pkg/__init__.py": "from .inner import f",
        "pkg/inner.py": "from helper import f",
        source: text,
    }
    assert loader(tmp_path, files).entry(source, "f")() == 7


def test_two_bundles_do_not_share_modules(tmp_path: Path) -> None:
    """The same file names in two bundles are two modules, and neither is visible to the validator."""
    first = loader(tmp_path / "a", {"k.py": "import helper\ndef f(): return helper.N", "helper.py": "N = 1"})
    second = loader(tmp_path / "b", {"k.py": "import helper\ndef f(): return helper.N", "helper.py": "N = 2"})
    assert (first.entry("k.py", "f")(), second.entry("k.py", "f")()) == (1, 2)
    assert "helper" not in sys.modules
    assert "k" not in sys.modules


def test_outside_modules_are_found(tmp_path: Path) -> None:
    """What is not in the bundle comes from the environment."""
    text = "import math\nfrom collections import deque\nimport os.path as p\ndef f(): return math.pi, deque, p"
    assert loader(tmp_path, {"k.py": text}).entry("k.py", "f")()[0] > 3


def test_a_missing_entry_is_told_from_a_module_that_does_not_load(tmp_path: Path) -> None:
    """The miner learns which of the two it is."""
    bundle = loader(tmp_path, {"k.py": "value = 3", "broken.py": "import nothing_like_this"})
    for name in ("absent", "value"):
        with pytest.raises(BundleLoadError) as caught:
            bundle.entry("k.py", name)
        assert caught.value.missing
    with pytest.raises(ModuleNotFoundError):
        bundle.entry("broken.py", "f")
    with pytest.raises(ModuleNotFoundError):
        bundle.entry("no/such.py", "f")


def test_no_byte_code_is_written(tmp_path: Path) -> None:
    """Only source text is read; the tree stays as it was published."""
    loader(tmp_path, {"kernels/k.py": "def f(): return __file__, __name__"}).entry("kernels/k.py", "f")()
    assert not list(tmp_path.rglob("*.pyc"))
