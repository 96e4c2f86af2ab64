"""Rewritings of kernels: those that change no work, those that change it, and those that only tune it.

Every edit takes the syntax tree of one file, whose last function is the entry, and a source of chance. `KEEPING` edits
are claimed to be seen through; `CHANGING` ones make other work; `TUNING` ones make another submission that resembles.
"""

from __future__ import annotations

import ast
import random
import re
from collections.abc import Callable

Edit = Callable[[ast.Module, random.Random], None]


def functions(tree: ast.Module) -> list[ast.FunctionDef]:
    """Return the top-level functions of a file."""
    return [node for node in tree.body if isinstance(node, ast.FunctionDef)]


def _is_kernel(function: ast.FunctionDef) -> bool:
    return any("jit" in ast.unparse(item) for item in function.decorator_list)


def _fresh(source: random.Random, stem: str) -> str:
    return f"{stem}{source.randrange(10**6)}"


def rename_locals(tree: ast.Module, source: random.Random) -> None:
    """Give parameters and locals of every function new names; keyword arguments of calls within the file follow."""
    renamed: dict[str, str] = {}
    for function in functions(tree):
        names = {
            node.id for node in ast.walk(function) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
        }
        names |= {item.arg for item in ast.walk(function) if isinstance(item, ast.arg)}
        fresh = {name: f"{_fresh(source, 'v')}_{index}" for index, name in enumerate(sorted(names))}
        renamed |= fresh
        for node in ast.walk(function):
            if isinstance(node, ast.Name):
                node.id = fresh.get(node.id, node.id)
            elif isinstance(node, ast.arg):
                node.arg = fresh[node.arg]
    local = {function.name for function in functions(tree)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            callee = node.func.value if isinstance(node.func, ast.Subscript) else node.func
            if isinstance(callee, ast.Name) and callee.id in local:
                for keyword in node.keywords:
                    keyword.arg = renamed.get(keyword.arg or "", keyword.arg)


def rename_functions(tree: ast.Module, source: random.Random) -> None:
    """Give every function a new name, the entry included."""
    names = {function.name: f"{_fresh(source, 'f')}_{index}" for index, function in enumerate(functions(tree))}
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            node.name = names.get(node.name, node.name)
        elif isinstance(node, ast.Name):
            node.id = names.get(node.id, node.id)


def add_noise(tree: ast.Module, source: random.Random) -> None:
    """Put `pass`, texts, bare annotations, dead branches and unused locals between statements."""
    for function in functions(tree):
        noise = source.choice(
            ("pass", "'note'", "unused: int", "if False:\n    print(1)", f"{_fresh(source, 'u')} = 3")
        )
        function.body.insert(source.randrange(len(function.body) + 1), ast.parse(noise).body[0])


def annotate(tree: ast.Module, source: random.Random) -> None:
    """Annotate what functions take and return."""
    for function in functions(tree):
        function.returns = ast.Name(source.choice(("int", "float", "object")), ast.Load())
        for argument in function.args.args:
            argument.annotation = argument.annotation or ast.Constant(source.choice(("Tensor", "any")))


def shuffle(tree: ast.Module, source: random.Random) -> None:
    """Change the order of top-level functions without decorators."""
    places = [
        index for index, node in enumerate(tree.body) if isinstance(node, ast.FunctionDef) and not node.decorator_list
    ]
    moved = [tree.body[index] for index in places]
    source.shuffle(moved)
    for index, node in zip(places, moved, strict=True):
        tree.body[index] = node


def add_unused(tree: ast.Module, source: random.Random) -> None:
    """Add an import, a constant and a function that nothing uses."""
    name = _fresh(source, "pad")
    tree.body[:0] = ast.parse("import math").body
    tree.body += ast.parse(f"def {name}(a):\n    return a * {source.randrange(100)}\n\n\n{name}_n = 7\n").body


def spell_constants(tree: ast.Module, source: random.Random) -> None:
    """Write integers as sums or shifts."""
    for node in ast.walk(tree):
        for field, value in ast.iter_fields(node):
            items = value if isinstance(value, list) else [value]
            for place, item in enumerate(items):
                if isinstance(item, ast.Constant) and type(item.value) is int and 1 < item.value < 10**6:
                    part = source.randrange(1, item.value)
                    other = ast.BinOp(ast.Constant(item.value - part), ast.Add(), ast.Constant(part))
                    if isinstance(value, list):
                        value[place] = other
                    else:
                        setattr(node, field, other)


def name_constants(tree: ast.Module, source: random.Random) -> None:
    """Move one constant to the top of the file, under a name."""
    uses = [
        (node, field, value)
        for function in functions(tree) for node in ast.walk(function) for field, value in ast.iter_fields(node)
        if isinstance(node, ast.BinOp | ast.keyword) and isinstance(value, ast.Constant)
        and isinstance(value.value, int | float)
    ]  # fmt: skip
    if uses:
        node, field, value = source.choice(uses)
        name = _fresh(source, "N")
        setattr(node, field, ast.Name(name, ast.Load()))
        places = [index for index, item in enumerate(tree.body) if not isinstance(item, ast.Import | ast.ImportFrom)]
        tree.body.insert(places[0], ast.Assign([ast.Name(name, ast.Store())], value))


def name_parts(tree: ast.Module, source: random.Random) -> None:
    """Compute the whole value of a statement one statement earlier, under a name."""
    for function in functions(tree):
        places = [i for i, node in enumerate(function.body) if isinstance(node, ast.Return | ast.Assign) and node.value]
        if places:
            place = source.choice(places)
            statement, name = function.body[place], _fresh(source, "t")
            assert isinstance(statement, ast.Return | ast.Assign)
            first = ast.Assign([ast.Name(name, ast.Store())], statement.value)
            statement.value = ast.Name(name, ast.Load())
            function.body.insert(place, first)


def turn_products(tree: ast.Module, source: random.Random) -> None:
    """Write numbers in sums and products on the other side."""
    for node in ast.walk(tree):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult | ast.Add):
            sides = [
                isinstance(side, ast.Constant) and type(side.value) in (int, float) for side in (node.left, node.right)
            ]
            if any(sides) and source.random() < 0.7:
                node.left, node.right = node.right, node.left


def alias_imports(tree: ast.Module, source: random.Random) -> None:
    """Import torch under another name."""
    name = _fresh(source, "th")
    for node in tree.body:
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name == "torch" and alias.asname is None:
                    alias.asname = name
                    for use in ast.walk(tree):
                        if isinstance(use, ast.Name) and use.id == "torch":
                            use.id = name


def write_sums_out(tree: ast.Module, source: random.Random) -> None:
    """Write `a += v` as `a = a + v` in kernels of a DSL."""
    del source
    for function in functions(tree):
        if _is_kernel(function):
            for node in ast.walk(function):
                for block in (getattr(node, "body", None), getattr(node, "orelse", None)):
                    for place, item in enumerate(block if isinstance(block, list) else ()):
                        if isinstance(item, ast.AugAssign) and isinstance(item.target, ast.Name):
                            value = ast.BinOp(ast.Name(item.target.id, ast.Load()), item.op, item.value)
                            block[place] = ast.Assign([item.target], value)


KEEPING: tuple[Edit, ...] = (
    rename_locals, rename_functions, add_noise, annotate, shuffle, add_unused, spell_constants, name_constants,
    name_parts, turn_products, alias_imports, write_sums_out,
)  # fmt: skip


def change_operator(tree: ast.Module, source: random.Random) -> None:
    """Turn one multiplication or addition into a subtraction."""
    found = [node for node in ast.walk(tree) if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult | ast.Add)]
    source.choice(found).op = ast.Sub()


def change_call(tree: ast.Module, source: random.Random) -> None:
    """Call another method somewhere."""
    found = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)]
    function = source.choice(found).func
    assert isinstance(function, ast.Attribute)
    function.attr = "tanh" if function.attr != "tanh" else "cos"


def drop_statement(tree: ast.Module, source: random.Random) -> None:
    """Leave out one statement with a call from the entry."""
    body = functions(tree)[-1].body
    real = [node for node in body if any(isinstance(item, ast.Call) for item in ast.walk(node))]
    if len(body) > 1:
        body.remove(source.choice(real))
    else:
        body.append(ast.parse("print(1)").body[0])


def add_statement(tree: ast.Module, source: random.Random) -> None:
    """Do one more thing in one function."""
    function = source.choice(functions(tree))
    name = function.args.args[0].arg
    function.body.insert(0, ast.parse(f"{name}.extra_()").body[0])


CHANGING: tuple[Edit, ...] = (change_operator, change_call, drop_statement, add_statement)


def tune(tree: ast.Module, source: random.Random) -> None:
    """Change one constant."""
    found = [node for node in ast.walk(tree) if isinstance(node, ast.Constant) and type(node.value) in (int, float)]
    node = source.choice(found)
    node.value = node.value * 2 + 1


def respelled(text: str, source: random.Random) -> str:
    """Put blanks, comments, line ends and joined lines between the words of CUDA code, directives aside."""
    lines = []
    for line in text.splitlines():
        if not line.lstrip().startswith("#"):
            gaps = (" ", "  ", "\n", " /* note */ ", " // note\n", " \\\n ")
            lines.append("".join(source.choice(gaps) if char == " " else char for char in line))
        else:
            lines.append(line)
    return "\n".join(lines) + "\n"


def renamed_words(text: str, words: tuple[str, ...], source: random.Random) -> str:
    """Give some names of CUDA code new ones, all at once."""
    fresh = {word: f"{_fresh(source, 'c')}_{index}" for index, word in enumerate(words) if source.random() < 0.7}
    return re.sub(r"\b[A-Za-z_]\w*\b", lambda match: fresh.get(match[0], match[0]), text)


def shuffled_blocks(text: str, source: random.Random) -> str:
    """Put the declarations of CUDA code, which blank lines separate, in another order; directives stay first."""
    blocks = [block for block in text.split("\n\n") if block.strip()]
    head = [block for block in blocks if block.lstrip().startswith("#")]
    rest = [block for block in blocks if not block.lstrip().startswith("#")]
    source.shuffle(rest)
    return "\n\n".join([*head, *rest]) + "\n"
