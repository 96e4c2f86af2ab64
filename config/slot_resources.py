"""The call ABI of every slot: which named resources a call offers, and in which order.

Invariants
1. The table is data (`config/slot_resources.toml`) and bound by its digest; nothing else registers a resource.
2. Names are unique within a slot and say what a resource is by their first part: `input` is read, `output` written.
3. Every output is a call argument; every input is an argument of the call or of its load-time half.
4. Scalars carry a type; one that may be specialized also names its capability field.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping
from importlib import resources
from types import MappingProxyType
from typing import Literal

import msgspec
import tomli

from config.canonical import domain_digest
from config.errors import ConfigurationError, SourceLocation

Kind = Literal["tensor", "scalar", "pointer", "stream", "group", "opaque"]
Access = Literal["read", "write", "readwrite"]
ScalarType = Literal["bool", "i8", "u8", "i16", "u16", "i32", "u32", "i64", "u64", "f16", "bf16", "f32", "tf32", "f64"]

_SCHEMA = "cacheon.slot-resources.v1"
_NAME = re.compile(r"(input|output|workspace|prepared|state|group|stream)(\.[a-z][a-z0-9_]{0,63}){0,3}")
_GROUP_FIELDS = {"rank": "rank", "size": "world_size"}  # projection of a group -> capability field of its scalar


class SlotResource(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One resource of a slot's call. `scalar_type` is set exactly for scalars."""

    name: str
    kind: Kind
    access: Access = "read"
    scalar_type: ScalarType | None = None
    capability_field: str | None = None
    provider_capabilities: tuple[str, ...] = ()
    provider_resource: str | None = None
    provider_projection: str | None = None

    @property
    def family(self) -> str:
        """The first part of the name: input, output, workspace, prepared, state, group or stream."""
        return self.name.partition(".")[0]

    @property
    def readable(self) -> bool:
        """Whether a binding may read the value."""
        return self.access != "write"

    @property
    def writable(self) -> bool:
        """Whether a binding may write the storage."""
        return self.access != "read"


class SlotAbi(msgspec.Struct, frozen=True, dict=True):
    """The call ABI of one slot. `call_args` and `prepare_args` are resource names in call order."""

    slot: str
    resources: tuple[SlotResource, ...]
    call_args: tuple[str, ...]
    prepare_args: tuple[str, ...] = ()
    prepare_result: str | None = None

    @functools.cached_property
    def by_name(self) -> Mapping[str, SlotResource]:
        """The resources by name."""
        return MappingProxyType({resource.name: resource for resource in self.resources})

    @functools.cached_property
    def outputs(self) -> tuple[str, ...]:
        """Names of the outputs, in table order."""
        return tuple(resource.name for resource in self.resources if resource.family == "output")

    @functools.cached_property
    def digest(self) -> str:
        """Lower-hex identity of the ABI."""
        return domain_digest("cacheon.artifact-call-abi", self._snapshot())

    def _snapshot(self) -> dict[str, object]:
        # Capabilities of providers and of routing are policy around the call; the identity is the call itself.
        rows = [_resource_row(resource) for resource in self.resources]
        return {
            "slot": self.slot,
            "resources": rows,
            "call_args": self.call_args,
            "prepare_args": self.prepare_args,
            "prepare_result": self.prepare_result,
        }


class _SlotEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    resources: tuple[SlotResource, ...]
    call_args: tuple[str, ...]
    prepare_args: tuple[str, ...] = ()
    prepare_result: str | None = None
    collective: bool = False


class _Document(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    schema: str
    stream: SlotResource
    group: tuple[SlotResource, ...]
    slots: dict[str, _SlotEntry]


class SlotResources(Mapping[str, SlotAbi]):
    """All call ABIs, by slot; a read-only mapping with a digest."""

    def __init__(self, abis: Mapping[str, SlotAbi]) -> None:
        self._abis = dict(sorted(abis.items()))

    def __getitem__(self, slot: str) -> SlotAbi:
        return self._abis[slot]

    def __iter__(self) -> Iterator[str]:
        return iter(self._abis)

    def __len__(self) -> int:
        return len(self._abis)

    @functools.cached_property
    def digest(self) -> str:
        """Lower-hex identity of the whole table, capabilities included."""
        return domain_digest("cacheon.slot-resources", [msgspec.to_builtins(abi) for abi in self._abis.values()])

    @functools.cached_property
    def capability_scalars(self) -> Mapping[str, ScalarType]:
        """The type of every scalar that a row may specialize on, by capability field."""
        return MappingProxyType(
            {
                resource.capability_field: resource.scalar_type
                for abi in self._abis.values()
                for resource in abi.resources
                if resource.capability_field is not None and resource.scalar_type is not None
            }
        )


@functools.cache
def load_slot_resources() -> SlotResources:
    """Load the built-in table. Raises `ConfigurationError` (SLOT_RESOURCES_INVALID)."""
    source = resources.files("config") / "slot_resources.toml"
    return parse_slot_resources(source.read_bytes(), "config/slot_resources.toml")


def parse_slot_resources(data: bytes, source: str) -> SlotResources:
    """Parse and check one table. Raises `ConfigurationError` (SLOT_RESOURCES_INVALID)."""
    try:
        document = msgspec.convert(tomli.loads(data.decode("utf-8")), _Document)
    except (UnicodeDecodeError, tomli.TOMLDecodeError, msgspec.ValidationError) as error:
        raise _invalid(str(error), source) from error
    if document.schema != _SCHEMA:
        raise _invalid(f"its schema is not {_SCHEMA}", source)
    abis = {}
    for slot, entry in document.slots.items():
        shared = (*(document.group if entry.collective else ()), document.stream)
        abi = SlotAbi(slot, (*entry.resources, *shared), entry.call_args, entry.prepare_args, entry.prepare_result)
        complaint = _complaint(abi)
        if complaint:
            raise _invalid(f"slot {slot}: {complaint}", source)
        abis[slot] = abi
    table = SlotResources(abis)
    _check_fields(table, source)
    return table


def _complaint(abi: SlotAbi) -> str:
    if len(abi.by_name) != len(abi.resources):
        return "a resource name stands twice"
    for resource in abi.resources:
        if not _is_well_formed(resource, abi):
            return f"the resource {resource.name} is malformed"
    call, prepare, result = set(abi.call_args), set(abi.prepare_args), abi.prepare_result
    if not call or len(call) != len(abi.call_args) or len(prepare) != len(abi.prepare_args):
        return "an argument stands twice, or there is none"
    if not (call | prepare) <= set(abi.by_name):
        return "an argument is no resource"
    if not abi.outputs or not set(abi.outputs) <= call or set(abi.outputs) & prepare:
        return "outputs have to be arguments of the call, and of nothing else"
    if not {item.name for item in abi.resources if item.family == "input"} <= call | prepare:
        return "an input is no argument"
    if result is None:
        return "" if prepare <= call else "prepare arguments without a result have to be call arguments"
    good = bool(prepare) and result in call and abi.by_name[result].family == "prepared"
    return "" if good else "the prepare result is not a prepared argument of the call"


def _is_well_formed(resource: SlotResource, abi: SlotAbi) -> bool:
    family, kind = resource.family, resource.kind
    return (
        _NAME.fullmatch(resource.name) is not None
        and (resource.scalar_type is not None) == (kind == "scalar")
        and (resource.capability_field is None or kind == "scalar")
        and (family != "input" or resource.access == "read")
        and (family != "output" or resource.access != "read")
        and (family == "stream") == (kind == "stream")
        and (family != "group" or kind in ("group", "opaque", "scalar", "pointer"))
        and _is_well_derived(resource, abi)
    )


def _is_well_derived(resource: SlotResource, abi: SlotAbi) -> bool:
    """Say whether a scalar that comes from the group names its source and the one field that belongs to it."""
    projection = resource.provider_projection
    if resource.provider_resource is None and projection is None:
        return True
    source = abi.by_name.get(resource.provider_resource or "")
    good_field = projection in _GROUP_FIELDS and resource.capability_field == _GROUP_FIELDS[projection]
    return source is not None and source.kind == "group" and good_field


def _check_fields(table: SlotResources, source: str) -> None:
    for abi in table.values():
        for resource in abi.resources:
            field = resource.capability_field
            if field is not None and table.capability_scalars[field] != resource.scalar_type:
                raise _invalid(f"the capability field {field} has two types", source)


def _resource_row(resource: SlotResource) -> dict[str, object]:
    row = {"name": resource.name, "kind": resource.kind, "access": resource.access}
    optional = {
        "scalar_type": resource.scalar_type,
        "provider_resource": resource.provider_resource,
        "provider_projection": resource.provider_projection,
    }
    return {**row, **{key: value for key, value in optional.items() if value is not None}}


def _invalid(complaint: str, source: str) -> ConfigurationError:
    return ConfigurationError(
        "SLOT_RESOURCES_INVALID", f"the slot resource table is invalid: {complaint}.", location=SourceLocation(source)
    )
