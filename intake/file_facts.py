"""What one Python file is known by after its scan.

Invariants
1. A file is parsed and bounded, then held against the policy: at once where `intake.quiet` proves that nothing is
   found, else node by node. Which way it went never changes what is found.
2. Facts hold nothing of the tree, so that they can be told by one process to another, findings included.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from config.errors import Blame, ErrorDocument, IntakeError, SourceLocation
from config.limits import IntakeLimits
from intake.closure import Import, LocalModules, imports_of
from intake.dsl_jit_policy import check_package_import
from intake.quiet import quiet_module
from intake.refusal import Findings
from intake.scopes import Scopes
from intake.static_scan import LocalUse, ScannedModule, scan_module
from intake.syntax import Parsed, bounded, parse_tree


@dataclass
class FileFacts:
    """The facts about one file; what is None is not known, because the file was refused before."""

    is_quiet: bool = False  # `scanned` says more than is true
    imports: list[Import] | None = None
    scanned: ScannedModule | None = None
    defined: frozenset[str] | None = None  # names bound at module level

    def tell(self, findings: Findings) -> tuple[Any, ...]:
        """Return the facts and the findings about the file in plain values, as `told` reads them."""
        imports, scanned = self.imports, self.scanned
        return (
            self.is_quiet,
            None if imports is None else [tuple(item) for item in imports],
            None if scanned is None else (scanned.defined, scanned.foreign, [tuple(use) for use in scanned.local_uses]),
            self.defined,
            [(item.code, item.message, item.hint, item.blame, item.location) for item in findings.documents()],
        )


def told(row: tuple[Any, ...], findings: Findings) -> FileFacts:
    """Return the facts that a row of `FileFacts.tell` holds, and add its findings to `findings`."""
    is_quiet, imports, scanned, defined, errors = row
    for error in errors:
        findings.take(_error(ErrorDocument(*error)))
    return FileFacts(
        is_quiet,
        None if imports is None else [Import(*item) for item in imports],
        None if scanned is None else _scanned(*scanned),
        defined,
    )


def _error(item: ErrorDocument) -> IntakeError:
    place = SourceLocation.read(item.location) if item.location else None
    return IntakeError(item.code, item.message, hint=item.hint, blame=Blame(item.blame), location=place)


def _scanned(defined: frozenset[str], foreign: frozenset[str], uses: Iterable[Any]) -> ScannedModule:
    return ScannedModule(defined, foreign, tuple(LocalUse(*use) for use in uses))


def scan_file(
    path: str,
    data: bytes,
    modules: LocalModules,
    findings: Findings,
    limits: IntakeLimits,
    *,
    is_source: bool,
) -> tuple[FileFacts, ast.Module | None]:
    """Return the facts about one file and its tree, which is None for a file that cannot be read.

    `is_source` says that an entry may be looked for in it. Everything wrong with it is added to `findings`.
    """
    facts = FileFacts()
    parsed = findings.attempt(lambda: bounded(path, parse_tree(path, data, limits), limits))
    if parsed is None:
        return facts, None
    findings.attempt(lambda: check_package_import(path, parsed))
    quiet = quiet_module(path, parsed, modules, limits)
    if quiet is None:
        findings.attempt(lambda: scan_fully(facts, path, parsed, modules, findings))
        return facts, parsed.tree
    facts.is_quiet, facts.imports, facts.scanned = True, quiet.imports, quiet.scanned
    if is_source:
        findings.attempt(lambda: _name(facts, path, parsed))
    return facts, parsed.tree


def _name(facts: FileFacts, path: str, parsed: Parsed) -> None:
    facts.defined = frozenset(Scopes(parsed.tree, path).module.bound)


def scan_fully(facts: FileFacts, path: str, parsed: Parsed, modules: LocalModules, findings: Findings) -> None:
    """Read a file node by node, and complete its facts. Raises `IntakeError` (PYTHON_TOO_COMPLEX)."""
    facts.imports = imports_of(parsed.nodes)
    facts.scanned = scan_module(path, parsed, modules, findings)
    facts.is_quiet, facts.defined = False, facts.scanned.defined
