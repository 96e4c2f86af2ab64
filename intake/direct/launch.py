"""One launch of a device plan: which kernel, over which grid, with which parameters, on which stream.

Invariants
1. The stream is always bound, so that capture into a graph sees every launch.
2. Constant dimensions are checked when the plan is parsed, all others by `geometry` for each call; both use one rule.
3. Parameter widths equal the kernel's declared widths, one by one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import msgspec

from config.limits import DIRECT
from intake.direct.attributes import LaunchAttributes, parse_attributes
from intake.direct.bindings import Binding
from intake.direct.evaluate import Facts, evaluate
from intake.direct.expression import Expression, parse_expression
from intake.direct.parameters import Parameter, parse_parameter
from intake.direct.reading import Table, shown
from intake.direct.where import Where

_AXES = ("x", "y", "z")
_Partial = tuple[int | None, ...]  # x, y, z


class Dimensions(msgspec.Struct, frozen=True):
    """Three sizes, each an integer expression."""

    x: Expression
    y: Expression
    z: Expression

    def document(self) -> dict[str, object]:
        """Return the identity form."""
        return {axis: self.axis(axis).document() for axis in _AXES}

    def axis(self, name: str) -> Expression:
        """Return the expression of x, y or z."""
        return {"x": self.x, "y": self.y, "z": self.z}[name]


class Launch(msgspec.Struct, frozen=True):
    """One launch. `stream_binding` is the index of a stream binding of the export."""

    ordinal: int
    kernel: str
    grid: Dimensions
    block: Dimensions
    cluster: Dimensions | None
    shared_mem_bytes: Expression
    parameters: tuple[Parameter, ...]
    stream_binding: int
    attributes: LaunchAttributes

    def document(self) -> dict[str, object]:
        """Return the identity form; an absent cluster is null, every attribute is written."""
        return {
            "ordinal": self.ordinal,
            "kernel": self.kernel,
            "grid": self.grid.document(),
            "block": self.block.document(),
            "cluster": None if self.cluster is None else self.cluster.document(),
            "shared_mem_bytes": self.shared_mem_bytes.document(),
            "parameters": [parameter.document() for parameter in self.parameters],
            "stream_binding": self.stream_binding,
            "attributes": self.attributes.document(),
        }


class Geometry(msgspec.Struct, frozen=True):
    """The sizes of one launch for one live call. Shared memory is dynamic, in bytes."""

    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    cluster: tuple[int, int, int] | None
    shared_mem_bytes: int


def parse_launch(
    value: object, where: Where, ordinal: int, kernels: Mapping[str, tuple[int, ...]], bindings: Sequence[Binding]
) -> Launch:
    """Parse the `ordinal`-th launch; `kernels` are the declared parameter widths by name.

    Raises as `parse_parameter`, and DIRECT_PLAN.
    """
    keys = "ordinal kernel grid block shared_mem_bytes parameters stream_binding attributes"
    table = Table(value, where, keys, "cluster")
    if table.integer("ordinal", 0, DIRECT.launches - 1) != ordinal:
        raise table.at("ordinal").refusal("DIRECT_PLAN", f"the ordinal of this launch is {ordinal}.")
    kernel = table.text("kernel")
    if kernel not in kernels:
        raise table.at("kernel").refusal("DIRECT_PLAN", f"kernel {shown(kernel)} is not declared.")
    cluster = _dimensions(table, "cluster", bindings) if table.has("cluster") else None
    place = table.at("shared_mem_bytes")
    launch = Launch(
        ordinal=ordinal,
        kernel=kernel,
        grid=_dimensions(table, "grid", bindings),
        block=_dimensions(table, "block", bindings),
        cluster=cluster,
        shared_mem_bytes=parse_expression(table.get("shared_mem_bytes"), place, bindings, "int"),
        parameters=_parameters(table, kernels[kernel], bindings),
        stream_binding=_stream(table, bindings),
        attributes=parse_attributes(table.get("attributes"), table.at("attributes"), has_cluster=cluster is not None),
    )
    _check_constants(launch, where)
    return launch


def geometry(launch: Launch, facts: Facts, where: Where) -> Geometry:
    """Return the sizes of a launch for one live call. Raises DIRECT_EVALUATION."""
    grid, block = _sizes(launch.grid, facts, where.at("grid")), _sizes(launch.block, facts, where.at("block"))
    cluster = None if launch.cluster is None else _sizes(launch.cluster, facts, where.at("cluster"))
    shared = int(evaluate(launch.shared_mem_bytes, facts, where.at("shared_mem_bytes")))
    complaint = _complaint(grid, block, cluster, shared)
    if complaint:
        raise where.refusal("DIRECT_EVALUATION", f"{complaint} for this call.")
    return Geometry(grid, block, cluster, shared)


def _dimensions(table: Table, key: str, bindings: Sequence[Binding]) -> Dimensions:
    axes = Table(table.get(key), table.at(key), "x y z")
    return Dimensions(*(parse_expression(axes.get(axis), axes.at(axis), bindings, "int") for axis in _AXES))


def _parameters(table: Table, widths: tuple[int, ...], bindings: Sequence[Binding]) -> tuple[Parameter, ...]:
    items = table.items("parameters", 0, DIRECT.kernel_parameters)
    parameters = tuple(parse_parameter(item, place, bindings) for item, place in items)
    sizes = tuple(parameter.size for parameter in parameters)
    if sizes != widths:
        index = next((i for i, (one, other) in enumerate(zip(sizes, widths, strict=False)) if one != other), -1)
        if index < 0:
            message = f"{len(sizes)} parameters do not fit the kernel's {len(widths)}."
        else:
            message = f"parameter {index} has {sizes[index]} bytes; the kernel declares {widths[index]}."
        raise table.at("parameters").refusal("DIRECT_PLAN", message)
    return parameters


def _stream(table: Table, bindings: Sequence[Binding]) -> int:
    index = table.integer("stream_binding", 0, DIRECT.bindings - 1)
    if index >= len(bindings) or bindings[index].kind != "stream":
        raise table.at("stream_binding").refusal("DIRECT_PLAN", f"binding {index} is no stream.")
    return index


def _sizes(dimensions: Dimensions, facts: Facts, where: Where) -> tuple[int, int, int]:
    x, y, z = (int(evaluate(dimensions.axis(axis), facts, where.at(axis))) for axis in _AXES)
    return (x, y, z)


def _check_constants(launch: Launch, where: Where) -> None:
    """Refuse what is wrong for every call."""
    cluster = None if launch.cluster is None else _constants(launch.cluster)
    shared = _constant(launch.shared_mem_bytes)
    complaint = _complaint(_constants(launch.grid), _constants(launch.block), cluster, shared)
    if complaint:
        raise where.refusal("DIRECT_PLAN", f"{complaint}.")


def _constant(expression: Expression) -> int | None:
    return None if expression.constant is None else int(expression.constant)


def _constants(dimensions: Dimensions) -> _Partial:
    return tuple(_constant(dimensions.axis(axis)) for axis in _AXES)


def _complaint(grid: _Partial, block: _Partial, cluster: _Partial | None, shared: int | None) -> str:
    """Say what is wrong with the sizes of a launch; "" when nothing is. None is a size that is not known yet."""
    steps = cluster or (1, 1, 1)
    for key, sizes in (("grid", grid), ("block", block), ("cluster", steps)):
        for axis, size in zip(_AXES, sizes, strict=True):
            if size is not None and not 1 <= size <= DIRECT.launch_dimension:
                return f"{key}.{axis} is {size}, outside 1..{DIRECT.launch_dimension}"
    if _volume(block) > DIRECT.block_threads:
        return f"a block of {_volume(block)} threads is larger than {DIRECT.block_threads}"
    if _volume(steps) > DIRECT.cluster_blocks:
        return f"a cluster of {_volume(steps)} blocks is larger than {DIRECT.cluster_blocks}"
    for axis, size, step in zip(_AXES, grid, steps, strict=True):
        if size is not None and step is not None and size % step:
            return f"cluster.{axis} is {step}, which does not divide grid.{axis}, {size}"
    if shared is not None and not 0 <= shared <= DIRECT.shared_memory_bytes:
        return f"{shared} bytes of dynamic shared memory are outside 0..{DIRECT.shared_memory_bytes}"
    return ""


def _volume(sizes: _Partial) -> int:
    return math.prod(size for size in sizes if size is not None)
