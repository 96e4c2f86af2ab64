"""One policy for every Python file of a bundle, read from its syntax tree.

Invariants
1. Imports are an allow-list (`intake.scan_policy.IMPORTS`); modules that reach files, processes or the interpreter may
   be used only through their listed members.
2. What is banned is banned in every form it can be written in: as an attribute, as the literal of `getattr`, in an
   `import from`, in a class pattern, in a text annotation, as a bare builtin.
3. A module does not travel as a value, nor through another file of the bundle, so rule 1 cannot be walked around.
4. Nothing is assigned into an imported module or into what came from one: no engine-wide mutation.
5. A binding that is harmless while it lies there (`f = torch.compile`) is accepted, and any use of it is refused.
6. Threads are no matter of this scan; the referee checks outputs whenever it likes.
This is defence in depth: it makes honest mistakes loud and cheap attacks visible. Containment is the sandbox's job.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import ClassVar, NamedTuple

from config.errors import IntakeError
from intake.closure import LocalModules
from intake.definitions import definitions, is_made, is_plain_call, last_decorators, maker, makes_classes
from intake.dsl_jit_policy import DSL_JIT_ENTRYPOINTS, admitted_calls
from intake.holdings import changes
from intake.refusal import Findings, clip
from intake.scan_policy import (
    ATTRIBUTE_BUILTINS,
    CODE_BUILTINS,
    CONTAINERS,
    DECORATORS_ONLY,
    DENIED_BUILTINS,
    DENIED_DEFINITIONS,
    DENIED_NAMES,
    DENIED_STRINGS,
    IMPORTS,
    LEAKED_MODULES,
    METACLASSES,
    PLAIN_CALLS_ONLY,
    SELF_MATCHING,
    TAINTED_ATTRIBUTES,
    TAINTED_IMPORTS,
    UNPICKLERS,
    is_denied_attribute,
    path_problem,
)
from intake.scopes import ImportedName, Scope, Scopes, imported_names
from intake.suggest import nearest
from intake.syntax import (
    Parsed,
    attribute_link,
    children,
    dotted_name,
    line_of,
    literal_text,
    parse_expression,
    values_within,
    walk,
)

_SCOPE_NODES = (
    ast.FunctionDef,
    ast.AsyncFunctionDef,
    ast.Lambda,
    ast.ListComp,
    ast.SetComp,
    ast.DictComp,
    ast.GeneratorExp,
)


class LocalUse(NamedTuple):
    """A name reached inside a module of the bundle: `module.name`, used at `path:line`."""

    dotted: tuple[str, ...]
    path: str
    line: int


class ScannedModule(NamedTuple):
    """What other checks need to know about one scanned file."""

    defined: frozenset[str]  # names bound at module level
    foreign: frozenset[str]  # names that hold an outside module or something that may not be used
    local_uses: tuple[LocalUse, ...]


def scan_module(path: str, parsed: Parsed, modules: LocalModules, findings: Findings) -> ScannedModule:
    """Apply the policy to one file; every breach becomes a finding with its line."""
    scanner = _Scanner(path, parsed, modules, findings)
    scanner.run()
    scopes = scanner.scopes
    foreign = {
        name
        for name in (*scopes.module.imports, *scopes.module.aliases)
        if any(scanner.is_foreign_module(origin) for origin in scopes.resolve(name, scopes.module))
    }
    withheld = frozenset(foreign) | scanner.tainted
    return ScannedModule(frozenset(scopes.module.bound), withheld, tuple(scanner.local_uses))


def check_reexports(scanned: dict[str, ScannedModule], modules: LocalModules, findings: Findings) -> None:
    """Refuse reaching an outside module through another file of the bundle."""
    for module in scanned.values():
        for use in module.local_uses:
            for depth in range(len(use.dotted) - 1, 0, -1):
                target = modules.find(use.dotted[:depth])
                if target is None:
                    continue
                name = use.dotted[depth]
                if target in scanned and name in scanned[target].foreign:
                    findings.add(
                        "SCAN_REEXPORT",
                        f"{clip(name)} is imported through {clip(target)}.",
                        hint="Import it directly where it is used.",
                        path=use.path,
                        line=use.line,
                    )
                break


def roots_of(target: ast.AST) -> list[str]:
    """Return the names to one of which `target`, an attribute or element that is assigned or deleted, may belong."""
    names: list[str] = []
    pending = [target]
    while pending:
        node = pending.pop()
        link = attribute_link(node)
        if isinstance(node, ast.Name):
            names.append(node.id)
        elif link is not None:
            pending.append(link[0])
        else:
            pending += values_within(node)
    return names


def is_computed(part: ast.AST) -> bool:
    """Say whether a part of an annotation may put a text together that nobody has read."""
    if isinstance(part, ast.BinOp):
        return not isinstance(part.op, ast.BitOr)
    return isinstance(part, ast.JoinedStr | ast.Call)


class _Scanner:
    """Walks one tree with the current scope at hand."""

    def __init__(self, path: str, parsed: Parsed, modules: LocalModules, findings: Findings) -> None:
        self.scopes = Scopes(parsed.tree, path)
        self.local_uses: list[LocalUse] = []
        self._path = path
        self._parsed = parsed
        self._modules = modules
        self._findings = findings
        self._admitted: frozenset[int] | None = None
        self._changed: set[int] = set()  # nodes that were refused for what they change
        self._plainly_called = {id(node.func) for node in parsed.kinds.get(ast.Call, ()) if is_plain_call(node)}
        self._decorating = {id(node) for node in last_decorators(parsed.kinds)}
        self.tainted = self._tainted_names()

    def run(self) -> None:
        for statement in self._parsed.tree.body:
            self._visit(statement, self.scopes.module)
        for named, name in definitions(self._parsed.kinds):
            if name in DENIED_DEFINITIONS:
                self._refuse("SCAN_NAME", f"nothing may be called {name}.", named)
        for node in changes(self._parsed.kinds, self._foreign_names()):
            if id(node) in self._changed:
                continue
            message = "an attribute may be set here on what an imported module or the class of an argument holds."
            self._refuse("SCAN_MUTATION", message, node, "A kernel changes only the outputs it is given.")

    def _foreign_names(self) -> set[str]:
        statements = (node for kind in (ast.Import, ast.ImportFrom) for node in self._parsed.kinds.get(kind, ()))
        names = (imported for node in statements for imported in imported_names(node))
        return {imported.name for imported in names if not self.is_local(imported)}

    def is_local(self, origin: ImportedName) -> bool:
        """Say whether an import binding comes from the bundle itself."""
        return origin.path.startswith(".") or self._modules.is_local(origin.path.partition(".")[0])

    def is_foreign_module(self, origin: ImportedName) -> bool:
        """Say whether an import binding is an outside module, or anything of a module that is not open."""
        if self.is_local(origin):
            return False
        restricted = IMPORTS.get(origin.path.partition(".")[0]) is not None
        return origin.is_module or origin.path in CONTAINERS | DECORATORS_ONLY | PLAIN_CALLS_ONLY or restricted

    def _visit(self, node: ast.AST, scope: Scope) -> None:
        self._HANDLERS.get(node.__class__, _Scanner._visit_children)(self, node, scope)

    def _visit_children(self, node: ast.AST, scope: Scope) -> None:
        handlers, walk_on = self._HANDLERS, _Scanner._visit_children
        for child in children(node):
            handlers.get(child.__class__, walk_on)(self, child, scope)

    def _refuse(self, code: str, message: str, node: ast.AST, hint: str = "") -> None:
        self._findings.add(code, message, hint=hint, path=self._path, line=line_of(node))

    # Imports

    def _import(self, node: ast.Import, scope: Scope) -> None:
        self._no_class_import(node, scope)
        for alias in node.names:
            self._check_import(alias.name, node)
            self._check_alias_of_restricted(alias.name.partition(".")[0], alias.asname, node)

    def _import_from(self, node: ast.ImportFrom, scope: Scope) -> None:
        self._no_class_import(node, scope)
        base = node.module or ""
        local = node.level > 0 or self._modules.is_local(base.partition(".")[0])
        for alias in node.names:
            if alias.name == "*":
                self._refuse("SCAN_IMPORT", "a wildcard import hides what is used.", node, "Import names one by one.")
            elif local:
                self._local_import(node, alias.name)
            elif (base, alias.name) not in TAINTED_IMPORTS:
                self._check_import(f"{base}.{alias.name}", node)
            if is_denied_attribute(alias.name) or alias.name in TAINTED_ATTRIBUTES | DENIED_STRINGS:
                self._refuse("SCAN_IMPORT", f"{clip(alias.name)} may not be imported.", node)

    def _local_import(self, node: ast.ImportFrom, name: str) -> None:
        module = tuple(node.module.split(".")) if node.module else ()
        if node.level:
            try:
                module = self._modules.absolute(self._path, node.level, module)
            except IntakeError:
                return  # the closure reports it
        self.local_uses.append(LocalUse((*module, name), self._path, line_of(node)))

    def _check_import(self, dotted: str, node: ast.AST) -> None:
        root = dotted.partition(".")[0]
        if self._modules.is_local(root):
            return
        if root not in IMPORTS:
            hint = "" if self._findings.is_full else nearest(root, IMPORTS)
            hint = hint or "A kernel needs torch, triton, cutlass, numpy and plain helpers only."
            self._refuse("SCAN_IMPORT", f"the module {clip(root)} may not be imported.", node, hint)
        elif problem := path_problem(dotted):
            self._refuse("SCAN_IMPORT", f"{problem}.", node)

    def _check_alias_of_restricted(self, root: str, alias: str | None, node: ast.AST) -> None:
        if alias is not None and alias != root and IMPORTS.get(root) is not None:
            hint = f"Write `import {root}`."
            self._refuse("SCAN_IMPORT", f"{root} may not be imported under another name.", node, hint)

    def _no_class_import(self, node: ast.AST, scope: Scope) -> None:
        if scope.is_class:
            self._refuse(
                "SCAN_IMPORT", "an import in a class body is not allowed.", node, "Import at the top of the file."
            )

    # Names and attributes

    def _name(self, node: ast.Name, scope: Scope) -> None:
        self._check_name(node, scope)
        if isinstance(node.ctx, ast.Load):
            for origin in self.scopes.resolve(node.id, scope):
                if not self.is_local(origin) and (origin.is_module or origin.path in CONTAINERS):
                    self._module_value(origin.path, node)
                self._no_value(origin, origin.path, node)

    def _no_value(self, origin: ImportedName, path: str, node: ast.AST, *, is_whole: bool = True) -> None:
        """Refuse what may only decorate, where it does not."""
        if path in DECORATORS_ONLY and not self.is_local(origin) and not (is_whole and id(node) in self._decorating):
            hint = "Use it as the last decorator above the definition."
            self._refuse("SCAN_ATTRIBUTE", f"{path} may be used as a decorator only.", node, hint)
        if (
            path in PLAIN_CALLS_ONLY
            and not self.is_local(origin)
            and not (is_whole and id(node) in self._plainly_called)
        ):
            hint = f"Write {path}(function)."
            self._refuse("SCAN_ATTRIBUTE", f"{path} may be called with one argument only.", node, hint)

    def _module_value(self, path: str, node: ast.AST) -> None:
        message = f"the module {clip(path)} is used as a value."
        self._refuse("SCAN_MODULE_VALUE", message, node, "Use its members by their full names.")

    def _check_name(self, node: ast.Name, scope: Scope) -> None:
        name = node.id
        if name in DENIED_NAMES or name in CODE_BUILTINS or (name.startswith("__") and is_denied_attribute(name)):
            self._refuse("SCAN_NAME", f"{name} may not be used.", node)
        elif isinstance(node.ctx, ast.Load):
            if name in DENIED_BUILTINS | ATTRIBUTE_BUILTINS and not self.scopes.is_function_local(name, scope):
                self._refuse("SCAN_NAME", f"{name} may not be used as a value.", node)
            if name in self.tainted:
                self._refuse("SCAN_NAME", f"{clip(name)} holds something that may not be used.", node)

    def _attribute(self, node: ast.AST, scope: Scope, *, as_value: bool = True) -> None:
        """Check `a.b.c` as a whole: each attribute by name, then the path if it starts at an import."""
        self._check_target(node, scope)
        link = attribute_link(node)
        base: ast.AST = node
        names: list[str] = []
        while link is not None:
            if isinstance(base, ast.Call):
                self._visit_extra_arguments(base, scope)
            base, name = link
            names.append(name)
            self._check_attribute_name(name, node)
            link = attribute_link(base)
        names.reverse()
        if isinstance(base, ast.Name):
            self._check_name(base, scope)
            if base.id in UNPICKLERS and names[0] in ("load", "loads"):
                self._refuse("SCAN_ATTRIBUTE", f"{base.id}.{names[0]} may not be used.", node)
            for origin in self.scopes.resolve(base.id, scope):
                self._check_path(origin, names, node)
                path = ".".join([origin.path, *names])
                if as_value and path in CONTAINERS and not self.is_local(origin):
                    self._module_value(path, node)
                if as_value:
                    self._no_value(origin, path, node)
                for count in range(len(names)):  # an attribute of what may not be a value, such as `__call__`
                    self._no_value(origin, ".".join([origin.path, *names[:count]]), node, is_whole=False)
        else:
            self._visit(base, scope)

    def _visit_extra_arguments(self, call: ast.Call, scope: Scope) -> None:
        for extra in (*call.args[2:], *call.keywords):
            self._visit(extra, scope)

    def _check_attribute_name(self, name: str, node: ast.AST) -> None:
        if is_denied_attribute(name) or name in TAINTED_ATTRIBUTES or name in DENIED_STRINGS:
            hint = ""
            if name in DSL_JIT_ENTRYPOINTS:
                hint = "Only cute.compile(function) is admitted, with cute bound once by `import cutlass.cute as cute`."
            self._refuse("SCAN_ATTRIBUTE", f"the attribute {name} may not be used.", node, hint)

    def _check_path(self, origin: ImportedName, names: list[str], node: ast.AST) -> None:
        if self.is_local(origin):
            self._local_path(origin.path, names, node)
            return
        path = ".".join([origin.path, *names])
        if path.partition(".")[0] not in IMPORTS:
            return  # the import itself was refused
        problem = path_problem(path)
        # A problem of the import statement alone was reported there.
        if problem and not path_problem(origin.path):
            self._refuse("SCAN_ATTRIBUTE", f"{problem}.", node)

    def _local_path(self, path: str, names: list[str], node: ast.AST) -> None:
        for name in names:
            if name in LEAKED_MODULES:
                self._refuse("SCAN_ATTRIBUTE", f"{clip(name)} may not be reached through a local module.", node)
        dotted = tuple(part for part in path.split(".") if part)
        level = len(path) - len(path.lstrip("."))
        if level:
            try:
                dotted = self._modules.absolute(self._path, level, dotted)
            except IntakeError:
                return  # the closure reports it
        self.local_uses.append(LocalUse((*dotted, *names), self._path, line_of(node)))

    def _check_target(self, node: ast.AST, scope: Scope) -> None:
        """Refuse `a.b[c].d = ...` and `del a.b` when `a` came from outside the bundle."""
        if not isinstance(getattr(node, "ctx", None), ast.Store | ast.Del):
            return
        for root in roots_of(node):
            for origin in self.scopes.resolve(root, scope):
                if not self.is_local(origin):
                    self._mutation(origin.path, node)

    def _mutation(self, path: str, node: ast.AST) -> None:
        self._changed.add(id(node))
        message = f"{clip(path)} belongs to an imported module and may not be changed."
        self._refuse("SCAN_MUTATION", message, node, "A kernel changes only the outputs it is given.")

    def _subscript(self, node: ast.Subscript, scope: Scope) -> None:
        self._check_target(node, scope)
        if isinstance(node.value, ast.Attribute):
            self._attribute(node.value, scope, as_value=False)
        else:
            self._visit(node.value, scope)
        self._visit(node.slice, scope)

    def _constant(self, node: ast.Constant, _: Scope) -> None:
        if isinstance(node.value, str) and node.value in DENIED_STRINGS:
            self._refuse("SCAN_NAME", f"the text {node.value!r} may not be used.", node)

    # Calls

    def _call(self, node: ast.Call, scope: Scope) -> None:
        function = node.func
        if attribute_link(node) is not None:
            self._attribute(node, scope)
            return
        if isinstance(function, ast.Name):
            self._call_of_name(function, node, scope)
        elif isinstance(function, ast.Attribute) and function.attr in DSL_JIT_ENTRYPOINTS and self._is_admitted(node):
            pass
        else:
            self._visit(function, scope)
        probes = isinstance(function, ast.Name) and function.id == "hasattr" and not self.scopes.binds("hasattr")
        for argument in (*node.args, *node.keywords):
            if probes and self._is_plain_import(argument, scope):
                self._check_plain_import(argument, scope)
            else:
                self._visit(argument, scope)

    def _call_of_name(self, function: ast.Name, node: ast.Call, scope: Scope) -> None:
        name = function.id
        if name in DENIED_BUILTINS:
            self._refuse("SCAN_NAME", f"{name}() may not be called.", node)
        elif name in ATTRIBUTE_BUILTINS:
            self._attribute_builtin(name, node, scope)
        else:
            self._visit(function, scope)

    def _attribute_builtin(self, name: str, node: ast.Call, scope: Scope) -> None:
        literal = literal_text(node.args[1]) if len(node.args) > 1 else None
        if any(isinstance(argument, ast.Starred) for argument in node.args) or node.keywords:
            self._refuse("SCAN_NAME", f"{name}() may not take unpacked or keyword arguments.", node)
        elif len(node.args) > 1 and literal is None:
            self._refuse(
                "SCAN_NAME", f"{name}() needs a literal attribute name.", node, "Write the name as a plain text."
            )
        elif literal is not None and name != "getattr":
            self._check_attribute_name(literal, node)
            for root in roots_of(node.args[0]):
                for origin in self.scopes.resolve(root, scope):
                    if not self.is_local(origin):
                        self._mutation(origin.path, node)

    def _is_admitted(self, node: ast.Call) -> bool:
        if self._admitted is None:
            roots = {path.partition(".")[0] for path in DSL_JIT_ENTRYPOINTS.values()}
            vendored = any(self._modules.is_local(root) for root in roots)
            self._admitted = admitted_calls(self._parsed.nodes, is_vendored=vendored)
        return id(node) in self._admitted

    # Statements and expressions in which a module or a tainted attribute may stand

    def _assign(self, node: ast.Assign, scope: Scope) -> None:
        for target in node.targets:
            self._visit(target, scope)
        names_only = all(isinstance(target, ast.Name) for target in node.targets)
        self._bound_value(node.value, scope, is_binding=names_only)

    def _annotated_assign(self, node: ast.AnnAssign, scope: Scope) -> None:
        self._visit(node.target, scope)
        self._annotation(node.annotation, scope)
        if node.value is not None:
            self._bound_value(node.value, scope, is_binding=isinstance(node.target, ast.Name))

    def _walrus(self, node: ast.NamedExpr, scope: Scope) -> None:
        self._visit(node.target, scope)
        self._visit(node.value, scope)

    def _bound_value(self, value: ast.expr, scope: Scope, *, is_binding: bool) -> None:
        """Visit the right side of `name = value`, where a module may be renamed and a tainted attribute may rest."""
        # What a class body binds can be reached as an attribute, where nothing follows it.
        is_binding = is_binding and not scope.is_class
        if is_binding and isinstance(value, ast.Attribute) and value.attr in TAINTED_ATTRIBUTES:
            self._visit(value.value, scope)
        elif is_binding and self._is_plain_import(value, scope):
            self._check_plain_import(value, scope)
        else:
            self._visit(value, scope)

    def _is_plain_import(self, node: ast.AST, scope: Scope) -> bool:
        """Say whether `node` is a dotted name of an open import, such as `torch.nn.functional`."""
        chain = dotted_name(node)
        if chain is None:
            return False
        origins = [origin for origin in self.scopes.resolve(chain[0].id, scope) if not self.is_local(origin)]
        return bool(origins) and all(
            IMPORTS.get(origin.path.partition(".")[0], frozenset()) is None for origin in origins
        )

    def _check_plain_import(self, node: ast.AST, scope: Scope) -> None:
        if isinstance(node, ast.Name):
            self._check_name(node, scope)
        else:
            self._attribute(node, scope, as_value=False)

    def _compare(self, node: ast.Compare, scope: Scope) -> None:
        identity = all(isinstance(operator, ast.Is | ast.IsNot) for operator in node.ops)
        holders = [
            right
            for operator, right in zip(node.ops, node.comparators, strict=True)
            if isinstance(operator, ast.In | ast.NotIn) and isinstance(right, ast.Attribute)
        ]
        for operand in (node.left, *node.comparators):
            if operand in holders:
                self._attribute(operand, scope, as_value=False)
            elif identity and self._is_plain_import(operand, scope):
                self._check_plain_import(operand, scope)
            else:
                self._visit(operand, scope)

    def _match_class(self, node: ast.MatchClass, scope: Scope) -> None:
        for name in node.kwd_attrs:
            self._check_attribute_name(name, node)
        kind = node.cls.id if isinstance(node.cls, ast.Name) else ""
        if node.patterns and (kind not in SELF_MATCHING or self.scopes.binds(kind)):
            message = "a class pattern with positions reads attributes that it does not name."
            self._refuse("SCAN_ATTRIBUTE", message, node, "Write `name=pattern` for each attribute.")
        self._visit_children(node, scope)

    # Scopes

    def _class(self, node: ast.ClassDef, scope: Scope) -> None:
        for outer in (*node.decorator_list, *node.bases, *node.keywords):
            self._visit(outer, scope)
        self._no_namespace(node, scope)
        inner = self.scopes.of(node)
        for statement in node.body:
            self._visit(statement, inner)

    def _no_namespace(self, node: ast.ClassDef, scope: Scope) -> None:
        """Refuse a class of classes that may make up what its classes hold, and a data class made by one."""
        if makes_classes(node) and any("type" in self._paths(base, scope) for base in node.bases):
            self._refuse("SCAN_NAME", "a class of classes may not make them itself.", node, "Use its __init__.")
        makers = self._paths(maker(node), scope) if node.decorator_list else set()
        if "dataclasses.dataclass" in makers and (node.keywords or any(map(is_made, node.bases))):
            hint = "Derive it from named classes only."
            self._refuse("SCAN_NAME", "a data class may not be made by a class of classes.", node, hint)

    def _paths(self, node: ast.AST, scope: Scope) -> set[str]:
        """Return the dotted paths that an expression may mean, "type" for every class of classes."""
        chain = dotted_name(node)
        if chain is None:
            return set()
        root, names = chain
        paths = {".".join([origin.path, *names]) for origin in self.scopes.resolve(root.id, scope)}
        return paths | ({"type"} if root.id == "type" or paths & METACLASSES else set())

    def _scope_node(self, node: ast.AST, scope: Scope) -> None:
        inner = self.scopes.of(node)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            arguments = node.args
            for default in (*arguments.defaults, *arguments.kw_defaults):
                if default is not None:
                    self._visit(default, scope)
            for argument in walk(arguments):
                if isinstance(argument, ast.arg) and argument.annotation is not None:
                    self._annotation(argument.annotation, scope)
            if isinstance(node, ast.Lambda):
                self._visit(node.body, inner)
                return
            for decorator in node.decorator_list:
                self._visit(decorator, scope)
            if node.returns is not None:
                self._annotation(node.returns, scope)
            for statement in node.body:
                self._visit(statement, inner)
            return
        generators: list[ast.comprehension] = getattr(node, "generators", [])
        for index, generator in enumerate(generators):
            self._visit(generator.iter, inner if index else scope)
            for part in (generator.target, *generator.ifs):
                self._visit(part, inner)
        for field in ("elt", "key", "value"):
            value = getattr(node, field, None)
            if isinstance(value, ast.AST):
                self._visit(value, inner)

    def _annotation(self, node: ast.expr, scope: Scope) -> None:
        """Visit an annotation; text inside one is code for whoever evaluates annotations, so it is read as code."""
        self._visit(node, scope)
        for part in walk(node):
            if is_computed(part):
                message = "an annotation may not be computed."
                self._refuse("SCAN_NAME", message, part, "Write the type as a name or as one plain text.")
            text = literal_text(part)
            if text is None:
                continue
            try:
                expression = parse_expression(text, line_of(part))
            except IntakeError as error:
                self._refuse(error.code, error.message, part, error.hint)
                continue
            if expression is None:
                continue
            if any(isinstance(inner, ast.NamedExpr) for inner in walk(expression)):
                self._refuse("SCAN_NAME", "an annotation may not assign.", part)
            else:
                self.scopes.adopt(expression)
                self._annotation(expression, self.scopes.module)

    def _tainted_names(self) -> frozenset[str]:
        kinds = self._parsed.kinds
        names = set()
        for node in kinds.get(ast.ImportFrom, ()):
            if node.level == 0:
                names |= {a.asname or a.name for a in node.names if (node.module, a.name) in TAINTED_IMPORTS}
        for node in (*kinds.get(ast.Assign, ()), *kinds.get(ast.AnnAssign, ())):
            if isinstance(node.value, ast.Attribute) and node.value.attr in TAINTED_ATTRIBUTES:
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                names |= {target.id for target in targets if isinstance(target, ast.Name)}
        return frozenset(names)

    # What each kind of node needs; kinds that are not listed are only walked through.
    _HANDLERS: ClassVar[dict[type, Callable[..., None]]] = {
        ast.Import: _import,
        ast.ImportFrom: _import_from,
        ast.Name: _name,
        ast.Attribute: _attribute,
        ast.Subscript: _subscript,
        ast.Call: _call,
        ast.Constant: _constant,
        ast.Assign: _assign,
        ast.AnnAssign: _annotated_assign,
        ast.NamedExpr: _walrus,
        ast.Compare: _compare,
        ast.MatchClass: _match_class,
        ast.ClassDef: _class,
        **dict.fromkeys(_SCOPE_NODES, _scope_node),
    }
