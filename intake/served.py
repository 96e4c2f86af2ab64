"""Which parts of the bundle format this validator can execute.

Invariants
1. The whole format is parsed and checked whatever is served; what is not served is the last finding, one for a bundle.
2. A feature stands here when an executor for it exists. Nothing else decides that a feature is served.
"""

from __future__ import annotations

from collections.abc import Collection

from config.errors import IntakeError, SourceLocation
from intake.manifest_fields import MANIFEST
from intake.refusal import clip

SERVED = frozenset({"entry", "override", "prepare", "variants"})


def check_served(features: Collection[str], served: Collection[str] | None = SERVED) -> None:
    """Refuse features that nothing here executes; `served=None` serves all.

    Raises `IntakeError` (FEATURE_NOT_SERVED).
    """
    missing = [] if served is None else [clip(feature) for feature in features if feature not in served]
    if missing:
        raise IntakeError(
            "FEATURE_NOT_SERVED",
            f"this validator does not execute {', '.join(missing)} yet.",
            hint="Nothing else is wrong with these parts unless another finding says so.",
            location=SourceLocation(MANIFEST),
        )
