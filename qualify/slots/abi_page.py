"""docs/kernel-abi.md, made from the slots, their contracts and their templates; a test compares page and data.

Run `python -m qualify.slots.abi_page > docs/kernel-abi.md` after an edit of a slot.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence

from config.slot_resources import SlotAbi, load_slot_resources
from config.target_catalog import load_catalog
from intake.scaffold import argument_name, call_signature, prepare_signature
from intake.templates import Template, load_templates
from qualify.call_memory import GUARD
from qualify.content import ALL_STYLES
from qualify.dtypes import DTYPES
from qualify.far_shapes import SPANS
from qualify.memory import ALIGNMENT
from qualify.slots.base import Argument, Slot, live_descriptor
from qualify.slots.judging import EDGES
from qualify.slots.registry import PROFILES, SLOTS


def _step(name: str) -> int:
    return SPANS[name].step


_HEAD = f"""# Kernel ABI

<!-- Made by `python -m qualify.slots.abi_page`; edit qualify/slots/ and intake/templates/ instead. -->

What an entry of a bundle is called with, and how its answer is judged, for every slot of this release. `cacheon slots
SLOT` shows the same on a terminal; [targets.md](targets.md) says which targets hold a slot.

## Rules of every call

1. Arguments are **positional**, in the order of the signature. Their names in your source are yours. The return value
   is ignored: an entry writes its outputs.
2. **Outputs are allocated by the validator**, in the dtype of the call unless a fixed one is given. They hold plausible
   values of no meaning when the entry is called, never zeros. They are disjoint from every input and from each other,
   with at least {GUARD} bytes between them that must not change.
3. **Inputs are contiguous and row-major**, start at a multiple of {ALIGNMENT} bytes and are read-only: a write to one
   ends the process. Addresses and contents are new in every call.
4. An output is row-major with unit stride in its last axis. Where a **pitch** is given, its rows lie further apart than
   they are long; the elements between them belong to nobody and must stay as they are. Go through strides, and never
   take a padded output for contiguous.
5. Nothing of an output may alias an input, be exchanged for other storage, or be written after the entry has returned.
6. Scalars are Python numbers. A collective's `group` is the process group of its ranks, which an entry may use with
   `torch.distributed`; every rank is called at once, and the outputs of every rank are judged.
7. A slot with a **load-time half** calls `prepare` once for each set of weights, before anything is timed. It sees the
   weights and nothing else, cannot write to them, and what it returns comes back as `prepared`. Without a `prepare` row
   `prepared` is the weights as a tuple. Weights are dense tensors in the dtype of the call, and every call reports
   `quant` as `dense`: no arena of this release hands over a quantised layer, and a row for one (`"quant": ["nvfp4"]`)
   is asked nothing.
8. An entry is asked for shapes inside the domain of its row alone, and for any of those: for public ones, for hidden
   neighbours of theirs, for those that an arena measures, and for one far from all of these. There, widths and heads'
   widths are multiples of {_step("d")} and {_step("head_dim")}; a row that needs more says so in its domain.
9. Scalars marked **free** are the caller's: timed calls have those of models, and an edge has others, new in every
   call.
10. An entry is a plain function. One that is `async`, or a generator, computes nothing when it is called, and is
    refused.

## How answers are judged

Expectations are computed in float64 from the inputs as they were rounded, by references that share nothing with stock.
An element may be off by `absolute + relative * |expected|`. A row may be off, as the norm of its error, by `row` times
the norm of what was expected plus `peak` times its largest element: the bound of an element cannot be spent everywhere.
Where `whole` is given, the norm of all errors is at most that times the norm of all that was expected.
Where a slot has a stray share, that share of all elements may miss its bound, by no more than the factor given.

Correctness is asked on the public shapes with hidden extents, on every shape of the workload, on one far from all of
these, and on the slot's edges; every case twice, with other inputs at another place. Timed calls are judged as well,
each of them. Before a validator uses a slot at all it makes sure that doing nothing, zeros, constants, averages, copied
inputs, swapped arguments, less precision, hard-coded scalars and the slot's typical mistakes are found out
(`qualify/slots/admission.py`).

Inputs come from these distributions:

"""
_STYLES = {
    "normal": "N(0, 1), scaled by 0.5 to 2",
    "shifted": "the same around a centre between -5 and 5",
    "scaled": "scaled by 5 to 15",
    "heavy": "heavy tails: a cube beside a normal value",
    "rows": "every row with a scale of its own, 0.05 to 20",
    "small": "scaled by 0.01 to 0.1",
}
_PROFILES = """
## Model profiles

An arena may measure a slot as one model uses it. Such a call reports `model` as well, so a row can ask for it; a row
without that wish gets it too. The profiles of the two mixture slots have a clamped activation, called swigluoai: with
g = min(gate, 7) and u = clamp(up, -7, 7) it is g * sigmoid(1.702 * g) * (u + 1). An edge of theirs, `large`, drives
gates and ups beyond both limits. Bounds that are named below are those of the slot.

"""


def page(slots: Mapping[str, Slot]) -> str:
    """Return the whole page."""
    parts = [_HEAD, _table(("Name", "Values"), ((f"`{one.name}`", _STYLES[one.name]) for one in ALL_STYLES))]
    parts += ["\nEdges, asked by the slots that name them:\n\n"]
    parts += [_table(("Name", "Values"), ((f"`{name}`", text) for name, text in EDGES.items()))]
    for name in sorted(slots):
        parts += _section(slots[name], load_templates()[name], load_slot_resources()[name])
    return "".join([*parts, *_profiles()])


def _profiles() -> Iterator[str]:
    yield _PROFILES
    rows = ((f"`{one.id}`", f"`{one.model}`", one.comparator.promise) for one in PROFILES.values())
    yield _table(("Slot", "Model", "Judged by"), rows)


def _section(slot: Slot, template: Template, abi: SlotAbi) -> Iterator[str]:
    contract = load_catalog().targets[slot.id].contract
    assert contract is not None
    yield f"\n## {slot.id}\n\n```python\n"
    if contract.prepare:
        yield f"{prepare_signature(contract, abi)}  # once for each set of weights\n"
    yield f"{call_signature(contract, abi)}\n```\n\n{template.summary}\n\n"
    names = map(argument_name, (*abi.prepare_args, *abi.call_args))
    pairs = zip(names, (*slot.weights, *slot.arguments), strict=True)
    rows = (_argument(slot, one, name, template.arguments[name]) for name, one in pairs)
    yield _table(("Argument", "Role", "Shape and meaning", "Dtype", "Layout"), rows)
    shown = slot.catalog_shapes[0]
    common = set(live_descriptor(slot, shown, "bfloat16", "cpu")) - set(slot.descriptor(shown))
    reported = ", ".join(f"`{name}`" for name in slot.descriptor(shown))
    yield f"\nA call reports {reported}, beside {', '.join(f'`{name}`' for name in sorted(common))}.\n"
    if slot.per_rank:
        yield f"Every rank has its own {_names(slot.per_rank)}; all other tensors are the same everywhere.\n"
    yield f"\nJudged by: {slot.comparator.promise}\n\n"
    yield _table(
        ("Dtype", "Absolute", "Relative", "Row", "Peak", "Whole", "Stray share", "Stray factor"),
        (_bounds(slot, dtype) for dtype in DTYPES),
    )
    edges = ", ".join(f"`{style.name}`" for style in slot.edges) or "none"
    yield f"\nEdges: {edges}. Public shapes (hidden ones change {_names(slot.count_dimensions)}):\n\n"
    yield _table(slot.dimensions, ([str(shape[name]) for name in slot.dimensions] for shape in slot.catalog_shapes))


def _argument(slot: Slot, one: Argument, name: str, meaning: str) -> tuple[str, ...]:
    if one.role in ("scalar", "group", "prepared"):
        role = f"{one.role}, free" if one.name in slot.free_scalars else one.role
        return f"`{name}`", role, meaning, "-", "-"
    layout = f"rows with a pitch, {one.pad} elements longer than the row" if one.pad else "contiguous"
    role = f"{one.role}, each rank its own" if one.name in slot.per_rank else one.role
    return f"`{name}`", role, meaning, one.dtype or "of the call", layout


def _bounds(slot: Slot, dtype: str) -> tuple[str, ...]:
    bounds = slot.tolerance(dtype)
    numbers = (bounds.absolute, bounds.relative, bounds.row, bounds.peak)
    rest = (f"{bounds.whole:g}" if bounds.whole else "-", f"{bounds.stray:g}")
    return f"`{dtype}`", *(f"{number:g}" for number in numbers), *rest, f"{bounds.outlier:g}" if bounds.stray else "-"


def _names(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in sorted(names))


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


if __name__ == "__main__":
    sys.stdout.write(page(SLOTS))
