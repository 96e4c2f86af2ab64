"""`cacheon.direct-artifact-execution.v1`: what a direct row executes, in one canonical document.

Invariants
1. Everything that bears on execution is inside; `entry`, file order, comments and formatting are outside.
2. Defaults that the wire format leaves out are left out here too, so equal declarations have equal bytes.
3. Floats are exact text. The document is canonical JSON and is never parsed back into authority.
"""

from __future__ import annotations

import msgspec

from config.canonical import canonical_json, domain_digest, sha256_hex
from intake.direct.row import DirectRow

SCHEMA = "cacheon.direct-artifact-execution.v1"
RESOURCE_PLAN_SCHEMA = "cacheon.artifact-resource-plan.v1"
DIRECT_ENTRY = "_cacheon_direct_artifact"  # stands for `entry`, which a direct row never calls


class DirectIdentity(msgspec.Struct, frozen=True):
    """The identity of one row: the document, its canonical JSON, and its lower-hex digest."""

    document: dict[str, object]
    canonical: bytes
    digest: str


def direct_identity(row: DirectRow) -> DirectIdentity:
    """Return the canonical direct-execution identity of a parsed row."""
    plan = resource_plan(row)
    document: dict[str, object] = {
        "schema": SCHEMA,
        "artifact_resource_plan": plan,
        "artifact_resource_plan_sha256": resource_plan_sha256(plan),
        "exports": [export.document() for export in row.exports],
    }
    return DirectIdentity(
        document, canonical_json(document), domain_digest("cacheon.direct-artifact-execution", document)
    )


def resource_plan(row: DirectRow) -> dict[str, object]:
    """Return the document of the row's resources."""
    return {"slot": row.slot, "resources": [resource.document() for resource in row.resources]}


def resource_plan_sha256(plan: dict[str, object]) -> str:
    """Return the lower-hex SHA-256 of a resource plan document."""
    return sha256_hex(canonical_json({"plan": plan, "schema": RESOURCE_PLAN_SCHEMA}))
