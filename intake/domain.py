"""The effective routing domain of one implementation row, and what can be proved about domains.

Invariants
1. A domain is the conjunction of the manifest's lists, the metadata's lists and legacy bounds, and its predicates. An
   empty list adds nothing; two non-empty lists intersect, and an empty intersection is refused.
2. Emptiness and overlap are decided exactly, field by field, for the public vocabulary: two domains are disjoint if
   and only if folding both into one table leaves some field without a value.
3. A live call that lacks a constrained field does not match: missing is a mismatch, never a wildcard.
4. Metadata is strict JSON with known keys only, so that a misspelt key cannot drop a constraint.
5. The exact scalars of a direct row (`intake.exact_scalars`) are constraints like any other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import msgspec

from config.canonical import CanonicalJsonError, read_json
from config.errors import IntakeError, SourceLocation
from config.limits import INTAKE
from config.slot_resources import load_slot_resources
from intake.capabilities import (
    FIELDS,
    NUMERIC_FIELDS,
    Predicate,
    Value,
    canonical_field,
    canonical_texts,
    canonical_value,
    parse_predicates,
)
from intake.direct.metadata import capabilities_of, read_direct_metadata
from intake.direct.specialization import split_capabilities
from intake.exact_scalars import (
    RENDERED,
    ExactScalar,
    offered_scalars,
    parse_scalars,
    read_scalars,
    render_scalars,
    token,
)
from intake.json_lines import fault_line
from intake.refusal import clip
from intake.suggest import nearest

GRAPH = "cuda_graph"
_LISTS = {"dtypes": "dtype", "architectures": "architecture", "quant": "quant"}
_BOUNDS = ("max_last_dim", "min_num_tokens", "max_num_tokens")
_INERT = ("model", "model_profile", "provenance")  # read by nobody here; other tools keep notes in them
METADATA_KEYS = ("capabilities", "graph_safe", *_LISTS, *_BOUNDS, *_INERT)


class Domain(msgspec.Struct, frozen=True):
    """Where one row may be routed. Lists are canonical, sorted and unique; an empty list constrains nothing."""

    dtypes: tuple[str, ...] = ()
    architectures: tuple[str, ...] = ()
    quant: tuple[str, ...] = ()
    graph_safe: bool = False
    max_last_dim: int | None = None
    min_num_tokens: int | None = None
    max_num_tokens: int | None = None
    capabilities: tuple[Predicate, ...] = ()
    scalars: tuple[ExactScalar, ...] = ()

    def render(self) -> dict[str, Any]:
        """Return the canonical metadata object of this domain; absent constraints are absent keys."""
        rendered: dict[str, Any] = {}
        for key in (*_LISTS, *_BOUNDS):
            value = getattr(self, key)
            if value not in ((), None):
                rendered[key] = list(value) if isinstance(value, tuple) else value
        if self.graph_safe:
            rendered["graph_safe"] = True
        if self.capabilities:
            rendered["capabilities"] = {item.field: _render(item) for item in self.capabilities}
        if self.scalars:
            rendered[RENDERED] = render_scalars(self.scalars)
        return rendered


class Mismatch(NamedTuple):
    """Why a live call is outside a domain: the field, and `missing` or `outside_domain`."""

    field: str
    reason: str


class _Constraint:
    """What is left of one field: allowed values (None = any), inclusive bounds, excluded values."""

    def __init__(self, field: str) -> None:
        self.allowed: set[Value] | None = None
        self.minimum = 0 if field in NUMERIC_FIELDS else None
        self.maximum: int | None = None
        self.excluded: set[Value] = set()

    def admits(self, value: Value) -> bool:
        if value in self.excluded or (self.allowed is not None and value not in self.allowed):
            return False
        if isinstance(value, int):
            return value >= (self.minimum or 0) and (self.maximum is None or value <= self.maximum)
        return True

    def is_empty(self) -> bool:
        if self.allowed is not None:
            return not any(self.admits(value) for value in self.allowed)
        if self.minimum is None or self.maximum is None:
            return False
        return self.maximum < self.minimum

    def restrict(self, values: Iterable[Value]) -> None:
        self.allowed = set(values) if self.allowed is None else self.allowed & set(values)

    def bound(self, minimum: int | None, maximum: int | None) -> None:
        if minimum is not None:
            self.minimum = max(self.minimum or 0, minimum)
        if maximum is not None:
            self.maximum = maximum if self.maximum is None else min(self.maximum, maximum)


def read_metadata(data: bytes) -> dict[str, Any]:
    """Read one metadata file. Raises `IntakeError` (METADATA_MALFORMED, METADATA_UNKNOWN_KEY, METADATA_VALUE)."""
    if len(data) > INTAKE.metadata_bytes:
        raise IntakeError("METADATA_MALFORMED", f"the metadata is larger than {INTAKE.metadata_bytes} bytes.")
    try:
        value = read_json(data)
    except CanonicalJsonError as error:
        raise IntakeError(
            "METADATA_MALFORMED",
            f"the metadata cannot be read: {error.message[:160]}.",
            hint="Write strict JSON; numbers are integers, or text.",
            location=SourceLocation("", fault_line(data, error)),
        ) from error
    return check_metadata(value)


def read_row_metadata(data: bytes, slot: str) -> dict[str, Any]:
    """Read the metadata file of a direct row of `slot`, whose exact scalars come out under a key of their own.

    Raises as `read_metadata`, and DIRECT_METADATA, CAPABILITY_PREDICATE, CAPABILITY_VALUE.
    """
    raw = read_direct_metadata(data)
    types = offered_scalars(slot)
    routing, own = split_capabilities(capabilities_of(raw), FIELDS, types)
    scalars = parse_scalars(own, types)
    metadata = check_metadata({**raw, "capabilities": routing})
    return {**metadata, RENDERED: render_scalars(scalars)}


def check_metadata(value: object) -> dict[str, Any]:
    """Check the shape of parsed metadata and return it. Raises as `read_metadata`."""
    if not isinstance(value, dict):
        raise IntakeError("METADATA_MALFORMED", "the metadata is not a JSON object.")
    for key in value:
        if key not in METADATA_KEYS:
            hint = nearest(key, METADATA_KEYS)
            raise IntakeError("METADATA_UNKNOWN_KEY", f"unknown metadata key {clip(key)}.", hint=hint)
    for key in _LISTS:
        items = value.get(key, [])
        if not isinstance(items, list) or not all(isinstance(item, str) and item.strip() for item in items):
            raise IntakeError("METADATA_VALUE", f"{key} is not a list of text.")
    if not isinstance(value.get("graph_safe", False), bool):
        raise IntakeError("METADATA_VALUE", "graph_safe is not true or false.")
    for key in _BOUNDS:
        bound = value.get(key)
        if bound is not None and (not isinstance(bound, int) or isinstance(bound, bool) or bound < 0):
            raise IntakeError("METADATA_VALUE", f"{key} is not a non-negative integer.")
    return value


def effective_domain(
    metadata: Mapping[str, Any], dtypes: tuple[str, ...] = (), architectures: tuple[str, ...] = ()
) -> Domain:
    """Combine checked metadata with the manifest's lists.

    Raises `IntakeError` (DOMAIN_DISJOINT, METADATA_VALUE, CAPABILITY_*).
    """
    low, high = metadata.get("min_num_tokens"), metadata.get("max_num_tokens")
    if low is not None and high is not None and low > high:
        raise IntakeError("METADATA_VALUE", "min_num_tokens is larger than max_num_tokens.")
    return Domain(
        dtypes=_intersect("dtype", dtypes, tuple(metadata.get("dtypes", ()))),
        architectures=_intersect("architecture", architectures, tuple(metadata.get("architectures", ()))),
        quant=canonical_texts("quant", tuple(metadata.get("quant", ()))),
        graph_safe=metadata.get("graph_safe", False),
        max_last_dim=metadata.get("max_last_dim"),
        min_num_tokens=low,
        max_num_tokens=high,
        capabilities=parse_predicates(metadata.get("capabilities")),
        scalars=read_scalars(metadata.get(RENDERED, {})),
    )


def is_empty(*domains: Domain) -> bool:
    """Prove that no live call lies in all of `domains` at once."""
    table: dict[str, _Constraint] = {}
    for domain in domains:
        _fold(domain, table)
    return any(constraint.is_empty() for constraint in table.values())


def mismatches(domain: Domain, descriptor: Mapping[str, Value]) -> tuple[Mismatch, ...]:
    """Return why the call described by a canonical descriptor is outside `domain`; () = it matches."""
    table: dict[str, _Constraint] = {}
    _fold(domain, table)
    found = []
    for field in sorted(table):
        constraint = table[field]
        if field not in descriptor:
            # Eager-only rows exclude one value; an unknown mode is not that value.
            if not (field == "graph_mode" and constraint.allowed is None):
                found.append(Mismatch(field, "missing"))
        elif not constraint.admits(descriptor[field]):
            found.append(Mismatch(field, "outside_domain"))
    return tuple(found)


def canonical_descriptor(raw: Mapping[str, object]) -> dict[str, Value]:
    """Return the canonical descriptor of a live call; None values are unknown and dropped.

    Raises `IntakeError` (CAPABILITY_UNKNOWN, CAPABILITY_VALUE, CAPABILITY_PREDICATE for two conflicting spellings).
    """
    descriptor: dict[str, Value] = {}
    canonical: Value
    for name, value in raw.items():
        if value is None:
            continue
        if name in load_slot_resources().capability_scalars and name not in FIELDS:
            field, canonical = name, token(value)
        else:
            field = canonical_field(name)
            canonical = canonical_value(field, value)
        if descriptor.setdefault(field, canonical) != canonical:
            raise IntakeError("CAPABILITY_PREDICATE", f"a live call gives {field} under two spellings.")
    return descriptor


def _intersect(field: str, left: tuple[str, ...], right: tuple[str, ...]) -> tuple[str, ...]:
    first, second = canonical_texts(field, left), canonical_texts(field, right)
    if not first or not second:
        return first or second
    both = tuple(value for value in first if value in second)
    if not both:
        raise IntakeError(
            "DOMAIN_DISJOINT",
            f"manifest and metadata name no common {field}: {', '.join(map(clip, first[:4]))} against "
            f"{', '.join(map(clip, second[:4]))}.",
            hint="Leave one list empty, or make them agree.",
        )
    return both


def _fold(domain: Domain, table: dict[str, _Constraint]) -> None:
    def field(name: str) -> _Constraint:
        return table.setdefault(name, _Constraint(name))

    for key, name in _LISTS.items():
        values = getattr(domain, key)
        if values:
            field(name).restrict(values)
    if domain.max_last_dim is not None:
        field("last_dim").bound(None, domain.max_last_dim)
    if domain.min_num_tokens is not None or domain.max_num_tokens is not None:
        field("num_tokens").bound(domain.min_num_tokens, domain.max_num_tokens)
    if not domain.graph_safe:
        field("graph_mode").excluded.add(GRAPH)
    for scalar in domain.scalars:
        field(scalar.field).restrict(map(token, scalar.allowed))
    for predicate in domain.capabilities:
        constraint = field(predicate.field)
        if predicate.allowed:
            constraint.restrict(predicate.allowed)
        constraint.bound(predicate.minimum, predicate.maximum)


def _render(predicate: Predicate) -> dict[str, Any]:
    if len(predicate.allowed) == 1:
        return {"exact": predicate.allowed[0]}
    if predicate.allowed:
        return {"one_of": list(predicate.allowed)}
    bounds = {"min": predicate.minimum, "max": predicate.maximum}
    return {key: value for key, value in bounds.items() if value is not None}
