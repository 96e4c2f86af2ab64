"""Direct-artifact rows in the one intake path."""

from __future__ import annotations

import base64

import pytest

from config.errors import ErrorDocument
from intake.refusal import BundleRefused
from intake.screen import screen_files
from tests.intake.support import golden

NORM = "norm.rmsnorm"
META = b'{"capabilities": {"eps": {"exact": 0.00001}, "num_tokens": {"max": 64}}, "graph_safe": true}'


def bundle(**changes: bytes) -> dict[str, bytes]:
    """Return two direct variants of one slot that differ in the exact value of a scalar."""
    for vector in golden("target_resolution_vectors"):
        if vector["name"] == "direct":
            files = {item["path"]: base64.b64decode(item["data_b64"]) for item in vector["entries"]}
    text = files["manifest.toml"].decode().replace("activation.silu_and_mul", NORM)
    head, row = text[: text.index("[[ops]]")], text[text.index("[[ops]]") :]
    for name in ("a", "b"):
        head += row.replace("[[ops]]\n", f'[[ops]]\nvariant = "{name}"\nmetadata = "metadata/{name}.json"\n')
    metadata = {"metadata/a.json": META, "metadata/b.json": META.replace(b"0.00001", b"0.000001")}
    return {**files, "manifest.toml": head.encode(), **metadata, **changes}


def findings(**changes: bytes) -> tuple[ErrorDocument, ...]:
    """Return what is wrong with the bundle after changes, served or not."""
    with pytest.raises(BundleRefused) as caught:
        screen_files(bundle(**changes), served=None)
    return caught.value.findings


def test_variants_of_direct_rows_are_told_apart_by_exact_scalars() -> None:
    """Floats in the metadata of direct rows are read, make disjoint domains, and stand exactly in the report."""
    report = screen_files(bundle(), served=None).report
    assert report.features == ("aot:cutlass.cute.cubin.v1", "entry", "rebuild:build_cute_cubin", "variants")
    assert [variant.metadata["exact_scalars"] for variant in report.variants] == [
        {"eps": [{"hex": value.hex(), "type": "float"}]} for value in (1e-5, 1e-6)
    ]
    assert len(set(report.pieces)) == 1  # the routing domain is no part of the work


@pytest.mark.parametrize(
    ("metadata", "code"),
    [
        (META, "VARIANTS_OVERLAP"),
        (META.replace(b"0.00001", b"1"), "CAPABILITY_VALUE"),
        (META.replace(b"0.00001", b"NaN"), "DIRECT_METADATA"),
        (META.replace(b"eps", b"epsilon"), "CAPABILITY_UNKNOWN"),
        (META.replace(b"graph_safe", b"graphs"), "METADATA_UNKNOWN_KEY"),
        (b"[]", "DIRECT_METADATA"),
    ],
)
def test_metadata_of_direct_rows_is_strict(metadata: bytes, code: str) -> None:
    """What does not constrain as written is refused at the metadata file."""
    (finding,) = findings(**{"metadata/b.json": metadata})
    assert finding.code == code
    assert finding.location.startswith("metadata/b.json")


def test_floats_stay_out_of_other_rows() -> None:
    """A row without exports has integers and texts only, and no exact scalars."""
    manifest = (
        'bundle_id = "t"\nabi_version = "cacheon-op-abi-v0"\n[[ops]]\nslot = "norm.rmsnorm"\nsource = "k.py"\n'
        'entry = "f"\nmetadata = "metadata/a.json"\n'
    )
    files = {"manifest.toml": manifest.encode(), "k.py": b"def f(*a):\n    pass\n"}
    for metadata, code in ((META, "METADATA_MALFORMED"), (META.replace(b"0.00001", b"1"), "CAPABILITY_UNKNOWN")):
        with pytest.raises(BundleRefused) as caught:
            screen_files({**files, "metadata/a.json": metadata})
        assert [item.code for item in caught.value.findings] == [code]


def test_the_builder_and_the_factory_are_needed() -> None:
    """Exports without their builder, and factories that the source lacks, are refused."""
    assert [item.code for item in findings(**{"rebuild.json": b'{"steps": []}'})] == ["REBUILD_DISAGREES"]
    assert {item.code for item in findings(**{"k.py": b"def other():\n    pass\n"})} == {"ENTRY_NOT_DEFINED"}
