"""Targets: exact members, observed features, no claims."""

from __future__ import annotations

from typing import Any

import pytest

from config.errors import IntakeError
from config.target_catalog import Target, TargetCatalog, load_catalog
from intake.refusal import BundleRefused
from intake.screen import screen_files
from tests.intake.differences import RESOLUTION
from tests.intake.support import bundle, entry_files, golden

VECTORS = golden("target_resolution_vectors")
# A slot has a prepare half or an override point, or it has not; the reference's catalog does not say which.
_WITHOUT_EXTRAS = frozenset({"prepare", "override"})


def reference_catalog() -> TargetCatalog:
    """Return the twelve recorded targets as a catalog of ours."""
    targets = []
    for row in golden("target_catalog_snapshot")["snapshot"]["targets"]:
        moe = row["target_id"].startswith("moe.")
        features = set(row["allowed_features"]) - (set() if moe else _WITHOUT_EXTRAS)
        targets.append(Target(row["target_id"], row["kind"], tuple(sorted(row["members"])), tuple(sorted(features))))
    return TargetCatalog("reference", targets)


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["name"])
def test_golden_resolutions(vector: dict[str, Any]) -> None:
    """Recorded bundles resolve to the recorded target and features, or are refused."""
    files = entry_files(vector["entries"])
    if not vector["full_inspection"]["accept"] or vector["name"] in RESOLUTION:
        with pytest.raises(IntakeError):
            screen_files(files, catalog=reference_catalog())
        return
    report = screen_files(files, catalog=reference_catalog()).report
    assert report.target_id == vector["intake"]["target_id"]
    assert report.target_kind == vector["intake"]["kind"]
    assert list(report.features) == vector["intake"]["features"]
    assert sorted({variant.slot for variant in report.variants}) == sorted(vector["intake"]["members"])


def refusal(text: str) -> BundleRefused:
    """Return the refusal of a bundle with this manifest tail."""
    head = 'bundle_id = "t"\nabi_version = "cacheon-op-abi-v0"\n'
    files = bundle(**{"manifest.toml": (head + text).encode()})
    with pytest.raises(BundleRefused) as caught:
        screen_files(files)
    return caught.value


ROW = '[[ops]]\nslot = "activation.silu_and_mul"\nsource = "kernels/kernel.py"\nentry = "silu_and_mul"\n'


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ('[competition]\ntarget = "activation.silu"\nmode = "slot"\n' + ROW, "TARGET_UNKNOWN"),
        ('[competition]\ntarget = "activation.silu_and_mul"\nmode = "atomic"\n' + ROW, "TARGET_KIND"),
        ('[competition]\ntarget = "anything"\nmode = "system"\n' + ROW, "TARGET_KIND"),
        ('[competition]\ntarget = "norm.rmsnorm"\nmode = "slot"\n' + ROW, "TARGET_MEMBERS"),
        (ROW + 'setup = "silu_and_mul"\n', "TARGET_FEATURE"),
        (ROW + "fancy = 1\n", "TARGET_FEATURE"),
        (ROW + 'base_kernel = "x"\n', "TARGET_FEATURE"),
    ],
)
def test_refusals_name_their_reason(text: str, code: str) -> None:
    """Each way of asking for something that does not exist has its code and stands in the manifest."""
    error = refusal(text)
    assert error.code == code
    assert str(error.location).startswith("manifest.toml")


def test_a_misspelt_target_gets_a_suggestion() -> None:
    """The hint names the nearest registered target."""
    error = refusal('[competition]\ntarget = "activation.silu_and_mull"\nmode = "slot"\n' + ROW)
    assert "activation.silu_and_mul" in error.hint


def test_without_a_competition_table_the_members_decide() -> None:
    """An exact member set infers its target."""
    head = 'bundle_id = "t"\nabi_version = "cacheon-op-abi-v0"\n'
    report = screen_files(bundle(**{"manifest.toml": (head + ROW).encode()}), catalog=load_catalog()).report
    assert report.target_id == "activation.silu_and_mul"
