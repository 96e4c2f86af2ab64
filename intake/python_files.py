"""The Python side of one bundle: every file parsed, held against the policy, and followed through its imports.

Invariants
1. Every file is parsed, bounded and scanned as `intake.file_facts` says.
2. A tree takes fifty times the memory of its text. Of small bundles all trees are kept, of large ones the first, and
   those used last; a file whose tree is asked for again and again keeps it, whatever its size.
3. Where other processors are to spare, helpers scan most of much Python. What is found, and in which order, is the
   same, whoever scans what. All of them together hold no more text at once than one process may have to for one file.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Mapping
from typing import Any

from config.limits import IntakeLimits
from intake.beside import spare_processors, spread
from intake.closure import LocalModules, check_source, python_closure
from intake.file_facts import FileFacts, scan_file, scan_fully, told
from intake.fingerprint.outline import File
from intake.manifest import Manifest, Op, called_names
from intake.manifest_fields import MANIFEST
from intake.native import units_of
from intake.refusal import Findings, clip
from intake.static_scan import check_reexports
from intake.syntax import bounded, parse_tree
from intake.tree import Kind, kind_of

_KEPT_BYTES = 256 * 1024
_RECENT_BYTES = 128 * 1024
_OUTLINED = 20_000  # top-level statements of which an outline is kept, where the tree is not
_SHARED_BYTES = 512 * 1024  # of Python that are worth a process
_HELPERS = 7  # processes beside this one, at most
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
        self._facts: dict[str, FileFacts] = {}  # in the order of the paths
        self._kept: dict[str, ast.Module] = {}
        self._recent: dict[str, ast.Module] = {}
        self._parsed: Counter[str] = Counter()  # how often a file was parsed after the scan
        self._kept_bytes = 0  # text of the files scanned so far
        self.outlines: dict[str, File] = {}  # of files whose trees were not kept
        self._outlined = 0
        paths = [path for path in files if kind_of(path) is Kind.PYTHON]
        self.modules = LocalModules(paths, units_of(manifest))
        for name in self.modules.shadowing():
            hint = "Rename it: an import of that name must mean the same module everywhere."
            message = f"the local module {clip(name)} has the name of a module outside the bundle."
            findings.add("LOCAL_SHADOWS_EXTERNAL", message, hint=hint, path=self._root_file(name))
        self._sources = {op.source for op in manifest.ops} if manifest else set()
        helpers = self._helpers(paths) if may_fork else 0
        if helpers > 0:
            self._share(paths, helpers)
        else:
            for path in paths:
                self._facts[path] = self._scan(path, findings)
        self._check_reexports()

    def _root_file(self, name: str) -> str:
        return self.modules.find((name,)) or name

    def _scan(self, path: str, findings: Findings) -> FileFacts:
        facts, tree = self._read(path, findings)
        if tree is not None:
            self._keep(path, tree, is_refused=bool(self._findings or findings))
        return facts

    def _read(self, path: str, findings: Findings) -> tuple[FileFacts, ast.Module | None]:
        data, is_source = self._files[path], path in self._sources
        return scan_file(path, data, self.modules, findings, self._limits, is_source=is_source)

    def _keep(self, path: str, tree: ast.Module, *, is_refused: bool) -> None:
        self._kept_bytes += len(self._files[path])
        if self._kept_bytes <= _KEPT_BYTES:
            self._kept[path] = tree
        elif not is_refused and self._outlined + len(tree.body) <= _OUTLINED:  # a refused bundle needs none
            self._outlined += len(tree.body)
            self.outlines[path] = File(tree)

    def _helpers(self, paths: list[str]) -> int:
        """Return how many processes may scan files beside this one."""
        sizes = [len(self._files[path]) for path in paths]
        processes = min(len(paths), sum(sizes) // _SHARED_BYTES)
        if processes < 2:
            return 0
        at_once = self._limits.text_file_bytes // max(sizes)
        return max(0, min(_HELPERS, spare_processors(), processes - 1, at_once - 1))

    def _share(self, paths: list[str], helpers: int) -> None:
        """Scan all files in several processes; the large ones first, so that nobody waits for the last one."""
        fair = sum(len(self._files[path]) for path in paths) // (4 * (helpers + 1))
        large = [path for path in paths if len(self._files[path]) > fair]
        order = large + [path for path in paths if len(self._files[path]) <= fair]
        refused = Findings(self._limits.findings)  # of small files that this process took
        last = 0  # the last of them in the order of their paths

        def row(number: int, *, keep: bool) -> tuple[Any, ...]:
            nonlocal last
            path, findings = order[number], Findings(self._limits.findings)
            facts = self._scan(path, findings) if keep else self._read(path, findings)[0]
            if number >= len(large):
                # What comes after as many findings as are reported is not reported, so it need not be held. What a
                # helper was lost with is done last, and comes before.
                findings = Findings(0) if refused.is_full and number > last else findings
                if not refused.is_full:
                    last = max(last, number)
                for error in findings.errors:
                    refused.take(error)
            return facts.tell(findings)

        rows = spread(
            lambda number: row(number, keep=True), lambda number: row(number, keep=False), len(order), helpers
        )
        by_path = dict(zip(order, rows, strict=True))
        for path in paths:
            self._facts[path] = told(by_path[path], self._findings)

    def _check_reexports(self) -> None:
        scanned = {path: facts.scanned for path, facts in self._facts.items() if facts.scanned is not None}
        suspicions = Findings(1)
        check_reexports(scanned, self.modules, suspicions)
        if suspicions:
            # What is known about quiet files says more than is true, so now they are read in full.
            for path, facts in self._facts.items():
                if facts.is_quiet:
                    self._findings.attempt(lambda path=path, facts=facts: self._scan_again(path, facts))  # type: ignore[misc]
            known = self._facts.items()
            scanned = {path: facts.scanned for path, facts in known if facts.scanned is not None and not facts.is_quiet}
            check_reexports(scanned, self.modules, self._findings)

    def _scan_again(self, path: str, facts: FileFacts) -> None:
        parsed = bounded(path, self.tree(path), self._limits)
        scan_fully(facts, path, parsed, self.modules, self._findings)

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
                facts = self._facts.get(op.source)
                if facts is not None and facts.defined is not None and name not in facts.defined:
                    hint = "Define it at the top level of the source file."
                    message = f"{clip(op.source)} does not define {clip(name)}."
                    self._findings.add("ENTRY_NOT_DEFINED", message, hint=hint, path=MANIFEST, line=op.line)
        imports = {path: facts.imports for path, facts in self._facts.items() if facts.imports is not None}
        return python_closure(sources, imports, self.modules, self._findings)

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
