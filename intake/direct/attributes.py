"""The closed list of launch attributes a plan may ask for.

Invariants
1. Every attribute has a default and is written out in the identity.
2. Attributes about clusters need an explicit cluster.
"""

from __future__ import annotations

import msgspec

from intake.direct.reading import Table
from intake.direct.scalars import integer_range
from intake.direct.where import Where

SCHEDULING = ("default", "spread", "load_balancing")
MODES = ("default", "require_portable", "allow_non_portable")
_CLUSTER = ("cluster_scheduling", "portable_cluster_mode")


class LaunchAttributes(msgspec.Struct, frozen=True):
    """Attributes of one launch; `priority` None leaves the stream's own."""

    cooperative: bool = False
    programmatic_stream_serialization: bool = False
    priority: int | None = None
    cluster_scheduling: str = "default"
    portable_cluster_mode: str = "default"
    shared_memory_mode: str = "default"

    def document(self) -> dict[str, object]:
        """Return the identity form."""
        return msgspec.structs.asdict(self)


def parse_attributes(value: object, where: Where, *, has_cluster: bool) -> LaunchAttributes:
    """Parse one table. Raises DIRECT_TYPE, DIRECT_VALUE, DIRECT_UNKNOWN_KEY, DIRECT_PLAN."""
    table = Table(value, where, "", " ".join(LaunchAttributes.__struct_fields__))
    attributes = LaunchAttributes(
        cooperative=table.flag("cooperative"),
        programmatic_stream_serialization=table.flag("programmatic_stream_serialization"),
        priority=table.optional_integer("priority", *integer_range("i32")),
        cluster_scheduling=table.choice("cluster_scheduling", SCHEDULING, "default"),
        portable_cluster_mode=table.choice("portable_cluster_mode", MODES, "default"),
        shared_memory_mode=table.choice("shared_memory_mode", MODES, "default"),
    )
    for key in _CLUSTER:
        if getattr(attributes, key) != "default" and not has_cluster:
            raise table.at(key).refusal("DIRECT_PLAN", f"{key} needs an explicit cluster.")
    return attributes
