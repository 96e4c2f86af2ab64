"""Manifest + observed features + target catalog -> the one reward unit a bundle competes for, or a refusal.

Invariants
1. Features are observed from the manifest, never taken from a claim. A target that does not allow one refuses.
2. With `[competition]`, target, kind and exact member set must agree. Without it, the exact member set alone decides.
3. Mode `system` parses for old bundles and never resolves. `setup` is observed and no target allows it.
4. Features that the catalog allows but this validator cannot execute yet are refused by name.
"""

from __future__ import annotations

from typing import NamedTuple

from config.errors import IntakeError, SourceLocation
from config.target_catalog import Target, TargetCatalog
from intake.manifest import DEFAULT_VARIANT, Manifest
from intake.manifest_fields import MANIFEST
from intake.refusal import clip
from intake.suggest import nearest

_NOT_EXECUTED = ("override", "cuda_sources")


class Resolution(NamedTuple):
    """The target of a bundle; `implicit` says that no `[competition]` table asked for it."""

    target: Target
    members: tuple[str, ...]
    features: tuple[str, ...]
    implicit: bool


def observed_features(manifest: Manifest) -> tuple[str, ...]:
    """Return the features a manifest uses, sorted."""
    features = {"entry"}
    slots = [op.slot for op in manifest.ops]
    if len(set(slots)) < len(slots) or any(op.variant != DEFAULT_VARIANT for op in manifest.ops):
        features.add("variants")
    for op in manifest.ops:
        features |= {name for name in ("prepare", "setup") if getattr(op, name) is not None}
        if op.base_kernel is not None or op.override_point is not None:
            features.add("override")
        if op.cuda_sources:
            features.add("cuda_sources")
        features |= {f"op_extra:{key}" for key in op.extra}
    return tuple(sorted(features))


def resolve_target(manifest: Manifest, catalog: TargetCatalog) -> Resolution:
    """Resolve the bundle's target.

    Raises `IntakeError`: TARGET_UNKNOWN, TARGET_KIND, TARGET_MEMBERS, TARGET_FEATURE, FEATURE_NOT_SUPPORTED.
    """
    members = tuple(sorted({op.slot for op in manifest.ops}))
    target = _requested(manifest, catalog, members)
    if set(target.members) != set(members):
        raise _refusal(
            "TARGET_MEMBERS",
            f"target {target.id} needs exactly the slots {_listed(target.members)}, not {_listed(members)}.",
            "Write one [[ops]] row (or several variants) for each member slot and none for others.",
        )
    features = observed_features(manifest)
    for feature in features:
        if feature not in target.allowed_features:
            raise _refusal(
                "TARGET_FEATURE",
                f"target {target.id} does not allow {clip(feature)}.",
                f"Allowed: {', '.join(target.allowed_features)}.",
                _line_of(manifest, feature),
            )
        if feature in _NOT_EXECUTED:
            raise _refusal(
                "FEATURE_NOT_SUPPORTED",
                f"this validator does not run {feature} yet.",
                "Submit rows with a Python entry only.",
                _line_of(manifest, feature),
            )
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
    return target


def _listed(members: tuple[str, ...]) -> str:
    return ", ".join(map(clip, members))


def _line_of(manifest: Manifest, feature: str) -> int:
    for op in manifest.ops:
        uses = {
            "prepare": op.prepare is not None,
            "setup": op.setup is not None,
            "override": op.base_kernel is not None or op.override_point is not None,
            "cuda_sources": bool(op.cuda_sources),
            "variants": op.variant != DEFAULT_VARIANT,
        }
        if uses.get(feature, False) or feature.removeprefix("op_extra:") in op.extra:
            return op.line
    return 0


def _refusal(code: str, message: str, hint: str, line: int = 0) -> IntakeError:
    return IntakeError(code, message, hint=hint, location=SourceLocation(MANIFEST, line))
