"""Precision and recall of the copy rule, on the recorded pairs and on mutants that this file makes.

Run: `.venv/bin/python benchmarks/intake_copies.py`

The rule: a later bundle that contains all pieces of an earlier one repeats it. Every seed kernel is rewritten by random
chains of edits that change no work (those pairs are copies), and by single edits that do (those pairs are not). Two
different seeds are never copies of each other. One CUDA unit is respelled, moved and put behind other shims likewise.
Only edits that we claim to see through are made; docs/bundle-identity.md names those that get through.
"""

from __future__ import annotations

import ast
import itertools
import json
import random
import sys
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from intake.screen import screen_files  # noqa: E402 - the path comes first

MANIFEST = (
    'bundle_id = "b"\nabi_version = "cacheon-op-abi-v0"\n[[ops]]\nslot = "{slot}"\nsource = "k.py"\nentry = "{entry}"\n'
)
CHAINS = 60  # mutants of each seed
Edit = Callable[[ast.Module, random.Random], None]


def functions(tree: ast.Module) -> list[ast.FunctionDef]:
    """Return the top-level functions of a file."""
    return [node for node in tree.body if isinstance(node, ast.FunctionDef)]


def rename_locals(tree: ast.Module, source: random.Random) -> None:
    """Give parameters and locals of every function new names."""
    for function in functions(tree):
        stored = {
            node.id for node in ast.walk(function) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
        }
        names = {name: f"v{source.randrange(10**6)}_{index}" for index, name in enumerate(sorted(stored))}
        for node in ast.walk(function):
            if isinstance(node, ast.Name):
                node.id = names.get(node.id, node.id)


def rename_functions(tree: ast.Module, source: random.Random) -> None:
    """Give every function a new name, the entry included."""
    names = {function.name: f"f{source.randrange(10**6)}_{index}" for index, function in enumerate(functions(tree))}
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            node.name = names.get(node.name, node.name)
        elif isinstance(node, ast.Name):
            node.id = names.get(node.id, node.id)


def add_noise(tree: ast.Module, source: random.Random) -> None:
    """Put `pass`, texts and bare annotations between statements."""
    for function in functions(tree):
        noise = source.choice(("pass", "'note'", "unused: int"))
        function.body.insert(source.randrange(len(function.body) + 1), ast.parse(noise).body[0])


def annotate(tree: ast.Module, source: random.Random) -> None:
    """Annotate what functions return."""
    for function in functions(tree):
        function.returns = ast.Name(source.choice(("int", "float", "object")), ast.Load())


def shuffle(tree: ast.Module, source: random.Random) -> None:
    """Change the order of top-level functions."""
    places = [
        index for index, node in enumerate(tree.body) if isinstance(node, ast.FunctionDef) and not node.decorator_list
    ]
    moved = [tree.body[index] for index in places]
    source.shuffle(moved)
    for index, node in zip(places, moved, strict=True):
        tree.body[index] = node


def add_unused(tree: ast.Module, source: random.Random) -> None:
    """Add an import and a function that nothing uses."""
    name = f"pad{source.randrange(10**6)}"
    tree.body[:0] = [*tree.body[:0], *ast.parse("import math").body]
    tree.body += ast.parse(f"def {name}(a):\n    return a * {source.randrange(100)}\n").body


KEEPING: tuple[Edit, ...] = (rename_locals, rename_functions, add_noise, annotate, shuffle, add_unused)


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
    """Leave out one statement of the entry, the last function of a seed."""
    body = functions(tree)[-1].body
    real = [node for node in body if not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))]
    if len(real) > 1:
        body.remove(source.choice(real))
    else:
        body.append(ast.parse("print(1)").body[0])


CHANGING: tuple[Edit, ...] = (change_operator, change_call, drop_statement)


def pieces(tree: ast.Module, slot: str, entry_index: int = -1, entry: str = "") -> frozenset[str]:
    """Return the pieces of a one-file bundle."""
    name = entry or functions(tree)[entry_index].name
    text = ast.unparse(ast.fix_missing_locations(tree))
    files = {"manifest.toml": MANIFEST.format(slot=slot, entry=name).encode(), "k.py": text.encode()}
    return frozenset(screen_files(files, served=None).report.pieces)


def mutant(seed: str, edits: tuple[Edit, ...], source: random.Random, slot: str) -> frozenset[str]:
    """Return the pieces of a seed after some edits; the entry is followed by identity, not by name."""
    tree = ast.parse(seed)
    entry = functions(tree)[-1]
    for edit in edits:
        edit(tree, source)
    return pieces(tree, slot, entry=entry.name)


def seeds() -> list[str]:
    """Return different kernels of one slot."""
    bodies = [
        "gate = _half(x[..., :d].float(), 1.0)\n    out.copy_(gate.to(x.dtype) * x[..., d:] + d)",
        "gate = x[..., :d].float()\n    part = _half(gate, 1.0)\n    out.copy_(part * x[..., d:])",
        "gate, up = x.split(d, dim=-1)\n    torch.mul(_half(gate, 2.0), up, out=out)",
        "for row in range(x.shape[0]):\n        out[row].copy_(_half(x[row, :d], 1.5) * x[row, d:])",
        "gate = x[..., :d]\n    gate = gate / (torch.exp(-gate) + 1)\n    out.copy_(gate + _half(x[..., d:], 0.5))",
    ]
    helper = "import torch\n\n\ndef _half(a, b):\n    total = a * torch.sigmoid(a)\n    return total * b + a * 0\n\n\n"
    return [f"{helper}def silu_and_mul(x, out):\n    d = x.shape[-1] // 2\n    {body}\n" for body in bodies]


CUDA = """#include "h.cuh"
__global__ void silu(const float* x, float* out, int d) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < d) { float g = x[i]; out[i] = HALF(g) / (1.0f + expf(-g)) * x[i + d]; }
}
"""
SHIM = "import torch\n\n\ndef silu_and_mul(x, out):\n    {body}\n"
STEPS = b'{"steps": [{"type": "repo_python", "path": "build_cuda_ext.py"}]}'
CHANGES = (("1.0f", "2.0f"), ("expf", "exp2f"), ("i + d", "i - d"), ("i < d", "i <= d"), ("* x", "+ x"))


def cuda_pieces(unit: str, shim: str, names: tuple[str, str], slot: str) -> frozenset[str]:
    """Return the pieces of a bundle with one CUDA unit and one header."""
    manifest = MANIFEST.format(slot=slot, entry="silu_and_mul") + f"cuda_sources = {list(names)}\n"
    files = {"manifest.toml": manifest.encode(), "k.py": shim.encode(), "rebuild.json": STEPS}
    files |= {names[0]: unit.encode(), names[1]: b"#define HALF(a) (0.5f * (a))\n"}
    return frozenset(screen_files(files, served=None).report.pieces)


def respelled(text: str, source: random.Random) -> str:
    """Put blanks, comments, line ends and joined lines between the words of CUDA code, directives aside."""
    lines = []
    for line in text.splitlines():
        if not line.startswith("#"):
            gaps = (" ", "  ", "\n", " /* note */ ", " // note\n", " \\\n ")
            lines.append("".join(source.choice(gaps) if char == " " else char for char in line))
        else:
            lines.append(line)
    return "\n".join(lines) + "\n"


def cuda_mutants(source: random.Random, slot: str) -> tuple[int, int, int, int]:
    """Return (copies, found, different, false alarms) over mutants of one CUDA unit behind other shims."""
    original = cuda_pieces(CUDA, SHIM.format(body="pass"), ("c.cu", "h.cuh"), slot)
    found = alarms = 0
    for index in range(CHAINS):
        names = (f"{source.choice(('', 'src/'))}u{index}.cu", f"inc{index}/g.cuh")
        header = "../" * names[0].count("/") + names[1]
        shim = SHIM.format(body=f"print({index})")
        text = respelled(CUDA, source).replace("h.cuh", header)
        found += original <= cuda_pieces(text, shim, names, slot)
        other = respelled(CUDA.replace(*source.choice(CHANGES)), source).replace("h.cuh", header)
        alarms += original <= cuda_pieces(other, SHIM.format(body="pass"), names, slot)
    return CHAINS, found, CHAINS, alarms


def recorded() -> tuple[int, int, int]:
    """Return (copies found, copies, false alarms) over the recorded pairs, by what each pair is."""
    vectors = json.loads((ROOT / "tests" / "golden" / "copy_vectors.json").read_text("utf-8"))["vectors"]
    not_copies = {"constant_changed", "shared_helper_only", "squat_separate_helper_file", "patch_totally_different"}
    found = total = alarms = 0
    for vector in vectors:
        sides = []
        for side in ("earlier", "later"):
            files = {path: text.encode() for path, text in vector[side].items() if text is not None}
            sides.append(set(screen_files(files, served=None).report.pieces))
        verdict = sides[0] <= sides[1]
        is_copy = vector["name"] not in not_copies - {"constant_changed"}  # a tweaked constant is still a copy
        total += is_copy
        found += verdict and is_copy
        alarms += verdict and not is_copy
    return found, total, alarms


def main() -> int:
    """Print and store the numbers; return 1 when a claim does not hold."""
    source, slot = random.Random(20), "activation.silu_and_mul"
    originals = [pieces(ast.parse(seed), slot) for seed in seeds()]
    copies = found = others = alarms = 0
    for seed, original in zip(seeds(), originals, strict=True):
        for _ in range(CHAINS):
            chain = tuple(source.sample(KEEPING, source.randrange(1, len(KEEPING) + 1)))
            copies += 1
            found += original <= mutant(seed, chain, source, slot)
            others += 1
            alarms += original <= mutant(seed, (source.choice(CHANGING), *chain), source, slot)
    for one, other in itertools.permutations(originals, 2):
        others += 1
        alarms += one <= other
    both = zip((copies, found, others, alarms), cuda_mutants(source, slot), strict=True)
    copies, found, others, alarms = (one + other for one, other in both)
    golden_found, golden_copies, golden_alarms = recorded()
    result = {
        "mutants": {"copies": copies, "found": found, "different": others, "false_alarms": alarms},
        "recorded": {"copies": golden_copies, "found": golden_found, "false_alarms": golden_alarms},
    }
    for name, row in result.items():
        precision = row["found"] / (row["found"] + row["false_alarms"])
        sys.stdout.write(f"{name}: recall {row['found']}/{row['copies']}, precision {precision:.3f}\n")
    target = ROOT / "benchmarks" / "results" / "intake_copies.json"
    target.write_text(json.dumps(result, indent=2, sort_keys=True) + "\n", "utf-8")
    return int(found < copies or alarms + golden_alarms > 0)


if __name__ == "__main__":
    sys.exit(main())
