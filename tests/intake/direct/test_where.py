"""Places: the TOML path in the message and the line in the location."""

from __future__ import annotations

import pytest
import tomli

from intake.direct.where import Where, line_finder
from intake.toml_lines import TomlLines

TEXT = """bundle_id = "b"

[[ops]]
slot = "a"

[[ops.aot_exports]]
name = "one"

[[ops.aot_exports.bindings]]
kind = "tensor"

[[ops.aot_exports.bindings]]
kind = "stream"

[[ops]]
slot = "b"

[[ops.aot_exports]]
name = "two"
bindings = [{kind = "tensor"}]

[[ops.aot_exports]]
name = "three"

[[ops.aot_exports.bindings]]
kind = "scalar"
cast = "i32"

[ops.aot_exports.device_plan]
schema = "s"
"""


@pytest.mark.parametrize(
    ("parts", "line"),
    [
        (("ops", 0), 3),
        (("ops", 1, "slot"), 16),
        (("ops", 0, "aot_exports", 0, "bindings", 1, "kind"), 13),
        (("ops", 1, "aot_exports", 0), 18),
        (("ops", 1, "aot_exports", 0, "bindings", 0, "kind"), 20),
        (("ops", 1, "aot_exports", 1, "bindings", 0, "cast"), 22),
        (("ops", 1, "aot_exports", 1, "device_plan", "schema"), 30),
        (("ops", 1, "aot_exports", 1, "device_plan", "launches", 0, "grid"), 29),
        (("ops", 1, "aot_exports", 1, "role"), 22),
    ],
)
def test_the_deepest_line_on_the_path_is_found(parts: tuple[str | int, ...], line: int) -> None:
    """Headers are counted across rows, inline tables share their key's line, absent keys that of their table."""
    document = tomli.loads(TEXT)
    assert line_finder(TomlLines(TEXT), document)(parts) == line


def test_a_path_reads_like_toml() -> None:
    """Keys with dots are quoted, indices stand in brackets."""
    where = Where(("ops", 0)).at("aot_exports", 1).at("specializes", "input.eps")
    assert str(where) == 'ops[0].aot_exports[1].specializes."input.eps"'


def test_without_a_finder_only_the_file_is_named() -> None:
    """A caller that knows no lines still gets the file."""
    error = Where(("ops", 2)).refusal("DIRECT_ROW", "no.")
    assert str(error.location) == "manifest.toml"
    assert error.message == "ops[2]: no."
