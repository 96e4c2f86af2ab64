"""Targets: exact members, observed features, no claims."""

from __future__ import annotations

from typing import Any

import pytest

from config.errors import IntakeError
from config.target_catalog import load_catalog
from intake.refusal import BundleRefused
from intake.screen import screen_files
from intake.served import SERVED
from tests.intake.differences import RESOLUTION
from tests.intake.support import bundle, entry_files, golden

VECTORS = golden("target_resolution_vectors")
HEAD = 'bundle_id = "t"\nabi_version = "cacheon-op-abi-v0"\n'


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["name"])
def test_golden_resolutions(vector: dict[str, Any]) -> None:
    """Recorded bundles resolve to the recorded target and features, or are refused."""
    files = entry_files(vector["entries"])
    if not vector["full_inspection"]["accept"] or vector["name"] in RESOLUTION:
        with pytest.raises(IntakeError):
            screen_files(files, served=None)
        return
    report = screen_files(files, served=None).report
    assert report.target_id == vector["intake"]["target_id"]
    assert report.target_kind == vector["intake"]["kind"]
    assert list(report.features) == vector["intake"]["features"]
    assert sorted({variant.slot for variant in report.variants}) == sorted(vector["intake"]["members"])
    unserved = set(report.features) - SERVED
    if unserved:
        with pytest.raises(BundleRefused) as caught:
            screen_files(files)
        assert [item.code for item in caught.value.findings] == ["FEATURE_NOT_SERVED"]
        assert all(feature in caught.value.message for feature in unserved)


def refusal(text: str) -> BundleRefused:
    """Return the refusal of a bundle with this manifest tail."""
    files = bundle(**{"manifest.toml": (HEAD + text).encode()})
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
    report = screen_files(bundle(**{"manifest.toml": (HEAD + ROW).encode()}), catalog=load_catalog()).report
    assert report.target_id == "activation.silu_and_mul"


MOE = '[[ops]]\nslot = "moe.fused_experts"\nsource = "kernels/kernel.py"\nentry = "silu_and_mul"\n'
GEMM = 'base_kernel = "nvfp4_moe_megakernel"\noverride_point = "gemm1_epilogue"\n'


REFERENCE = b"def silu_and_mul_ref(gate, up):\n    return gate * up\n"


@pytest.mark.parametrize(
    ("row", "codes"),
    [
        (MOE + GEMM, ["ENTRY_NOT_DEFINED"]),
        (MOE + 'base_kernel = "nvfp4_moe_megakernel"\n', ["OVERRIDE_POINT"]),
        (MOE + GEMM.replace("nvfp4", "fp8"), ["ENTRY_NOT_DEFINED", "OVERRIDE_POINT"]),
        (MOE + GEMM + 'prepare = "silu_and_mul"\n', ["ENTRY_NOT_DEFINED", "OVERRIDE_POINT"]),
    ],
)
def test_override_points_are_those_of_the_catalog(row: str, codes: list[str]) -> None:
    """Point, base kernel and slot stand together in the catalog; such a row has a torch form and no load-time half."""
    assert [item.code for item in refusal(row).findings] == codes


def test_an_override_needs_its_torch_form_only() -> None:
    """The device function may be absent; the report says which point the row fills."""
    files = bundle(**{"manifest.toml": (HEAD + MOE + GEMM).encode(), "kernels/kernel.py": REFERENCE})
    (variant,) = screen_files(files).report.variants
    assert (variant.override_point, variant.prepare) == ("gemm1_epilogue", None)


def test_every_feature_that_is_not_allowed_is_named() -> None:
    """One pass names every feature a target does not allow, at its row or file."""
    files = bundle(
        **{
            "manifest.toml": (HEAD + ROW + 'setup = "silu_and_mul"\nfancy = 1\nbase_kernel = "x"\n').encode(),
            "rebuild.json": b'{"steps": [{"type": "repo_python", "path": "apply_dep_patch.py"}]}',
        }
    )
    with pytest.raises(BundleRefused) as caught:
        screen_files(files)
    places = [f"{item.code} {item.location}" for item in caught.value.findings]
    assert places == [
        "REBUILD_DISAGREES rebuild.json",
        *["TARGET_FEATURE manifest.toml:3"] * 2,
        "TARGET_FEATURE rebuild.json",
        "TARGET_FEATURE manifest.toml:3",
    ]
