"""The Python side of one bundle: every file parsed, held against the policy, and followed through its imports.

Invariants
1. Every file is parsed and bounded. Files in which the policy certainly finds nothing (`intake.quiet`) are not read
   node by node; whether a file is read that way never changes what is found.
2. A tree takes fifty times the memory of its text. Of small bundles all trees are kept, of large ones the first, and
   those used last; a file whose tree is asked for again and again keeps it, whatever its size.
3. Where a second process may help, it scans the later half of the files. What is found, and in which order, is the
   same.
"""

from __future__ import annotations

import ast
import marshal
from collections import Counter
from collections.abc import Mapping
from typing import Any

from config.errors import Blame, IntakeError, SourceLocation
from config.limits import IntakeLimits
from intake.beside import beside, spare_processor
from intake.closure import Import, LocalModules, check_source, imports_of, python_closure
from intake.dsl_jit_policy import check_package_import
from intake.fingerprint.names import File
from intake.manifest import Manifest, Op, called_names
from intake.manifest_fields import MANIFEST
from intake.native import units_of
from intake.quiet import quiet_module
from intake.refusal import Findings, clip
from intake.scopes import Scopes
from intake.static_scan import LocalUse, ScannedModule, check_reexports, scan_module
from intake.syntax import Parsed, bounded, parse_tree
from intake.tree import Kind, kind_of

_KEPT_BYTES = 256 * 1024
_RECENT_BYTES = 128 * 1024
_OUTLINED = 20_000  # top-level statements of which an outline is kept, where the tree is not
_SHARED_BYTES = 1024 * 1024  # of Python that are worth a second process
_PARSES = 4  # of one file after the scan; then its tree is kept, so that time stays bounded


class PythonFiles:
    """Every Python file of the bundle, parsed and scanned once."""

    def __init__(
        self,
        files: Mapping[str, bytes],
        manifest: Manifest | None,
        findings: Findings,
        limits: IntakeLimits,
        *,
        may_fork: bool = False,
    ) -> None:
        self._files = files
        self._findings = findings
        self._limits = limits
        self._imports: dict[str, list[Import]] = {}
        self._scanned: dict[str, ScannedModule] = {}
        self._quiet: dict[str, ScannedModule] = {}  # files in which the policy finds nothing
        self._kept: dict[str, ast.Module] = {}
        self._recent: dict[str, ast.Module] = {}
        self._parsed: Counter[str] = Counter()  # how often a file was parsed after the scan
        self._kept_bytes = 0  # text of the files scanned so far
        self._defined: dict[str, frozenset[str]] = {}  # names bound at module level
        self.outlines: dict[str, File] = {}  # of files whose trees were not kept
        self._outlined = 0
        paths = [path for path in files if kind_of(path) is Kind.PYTHON]
        self.modules = LocalModules(paths, units_of(manifest))
        for name in self.modules.shadowing():
            hint = "Rename it: an import of that name must mean the same module everywhere."
            message = f"the local module {clip(name)} has the name of a module outside the bundle."
            findings.add("LOCAL_SHADOWS_EXTERNAL", message, hint=hint, path=self._root_file(name))
        self._sources = {op.source for op in manifest.ops} if manifest else set()
        theirs = self._later_half(paths) if may_fork and spare_processor() else []
        self._scan_all(paths[: len(paths) - len(theirs)], theirs)
        self._check_reexports()

    def _root_file(self, name: str) -> str:
        return self.modules.find((name,)) or name

    def _later_half(self, paths: list[str]) -> list[str]:
        """Return the paths that a second process is to scan; none when there is too little."""
        total = sum(len(self._files[path]) for path in paths)
        if total < _SHARED_BYTES:
            return []
        passed = 0
        for index, path in enumerate(paths):
            passed += len(self._files[path])
            if passed * 2 >= total:
                return paths[index + 1 :]
        return []

    def _scan_all(self, mine: list[str], theirs: list[str]) -> None:
        if not theirs:
            for path in mine:
                self._findings.attempt(lambda path=path: self._scan(path))  # type: ignore[misc]
            return
        with beside(lambda: self._answers(theirs)) as answer:
            self._scan_all(mine, [])
            told = answer()
        if told is None:
            self._scan_all(theirs, [])
        else:
            for path, row in zip(theirs, marshal.loads(told), strict=True):  # what our own fork wrote
                self._take_answer(path, *row)

    def _answers(self, paths: list[str]) -> bytes:
        """Scan some files and return what is known about them, as `_take_answer` reads it."""
        return marshal.dumps([self._answer(path) for path in paths])

    def _answer(self, path: str) -> tuple[Any, ...]:
        self._findings = Findings(self._limits.findings)
        self._findings.attempt(lambda: self._scan(path))
        imports = self._imports.get(path)
        scanned = self._quiet.get(path) or self._scanned.get(path)
        return (
            path in self._quiet,
            None if imports is None else [tuple(item) for item in imports],
            None if scanned is None else (scanned.defined, scanned.foreign, [tuple(use) for use in scanned.local_uses]),
            self._defined.get(path),
            [(item.code, item.message, item.hint, item.blame, item.location) for item in self._findings.documents()],
        )

    def _take_answer(
        self,
        path: str,
        is_quiet: bool,
        imports: list[Any] | None,
        scanned: tuple[Any, ...] | None,
        defined: frozenset[str] | None,
        errors: list[Any],
    ) -> None:
        if imports is not None:
            self._imports[path] = [Import(*item) for item in imports]
        if scanned is not None:
            names, foreign, uses = scanned
            table = self._quiet if is_quiet else self._scanned
            table[path] = ScannedModule(names, foreign, tuple(LocalUse(*use) for use in uses))
        if defined is not None:
            self._defined[path] = defined
        for code, message, hint, blame, location in errors:
            place = SourceLocation.read(location) if location else None
            self._findings.take(IntakeError(code, message, hint=hint, blame=Blame(blame), location=place))

    def _scan(self, path: str) -> None:
        tree = parse_tree(path, self._files[path], self._limits)
        parsed = bounded(path, tree, self._limits)
        self._kept_bytes += len(self._files[path])
        if self._kept_bytes <= _KEPT_BYTES:
            self._kept[path] = tree
        elif not self._findings and self._outlined + len(tree.body) <= _OUTLINED:  # a refused bundle needs none
            self._outlined += len(tree.body)
            self.outlines[path] = File(tree)
        self._findings.attempt(lambda: check_package_import(path, parsed))
        quiet = quiet_module(path, parsed, self.modules, self._limits)
        if quiet is None:
            self._scan_fully(path, parsed)
            return
        self._imports[path] = quiet.imports
        self._quiet[path] = quiet.scanned
        if path in self._sources:
            self._defined[path] = frozenset(Scopes(tree, path).module.bound)

    def _scan_fully(self, path: str, parsed: Parsed) -> None:
        self._imports[path] = imports_of(parsed.nodes)
        self._scanned[path] = scan_module(path, parsed, self.modules, self._findings)
        self._defined[path] = self._scanned[path].defined

    def _check_reexports(self) -> None:
        suspicions = Findings(1)
        check_reexports(self._quiet | self._scanned, self.modules, suspicions)
        if suspicions:
            # What is known about quiet files says more than is true, so now they are read in full.
            for path in self._quiet:
                self._findings.attempt(lambda path=path: self._scan_again(path))  # type: ignore[misc]
            check_reexports(
                {path: self._scanned[path] for path in self._imports if path in self._scanned},
                self.modules,
                self._findings,
            )

    def _scan_again(self, path: str) -> None:
        self._scan_fully(path, bounded(path, self.tree(path), self._limits))

    def closure(self, ops: tuple[Op, ...]) -> list[str]:
        """Check the entry of every row and return the files that entries reach, in path order."""
        sources = []
        for op in ops:
            problem = check_source(op.source)
            if problem:
                message = f"the source {clip(op.source)} {problem}."
                self._findings.add("ENTRY_SOURCE", message, path=MANIFEST, line=op.line)
                continue
            sources.append(op.source)
            for name in called_names(op):
                if op.source in self._defined and name not in self._defined[op.source]:
                    hint = "Define it at the top level of the source file."
                    message = f"{clip(op.source)} does not define {clip(name)}."
                    self._findings.add("ENTRY_NOT_DEFINED", message, hint=hint, path=MANIFEST, line=op.line)
        return python_closure(sources, self._imports, self.modules, self._findings)

    def tree(self, path: str) -> ast.Module:
        """Return the syntax tree of a file that was scanned; not always the same object."""
        tree = self._kept.get(path) or self._recent.pop(path, None)
        if tree is None:
            tree = parse_tree(path, self._files[path], self._limits)
            self._parsed[path] += 1
        if self._parsed[path] > _PARSES:
            self._kept[path] = tree
        if path not in self._kept:
            self._recent[path] = tree  # the last one is the one used last
            while len(self._recent) > 1 and sum(len(self._files[name]) for name in self._recent) > _RECENT_BYTES:
                self._recent.pop(next(iter(self._recent)))
        return tree
