"""`cacheon slots`: what every slot is called with, which targets hold it, and what a row may say about itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from config.contracts import Contract
from config.errors import NotFoundError
from config.slot_judging import load_slot_judging
from config.slot_resources import SlotAbi, load_slot_resources
from config.target_catalog import TargetCatalog, load_catalog
from intake.capabilities import NUMERIC_FIELDS, TEXT_FIELDS
from intake.scaffold import argument_name, call_signature, prepare_signature
from intake.served import SERVED
from intake.suggest import nearest
from intake.templates import load_templates
from node.cli.judges import judges_of
from node.cli.output import Output, facts

if TYPE_CHECKING:
    from rich.console import Console

# What each key of a row's metadata file takes; a test compares the keys with those that intake reads.
METADATA = {
    "capabilities": "an object of constraints by capability field: a value, a list, or {min, max} for numbers",
    "dtypes": "a list of text; intersected with the manifest's list",
    "architectures": "a list of text; intersected with the manifest's list",
    "quant": "a list of text",
    "graph_safe": "true or false; without it the row takes no call that is captured into a graph",
    "max_last_dim": "an integer",
    "min_num_tokens": "an integer",
    "max_num_tokens": "an integer",
    "model": "a note that nobody reads",
    "model_profile": "a note that nobody reads",
    "provenance": "a note that nobody reads",
}
ARCHITECTURES = "any name: cpu on CPU arenas, sm90, sm103 and so on for GPUs (SM_90 and sm-90 are read as sm90)"
COMMON_FIELDS = ("architecture", "dtype", "graph_mode", "layout", "quant", "tp_size", "world_size")


class ArgumentRow(msgspec.Struct, frozen=True):
    """One argument; `kind` is tensor, scalar, opaque or group, `access` read, write or readwrite."""

    name: str
    kind: str
    access: str
    meaning: str


class HolderRow(msgspec.Struct, frozen=True):
    """A target that holds the slot, and the built-in arenas that measure it."""

    target: str
    kind: str
    judged_by: tuple[str, ...]


class EdgeRow(msgspec.Struct, frozen=True):
    """A distribution of inputs that is asked of this slot beside the general ones."""

    name: str
    meaning: str


class ProfileRow(msgspec.Struct, frozen=True):
    """The slot as one model uses it: its calls report `model`, and an arena's workload may name it."""

    model: str
    edges: tuple[str, ...]


class SlotRow(msgspec.Struct, frozen=True):
    """One slot as `--json` shows it. `controls` are wrong answers that are found out before the slot is used.

    `prepare` is "" without a load-time half. `reports` are the fields that a live call has beside the common ones, none
    where that is not settled; `scalars` are those that a direct-artifact row may specialize on. `served` says
    whether this build measures entries of the slot.
    """

    id: str
    call: str
    prepare: str
    summary: str
    arguments: tuple[ArgumentRow, ...]
    dtypes: tuple[str, ...]
    reports: tuple[str, ...]
    scalars: tuple[str, ...]
    edges: tuple[EdgeRow, ...]
    controls: tuple[str, ...]
    profiles: tuple[ProfileRow, ...]
    targets: tuple[HolderRow, ...]
    served: bool


class Vocabulary(msgspec.Struct, frozen=True):
    """The words that rows of every slot may use; `common_fields` are those that every live call has."""

    architectures: str
    common_fields: tuple[str, ...]
    metadata: dict[str, str]
    number_fields: tuple[str, ...]
    text_fields: tuple[str, ...]


class Listing(msgspec.Struct, frozen=True):
    """The slots with the catalog they come from."""

    catalog_digest: str
    slots: tuple[SlotRow, ...]
    vocabulary: Vocabulary


def run(slot: str | None, *, as_json: bool) -> None:
    """List one slot or all. Raises `NotFoundError` (SLOT_NOT_LISTED)."""
    catalog = load_catalog()
    contracts = {name: target.contract for name, target in sorted(catalog.targets.items()) if target.contract}
    if slot is not None and slot not in contracts:
        hint = nearest(slot, contracts) or "`cacheon slots` lists them"
        raise NotFoundError("SLOT_NOT_LISTED", f"there is no slot {slot!r}", hint=hint)
    rows = tuple(_row(contract, catalog) for name, contract in contracts.items() if slot in (None, name))
    numbers, texts = tuple(sorted(NUMERIC_FIELDS)), tuple(sorted(TEXT_FIELDS))
    words = Vocabulary(ARCHITECTURES, COMMON_FIELDS, METADATA, numbers, texts)
    listing = Listing(catalog.digest, rows, words)
    Output("slots", as_json=as_json).result(listing, lambda console: _show(console, listing))


def _row(contract: Contract, catalog: TargetCatalog) -> SlotRow:
    abi, template = load_slot_resources()[contract.slot], load_templates()[contract.slot]
    holders = tuple(
        HolderRow(target.id, target.kind, judges_of(target.id))
        for target in sorted(catalog.targets.values(), key=lambda target: (target.kind != "slot", target.id))
        if contract.slot in target.members
    )
    measured = any(holder.judged_by for holder in holders)
    judging = load_slot_judging()
    judged = judging.slots[contract.slot]
    return SlotRow(
        id=contract.slot,
        call=call_signature(contract, abi),
        prepare=prepare_signature(contract, abi),
        summary=template.summary,
        arguments=_arguments(abi, template.arguments),
        dtypes=tuple(item.dtype for item in contract.tolerances),
        reports=template.reports,
        scalars=tuple(item.capability_field for item in abi.resources if item.capability_field is not None),
        edges=tuple(EdgeRow(name, judging.edges[name]) for name in judged.edges),
        controls=judged.controls,
        profiles=tuple(ProfileRow(one.model, one.edges) for one in judged.profiles),
        targets=holders,
        served=measured and (contract.prepare is None or "prepare" in SERVED),
    )


def _arguments(abi: SlotAbi, meanings: dict[str, str]) -> tuple[ArgumentRow, ...]:
    names = dict.fromkeys((*abi.prepare_args, *abi.call_args))
    resources = [abi.by_name[name] for name in names]
    return tuple(
        ArgumentRow(argument_name(item.name), item.kind, item.access, meanings[argument_name(item.name)])
        for item in resources
    )


def _show(console: Console, listing: Listing) -> None:
    for row in listing.slots:
        console.print(row.id, style="bold", markup=False)
        facts(console, [(f"  {name}", value) for name, value in _facts(row)])
        console.print()
    words = listing.vocabulary
    console.print("What a row may say", style="bold", markup=False)
    facts(
        console,
        [
            ("  architectures", words.architectures),
            *((f"  metadata {key}", text) for key, text in words.metadata.items()),
            ("  capability fields", f"numbers: {', '.join(words.number_fields)}"),
            ("", f"text: {', '.join(words.text_fields)}"),
        ],
    )


def _facts(row: SlotRow) -> list[tuple[str, str]]:
    rows = [("at load time", row.prepare)] if row.prepare else []
    rows += [("call", row.call), ("result", row.summary)]
    rows += [(f"  {argument.name}", argument.meaning) for argument in row.arguments]
    rows += [("dtypes", ", ".join(row.dtypes))]
    if row.reports:
        rows += [("calls report", ", ".join((*row.reports, *COMMON_FIELDS)))]
    if row.scalars:
        rows += [("exact scalars", ", ".join(row.scalars))]
    rows += [("edge", f"{edge.name}: {edge.meaning}") for edge in row.edges]
    rows += [("model profile", f"{one.model} (edges: {', '.join(one.edges)})") for one in row.profiles]
    rows += [("must fail", ", ".join(row.controls))]
    rows += [("target", _holder_text(holder)) for holder in row.targets]
    return [*rows, ("served", "yes" if row.served else "not yet by this release")]


def _holder_text(holder: HolderRow) -> str:
    judged = f"measured by {', '.join(holder.judged_by)}" if holder.judged_by else "no arena yet"
    return f"{holder.target} ({holder.kind}; {judged})"
