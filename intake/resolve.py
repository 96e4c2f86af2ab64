"""Manifest + observed features + target catalog -> the one reward unit a bundle competes for, or a refusal.

Invariants
1. Features are observed from the manifest and rebuild.json, never taken from a claim. A target that does not allow one
   refuses.
2. With `[competition]`, target, kind and exact member set must agree. Without it, the exact member set alone decides.
3. Mode `system` parses for old bundles and never resolves. `setup` is observed and no target allows it.
4. An override names a point of its slot together with the base kernel that has it, and no load-time half.
"""

from __future__ import annotations

from typing import NamedTuple

from config.errors import IntakeError, SourceLocation
from config.target_catalog import Target, TargetCatalog
from intake.manifest import DEFAULT_VARIANT, Manifest, Op
from intake.manifest_fields import MANIFEST
from intake.rebuild import REBUILD, RebuildPlan
from intake.refusal import Findings, clip
from intake.suggest import nearest


class Resolution(NamedTuple):
    """The target of a bundle; `implicit` says that no `[competition]` table asked for it."""

    target: Target
    members: tuple[str, ...]
    features: tuple[str, ...]
    implicit: bool

    @property
    def allowed_features(self) -> tuple[str, ...]:
        """The observed features that the target allows: all of them, unless the bundle is refused."""
        return tuple(feature for feature in self.features if feature in self.target.allowed_features)


def observed_features(manifest: Manifest, plan: RebuildPlan) -> tuple[str, ...]:
    """Return the features a bundle uses, sorted."""
    features = {"entry", *plan.features}
    slots = [op.slot for op in manifest.ops]
    if len(set(slots)) < len(slots):
        features.add("variants")
    for op in manifest.ops:
        features |= _features_of(op)
    features |= {f"dep_patch:{row.target}" for row in manifest.dep_patches}
    return tuple(sorted(features))


def _features_of(op: Op) -> set[str]:
    features = {f"op_extra:{key}" for key in op.extra}
    used = {
        "variants": op.variant != DEFAULT_VARIANT,
        "prepare": op.prepare is not None,
        "setup": op.setup is not None,
        "override": op.base_kernel is not None or op.override_point is not None,
        "cuda_sources": bool(op.cuda_sources),
    }
    features |= {name for name, observed in used.items() if observed}
    return features | ({op.direct.feature} if op.direct is not None else set())


def resolve_target(
    manifest: Manifest, catalog: TargetCatalog, findings: Findings, plan: RebuildPlan | None = None
) -> Resolution | None:
    """Resolve the bundle's target; what is wrong becomes findings, and there is no resolution without a target.

    Codes: TARGET_UNKNOWN, TARGET_KIND, TARGET_MEMBERS, TARGET_FEATURE, OVERRIDE_POINT.
    """
    features = observed_features(manifest, plan or RebuildPlan())
    members = tuple(sorted({op.slot for op in manifest.ops}))
    target = findings.attempt(lambda: _requested(manifest, catalog, members))
    if target is None:
        return None
    for feature in features:
        if feature not in target.allowed_features:
            message = f"target {target.id} does not allow {clip(feature)}."
            hint = f"Allowed: {', '.join(target.allowed_features)}."
            findings.take(_refusal("TARGET_FEATURE", message, hint, _place_of(manifest, feature)))
    if "override" in target.allowed_features:
        for op in manifest.ops:
            findings.attempt(lambda op=op: _check_override(op, catalog))  # type: ignore[misc]
    return Resolution(target, members, features, implicit=manifest.competition is None)


def _requested(manifest: Manifest, catalog: TargetCatalog, members: tuple[str, ...]) -> Target:
    competition = manifest.competition
    if competition is None:
        target = catalog.for_members(members)
        if target is None:
            raise _refusal(
                "TARGET_UNKNOWN",
                f"no registered target consists of {_listed(members)}.",
                "Add a [competition] table; `cacheon targets` lists the targets.",
            )
        return target
    if competition.mode == "system":
        raise _refusal(
            "TARGET_KIND", "mode system is read for old bundles only and never competes.", 'Use mode = "slot".'
        )
    target = catalog.find(competition.target)
    if target is None:
        hint = nearest(competition.target, catalog.targets) or "`cacheon targets` lists the targets."
        raise _refusal("TARGET_UNKNOWN", f"target {clip(competition.target)} is not registered.", hint)
    if target.kind != competition.mode:
        raise _refusal("TARGET_KIND", f"target {target.id} has kind {target.kind}.", f'Write mode = "{target.kind}".')
    if set(target.members) != set(members):
        raise _refusal(
            "TARGET_MEMBERS",
            f"target {target.id} needs exactly the slots {_listed(target.members)}, not {_listed(members)}.",
            "Write one [[ops]] row (or several variants) for each member slot and none for others.",
        )
    return target


def _check_override(op: Op, catalog: TargetCatalog) -> None:
    if op.base_kernel is None and op.override_point is None:
        return
    points = catalog.points_of(op.slot)
    place = SourceLocation(MANIFEST, op.line)
    if not any((point.point, point.base_kernel) == (op.override_point, op.base_kernel) for point in points):
        known = ", ".join(f"{point.point} of {point.base_kernel}" for point in points)
        asked = f"{clip(op.override_point or '')} of {clip(op.base_kernel or '')}"
        message = f"slot {clip(op.slot)} has no override point {asked}."
        raise _refusal("OVERRIDE_POINT", message, f"Known: {known or 'none'}.", place)
    if op.prepare is not None:
        message = "a row that fills an override point has no prepare: the base kernel brings its own."
        raise _refusal("OVERRIDE_POINT", message, "Remove prepare.", place)


def _listed(members: tuple[str, ...]) -> str:
    return ", ".join(map(clip, members))


def _place_of(manifest: Manifest, feature: str) -> SourceLocation:
    if feature.startswith("rebuild:"):
        return SourceLocation(REBUILD)
    lines = [row.line for row in manifest.dep_patches if feature == f"dep_patch:{row.target}"]
    lines += [op.line for op in manifest.ops if feature in _features_of(op)]
    return SourceLocation(MANIFEST, lines[0] if lines else 0)


def _refusal(code: str, message: str, hint: str, place: SourceLocation | None = None) -> IntakeError:
    return IntakeError(code, message, hint=hint, location=place or SourceLocation(MANIFEST))
