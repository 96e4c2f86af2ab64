"""What a bundle gives validators to build: rebuild steps, dependency patches, CUDA sources. Checked together.

Invariants
1. Everything is read whether or not it is executed here, so a miner sees all that is wrong at once.
2. Builders are selected exactly when there is something for them to build (`intake.rebuild.check_agreement`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from config.limits import IntakeLimits
from config.target_catalog import TargetCatalog
from intake.cuda_sources import CudaSources, load_cuda
from intake.dep_patches import DependencyPatch, load_patches
from intake.manifest import Manifest
from intake.names import suffix_of
from intake.rebuild import Buildable, RebuildPlan, check_agreement, load_rebuild
from intake.refusal import Findings


class NativeSources(NamedTuple):
    """The build side of one bundle; `rebuild` is None when rebuild.json is broken."""

    rebuild: RebuildPlan | None
    patches: tuple[DependencyPatch, ...]
    cuda: CudaSources


def load_native(
    manifest: Manifest | None,
    files: Mapping[str, bytes],
    findings: Findings,
    catalog: TargetCatalog,
    modules: Collection[str],
    limits: IntakeLimits,
) -> NativeSources | None:
    """Check the build side of a file table; what is wrong becomes findings. None without a manifest.

    `modules` are the top-level Python names of the bundle.
    """
    plan = load_rebuild(files, findings, catalog, limits)
    if manifest is None:
        return None
    patches = load_patches(manifest.dep_patches, files, findings, catalog, limits)
    declared: dict[str, int] = {}
    for op in manifest.ops:
        for path in op.cuda_sources:
            declared.setdefault(path, op.line)
    cuda = load_cuda(declared, files, findings, modules)
    if plan is not None:
        check_agreement(plan, _buildable(manifest, declared, catalog), findings, catalog)
    return NativeSources(plan, patches, cuda)


def units_of(manifest: Manifest | None) -> set[str]:
    """Return the import names that the declared `.cu` files have."""
    paths = {path for op in manifest.ops for path in op.cuda_sources} if manifest else set()
    return {path.rpartition("/")[2].removesuffix(".cu") for path in paths if suffix_of(path) == ".cu"}


def _buildable(manifest: Manifest, cuda: Collection[str], catalog: TargetCatalog) -> Buildable:
    providers = [catalog.provider(op.direct.provider) for op in manifest.ops if op.direct is not None]
    return Buildable(
        patches=len(manifest.dep_patches),
        units=sum(suffix_of(path) == ".cu" for path in cuda),
        cuda=len(cuda),
        exports=tuple(provider.builder for provider in providers if provider is not None),
    )
