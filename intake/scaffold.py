"""A target -> the files of a bundle that competes for it, to start from. Nothing is read or written here.

Invariants
1. One row and one source file for each slot of the target, with the entries its contract names and nothing else.
2. What goes into the manifest is checked by the manifest's own rules first: a refusal is about what was asked for, and
   the files are never refused for their form.
3. The same request always gives the same bytes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from config.contracts import Contract
from config.errors import ConfigurationError, IntakeError
from config.limits import INTAKE
from config.slot_resources import SlotAbi, load_slot_resources
from config.target_catalog import Target, TargetCatalog
from intake.capabilities import canonical_texts
from intake.manifest import ABI
from intake.manifest_fields import MANIFEST, Context, Table
from intake.refusal import Findings, clip
from intake.suggest import nearest
from intake.templates import load_templates
from intake.toml_lines import TomlLines

_README = """\
# {bundle_id}

A bundle for the target `{target}`. It was written by `cacheon init`: every kernel is correct, in plain torch, and no
faster than that. It earns nothing before you change it.

| file | what it is |
|---|---|
{files}
`cacheon slots` describes the calls, `cacheon scan` finds what a validator would refuse, `cacheon verify` calls them
and shows what is wrong, `cacheon bench` measures them, and `cacheon chain-package` makes the archive to host; where no
arena measures the target yet, `verify` and `bench` say so. Bundles become public when they are revealed: add a LICENSE
file with your terms.
"""
_FILE_ROW = "| `{path}` | {what} |\n"


def bundle_contracts(target: Target, catalog: TargetCatalog) -> tuple[Contract, ...]:
    """Return the call contracts of a target's slots, in member order."""
    members = (catalog.targets[member].contract for member in target.members)
    return tuple(contract for contract in members if contract is not None)


def argument_name(resource: str) -> str:
    """Return what a call argument is called in Python: `input.x` -> `x`, `prepared.state` -> `prepared`."""
    family, _, name = resource.partition(".")
    return name if family in ("input", "output") else family


def call_signature(contract: Contract, abi: SlotAbi) -> str:
    """Return the call as Python spells it, such as `silu_and_mul(x, out)`."""
    return f"{contract.entry}({', '.join(map(argument_name, abi.call_args))})"


def prepare_signature(contract: Contract, abi: SlotAbi) -> str:
    """Return the load-time half as Python spells it, "" when the slot has none."""
    return f"{contract.prepare}({', '.join(map(argument_name, abi.prepare_args))})" if contract.prepare else ""


def scaffold(
    target: Target,
    catalog: TargetCatalog,
    *,
    bundle_id: str,
    dtypes: tuple[str, ...] = (),
    architectures: tuple[str, ...] = (),
) -> dict[str, bytes]:
    """Return the file table (path -> content) of a new bundle.

    Without `dtypes` the rows take every dtype of the contract, without `architectures` every architecture. Raises
    `ConfigurationError` (INIT_BUNDLE_ID, INIT_DTYPE_UNKNOWN, INIT_ARCHITECTURE).
    """
    _check_bundle_id(bundle_id)
    contracts = bundle_contracts(target, catalog)
    for_dtypes = _dtypes(dtypes, contracts)
    for_architectures = _architectures(architectures)
    texts = {"README.md": _README.format(bundle_id=bundle_id, target=target.id, files=_listing(contracts))}
    texts[MANIFEST] = _manifest(bundle_id, target, _rows(contracts, for_dtypes, for_architectures))
    for contract in contracts:
        template = load_templates()[contract.slot]
        texts[_source(contract)] = template.source
        texts[_metadata(contract)] = json.dumps({"graph_safe": False, **template.metadata}) + "\n"
    return {path: text.encode() for path, text in sorted(texts.items())}


def _check_bundle_id(bundle_id: str) -> None:
    findings = Findings()
    context = Context({}, TomlLines(""), findings, INTAKE)
    Table(context, {"bundle_id": bundle_id}).identifier("bundle_id", required=True)
    for finding in findings.documents():
        hint = "Give another one with --bundle-id, such as my-kernel-v1."
        raise ConfigurationError("INIT_BUNDLE_ID", finding.message, hint=hint)


def _dtypes(asked: tuple[str, ...], contracts: tuple[Contract, ...]) -> tuple[str, ...]:
    """Return the canonical dtypes of the rows; all members of a target share theirs."""
    known = [item.dtype for item in contracts[0].tolerances]
    chosen = _canonical("dtype", "INIT_DTYPE_UNKNOWN", asked)
    for dtype in chosen:
        if any(dtype not in {item.dtype for item in contract.tolerances} for contract in contracts):
            hint = nearest(dtype, known) or f"Use one of: {', '.join(known)}."
            raise ConfigurationError("INIT_DTYPE_UNKNOWN", f"no contract knows the dtype {clip(dtype)}.", hint=hint)
    return chosen or tuple(known)


def _architectures(asked: tuple[str, ...]) -> tuple[str, ...]:
    chosen = _canonical("architecture", "INIT_ARCHITECTURE", asked)
    for name in chosen:
        if not name.isascii() or not name.isprintable() or " " in name:
            hint = "Write for instance sm90, sm103 or cpu."
            raise ConfigurationError("INIT_ARCHITECTURE", f"{clip(name)} names no architecture.", hint=hint)
    return chosen


def _canonical(field: str, code: str, asked: tuple[str, ...]) -> tuple[str, ...]:
    try:
        return canonical_texts(field, asked)
    except IntakeError as error:
        raise ConfigurationError(code, error.message, hint=f"Give the {field} by its name.") from error


def _manifest(bundle_id: str, target: Target, rows: Iterator[str]) -> str:
    head = (
        f'bundle_id = "{bundle_id}"\nabi_version = "{ABI}"\n\n'
        f'[competition]\ntarget = "{target.id}"\nmode = "{target.kind}"\n'
    )
    return head + "".join(rows)


def _rows(
    contracts: tuple[Contract, ...], dtypes: tuple[str, ...], architectures: tuple[str, ...]
) -> Iterator[str]:
    abis = load_slot_resources()
    for contract in contracts:
        values: dict[str, object] = {"slot": contract.slot, "source": _source(contract), "entry": contract.entry}
        if contract.prepare:
            values["prepare"] = contract.prepare
        values["dtypes"] = list(dtypes)
        if architectures:
            values["architectures"] = list(architectures)
        values["metadata"] = _metadata(contract)
        calls = filter(None, (prepare_signature(contract, abis[contract.slot]),
                              call_signature(contract, abis[contract.slot])))
        # Texts and lists of ASCII text are written alike in JSON and in TOML.
        lines = "".join(f"{key} = {json.dumps(value)}\n" for key, value in values.items())
        yield f"\n# Called as {', then '.join(calls)}.\n[[ops]]\n{lines}"


def _listing(contracts: tuple[Contract, ...]) -> str:
    files = [(MANIFEST, "what the bundle competes for, and where its entries are")]
    for contract in contracts:
        files.append((_source(contract), f"the kernel of `{contract.slot}`; comments say where its time goes"))
        files.append((_metadata(contract), "which calls it takes; every key you add narrows that"))
    return "".join(_FILE_ROW.format(path=path, what=what) for path, what in files)


def _source(contract: Contract) -> str:
    return f"kernels/{contract.entry}.py"


def _metadata(contract: Contract) -> str:
    return f"metadata/{contract.entry}.json"
