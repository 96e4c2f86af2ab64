"""The metadata and the codec seam."""

from __future__ import annotations

import hashlib
from importlib import resources

import pytest

from chain.devnet.codec import account_id, codec, ss58
from chain.devnet.context import _HANDLERS
from chain.devnet.executive import CALL_MODULES
from chain.devnet.runtime_spec import REAL_METADATA, real_metadata
from chain.devnet.scale import ScaleError
from tests.chain.devnet.support import VALIDATOR, address, compose, public


@pytest.mark.parametrize("form", [14, 15])
@pytest.mark.parametrize("spec", REAL_METADATA)
def test_metadata_is_what_the_notice_says(spec: int, form: int) -> None:
    """The decompressed metadata has the digest that its NOTICE names."""
    digest = hashlib.sha256(real_metadata(spec, form)).hexdigest()
    notice = resources.files("chain.devnet").joinpath("metadata", "NOTICE").read_text()
    assert f"subtensor-{spec}.v{form}.scale  {digest}" in notice


def test_call_indexes_are_the_codecs() -> None:
    """Call names read from the registry agree with the codec's encodings."""
    for raw, name in (
        (compose("System", "remark", remark=b""), ("System", "remark")),
        (compose("Utility", "batch_all", calls=[]), ("Utility", "batch_all")),
        (
            compose("SubtensorModule", "set_weights", netuid=1, dests=[], weights=[], version_key=0),
            ("SubtensorModule", "set_weights"),
        ),
    ):
        assert codec().call_name(raw[:2]) == name
    with pytest.raises(ScaleError):
        codec().call_name(b"\xff\xff")


def test_every_handler_is_a_call_of_the_metadata() -> None:
    """No handler is registered for a call that the runtime does not have."""
    assert CALL_MODULES
    codec().call_name(b"\x00\x00")
    known = set(codec()._call_names.values())
    assert set(_HANDLERS) <= known


def test_accounts_round_trip() -> None:
    """Addresses and public keys convert both ways; nonsense is a ValueError."""
    assert account_id(address(VALIDATOR)) == public(VALIDATOR)
    assert ss58(public(VALIDATOR)) == address(VALIDATOR)
    with pytest.raises(ValueError):
        account_id("5bad")


def test_templates_encode() -> None:
    """The all-zero metagraph encodes, so records can be filled field by field."""
    output = codec().api_method("SubnetInfoRuntimeApi", "get_metagraph")["output"]
    assert codec().encode(output, codec().template(output, optional=True))
