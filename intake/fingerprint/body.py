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
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar

from intake.fingerprint.folding import MISSING, constant_token, is_number
from intake.fingerprint.names import Definition, Meaning, Module, Names
from intake.fingerprint.reading import Constants, Reading
from intake.fingerprint.rewrite import Frame, absorbs, is_dead, live_statements
from intake.fingerprint.usage import CLASS, imported, parameters
from intake.syntax import dotted_name, walk

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_DROPPED = frozenset({"annotation", "returns", "type_comment", "ctx", "kind", "type_params", "type_ignores", "simple"})
_BLOCKS = frozenset({"body", "orelse", "finalbody"})
_KERNELS = frozenset({"x:triton.jit"})
_TUNERS = frozenset({"x:triton.autotune", "x:triton.heuristics"})  # they name parameters in texts
_FLIPPED: dict[type, str] = {ast.Gt: "Lt", ast.GtE: "LtE"}
_FIELDS: dict[type, tuple[str, ...]] = {}


class Body(Reading):
    """Writes the top-level statement at `place` of `path`; `tokens` and `references` hold the result after `write`."""

    def __init__(self, names: Names, constants: Constants, path: str, place: int) -> None:
        super().__init__(names, constants, path, place)
        self.tokens: list[str] = []
        self.references: dict[Definition, int] = {}
        self._own_numbers: dict[str, str] = {}
        self._count = 0
        self._emit = self.tokens.append
        self._texts: Mapping[str, int] = {}  # texts that name a parameter here, with its place
        self.guarded = 0  # `try` statements around what is written
        self._launched: dict[str, int] | None = None

    @property
    def line(self) -> int:
        """The line on which the statement begins."""
        return self._statement.lineno

    def write(self) -> None:
        """Write the statement."""
        if isinstance(self._statement, (*_FUNCTIONS, ast.ClassDef)):
            self._own_numbers[self._statement.name] = "b0"
            self._node(self._statement)
        else:
            self._statements([self._statement], is_straight=False)

    # Statements

    def _statements(self, body: Sequence[ast.stmt], *, is_straight: bool) -> None:
        live = list(live_statements(body, self, in_kernel=self._frames[-1].is_kernel))
        if self._frames[-1].usage.kind == CLASS:
            live = _ordered_methods(live)
        self._emit("{")
        following: list[ast.stmt | None] = [None]
        for statement in reversed(live):
            following.append(following[-1] if is_dead(self._frames[-1], statement, self) else statement)
        for index, statement in enumerate(live):
            if not absorbs(self._frames[-1], statement, following[-2 - index], self, is_straight=is_straight):
                self._statement_node(statement, is_straight=is_straight)
            if is_straight:
                self._frames[-1].start_version(statement)
        if self.tokens[-2:] == ["Return", "~"] and is_straight and isinstance(live[-1], ast.Return):
            del self.tokens[-2:]  # the end of a function returns None anyway
        self._emit("}")

    def _statement_node(self, node: ast.stmt, *, is_straight: bool) -> None:
        if isinstance(node, ast.Assign):
            self._assign(node.value, node.targets, is_straight=is_straight)
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            self._assign(node.value, [node.target], is_straight=is_straight)
        elif isinstance(node, ast.If):
            self._if(node)
        elif isinstance(node, ast.Return):
            self._emit("Return")
            is_none = node.value is None or (isinstance(node.value, ast.Constant) and node.value.value is None)
            self._optional(None if is_none else node.value)
        else:
            self._node(node)

    def _assign(self, value: ast.expr, targets: Sequence[ast.expr], *, is_straight: bool) -> None:
        frame, target = self._frames[-1], targets[0]
        name = target.id if len(targets) == 1 and isinstance(target, ast.Name) else ""
        if frame.is_own(name) and frame.next_version(name, is_straight=is_straight)[1] == 0:
            self._emit("Expr")  # the value is computed for what else it does
            self._node(value)
            return
        self._emit("Assign")
        self._node(value)
        if is_straight and frame.is_own(name):
            frame.numbers.pop(name, None)
            frame.values.pop(name, None)
        self._list(targets)

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
        self._frames.pop()

    def _decorators(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        """Write the decorators of a function; texts by which a tuner names its parameters read like these."""
        self._emit(f"*{len(node.decorator_list)}")
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

    def _lambda(self, node: ast.Lambda) -> None:
        self._emit("Lambda")
        self._open(node, node.args, is_kernel=self._frames[-1].is_kernel)
        self._node(node.body)
        self._frames.pop()

    def _open(self, node: ast.AST, arguments: ast.arguments, *, is_kernel: bool) -> None:
        plain, keyword = len(arguments.posonlyargs) + len(arguments.args), len(arguments.kwonlyargs)
        rest = f"{arguments.vararg is not None:d}{arguments.kwarg is not None:d}"
        usage = self._analysis.scopes[id(node)]
        self._emit(f"args:{plain}:{keyword}:{rest}:{usage.is_generator:d}")
        if is_kernel:
            self._emit(f"constant:{','.join(map(str, _constant_parameters(arguments)))}")
        self._list(arguments.defaults)
        for default in arguments.kw_defaults:
            self._optional(default)
        self._frames.append(Frame(usage, is_kernel=is_kernel))
        for name in parameters(arguments):
            self._local(self._frames[-1], name)
            self._frames[-1].started[name] = 1

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
        self._frames.pop()

    def _name_of(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> None:
        if node is not self._statement:
            self._emit(self._bound(node.name))

    # Expressions

    def _node(self, node: ast.AST) -> None:
        handler = self._HANDLERS.get(type(node))
        if handler is not None:
            handler(self, node)
            return
        kind = type(node)
        self._emit(kind.__name__)
        fields = _FIELDS.get(kind)
        if fields is None:
            fields = _FIELDS[kind] = tuple(field for field in kind._fields if field not in _DROPPED)
        for field in fields:
            value = getattr(node, field, None)
            if isinstance(value, list):
                if field in _BLOCKS and (not value or isinstance(value[0], ast.stmt)):
                    self._statements(value, is_straight=False)
                else:
                    self._list(value)
            elif isinstance(value, str) and field in ("name", "rest"):
                self._emit(self._bound(value))
            elif isinstance(value, ast.AST):
                self._node(value)
            else:
                self._emit("~" if value is None else repr(value))

    def _list(self, items: Sequence[object]) -> None:
        self._emit(f"*{len(items)}")
        for item in items:
            if isinstance(item, ast.AST):
                self._node(item)
            else:
                self._emit("~" if item is None else repr(item))

    def _optional(self, node: ast.AST | None) -> None:
        if node is None:
            self._emit("~")
        else:
            self._node(node)

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

    def _constant(self, node: ast.Constant) -> None:
        self._emit(self._text(node, self._texts))

    @staticmethod
    def _text(node: ast.Constant, named: Mapping[str, int]) -> str:
        place = named.get(node.value) if isinstance(node.value, str) else None
        return constant_token(node.value) if place is None else f"p{place}"

    def _subscript(self, node: ast.Subscript) -> None:
        """Write `a[b]`; the texts by which a grid asks for arguments of its kernel read like parameters."""
        self._emit("Subscript")
        self._node(node.value)
        if isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, str):
            self._emit(self._text(node.slice, self._texts or self._launches()))
        else:
            self._node(node.slice)

    def _launches(self) -> dict[str, int]:
        """Return the places of the parameters of all kernels that this statement launches, where they agree."""
        if self._launched is None:
            found: dict[str, set[int]] = {}
            for node in walk(self._statement):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Subscript):
                    for name, place in self._parameters_of(node.func).items():
                        found.setdefault(name, set()).add(place)
            self._launched = {name: next(iter(places)) for name, places in found.items() if len(places) == 1}
        return self._launched

    def _name(self, node: ast.Name) -> None:
        self._named(node.id, [])

    def _chain(self, node: ast.Attribute | ast.Call) -> None:
        if isinstance(node, ast.Call) and not (isinstance(node.func, ast.Name) and node.func.id == "getattr"):
            self._call(node)
            return
        root: ast.AST = node
        attributes: list[str] = []
        while isinstance(root, ast.Attribute):
            attributes.append(root.attr)
            root = root.value
        if isinstance(root, ast.Name):
            self._named(root.id, attributes[::-1])
            return
        chain = dotted_name(node)
        if chain is not None:
            self._named(chain[0].id, chain[1])
        elif isinstance(node, ast.Attribute):
            self._emit(f"Attribute:{node.attr}")
            self._node(node.value)
        elif isinstance(node, ast.Call):
            self._call(node)

    def _named(self, name: str, attributes: list[str]) -> None:
        frame = self._frame_of(name)
        if frame is None:
            self._emit(self._token(None, name, attributes))
            return
        if name in frame.values:
            with frame.standing_in(name) as value:
                chain = dotted_name(value)
                if chain is not None:
                    self._named(chain[0].id, [*chain[1], *attributes])
                    return
                for attribute in reversed(attributes):
                    self._emit(f"Attribute:{attribute}")
                self._node(value)
            return
        self._emit(self._token(frame, name, attributes))

    def _token(self, frame: Frame | None, name: str, attributes: list[str]) -> str:
        if frame is not None:
            dotted = frame.usage.imports.get(name)
            if dotted is None or frame.usage.stores[name] > 1:
                local = self._local(frame, name)
                return ".".join([local, *attributes]) if attributes else local
            meaning = self._names.resolve_import(self._path, dotted, attributes)
        elif name in self._own:
            own = self._own_numbers.setdefault(name, f"b{len(self._own_numbers)}")
            return ".".join([own, *attributes])
        else:
            meaning = self._names.resolve(self._path, name, attributes)
        if isinstance(meaning, Definition):
            value = self._constants.of(meaning, self._depth) if not attributes else MISSING
            if value is not MISSING:
                return constant_token(value)
        return ".".join([self._reference(meaning), *attributes])

    def _reference(self, meaning: Meaning) -> str:
        if isinstance(meaning, Definition):
            return f"g{self.references.setdefault(meaning, len(self.references))}"
        return "module" if isinstance(meaning, Module) else meaning

    def _local(self, frame: Frame, name: str) -> str:
        if frame.usage.kind == CLASS:
            return f"m:{name}"
        number = frame.numbers.get(name)
        if number is None:
            number = frame.numbers[name] = self._count
            self._count += 1
        return f"v{number}"

    def _bound(self, name: str) -> str:
        return self._token(self._frame_of(name), name, [])

    def _comprehension(self, node: ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp) -> None:
        self._emit(f"{type(node).__name__}:{len(node.generators)}")
        self._node(node.generators[0].iter)
        self._frames.append(Frame(self._analysis.scopes[id(node)], is_kernel=self._frames[-1].is_kernel))
        for index, generator in enumerate(node.generators):
            if index:
                self._node(generator.iter)
            self._emit(f"async:{generator.is_async}")
            self._node(generator.target)
            self._list(generator.ifs)
        for part in [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]:
            self._node(part)
        self._frames.pop()

    def _call(self, node: ast.Call) -> None:
        self._emit("Call")
        self._node(node.func)
        is_plain = node.keywords and not any(isinstance(item, ast.Starred) for item in node.args)
        places = self._parameters_of(node.func) if is_plain else {}
        if places and any(item.arg is None for item in node.keywords):
            self._emit(f"named:{','.join(places)}")  # what is unpacked names them
        self._arguments(node.args, node.keywords, places)

    def _parameters_of(self, callee: ast.AST) -> dict[str, int]:
        """Return the places of a callee's parameters, whose names are free to change; {} when it is not known."""
        while isinstance(callee, ast.Subscript):
            callee = callee.value
        meaning = self.meaning_of(callee)
        return self._constants.parameters(meaning) if isinstance(meaning, Definition) else {}

    def _arguments(self, args: Sequence[ast.expr], keywords: Sequence[ast.keyword], places: Mapping[str, int]) -> None:
        """Write arguments; keyword ones that continue the positional ones read like these."""
        if not keywords:
            self._list(args)
            self._emit("=0")
            return
        named = [(places.get(item.arg or "", -1), item.arg or "", item.value) for item in keywords]
        if all(name and self.is_pure(value) for _, name, value in named):
            named.sort(key=lambda item: (item[0] < 0, item[0], item[1]))
        given = len(args)
        while given - len(args) < len(named) and named[given - len(args)][0] == given:
            given += 1
        self._list([*args, *(value for _, _, value in named[: given - len(args)])])
        self._emit(f"={len(args) + len(named) - given}")
        for place, name, value in named[given - len(args) :]:
            self._emit(f"p{place}" if place >= 0 else f"k:{name}")
            self._node(value)

    def _dict(self, node: ast.Dict) -> None:
        items = list(zip(node.keys, node.values, strict=True))
        if all(isinstance(key, ast.Constant) and self.is_pure(value) for key, value in items):
            tokens = [self._text(key, self._texts) if isinstance(key, ast.Constant) else "" for key, _ in items]
            if len(set(tokens)) == len(tokens):
                items = [item for _, item in sorted(zip(tokens, items, strict=True), key=lambda pair: pair[0])]
        self._emit(f"Dict:{len(items)}")
        for key, value in items:
            self._optional(key)
            self._node(value)

    def _computed(self, node: ast.BinOp | ast.UnaryOp | ast.Compare | ast.JoinedStr) -> None:
        value = self.fold(node)
        if value is not MISSING:
            self._emit(constant_token(value))
        elif isinstance(node, ast.BinOp):
            self._binary(node)
        elif isinstance(node, ast.Compare) and len(node.ops) == 1:
            self._compare(node.left, node.ops[0], node.comparators[0])
        else:
            self._emit(type(node).__name__)
            if isinstance(node, ast.UnaryOp):
                self._list([node.op, node.operand])
            elif isinstance(node, ast.Compare):
                self._list([node.left, *node.ops, *node.comparators])
            else:
                self._list(node.values)

    def _compare(self, left: ast.expr, operation: ast.cmpop, right: ast.expr) -> None:
        name = type(operation).__name__
        if type(operation) in _FLIPPED and self.is_pure(left) and self.is_pure(right):
            name, left, right = _FLIPPED[type(operation)], right, left
        self._emit(f"Compare:{name}")
        self._node(left)
        self._node(right)

    def _binary(self, node: ast.BinOp) -> None:
        left, right, kind = node.left, node.right, type(node.op)
        self._emit(kind.__name__)
        commutes = kind is ast.Mult or kind is ast.Add
        if not commutes:
            self._node(left)
            self._node(right)
            return
        if is_number(self.fold(left)) and not is_number(self.fold(right)):
            left, right = right, left
        start, known = len(self.tokens), (self._count, len(self.references))
        self._node(left)
        middle = len(self.tokens)
        self._node(right)
        commutes = kind is ast.Mult or self._frames[-1].is_kernel
        if commutes and known == (self._count, len(self.references)) and not is_number(self.fold(right)):
            first, second = self.tokens[start:middle], self.tokens[middle:]
            if second < first and self.is_pure(left) and self.is_pure(right):
                self.tokens[start:] = [*second, *first]

    _HANDLERS: ClassVar[dict[type, Callable[..., None]]] = {
        **dict.fromkeys((ast.Attribute, ast.Call), _chain),
        ast.Name: _name,
        **dict.fromkeys((ast.FunctionDef, ast.AsyncFunctionDef), _function),
        **dict.fromkeys((ast.Global, ast.Nonlocal), _nothing),
        **dict.fromkeys((ast.Import, ast.ImportFrom), _import),
        **dict.fromkeys((ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp), _comprehension),
        **dict.fromkeys((ast.BinOp, ast.UnaryOp, ast.Compare, ast.JoinedStr), _computed),
        **dict.fromkeys((ast.Try, ast.TryStar), _try),
        ast.Constant: _constant,
        ast.Subscript: _subscript,
        ast.Lambda: _lambda,
        ast.ClassDef: _class,
        ast.Dict: _dict,
    }


def _may_name(token: str) -> bool:
    """Say whether a token stands for texts that cannot be read here: another definition, or one put together."""
    return token == "JoinedStr" or (token[0] == "g" and token[1:2].isdigit())


def _is_field(node: ast.stmt) -> bool:
    return isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)


def _constant_parameters(arguments: ast.arguments) -> list[int]:
    """Return the places of a kernel's parameters that its language takes as constants, by their annotation."""
    items = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    return [place for place, item in enumerate(items) if _last_name(item.annotation).lower() == "constexpr"]


def _last_name(node: ast.AST | None) -> str:
    while isinstance(node, ast.Subscript):
        node = node.value
    if isinstance(node, ast.Constant):
        return str(node.value).rpartition(".")[2].partition("[")[0]
    return str(getattr(node, "attr", "") or getattr(node, "id", ""))


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
