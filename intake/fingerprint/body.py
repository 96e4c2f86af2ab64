"""The normal form of one top-level statement of Python: a list of tokens in which names stand by their roles.

Invariants
1. Locals and parameters are numbered by first use, scope by scope; a local that is bound anew on the straight path of
   its function counts as another one. References to other definitions are numbered by first use too.
2. What `intake.fingerprint.rewrite` and `folding` say is the same is written the same: noise, dead branches, constant
   arithmetic, temporaries, aliases, chained and parallel assignments.
3. Of commutative operations only those are ordered whose operands just read and compute: products, sums in kernels of
   a DSL, and sums with a number. Keyword arguments, dictionary displays and plain methods go by their names.
4. Nesting is bounded by the depth bound of the syntax tree; substituted expressions are shallow.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from typing import ClassVar

from intake.fingerprint.expressions import Expressions
from intake.fingerprint.folding import constant_token
from intake.fingerprint.frame import Frame
from intake.fingerprint.rewrite import absorbs, is_dead, live_statements, single_assignment
from intake.fingerprint.usage import CLASS, imported, parameters

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_DROPPED = frozenset({"annotation", "returns", "type_comment", "ctx", "kind", "type_params", "type_ignores", "simple"})
_BLOCKS = frozenset({"body", "orelse", "finalbody"})
_KERNELS = frozenset({"x:triton.jit"})
_TUNERS = frozenset({"x:triton.autotune", "x:triton.heuristics"})  # they name parameters in texts
# Of every kind of node: the fields that are written.
_FIELDS = {
    kind: tuple(field for field in kind._fields if field not in _DROPPED)
    for kind in vars(ast).values()
    if isinstance(kind, type) and issubclass(kind, ast.AST)
}
_BARE = tuple(kind for kind, fields in _FIELDS.items() if not fields)
_ASSIGNMENTS = frozenset({ast.Assign, ast.AnnAssign})


class Body(Expressions):
    """Writes the top-level `statement` at `place` of `path`; `tokens` and `references` hold the result of `write`."""

    def write(self) -> None:
        """Write the statement."""
        if isinstance(self._statement, (*_FUNCTIONS, ast.ClassDef)):
            self._own_numbers[self._statement.name] = "b0"
            self._node(self._statement)
        else:
            self._statements([self._statement], is_straight=False)

    # Statements

    def _statements(self, body: Sequence[ast.stmt], *, is_straight: bool) -> None:
        frame = self._frames[-1]
        live = live_statements(body, self, in_kernel=frame.is_kernel)
        if frame.usage.kind == CLASS:
            live = _ordered_methods(live)
        self._emit("{")
        if frame.is_function:
            self._in_function(frame, live, is_straight=is_straight)
        else:
            for statement in live:
                self._statement_node(statement, is_straight=False)
        if is_straight and self.tokens[-2:] == ["Return", "~"] and isinstance(live[-1], ast.Return):
            del self.tokens[-2:]  # the end of a function returns None anyway
        self._emit("}")

    def _in_function(self, frame: Frame, live: Sequence[ast.stmt], *, is_straight: bool) -> None:
        """Write the statements of a function that do not disappear."""
        rows: list[tuple[ast.stmt, str, ast.expr | None, ast.stmt | None]] = []
        following: ast.stmt | None = None  # the next one that does something
        for statement in reversed(live):
            name, value = single_assignment(statement)
            rows.append((statement, name, value, following))
            if value is None or not is_dead(frame, name, value, self):
                following = statement
        handlers = self.HANDLERS
        for statement, name, value, following in reversed(rows):
            if value is None:
                if statement.__class__ in _ASSIGNMENTS:
                    self._statement_node(statement, is_straight=is_straight)
                else:
                    handlers[statement.__class__](self, statement)
                    if is_straight and isinstance(statement, ast.AugAssign) and isinstance(statement.target, ast.Name):
                        frame.start_version(statement.target.id)
                continue
            if not absorbs(frame, name, value, following, self, is_straight=is_straight):
                self._statement_node(statement, is_straight=is_straight)
            if is_straight:
                frame.start_version(name)

    def _statement_node(self, node: ast.stmt, *, is_straight: bool) -> None:
        if isinstance(node, ast.Assign):
            self._assign(node.value, node.targets, is_straight=is_straight)
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            self._assign(node.value, [node.target], is_straight=is_straight)
        else:
            self._node(node)

    def _assign(self, value: ast.expr, targets: Sequence[ast.expr], *, is_straight: bool) -> None:
        frame, target = self._frames[-1], targets[0]
        name = target.id if len(targets) == 1 and isinstance(target, ast.Name) else ""
        is_own = name in frame.own
        if is_own and frame.next_version(name, is_straight=is_straight)[1] == 0:
            self._emit("Expr")  # the value is computed for what else it does
            self._node(value)
            return
        self._emit("Assign")
        self._node(value)
        if is_straight and is_own:
            frame.numbers.pop(name, None)
            frame.values.pop(name, None)
        self._list(targets)

    def _return(self, node: ast.Return) -> None:
        self._emit("Return")
        is_none = isinstance(node.value, ast.Constant) and node.value.value is None
        self._optional(None if is_none else node.value)

    def _if(self, node: ast.If) -> None:
        test, body, orelse = node.test, node.body, node.orelse
        while orelse and isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            test, body, orelse = test.operand, orelse, body
        self._emit("If")
        self._node(test)
        self._statements(body, is_straight=False)
        self._statements(orelse, is_straight=False)

    def _try(self, node: ast.Try | ast.TryStar) -> None:
        self._emit(type(node).__name__)
        self.guarded += 1
        self._statements(node.body, is_straight=False)
        self.guarded -= 1
        self._list(node.handlers)
        self._statements(node.orelse, is_straight=False)
        self._statements(node.finalbody, is_straight=False)

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self._emit(type(node).__name__)
        start = len(self.tokens)
        self._name_of(node)
        self._decorators(node)
        is_kernel = self._frames[-1].is_kernel or any(token in _KERNELS for token in self.tokens[start:])
        self._open(node, node.args, is_kernel=is_kernel)
        self._statements(node.body, is_straight=True)
        self._close()

    def _decorators(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        """Write the decorators of a function; texts by which a tuner names its parameters read like these."""
        self._emit(f"*{len(node.decorator_list)}")
        if not node.decorator_list:
            return
        start, is_tuned = len(self.tokens), False
        places = {name: place for place, name in enumerate(parameters(node.args))}
        for decorator in node.decorator_list:
            is_tuner = isinstance(decorator, ast.Call) and self.meaning_of(decorator.func) in _TUNERS
            is_tuned = is_tuned or is_tuner
            self._texts = places if is_tuner else {}
            self._node(decorator)
            self._texts = {}
        if is_tuned:
            said = {token for name in places for token in (f"k:{name}", constant_token(name))}
            if any(token in said or _may_name(token) for token in self.tokens[start:]):
                self._emit(f"named:{','.join(places)}")

    def _class(self, node: ast.ClassDef) -> None:
        self._emit("ClassDef")
        self._name_of(node)
        self._list(node.decorator_list)
        self._arguments(node.bases, node.keywords, {})
        if node.decorator_list or node.bases or node.keywords:
            # Whoever reads the class may make fields of what is annotated, in this order.
            fields = [item.target.id for item in node.body if _is_field(item)]  # type: ignore[attr-defined]
            self._emit(f"fields:{','.join(fields)}")
        self._frames.append(Frame(self._analysis.scopes[id(node)]))
        self._statements(node.body, is_straight=False)
        self._close()

    def _name_of(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> None:
        if node is not self._statement:
            self._emit(self._bound(node.name))

    def _plain(self, node: ast.AST) -> None:
        """Write a node by its kind and its fields."""
        kind = node.__class__
        self._emit(kind.__name__)
        for field in _FIELDS[kind]:
            value = getattr(node, field, None)
            if isinstance(value, list):
                if field in _BLOCKS and (not value or isinstance(value[0], ast.stmt)):
                    self._statements(value, is_straight=False)
                else:
                    self._list(value)
            elif isinstance(value, ast.AST):
                self.HANDLERS[value.__class__](self, value)
            elif isinstance(value, str) and field in ("name", "rest"):
                self._emit(self._bound(value))
            else:
                self._emit("~" if value is None else repr(value))

    def _bare(self, node: ast.AST) -> None:
        """Write a node that holds nothing."""
        self._emit(node.__class__.__name__)

    def _expression(self, node: ast.Expr) -> None:
        self._emit("Expr")
        self.HANDLERS[node.value.__class__](self, node.value)

    def _nothing(self, node: ast.AST) -> None:
        """Write nothing: declarations of scope show in what names mean."""

    def _import(self, node: ast.Import | ast.ImportFrom) -> None:
        """Write the names that are bound elsewhere, too; what others mean shows where they are used."""
        for name, dotted in imported(node):
            if self.is_choice(name):
                meaning = self._names.resolve_import(self._path, dotted, [])
                self._emit("Import")
                self._emit(self._bound(name))
                self._emit(self._reference(meaning))

    # Of every kind of node; what is not named here is written by its kind and its fields.
    HANDLERS: ClassVar[dict[type, Callable[..., None]]] = {
        **dict.fromkeys(_FIELDS, _plain),
        **dict.fromkeys(_BARE, _bare),
        **Expressions.HANDLERS,
        **dict.fromkeys((ast.FunctionDef, ast.AsyncFunctionDef), _function),
        **dict.fromkeys((ast.Global, ast.Nonlocal), _nothing),
        **dict.fromkeys((ast.Import, ast.ImportFrom), _import),
        **dict.fromkeys((ast.Try, ast.TryStar), _try),
        ast.ClassDef: _class,
        ast.Expr: _expression,
        ast.If: _if,
        ast.Return: _return,
    }


def _may_name(token: str) -> bool:
    """Say whether a token stands for texts that cannot be read here: another definition, or one put together."""
    return token == "JoinedStr" or (token[0] == "g" and token[1:2].isdigit())


def _is_field(node: ast.stmt) -> bool:
    return isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)


def _ordered_methods(body: list[ast.stmt]) -> list[ast.stmt]:
    """Return the statements of a class with each run of undecorated methods in the order of their names."""
    ordered: list[ast.stmt] = []
    run: list[ast.FunctionDef] = []
    for statement in body:
        if isinstance(statement, ast.FunctionDef) and not statement.decorator_list:
            run.append(statement)
            continue
        ordered += [*sorted(run, key=lambda method: method.name), statement]
        run = []
    return [*ordered, *sorted(run, key=lambda method: method.name)]


def weight_of(tokens: Sequence[str]) -> int:
    """Return how much work a normal form holds: its tokens, brackets aside."""
    return len(tokens) - tokens.count("{") - tokens.count("}")
