"""The closed table of artifact providers: who compiles what, for which targets, from which profile values.

Invariants
1. Nothing registers a provider at run time. Ids, rebuild features and publication directories are unique.
2. `snapshot()` is the registry as the network's target catalog binds it; its digest is part of verdict identity.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from types import MappingProxyType

import msgspec

from config.canonical import domain_digest

NATIVE_HANDLE = "group.native_handle.v1"
PEER_TABLE = "group.peer_ptr_table.v1"
# How a group may be projected to an address, and the provider capability that takes.
GROUP_PROJECTIONS: Mapping[str, str] = MappingProxyType({"native_handle": NATIVE_HANDLE, "peer_ptr_table": PEER_TABLE})


class Provider(msgspec.Struct, frozen=True):
    """One provider. Tuples are sorted."""

    provider_id: str
    artifact_kind: str
    binding_abi: str
    build_patcher_id: str
    build_phase: str
    compile_profile_inputs: tuple[str, ...]
    load_phase: str
    provider_capabilities: tuple[str, ...]
    publication_directory: str
    rebuild_feature: str
    required_target_features: tuple[str, ...]
    authoritative: bool = True
    crownable: bool = True
    requires_compile_profile: bool = True
    supports_static_slots: bool = True

    @property
    def manifest_feature(self) -> str:
        """The feature that a bundle using this provider is observed to have."""
        return f"aot:{self.provider_id}"


_CUTE_CUBIN = Provider(
    provider_id="cutlass.cute.cubin.v1",
    artifact_kind="cuda_cubin",
    binding_abi="cuda_driver_params.v1",
    build_patcher_id="cacheon.build-cute-cubin.v1",
    build_phase="oci_prebuild_only",
    compile_profile_inputs=tuple(sorted(f"max_active_clusters.cluster_size_{size}" for size in (1, 2, 4, 8, 16))),
    load_phase="isolated_engine_worker_only",
    provider_capabilities=(NATIVE_HANDLE, PEER_TABLE),
    publication_directory="cute_cubin",
    rebuild_feature="rebuild:build_cute_cubin",
    required_target_features=("aot:cutlass.cute.cubin.v1", "rebuild:build_cute_cubin"),
)

PROVIDERS: Mapping[str, Provider] = MappingProxyType({_CUTE_CUBIN.provider_id: _CUTE_CUBIN})


def snapshot() -> dict[str, object]:
    """Return the registry document."""
    rows = [msgspec.to_builtins(PROVIDERS[name]) for name in sorted(PROVIDERS)]
    return {"providers": rows, "schema_version": 1}


@functools.cache
def registry_digest() -> str:
    """Return the lower-hex identity of the registry."""
    return domain_digest("cacheon.artifact-provider-registry", snapshot())
