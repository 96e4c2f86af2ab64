"""The normal form of expressions.

Invariants
1. Of commutative operations only those are ordered whose operands just read and compute: products, sums in kernels of
   a DSL, and sums with a number. Keyword arguments and dictionary displays go by their names.
2. What is a constant is written as the constant.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import ClassVar

from intake.fingerprint.folding import MISSING, constant_token
from intake.fingerprint.frame import Frame
from intake.fingerprint.names import Definition
from intake.fingerprint.usage import parameters
from intake.fingerprint.writing import Writing
from intake.syntax import dotted_name, walk

_FLIPPED: dict[type, str] = {ast.Gt: "Lt", ast.GtE: "LtE"}
_NO_NUMBERS = frozenset({ast.Call, ast.Subscript, ast.IfExp, ast.BoolOp})  # whatever is in them
_argument = attrgetter("arg")


class Expressions(Writing):
    """Writes expressions."""

    def _elements(self, node: ast.Tuple | ast.List) -> None:
        self._emit(node.__class__.__name__)
        self._list(node.elts)

    def _slice(self, node: ast.Slice) -> None:
        self._emit("Slice")
        self._optional(node.lower)
        self._optional(node.upper)
        self._optional(node.step)

    def _constant(self, node: ast.Constant) -> None:
        self._emit(self._text(node, self._texts) if self._texts else constant_token(node.value))

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

    def _lambda(self, node: ast.Lambda) -> None:
        self._emit("Lambda")
        self._open(node, node.args, is_kernel=self._frames[-1].is_kernel)
        self._node(node.body)
        self._close()

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
        frame = Frame(usage, is_kernel=is_kernel)
        self._frames.append(frame)
        for name in parameters(arguments):
            self._local(frame, name)
            frame.started[name] = 1

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
        self._close()

    def _call(self, node: ast.Call) -> None:
        callee, keywords = node.func, node.keywords
        if isinstance(callee, ast.Name) and callee.id == "getattr" and (chain := dotted_name(node)) is not None:
            self._named(chain[0].id, chain[1])
            return
        self._emit("Call")
        self.HANDLERS[callee.__class__](self, callee)
        if not keywords:
            self._list(node.args)
            self._emit("=0")
            return
        is_plain = not any(isinstance(item, ast.Starred) for item in node.args)
        places = self._parameters_of(callee) if is_plain else {}
        if places and any(item.arg is None for item in keywords):
            self._emit(f"named:{','.join(places)}")  # what is unpacked names them
        self._arguments(node.args, keywords, places)

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
        if not places:
            self._named_arguments(args, keywords)
            return
        named = [(places.get(item.arg or "", -1), item.arg or "", item.value) for item in keywords]
        if len(named) > 1 and all(name and self.is_pure(value) for _, name, value in named):
            named.sort(key=lambda item: (item[0] < 0, item[0], item[1]))
        given = len(args)
        while given - len(args) < len(named) and named[given - len(args)][0] == given:
            given += 1
        self._list([*args, *(value for _, _, value in named[: given - len(args)])])
        self._emit(f"={len(args) + len(named) - given}")
        for place, name, value in named[given - len(args) :]:
            self._emit(f"p{place}" if place >= 0 else f"k:{name}")
            self._node(value)

    def _named_arguments(self, args: Sequence[ast.expr], keywords: Sequence[ast.keyword]) -> None:
        """Write arguments where nothing is known of the parameters."""
        if len(keywords) > 1 and all(item.arg and self.is_pure(item.value) for item in keywords):
            keywords = sorted(keywords, key=_argument)
        self._list(args)
        self._emit(f"={len(keywords)}")
        handlers = self.HANDLERS
        for item in keywords:
            self._emit(f"k:{item.arg or ''}")
            handlers[item.value.__class__](self, item.value)

    def _dict(self, node: ast.Dict) -> None:
        items = list(zip(node.keys, node.values, strict=True))
        if len(items) > 1 and all(isinstance(key, ast.Constant) and self.is_pure(value) for key, value in items):
            tokens = [self._text(key, self._texts) if isinstance(key, ast.Constant) else "" for key, _ in items]
            if len(set(tokens)) == len(tokens):
                items = [item for _, item in sorted(zip(tokens, items, strict=True), key=lambda pair: pair[0])]
        self._emit(f"Dict:{len(items)}")
        for key, value in items:
            self._optional(key)
            self._node(value)

    def _computed(self, node: ast.UnaryOp | ast.Compare | ast.JoinedStr) -> None:
        value = self.fold(node)
        if value is not MISSING:
            self._emit(constant_token(value))
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
        value = self._fold_computed(node)
        if value is not MISSING:
            self._emit(constant_token(value))
            return
        handlers = self.HANDLERS
        left, right, kind = node.left, node.right, type(node.op)
        self._emit(kind.__name__)
        if kind is not ast.Mult and kind is not ast.Add:
            handlers[left.__class__](self, left)
            handlers[right.__class__](self, right)
            return
        if left.__class__ not in _NO_NUMBERS and self.is_number(left) and not self.is_number(right):
            left, right = right, left
        tokens = self.tokens
        start, count, known = len(tokens), self._count, len(self.references)
        handlers[left.__class__](self, left)
        middle = len(tokens)
        handlers[right.__class__](self, right)
        commutes = kind is ast.Mult or self._frames[-1].is_kernel
        if commutes and count == self._count and known == len(self.references) and not self.is_number(right):
            first, second = tokens[start:middle], tokens[middle:]
            if second < first and self.is_pure(left) and self.is_pure(right):
                tokens[start:] = [*second, *first]

    HANDLERS: ClassVar[dict[type, Callable[..., None]]] = {
        **Writing.HANDLERS,
        **dict.fromkeys((ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp), _comprehension),
        **dict.fromkeys((ast.UnaryOp, ast.Compare, ast.JoinedStr), _computed),
        **dict.fromkeys((ast.Tuple, ast.List), _elements),
        ast.BinOp: _binary,
        ast.Call: _call,
        ast.Constant: _constant,
        ast.Dict: _dict,
        ast.Lambda: _lambda,
        ast.Slice: _slice,
        ast.Subscript: _subscript,
    }


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
