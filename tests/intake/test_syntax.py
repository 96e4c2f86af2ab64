"""Walking syntax trees."""

from __future__ import annotations

import ast
import inspect

from intake import scopes, static_scan, syntax
from intake.nodes import ANY, FIELDS
from intake.syntax import children, walk

LEAVES = (ast.expr_context, ast.operator, ast.unaryop, ast.boolop, ast.cmpop, ast.alias)
EVERYTHING = """
from a import b as c
import d
async def f(a, /, b: int = 1, *c, d, e=2, **g) -> int:
    global x
    async with a as b, c: await d
    async for i in j: yield
    else: yield from k
    return {**a, 'b': [*c], **{d: e for d in f if g}}
@dec
class C(B, metaclass=M):
    x: int
    y: int = 1
    z += 1
try: raise E from e
except* G as h: del i.j[k:l:m, ...]
finally: assert n, o
match p:
    case {'q': 1, **r} | S(t, u=None) if v: pass
    case [w, *_] | (1 as x): pass
lambda *, y=1, z: (a := b) if c else not -d ** 2 < e <= f and g or f"{h!r:>{i}}"
while j:
    if k: break
    elif l: continue
(m for n in o)
"""


def test_children_are_all_nodes_but_operators_contexts_and_aliases() -> None:
    """Nothing that could hide a name or a call is left out, in the order of the source."""
    for source in (EVERYTHING, *map(inspect.getsource, (scopes, static_scan, syntax))):
        tree = ast.parse(source)
        for node in ast.walk(tree):
            expected = [child for child in ast.iter_child_nodes(node) if not isinstance(child, LEAVES)]
            assert list(children(node)) == expected
        assert set(walk(tree)) == {node for node in ast.walk(tree) if not isinstance(node, LEAVES)}


def test_no_field_is_left_out() -> None:
    """The fields of every kind of node that this interpreter makes are known; those of others are read as they come."""
    made = {type(node) for node in ast.walk(ast.parse(EVERYTHING))}
    assert all(how != ANY for kind in made - {ast.alias} for how in FIELDS[kind].values())
    assert FIELDS[ast.TypeIgnore] == {"lineno": ANY, "tag": ANY}
