"""`intake/scaffold.py`: every target of the catalog gets a bundle that intake has nothing to say against."""

from __future__ import annotations

import pytest
import tomli

from config.errors import ConfigurationError
from config.slot_resources import load_slot_resources
from config.target_catalog import load_catalog
from intake.manifest import ABI
from intake.refusal import BundleRefused
from intake.scaffold import argument_name, bundle_contracts, call_signature, prepare_signature, scaffold
from intake.screen import screen_files
from intake.served import SERVED
from intake.templates import load_templates

CATALOG = load_catalog()
TARGETS = sorted(CATALOG.targets)
SLOTS = sorted(name for name, target in CATALOG.targets.items() if target.contract is not None)


def files_for(target: str, **options: tuple[str, ...]) -> dict[str, bytes]:
    """Return the scaffold of a target."""
    return scaffold(CATALOG.targets[target], CATALOG, bundle_id="alice-v1", **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("target", TARGETS)
def test_every_target_has_a_scaffold_that_passes(target: str) -> None:
    """The bundle resolves to its target with one row for each member; what is not served is all there is to find."""
    files = files_for(target)
    report = screen_files(files, served=None).report
    assert (report.target_id, report.target_kind) == (target, CATALOG.targets[target].kind)
    assert (report.bundle_id, report.abi_version) == ("alice-v1", ABI)
    assert [row.slot for row in report.variants] == list(CATALOG.targets[target].members)
    assert set(report.features) <= {"entry", "prepare"}
    if set(report.features) <= SERVED:
        assert screen_files(files).report == report
    else:
        with pytest.raises(BundleRefused) as caught:
            screen_files(files)
        assert [finding.code for finding in caught.value.findings] == ["FEATURE_NOT_SERVED"]


@pytest.mark.parametrize("slot", SLOTS)
def test_a_template_describes_the_call_it_implements(slot: str) -> None:
    """The source has the contract's entries, called as the slot's call ABI says; every argument is described."""
    contract, abi, template = CATALOG.targets[slot].contract, load_slot_resources()[slot], load_templates()[slot]
    assert contract is not None
    assert f"\ndef {call_signature(contract, abi)}:\n" in template.source
    prepare = prepare_signature(contract, abi)
    assert not prepare or f"\ndef {prepare}:\n" in template.source
    assert template.source.count("\ndef ") == (2 if prepare else 1)
    assert set(template.arguments) == {argument_name(name) for name in (*abi.prepare_args, *abi.call_args)}
    assert "Where the time goes" in template.source
    assert template.summary.endswith(".")


def test_the_templates_are_those_of_the_catalog() -> None:
    """There is a template for every slot and none for anything else."""
    assert sorted(load_templates()) == SLOTS


def test_an_atomic_target_gets_all_its_members() -> None:
    """Both rows, both kernels and both metadata files are there, and the README lists them."""
    files = files_for("collective.moe_epilogue.v1")
    assert sorted(files) == [
        "README.md",
        "kernels/ar_residual_rmsnorm.py",
        "kernels/moe_finalize_ar_rmsnorm.py",
        "manifest.toml",
        "metadata/ar_residual_rmsnorm.json",
        "metadata/moe_finalize_ar_rmsnorm.json",
    ]
    assert all(f"`{path}`".encode() in files["README.md"] for path in files if path != "README.md")


def test_the_same_request_gives_the_same_bytes() -> None:
    """Nothing of the clock, the machine or an earlier call gets into the files."""
    assert files_for("norm.rmsnorm") == files_for("norm.rmsnorm")


def test_dtypes_and_architectures_narrow_every_row() -> None:
    """They are written once, in their canonical spelling; without them every dtype of the contract stands there."""
    narrowed = files_for(
        "collective.moe_epilogue.v1", dtypes=("BF16", "bfloat16", "fp32"), architectures=("SM_90", "sm-103")
    )
    for row in tomli.loads(narrowed["manifest.toml"].decode())["ops"]:
        assert (row["dtypes"], row["architectures"]) == (["bfloat16", "float32"], ["sm103", "sm90"])
    (row,) = tomli.loads(files_for("norm.rmsnorm")["manifest.toml"].decode())["ops"]
    contract = bundle_contracts(CATALOG.targets["norm.rmsnorm"], CATALOG)[0]
    assert row["dtypes"] == [item.dtype for item in contract.tolerances]
    assert "architectures" not in row


@pytest.mark.parametrize("bundle_id", ["", " ", "a b", "ä", 'x"\n', "..", "a" * 129, "a/b"])
def test_a_bad_bundle_id_is_refused_by_the_manifest_s_rule(bundle_id: str) -> None:
    """What could not stand in a manifest is refused before anything is made of it."""
    with pytest.raises(ConfigurationError) as caught:
        scaffold(CATALOG.targets["norm.rmsnorm"], CATALOG, bundle_id=bundle_id)
    assert caught.value.code == "INIT_BUNDLE_ID"


@pytest.mark.parametrize(
    ("options", "code", "hint"),
    [
        ({"dtypes": ("bfloat61",)}, "INIT_DTYPE_UNKNOWN", "bfloat16"),
        ({"dtypes": ("int8",)}, "INIT_DTYPE_UNKNOWN", "float32"),
        ({"dtypes": ("",)}, "INIT_DTYPE_UNKNOWN", ""),
        ({"architectures": (" ",)}, "INIT_ARCHITECTURE", ""),
        ({"architectures": ("sm 90",)}, "INIT_ARCHITECTURE", "sm90"),
        ({"architectures": ("h\u00f6pper\n",)}, "INIT_ARCHITECTURE", "sm90"),
    ],
)
def test_what_no_call_has_is_refused(options: dict[str, tuple[str, ...]], code: str, hint: str) -> None:
    """A row for a dtype that no call has, or for something that is no name, would never be used."""
    with pytest.raises(ConfigurationError) as caught:
        files_for("norm.rmsnorm", **options)
    assert caught.value.code == code
    assert hint in caught.value.hint
