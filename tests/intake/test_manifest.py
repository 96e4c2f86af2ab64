"""The manifest grammar: strict, closed, and precise about where it broke."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from intake.manifest import LEGACY_ABI, Manifest, load_manifest
from intake.refusal import Findings
from intake.unified_diff import parse_diff
from tests.intake.differences import MANIFEST
from tests.intake.support import entry_files, golden

VECTORS = golden("manifest_vectors")
HEAD = 'bundle_id = "t"\nabi_version = "cacheon-op-abi-v0"\n'
ROW = '\n[[ops]]\nslot = "norm.rmsnorm"\nsource = "k.py"\nentry = "f"\n'


def load(text: str, **options: Any) -> tuple[Manifest | None, list[str]]:
    """Return the manifest of a text and its findings as `CODE line`."""
    findings = Findings()
    files = {"manifest.toml": text.encode(), "k.py": b"", "metadata/k.json": b"{}", "c.cu": b""}
    manifest = load_manifest(files, findings, **options)
    places = [f"{item.code} {item.location.rpartition(':')[2]}" for item in findings.documents()]
    assert (manifest is None) == bool(places)
    return manifest, places


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["name"])
def test_golden_manifests(vector: dict[str, Any]) -> None:
    """Recorded manifests parse to the recorded values, or are refused at a line of the manifest."""
    files = entry_files(vector["other_files"])
    files["manifest.toml"] = base64.b64decode(vector["manifest_b64"])
    findings = Findings()
    manifest = load_manifest(files, findings)
    if manifest is not None:
        for row in manifest.dep_patches:
            findings.attempt(lambda row=row: parse_diff(row.path, files[row.path]))
    if not vector["accept"] or vector["name"] in MANIFEST:
        assert findings
        assert all(item.location.startswith(("manifest.toml", "p.patch")) for item in findings.documents())
        return
    assert manifest is not None
    assert not findings
    parsed = vector["parsed"]
    assert manifest.bundle_id == parsed["bundle_id"]
    for op, row in zip(manifest.ops, parsed["ops"], strict=True):
        for key in (
            "slot",
            "variant",
            "source",
            "entry",
            "prepare",
            "setup",
            "metadata",
            "base_kernel",
            "override_point",
        ):
            assert getattr(op, key) == row[key], key
        assert sorted(set(op.cuda_sources)) == sorted(set(row["cuda_sources"]))
        exports = () if op.direct is None else op.direct.exports
        assert sorted(export.name for export in exports) == sorted(row["aot_exports"])
        assert list(op.dtypes) == row["dtypes"]
        assert list(op.architectures) == row["architectures"]


def test_the_legacy_spelling_needs_permission() -> None:
    """The old ABI name is read when the caller says the bundle is from before the cut-over, and kept as written."""
    text = f'bundle_id = "t"\nabi_version = "{LEGACY_ABI}"\n{ROW}'
    assert load(text) == (None, ["MANIFEST_ABI 2"])
    manifest, _ = load(text, allow_legacy_abi=True)
    assert manifest is not None
    assert manifest.abi_version == LEGACY_ABI


@pytest.mark.parametrize(
    ("text", "places"),
    [
        ("x = 1\n" + HEAD + ROW, ["MANIFEST_UNKNOWN_KEY 1"]),
        (HEAD + "\n\n[competition]\ntarget = 4\nmode = 'slot'\n" + ROW, ["MANIFEST_TYPE 6"]),
        (HEAD + ROW + ROW, ["MANIFEST_VARIANTS 4", "MANIFEST_VARIANTS 9"]),
        (HEAD + ROW + 'prepare = "a b"\n', ["MANIFEST_VALUE 8"]),
        (HEAD + ROW + 'metadata = "nope.json"\n', ["MANIFEST_PATH 8"]),
        (HEAD + ROW + 'metadata = "./metadata/k.json"\n', ["MANIFEST_PATH 8"]),
        (HEAD + ROW + 'cuda_sources = ["c.cu", "k.py"]\n', ["MANIFEST_PATH 8"]),
        (HEAD + ROW + 'override_point = "p"\n', ["MANIFEST_MISSING_KEY 8"]),
        (HEAD + ROW + "\n[[ops.aot_exports]]\nname = 'x'\n", ["DIRECT_MISSING_KEY 9"]),
        (HEAD + ROW + "\n[[dep_patches]]\ntarget = 'x'\n", ["MANIFEST_MISSING_KEY 9"]),
        ("bundle_id = \n", ["MANIFEST_SYNTAX 1"]),
        (HEAD + "x = }\n", ["MANIFEST_SYNTAX 3"]),
        (HEAD + '\n[[ops]]\nslot = "s"\nentry = "1"\n', ["MANIFEST_MISSING_KEY 4", "MANIFEST_VALUE 6"]),
        (HEAD + "[ops]\nslot = 's'\n", ["MANIFEST_TYPE 3"]),
        (HEAD, ["MANIFEST_MISSING_KEY 1"]),
        (HEAD + ROW + 'note = """\nentry = "x"\n"""\nprepare = 3\n', ["MANIFEST_TYPE 11"]),
    ],
)
def test_findings_name_their_line(text: str, places: list[str]) -> None:
    """A refusal points at the key, or at the table that lacks it."""
    _, found = load(text)
    assert [place for place in found if place in places] == places


def test_unknown_row_keys_are_kept() -> None:
    """An unknown key of a row is no error here; resolution will observe it."""
    manifest, _ = load(HEAD + ROW + "fancy = 1\n")
    assert manifest is not None
    assert manifest.ops[0].extra == {"fancy": 1}


def test_the_number_of_rows_is_bounded() -> None:
    """A manifest cannot hold more rows than the limit."""
    rows = "".join(ROW + f'variant = "v{index}"\n' for index in range(65))
    assert load(HEAD + rows)[1] == ["MANIFEST_VALUE 4"]


@given(st.text(max_size=60) | st.binary(max_size=60).map(lambda data: data.decode("latin-1")))
def test_any_text_gives_a_manifest_or_findings(noise: str) -> None:
    """No text makes the parser raise anything."""
    for text in (noise, HEAD + noise, HEAD + ROW + "x = " + noise):
        findings = Findings()
        files = {"manifest.toml": text.encode("utf-8", "surrogatepass"), "k.py": b""}
        assert (load_manifest(files, findings) is None) == bool(findings)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=5,
)


@given(
    st.dictionaries(
        st.sampled_from(["slot", "source", "entry", "variant", "dtypes", "metadata", "aot_exports"]), VALUES
    )
)
def test_values_of_any_type_are_refused_not_converted(row: dict[str, Any]) -> None:
    """Wrong types never pass and never crash."""

    def toml(value: Any) -> str:
        if isinstance(value, bool):
            return str(value).lower()
        if isinstance(value, list):
            return "[" + ", ".join(map(toml, value)) + "]"
        if isinstance(value, int):
            return str(value) if abs(value) < 2**63 else "1"
        text = "" if value is None else value
        return (
            '"'
            + "".join(f"\\U{ord(character):08x}" for character in text if not 0xD800 <= ord(character) < 0xE000)
            + '"'
        )

    text = HEAD + "[[ops]]\n" + "".join(f"{key} = {toml(value)}\n" for key, value in row.items())
    manifest, _ = load(text)
    if manifest is not None:
        assert isinstance(manifest.ops[0].slot, str)
