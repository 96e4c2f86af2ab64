"""Tokens of nodes and of names: what each part of a normal form is made of.

Invariants
1. Locals are numbered by first use, scope by scope, as are the definitions that are referred to. A name that stands for
   an expression is written as that expression, in its own scope.
2. What a name outside all open scopes means stays the same while a statement is written, so it is looked up once.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar

from intake.fingerprint.folding import MISSING, constant_token
from intake.fingerprint.frame import Frame
from intake.fingerprint.names import Definition, Meaning, Module, Names
from intake.fingerprint.reading import Constants, Reading
from intake.fingerprint.usage import CLASS
from intake.syntax import dotted_name

_COUNTS = tuple(f"*{number}" for number in range(64))


class Writing(Reading):
    """Writes names and lists of nodes; `tokens` and `references` hold what was written."""

    def __init__(self, names: Names, constants: Constants, path: str, place: int, statement: ast.stmt) -> None:
        super().__init__(names, constants, path, place, statement)
        self.tokens: list[str] = []
        self.references: dict[Definition, int] = {}
        self._own_numbers: dict[str, str] = {}
        self._outside: dict[str, str] = {}  # the tokens of names and dotted names that no open scope binds
        self._foreign = names.tokens(path)  # those of them that mean the same everywhere in the file
        self._count = 0
        self._emit = self.tokens.append
        self._texts: Mapping[str, int] = {}  # texts that name a parameter here, with its place
        self.guarded = 0  # `try` statements around what is written
        self._launched: dict[str, int] | None = None

    def _node(self, node: ast.AST) -> None:
        self.HANDLERS[node.__class__](self, node)

    def _list(self, items: Sequence[object]) -> None:
        count = len(items)
        self._emit(_COUNTS[count] if count < len(_COUNTS) else f"*{count}")
        handlers = self.HANDLERS
        for item in items:
            handlers[item.__class__](self, item)

    def _text_or_nothing(self, item: str | None) -> None:
        self._emit("~" if item is None else repr(item))

    def _optional(self, node: ast.AST | None) -> None:
        if node is None:
            self._emit("~")
        else:
            self.HANDLERS[node.__class__](self, node)

    def _name(self, node: ast.Name) -> None:
        name = node.id
        homes = self._frames[-1].homes
        frame = homes[name] if name in homes else self._frame_of(name)
        token: str | None = None
        if frame is None:
            token = self._outside.get(name)
        elif name not in frame.values:
            token = frame.numbers.get(name)
        if token is None:
            self._named(name, [])
        else:
            self._emit(token)

    def _attribute(self, node: ast.Attribute) -> None:
        attributes = [node.attr]
        root = node.value
        while isinstance(root, ast.Attribute):
            attributes.append(root.attr)
            root = root.value
        if isinstance(root, ast.Name):
            name = root.id
            attributes.reverse()
            homes = self._frames[-1].homes
            frame = homes[name] if name in homes else self._frame_of(name)
            token: str | None = None
            if frame is None:
                token = self._outside.get(f"{name}.{'.'.join(attributes)}")
            elif name not in frame.values and name in frame.numbers:
                token = f"{frame.numbers[name]}.{'.'.join(attributes)}"
            if token is None:
                self._named(name, attributes)
            else:
                self._emit(token)
            return
        chain = dotted_name(node)
        if chain is not None:
            self._named(chain[0].id, chain[1])
        else:
            self._emit(f"Attribute:{node.attr}")
            self._node(node.value)

    def _named(self, name: str, attributes: list[str]) -> None:
        homes = self._frames[-1].homes
        frame = homes[name] if name in homes else self._frame_of(name)
        if frame is not None and name in frame.values:
            value = frame.stand_in(name)
            chain = dotted_name(value.node)
            if chain is not None:
                self._named(chain[0].id, [*chain[1], *attributes])
            else:
                for attribute in reversed(attributes):
                    self._emit(f"Attribute:{attribute}")
                self._node(value.node)
            frame.values[name] = value
            return
        self._emit(self._token(frame, name, attributes))

    def _token(self, frame: Frame | None, name: str, attributes: list[str]) -> str:
        if frame is not None:
            number = frame.numbers.get(name)
            if number is None:
                dotted = frame.usage.imports.get(name)
                if dotted is not None and frame.usage.stores[name] == 1:
                    return self._meant(self._names.resolve_import(self._path, dotted, attributes), attributes)
                number = self._local(frame, name)
            return ".".join([number, *attributes]) if attributes else number
        whole = ".".join([name, *attributes]) if attributes else name
        token = self._outside.get(whole)
        if token is None:
            if name in self._own:
                own = self._own_numbers.setdefault(name, f"b{len(self._own_numbers)}")
                token = ".".join([own, *attributes])
            else:
                token = self._foreign.get(whole)
                if token is None:
                    meaning = self._names.resolve(self._path, name, attributes)
                    token = self._meant(meaning, attributes)
                    if isinstance(meaning, str):
                        self._foreign[whole] = token
            self._outside[whole] = token
        return token

    def _meant(self, meaning: Meaning, attributes: list[str]) -> str:
        """Return the token of what a name means, and of the attributes that are still to be read of it."""
        if isinstance(meaning, Definition) and not attributes:
            value = self._constants.of(meaning, self._depth)
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
            number = frame.numbers[name] = f"v{self._count}"
            self._count += 1
        return number

    def _bound(self, name: str) -> str:
        return self._token(self._frame_of(name), name, [])

    # How each kind of node is written; the classes below this one add theirs.
    HANDLERS: ClassVar[dict[type, Callable[..., None]]] = {
        **dict.fromkeys((str, type(None)), _text_or_nothing),
        ast.Attribute: _attribute,
        ast.Name: _name,
    }
