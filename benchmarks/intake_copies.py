"""Precision and recall of the copy rule, on the recorded pairs and on mutants that this file makes.

Run: `.venv/bin/python benchmarks/intake_copies.py`

The rule at its widest: one bundle's pieces are all among the other's. Every seed kernel is rewritten by random chains
of edits that change no work (those pairs are copies), and by the same chains after one edit that does (those are not).
Seeds are never copies of each other. Random programs are edited at random and run: those with one fingerprint have to
compute the same. Tuned seeds are no copies either; for them the share of work that is found to be the same but for
constants is measured. docs/copies.md says what follows from the numbers, and what gets through.
"""

from __future__ import annotations

import ast
import itertools
import json
import random
import sys
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks import copy_mutants as mutants  # noqa: E402 - the path comes first
from benchmarks.copy_seeds import CUDA_SEEDS, HEADER, PYTHON_SEEDS, SHIM, CudaSeed  # noqa: E402
from intake.closure import LocalModules  # noqa: E402
from intake.fingerprint.program import Program  # noqa: E402
from intake.report import IntakeReport  # noqa: E402
from intake.screen import screen_files  # noqa: E402
from tests.intake import programs  # noqa: E402

SLOT = "activation.silu_and_mul"
MANIFEST = (
    'bundle_id = "b"\nabi_version = "cacheon-op-abi-v0"\n[[ops]]\nslot = "{slot}"\nsource = "k.py"\nentry = "{entry}"\n'
)
STEPS = b'{"steps": [{"type": "repo_python", "path": "build_cuda_ext.py"}]}'
CHAINS = 60  # mutants of each seed
PROGRAMS = 1000  # random ones
_ALIKE = 0.5  # share of weight from which a likeness is noted


class Counts(NamedTuple):
    """Pairs that are copies and those found, pairs that are not and those taken for copies."""

    copies: int = 0
    found: int = 0
    different: int = 0
    false_alarms: int = 0

    def and_copy(self, *, found: bool) -> Counts:
        """Count one more pair that is a copy."""
        return self._replace(copies=self.copies + 1, found=self.found + found)

    def and_other(self, *, alarm: bool) -> Counts:
        """Count one more pair that is not."""
        return self._replace(different=self.different + 1, false_alarms=self.false_alarms + alarm)


def is_copy(one: IntakeReport, other: IntakeReport) -> bool:
    """Apply the rule at its widest."""
    mine, theirs = set(one.pieces), set(other.pieces)
    return mine <= theirs or theirs <= mine


def alike(later: IntakeReport, earlier: IntakeReport) -> float:
    """Return the share of the later bundle's parts that the earlier one holds, but for constants."""
    known = {part.shape for part in earlier.parts}
    total = sum(part.weight for part in later.parts)
    return sum(part.weight for part in later.parts if part.shape in known) / total


def report(tree: ast.Module, entry: str) -> IntakeReport:
    """Screen a one-file bundle."""
    text = ast.unparse(ast.fix_missing_locations(tree))
    files = {"manifest.toml": MANIFEST.format(slot=SLOT, entry=entry).encode(), "k.py": text.encode()}
    return screen_files(files, served=None).report


def mutant(seed: str, edits: tuple[mutants.Edit, ...], source: random.Random) -> IntakeReport:
    """Return the report of a seed after some edits; the entry is followed by identity, not by name."""
    tree = ast.parse(seed)
    entry = mutants.functions(tree)[-1]
    for edit in edits:
        edit(tree, source)
    return report(tree, entry.name)


def python_pairs(source: random.Random) -> tuple[Counts, Counts]:
    """Return the counts over mutants of the Python seeds, and over tuned ones (found: noted as alike)."""
    counts, tuned = Counts(), Counts()
    originals = [mutant(seed, (), source) for seed in PYTHON_SEEDS]
    for seed, original in zip(PYTHON_SEEDS, originals, strict=True):
        for _ in range(CHAINS):
            chain = tuple(source.sample(mutants.KEEPING, source.randrange(1, len(mutants.KEEPING) + 1)))
            counts = counts.and_copy(found=is_copy(original, mutant(seed, chain, source)))
            other = mutant(seed, (source.choice(mutants.CHANGING), *chain), source)
            counts = counts.and_other(alarm=is_copy(original, other))
            third = mutant(seed, (mutants.tune, *chain), source)
            tuned = tuned.and_copy(found=alike(third, original) >= _ALIKE)
            counts = counts.and_other(alarm=is_copy(original, third))
    for one, other in itertools.combinations(originals, 2):
        counts = counts.and_other(alarm=is_copy(one, other))
    return counts, tuned


def cuda_report(unit: str, header: str, shim: str, names: tuple[str, str]) -> IntakeReport:
    """Screen a bundle with one CUDA unit and one header."""
    manifest = MANIFEST.format(slot=SLOT, entry="silu_and_mul") + f"cuda_sources = {list(names)}\n"
    files = {"manifest.toml": manifest.encode(), "k.py": shim.encode(), "rebuild.json": STEPS}
    return screen_files({**files, names[0]: unit.encode(), names[1]: header.encode()}, served=None).report


def cuda_mutant(seed: CudaSeed, text: str, index: int, source: random.Random) -> IntakeReport:
    """Respell, rename and move a unit, and put it behind another shim."""
    stem = f"u{index}"
    names = (f"{source.choice(('', 'src/'))}{stem}.cu", f"inc{index}/g.cuh")
    text = mutants.shuffled_blocks(text, source)
    text = mutants.respelled(mutants.renamed_words(text, seed.words, source), source)
    if source.random() < 0.5:
        text += "__device__ float nobody(float a) { return a * 3.0f; }\n"
    text = text.replace("h.cuh", "../" * names[0].count("/") + names[1])
    return cuda_report(text, mutants.respelled(HEADER, source), SHIM.format(unit=stem, size=index), names)


def cuda_pairs(source: random.Random) -> Counts:
    """Return the counts over mutants of the CUDA units."""
    counts = Counts()
    shim = SHIM.format(unit="c", size=1)
    originals = [cuda_report(seed.text, HEADER, shim, ("c.cu", "h.cuh")) for seed in CUDA_SEEDS]
    for seed, original in zip(CUDA_SEEDS, originals, strict=True):
        for index in range(CHAINS):
            counts = counts.and_copy(found=is_copy(original, cuda_mutant(seed, seed.text, index, source)))
            changed = seed.text.replace(*source.choice(seed.changes))
            assert changed != seed.text
            counts = counts.and_other(alarm=is_copy(original, cuda_mutant(seed, changed, index, source)))
    for one, other in itertools.combinations(originals, 2):
        counts = counts.and_other(alarm=is_copy(one, other))
    return counts


def recorded() -> tuple[Counts, Counts]:
    """Return the counts over the recorded pairs by what each pair is, and over those that are tuned."""
    vectors = json.loads((ROOT / "tests" / "golden" / "copy_vectors.json").read_text("utf-8"))["vectors"]
    different = {"shared_helper_only", "squat_separate_helper_file", "patch_totally_different"}
    counts, tuned = Counts(), Counts()
    for vector in vectors:
        earlier, later = (
            screen_files({path: text.encode() for path, text in vector[side].items() if text is not None}, served=None)
            for side in ("earlier", "later")
        )
        verdict = set(earlier.report.pieces) <= set(later.report.pieces)
        if vector["name"] in different or vector["name"] == "constant_changed":
            counts = counts.and_other(alarm=verdict)
        else:
            counts = counts.and_copy(found=verdict)
        if vector["name"] == "constant_changed":
            tuned = tuned.and_copy(found=alike(later.report, earlier.report) >= _ALIKE)
    return counts, tuned


def examples() -> Counts:
    """Return the counts over all pairs of the bundles under `examples/`; one of them copies another on purpose."""
    counts = Counts()
    reports = {}
    for folder in sorted((ROOT / "examples").iterdir()):
        if (folder / "manifest.toml").is_file():
            files = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
            reports[folder.name] = screen_files(
                {path: data for path, data in files.items() if "__pycache__" not in path}, served=None
            ).report
    for one, other in itertools.combinations(reports, 2):
        same_target = reports[one].target_id == reports[other].target_id
        verdict = same_target and is_copy(reports[one], reports[other])
        if {one, other} == {"silu_copy", "silu_fast"}:
            counts = counts.and_copy(found=verdict)
        else:
            counts = counts.and_other(alarm=verdict)
    return counts


def soundness(source: random.Random) -> dict[str, int]:
    """Run random programs and random edits of them; count edits, equal fingerprints, and equal ones that compute
    something else."""
    edits = equal = unequal_work = 0
    for _ in range(PROGRAMS):
        tree = ast.parse(programs.Writer(source).program())
        expected, mark = programs.outcome(tree), _digest(tree)
        for _ in range(12):
            other = programs.edited(tree, source)
            edits += 1
            if _digest(other) == mark:
                equal += 1
                found = programs.outcome(other)
                unequal_work += found != expected and "fails" not in (found, expected)
    return {"edits": edits, "equal_fingerprints": equal, "of_other_work": unequal_work}


def _digest(tree: ast.Module) -> str:
    program = Program(lambda _: tree, LocalModules(["k.py"]))
    root = program.root("k.py", "f")
    return program.deep(root) if isinstance(root, int) else root


def main() -> int:
    """Print and store the numbers; return 1 when a claim does not hold."""
    source = random.Random(20)
    python, python_tuned = python_pairs(source)
    golden, golden_tuned = recorded()
    rows = {"recorded": golden, "python mutants": python, "cuda mutants": cuda_pairs(source), "examples": examples()}
    for name, row in rows.items():
        precision = row.found / max(1, row.found + row.false_alarms)
        sys.stdout.write(
            f"{name}: recall {row.found}/{row.copies}, precision {precision:.3f} "
            f"({row.false_alarms} false alarms among {row.different} other pairs)\n"
        )
    noted = Counts(*(one + other for one, other in zip(python_tuned, golden_tuned, strict=True)))
    sys.stdout.write(f"tuned: {noted.found} of {noted.copies} noted as alike, none called a copy\n")
    sound = soundness(source)
    sys.stdout.write(
        "random programs: {edits} edits, {equal_fingerprints} equal prints, {of_other_work} wrong\n".format(**sound)
    )
    result: dict[str, dict[str, int]] = {name: row._asdict() for name, row in rows.items()}
    result["random_programs"] = sound
    result["tuned"] = {"pairs": noted.copies, "noted_as_alike": noted.found}
    target = ROOT / "benchmarks" / "results" / "intake_copies.json"
    target.write_text(json.dumps(result, indent=2, sort_keys=True) + "\n", "utf-8")
    failed = sound["of_other_work"] > 0
    return int(failed or any(row.found < row.copies or row.false_alarms for row in rows.values()))


if __name__ == "__main__":
    sys.exit(main())
