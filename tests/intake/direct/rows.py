"""Builders of direct-artifact declarations for tests: small, valid, and easy to break in one place."""

from __future__ import annotations

from typing import Any

from config.slot_resources import load_slot_resources
from intake.direct.row import DirectRow, parse_direct_row

DAG = "cacheon.cuda-expression-dag.v1"
SILU, NORM, DECODE = "activation.silu_and_mul", "norm.rmsnorm", "attention.decode"
MOE, REDUCE = "moe.fused_experts", "collective.all_reduce"
Table = dict[str, Any]


def dag(*nodes: Table) -> Table:
    """Return an expression whose result is its last node."""
    return {"schema": DAG, "nodes": [dict(node) for node in nodes], "result": len(nodes) - 1}


def node(op: str, *operands: int, **keys: Any) -> Table:
    """Return one node."""
    return {"op": op, **({"operands": list(operands)} if operands else {}), **keys}


def const(value: Any) -> Table:
    """Return a constant expression; a float is written exactly."""
    return dag(node("const", value={"f64_hex": value.hex()} if isinstance(value, float) else value))


def xyz(x: Any = 1, y: Any = 1, z: Any = 1) -> Table:
    """Return a table of three sizes; numbers become constants."""
    return {key: const(size) if isinstance(size, int) else size for key, size in zip("xyz", (x, y, z), strict=True)}


def bind(source: str, kind: str, **keys: Any) -> Table:
    """Return one binding row."""
    return {"source": source, "kind": kind, **keys}


def pointer(source: str) -> Table:
    """Return a binding of a tensor's address."""
    return bind(source, "pointer", projection="device_ptr")


def parameter(kind: str, size: int, **keys: Any) -> Table:
    """Return one kernel parameter."""
    return {"kind": kind, "size": size, **keys}


def launch(parameters: list[Table], stream: int, ordinal: int = 0, kernel: str = "k0", **keys: Any) -> Table:
    """Return one launch of a single thread."""
    row = {
        "ordinal": ordinal,
        "kernel": kernel,
        "grid": xyz(),
        "block": xyz(),
        "shared_mem_bytes": const(0),
        "parameters": parameters,
        "stream_binding": stream,
        "attributes": {},
    }
    return {**row, **keys}


def plan(*launches: Table) -> Table:
    """Return a device plan whose kernels are those launched, with the launches' own widths."""
    widths = {row["kernel"]: [item["size"] for item in row["parameters"]] for row in launches}
    kernels = [{"name": name, "parameter_sizes": widths[name]} for name in sorted(widths)]
    return {"schema": "cacheon.device-launch-plan.v1", "kernels": kernels, "launches": list(launches)}


def export(bindings: list[Table], device_plan: Table | None = None, **keys: Any) -> Table:
    """Return an export over `bindings` plus a stream, which a default plan launches one kernel on."""
    rows = [*bindings, bind("stream.current", "stream")]
    row = {
        "provider": "cutlass.cute.cubin.v1",
        "name": "main",
        "factory": "build",
        "profile_inputs": [],
        "bindings": rows,
        "device_plan": device_plan or plan(launch([], len(bindings))),
    }
    return {**row, **keys}


def op(*exports: Table, resources: list[Table] | None = None, **keys: Any) -> Table:
    """Return an `[[ops]]` row."""
    row: Table = {"source": "k.py", "entry": "f", "aot_exports": list(exports)}
    return {**row, **({"artifact_resources": resources} if resources is not None else {}), **keys}


def covering(slot: str, *more: Table, **keys: Any) -> Table:
    """Return an export of a run step that writes every output of `slot`; `more` bindings stand first."""
    return export([*more, *(pointer(name) for name in load_slot_resources()[slot].outputs)], **keys)


def resource(name: str = "workspace.tmp", **keys: Any) -> Table:
    """Return a small artifact resource."""
    lifetimes = {"workspace": "call", "prepared": "prepared", "state": "engine"}
    row = {"name": name, "dtype": "f32", "alignment": 16, "lifetime": lifetimes.get(name.partition(".")[0], "call")}
    return {**row, "shape": [{"factors": [{"static": 4}]}], **keys}


def parse(row: Table, slot: str = SILU, capabilities: Table | None = None) -> DirectRow:
    """Parse a row of `slot`."""
    return parse_direct_row(row, slot=slot, variant="default", metadata_capabilities=capabilities)
