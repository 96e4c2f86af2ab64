"""Loads a bundle's Python inside an arm, from its read-only mount, under a private package name.

Invariants
1. The bundle root is a package of its own, named after its content hash (`qualify.engine_tree`): its modules cannot
   collide with, or replace, modules of the validator or of another bundle. Relative imports reach up to the root.
2. An absolute import inside the bundle looks at the bundle root first, then at everything else.
3. Only source text is compiled; no cached byte code is read or written.
4. This is plumbing, not a boundary: it runs inside the sandbox, after every lock is shut.
"""

from __future__ import annotations

import ast
import builtins
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any


class BundleLoadError(Exception):
    """The entry of a bundle cannot be had.

    `missing` tells an absent entry from a module that does not load, `uncallable` one that is there and no function.
    """

    def __init__(self, message: str, *, missing: bool, uncallable: bool = False) -> None:
        super().__init__(message)
        self.missing = missing
        self.uncallable = uncallable


class BundleLoader:
    """One bundle's import space."""

    def __init__(self, root: str, package: str) -> None:
        self._root = Path(root)
        self._package = package
        sys.meta_path.insert(0, _Finder(self._root, package, self._builtins()))

    def entry(self, source: str, name: str) -> Callable[..., Any]:
        """Return the callable `name` of the bundle file `source` (a bundle-relative POSIX path).

        Raises `BundleLoadError`; whatever the module itself raises while it loads passes through.
        """
        parts = source.removesuffix(".py").split("/")
        module = importlib.import_module(".".join((self._package, *parts)))
        if not hasattr(module, name):
            raise BundleLoadError(f"{source} defines no callable {name}", missing=True)
        value = getattr(module, name)
        if not callable(value):
            place = f"{source}:{line_of(self._root / source, name)}"
            what = f"{name} is of type {type(value).__name__}, which cannot be called"
            raise BundleLoadError(f"{place}: {what}", missing=True, uncallable=True)
        return value  # type: ignore[no-any-return]

    def _builtins(self) -> dict[str, Any]:
        scope = dict(vars(builtins))
        scope["__import__"] = self._import
        return scope

    def _import(
        self,
        name: str,
        globals: Mapping[str, object] | None = None,  # noqa: A002 - the signature of __import__
        locals: Mapping[str, object] | None = None,  # noqa: A002 - the signature of __import__
        fromlist: Sequence[str] = (),
        level: int = 0,
    ) -> ModuleType:
        top = name.partition(".")[0]
        if level == 0 and self._is_local(top):
            module = importlib.import_module(f"{self._package}.{name}")
            if not fromlist:
                return sys.modules[f"{self._package}.{top}"]
            for item in fromlist:
                if item != "*" and not hasattr(module, item):
                    importlib.import_module(f"{self._package}.{name}.{item}")
            return module
        return builtins.__import__(name, globals, locals, fromlist, level)

    def _is_local(self, top: str) -> bool:
        return (self._root / top).is_dir() or (self._root / f"{top}.py").is_file()


def line_of(file: Path, name: str) -> int:
    """Return the line on which a source binds `name` last at its top level, 1 where it does not say."""
    line = 1
    for statement in ast.parse(file.read_bytes()).body:
        bound = [node for node in ast.walk(statement) if isinstance(node, ast.Name) and node.id == name]
        if getattr(statement, "name", None) == name or any(isinstance(node.ctx, ast.Store) for node in bound):
            line = statement.lineno
    return line


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, root: Path, package: str, scope: dict[str, Any]) -> None:
        self._root, self._package, self._scope = root, package, scope

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,  # noqa: ARG002 - the finder protocol
        target: ModuleType | None = None,  # noqa: ARG002 - the finder protocol
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != self._package and not fullname.startswith(self._package + "."):
            return None
        folder = self._root.joinpath(*fullname.split(".")[1:])
        file = folder.with_name(folder.name + ".py")
        if fullname != self._package and (folder / "__init__.py").is_file():
            return self._spec(fullname, folder / "__init__.py", folder)
        if fullname != self._package and file.is_file():
            return self._spec(fullname, file, None)
        if folder.is_dir():
            return self._spec(fullname, None, folder)
        return None

    def _spec(self, name: str, file: Path | None, folder: Path | None) -> importlib.machinery.ModuleSpec:
        spec = importlib.machinery.ModuleSpec(
            name, _Source(file, self._scope), origin=str(file or folder), is_package=folder is not None
        )
        if folder is not None:
            spec.submodule_search_locations = [str(folder)]
        return spec


class _Source(importlib.abc.Loader):
    def __init__(self, file: Path | None, scope: dict[str, Any]) -> None:
        self._file, self._scope = file, scope

    def exec_module(self, module: ModuleType) -> None:
        if self._file is None:
            return
        vars(module)["__builtins__"] = self._scope
        vars(module)["__file__"] = str(self._file)
        code = compile(self._file.read_bytes(), str(self._file), "exec", dont_inherit=True)
        exec(code, vars(module))
