"""The vocabulary of routing: which facts of a live call a bundle may constrain, and their one canonical spelling.

Invariants
1. The vocabulary is closed. Unknown fields, misspelt predicate keys and mixed predicates are refused at load.
2. Numeric values are non-negative integers of any size (no bool, no float, no text); text values are trimmed and
   canonicalised, so that `BF16`, `torch.bfloat16` and `bfloat16` are one value.
3. Two spellings of one field in one object are refused.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from config.errors import IntakeError
from config.limits import INTAKE
from intake.refusal import clip
from intake.suggest import nearest, words

Value = int | str

NUMERIC_FIELDS = words(
    "alignment batch_size block_size ep_size exp_tokens head_dim hidden_dim intermediate_dim kv_len last_dim "
    "num_experts num_kv_heads num_q_heads num_tokens page_size q_len top_k tp_size world_size"
)
TEXT_FIELDS = words("architecture dtype graph_mode layout model phase quant runtime")
FIELDS = NUMERIC_FIELDS | TEXT_FIELDS

_FIELD = re.compile(r"[a-z][a-z0-9_]*")
_FIELD_ALIASES = {
    "arch": "architecture",
    "dtype_name": "dtype",
    "ep": "ep_size",
    "tp": "tp_size",
    "world": "world_size",
    "worldsize": "world_size",
}
_VALUE_ALIASES = {
    "dtype": {
        "bf16": "bfloat16",
        "fp16": "float16",
        "fp32": "float32",
        "torch.bfloat16": "bfloat16",
        "torch.float16": "float16",
        "torch.float32": "float32",
    },
    "graph_mode": dict.fromkeys(("capture", "capturing", "graph", "graphs_on", "on", "replay"), "cuda_graph")
    | dict.fromkeys(("graphs_off", "off"), "eager"),
    "phase": {"extend": "prefill"},
    "quant": dict.fromkeys(("none", "unquantized"), "dense"),
}


class Predicate(msgspec.Struct, frozen=True):
    """A constraint on one field: a non-empty sorted `allowed` set, or inclusive numeric bounds."""

    field: str
    allowed: tuple[Value, ...] = ()
    minimum: int | None = None
    maximum: int | None = None


def normal_field(name: str) -> str:
    """Return the canonical spelling of a field name, known or not; "" when it is no name at all."""
    spelled = name.strip().lower().replace("-", "_")
    spelled = _FIELD_ALIASES.get(spelled, spelled)
    return spelled if _FIELD.fullmatch(spelled) else ""


def canonical_field(name: str) -> str:
    """Return the canonical name of a field. Raises `IntakeError` (CAPABILITY_UNKNOWN)."""
    field = normal_field(name)
    if field not in FIELDS:
        raise IntakeError("CAPABILITY_UNKNOWN", f"{clip(name)} is not a capability.", hint=nearest(name, FIELDS))
    return field


def canonical_value(field: str, value: object) -> Value:
    """Return the canonical form of a value of a canonical field. Raises `IntakeError` (CAPABILITY_VALUE)."""
    if field in NUMERIC_FIELDS:
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise _bad_value(field, "a non-negative integer")
        return value
    if not isinstance(value, str) or not value.strip() or len(value) > INTAKE.path_bytes:
        raise _bad_value(field, "a non-empty text")
    text = value.strip()
    if field == "model":
        return text
    text = text.lower().replace("-", "_")
    if field == "architecture" and text.startswith("sm_"):
        return "sm" + text[len("sm_") :].lstrip("_")
    return _VALUE_ALIASES.get(field, {}).get(text, text)


def canonical_texts(field: str, values: tuple[str, ...]) -> tuple[str, ...]:
    """Return the canonical values of a text field, sorted and unique."""
    return tuple(sorted({str(canonical_value(field, value)) for value in values}))


def parse_predicates(value: object) -> tuple[Predicate, ...]:
    """Parse a `capabilities` object (None = no constraint) into predicates sorted by field.

    Raises `IntakeError` (CAPABILITY_UNKNOWN, CAPABILITY_VALUE, CAPABILITY_PREDICATE).
    """
    if value is None:
        return ()
    if not isinstance(value, dict):
        raise IntakeError("CAPABILITY_PREDICATE", "capabilities is not an object.")
    predicates: dict[str, Predicate] = {}
    for name, item in value.items():
        field = canonical_field(name)
        if field in predicates:
            raise IntakeError("CAPABILITY_PREDICATE", f"the capability {field} is given under two spellings.")
        predicates[field] = _predicate(field, item)
    return tuple(predicates[field] for field in sorted(predicates))


def _predicate(field: str, value: object) -> Predicate:
    if isinstance(value, list):
        return Predicate(field, _allowed(field, value))
    if not isinstance(value, dict):
        return Predicate(field, (canonical_value(field, value),))
    keys = set(value)
    if keys == {"exact"}:
        return Predicate(field, (canonical_value(field, value["exact"]),))
    if keys == {"one_of"}:
        return Predicate(field, _allowed(field, value["one_of"]))
    if keys and keys <= {"min", "max"} and field in NUMERIC_FIELDS:
        minimum, maximum = _bound(field, value, "min"), _bound(field, value, "max")
        if minimum is not None and maximum is not None and minimum > maximum:
            raise IntakeError("CAPABILITY_PREDICATE", f"the bounds of {field} are inverted.")
        return Predicate(field, (), minimum, maximum)
    raise IntakeError(
        "CAPABILITY_PREDICATE",
        f"the constraint on {field} is not exactly one of exact, one_of, or min/max.",
        hint='Write for instance {"exact": 128}, {"one_of": [64, 128]} or {"min": 1, "max": 4096}.',
    )


def _bound(field: str, value: Mapping[str, Any], key: str) -> int | None:
    if key not in value:
        return None
    bound = canonical_value(field, value[key])
    return bound if isinstance(bound, int) else None


def _allowed(field: str, value: object) -> tuple[Value, ...]:
    if not isinstance(value, list) or not 1 <= len(value) <= INTAKE.list_entries:
        raise IntakeError("CAPABILITY_PREDICATE", f"the values of {field} are not a non-empty list.")
    unique = {canonical_value(field, item) for item in value}
    return tuple(sorted(unique, key=lambda item: (str(type(item)), item)))


def _bad_value(field: str, wanted: str) -> IntakeError:
    return IntakeError("CAPABILITY_VALUE", f"a value of {field} is not {wanted}.")
