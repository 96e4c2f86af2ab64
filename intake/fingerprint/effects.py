"""What a top-level statement may do when its file is imported, beyond binding names.

Invariants
1. Calls, decorators, assignments into attributes and elements, and subclassing may reach into what an entry uses later
   (a registry, a table, an operator's name). They count, whether or not an entry reaches the names they bind.
2. Exempt are calls of a closed list that are known to make a value and do nothing else.
3. A name that the file itself binds is never on that list.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Mapping

from intake.suggest import words
from intake.syntax import children, dotted_name

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_BUILTINS = words(
    "abs bool bytes complex dict enumerate float frozenset int len list max min object range round set slice str sum "
    "tuple zip"
)
_DECORATORS = words(
    "contextlib.contextmanager dataclasses.dataclass functools.cache functools.cached_property functools.lru_cache "
    "functools.total_ordering torch.inference_mode torch.jit.ignore torch.jit.script torch.jit.unused torch.no_grad "
    "triton.autotune triton.heuristics triton.jit"
) | words("classmethod property staticmethod")
_CALLS = words(
    "collections.Counter collections.OrderedDict collections.defaultdict collections.deque collections.namedtuple "
    "dataclasses.field enum.auto functools.partial logging.getLogger threading.Lock threading.RLock threading.local "
    "torch.Size torch.device torch.empty torch.finfo torch.iinfo torch.ones torch.tensor torch.zeros triton.Config "
    "triton.cdiv triton.language.constexpr triton.next_power_of_2 typing.NewType typing.TypeVar typing.cast "
    "weakref.WeakKeyDictionary weakref.WeakValueDictionary"
)
_OPEN = ("cutlass.", "math.")
_HARMLESS_CALLS = _CALLS | _DECORATORS | _BUILTINS


class Importing:
    """Answers for one file, from its top-level `imports` and the names that it `binds` otherwise."""

    def __init__(self, imports: Mapping[str, str], binds: Collection[str]) -> None:
        self._imports = imports
        self._binds = binds

    def acts(self, statement: ast.stmt) -> bool:
        """Say whether importing the file may do more than bind the names of `statement`."""
        pending: list[ast.AST] = [statement]
        while pending:
            node = pending.pop()
            if isinstance(node, (*_FUNCTIONS, ast.Lambda)):
                if not all(map(self._is_harmless_decorator, getattr(node, "decorator_list", ()))):
                    return True
                # The body does not run now.
                pending += [*node.args.defaults, *(item for item in node.args.kw_defaults if item is not None)]
                pending += [part for item in getattr(node, "decorator_list", ()) for part in children(item)]
                continue
            if isinstance(node, ast.ClassDef) and not self._is_plain_class(node):
                return True
            if isinstance(node, ast.Call) and not self._is_harmless(node.func, _HARMLESS_CALLS):
                return True
            is_stored = not isinstance(getattr(node, "ctx", None), ast.Load | None)
            if is_stored and isinstance(node, ast.Attribute | ast.Subscript):
                return True
            if isinstance(node, ast.Await | ast.Yield | ast.YieldFrom):
                return True
            pending += children(node)
        return False

    def _is_plain_class(self, node: ast.ClassDef) -> bool:
        decorated = all(map(self._is_harmless_decorator, node.decorator_list))
        return decorated and not node.keywords and all(self._meaning(base) for base in node.bases)

    def _is_harmless_decorator(self, node: ast.expr) -> bool:
        return self._is_harmless(node.func if isinstance(node, ast.Call) else node, _DECORATORS)

    def _is_harmless(self, node: ast.expr, known: Collection[str]) -> bool:
        meaning = self._meaning(node)
        return meaning in known or meaning.startswith(_OPEN)

    def _meaning(self, node: ast.expr) -> str:
        """Return the dotted path of something outside the file, a builtin's name, or ""."""
        chain = dotted_name(node)
        if chain is None or chain[0].id in self._binds:
            return ""
        root = chain[0].id
        if root not in self._imports:
            return "" if chain[1] else root
        return ".".join([self._imports[root], *chain[1]])
