"""Which Python files an entry can reach through local imports.

Invariants
1. Absolute imports are looked up from the bundle root, relative ones from the file's folder; a package's `__init__.py`
   wins over a module of the same name, and every ancestor `__init__.py` of a reached file is reached too.
2. A folder without `__init__.py` is a namespace: it may be imported from, but only its modules, and not itself.
3. An import that is local in part must be local in whole. What is not local at all is somebody else's
   (`intake.static_scan` decides whether it is allowed).
4. No local top-level name, CUDA units included, equals a standard, allowed or validator module, so an import means the
   same file here and where the bundle runs.
"""

from __future__ import annotations

import ast
import keyword
import sys
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from config.canonical import sorted_paths
from config.errors import IntakeError
from intake.refusal import Findings, clip
from intake.scan_policy import IMPORTS
from intake.syntax import line_of

_VALIDATOR_ROOMS = frozenset({"chain", "config", "intake", "node", "qualify", "scoring"})
_RESERVED = frozenset(IMPORTS) | sys.stdlib_module_names | _VALIDATOR_ROOMS

Dotted = tuple[str, ...]


class Import(NamedTuple):
    """One import statement; `names` is empty for `import a.b`, and holds the imported names for `from a import b`."""

    module: Dotted
    names: tuple[str, ...]
    level: int
    line: int


class LocalModules:
    """The importable Python files of a bundle, and its CUDA `units`, which are imported by their stems."""

    def __init__(self, paths: Iterable[str], units: Iterable[str] = ()) -> None:
        self._units = frozenset(units)
        self._modules: dict[Dotted, str] = {}
        self._folders: set[Dotted] = set()
        for path in paths:
            if not path.endswith(".py"):
                continue
            dotted = tuple(path[: -len(".py")].split("/"))
            is_package = dotted[-1] == "__init__"
            dotted = dotted[:-1] if is_package else dotted
            if not all(part.isidentifier() and not keyword.iskeyword(part) for part in dotted):
                continue
            if is_package or dotted not in self._modules:
                self._modules[dotted] = path
            for depth in range(1, len(dotted)):
                self._folders.add(dotted[:depth])
        self._roots = {dotted[0] for dotted in self._modules if dotted}

    def is_local(self, root: str) -> bool:
        """Say whether a top-level name is a module or package of the bundle."""
        return root in self._roots or root in self._units

    @property
    def roots(self) -> frozenset[str]:
        """The top-level names of Python modules and packages."""
        return frozenset(self._roots)

    def find(self, dotted: Dotted) -> str | None:
        """Return the file that a full dotted name means, or None."""
        return self._modules.get(dotted)

    def is_namespace(self, dotted: Dotted) -> bool:
        """Say whether a dotted name is a folder of modules without `__init__.py` (the root counts as one)."""
        return not dotted or (dotted in self._folders and dotted not in self._modules)

    def ancestors(self, path: str) -> list[str]:
        """Return the `__init__.py` files above a file."""
        parts = path.split("/")[:-1]
        inits = ("/".join([*parts[:depth], "__init__.py"]) for depth in range(1, len(parts) + 1))
        return [init for init in inits if init != path and self._modules.get(tuple(init.split("/")[:-1])) == init]

    def shadowing(self) -> list[str]:
        """Return the local top-level names that also name a module outside the bundle."""
        return sorted((self._roots | self._units) & _RESERVED)

    def absolute(self, path: str, level: int, module: Dotted) -> Dotted:
        """Return the absolute dotted name of a relative import in `path`. Raises `IntakeError` (IMPORT_UNRESOLVED)."""
        package = tuple(path.split("/")[:-1])
        if level - 1 > len(package):
            raise IntakeError("IMPORT_UNRESOLVED", "a relative import leaves the bundle.")
        return package[: len(package) - (level - 1)] + module

    def targets(self, path: str, statement: Import) -> list[str]:
        """Return the files one import statement in `path` reaches; [] when it is not local.

        Raises `IntakeError` (IMPORT_UNRESOLVED).
        """
        module = statement.module
        if statement.level:
            module = self.absolute(path, statement.level, module)
        elif not self.is_local(module[0]) or (module[0] in self._units and len(module) == 1):
            return []
        shown = clip(".".join(module))
        base = self.find(module)
        if not statement.names:
            if base is None:
                raise IntakeError("IMPORT_UNRESOLVED", f"{shown} is not a module of the bundle.")
            return [base, *self._prefixes(module)]
        submodules = [self.find((*module, name)) for name in statement.names]
        if base is None and (not self.is_namespace(module) or None in submodules):
            raise IntakeError("IMPORT_UNRESOLVED", f"not every name imported from {shown} is a module of the bundle.")
        reached = [target for target in (base, *submodules) if target is not None]
        return reached + self._prefixes(module)

    def _prefixes(self, module: Dotted) -> list[str]:
        return [path for depth in range(1, len(module)) if (path := self.find(module[:depth])) is not None]


def imports_of(nodes: Iterable[ast.AST]) -> list[Import]:
    """Return every import statement among the nodes of a module, in the order of the source."""
    found = []
    statements = [node for node in nodes if isinstance(node, ast.Import | ast.ImportFrom)]
    for node in sorted(statements, key=lambda node: (node.lineno, node.col_offset)):
        if isinstance(node, ast.Import):
            found += [Import(tuple(alias.name.split(".")), (), 0, line_of(node)) for alias in node.names]
        else:
            module = tuple(node.module.split(".")) if node.module else ()
            found.append(Import(module, tuple(alias.name for alias in node.names), node.level, line_of(node)))
    return found


def python_closure(
    sources: Iterable[str], imports: Mapping[str, list[Import]], modules: LocalModules, findings: Findings
) -> list[str]:
    """Return the files reachable from `sources` (entry files), in path order.

    `imports` holds the import statements of every file that parsed. Unresolvable imports become findings.
    """
    reached: set[str] = set()
    pending = list(sources)
    while pending:
        path = pending.pop()
        if path in reached:
            continue
        reached.add(path)
        pending += modules.ancestors(path)
        for statement in imports.get(path, ()):
            try:
                pending += modules.targets(path, statement)
            except IntakeError as error:
                hint = "Import whole modules of the bundle by their path from its root."
                findings.add(error.code, error.message, hint=hint, path=path, line=statement.line)
    return sorted_paths(reached)


def check_source(path: str) -> str:
    """Return why `path` cannot be an entry source, or "" when it can."""
    if not path.endswith(".py"):
        return "is not a .py file"
    parts = path[: -len(".py")].split("/")
    if not all(part.isidentifier() and not keyword.iskeyword(part) for part in parts):
        return "is not importable: every folder and the file must be named like a Python identifier"
    return ""
