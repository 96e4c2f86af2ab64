"""Timelock sealing for devnets and for real networks."""

from __future__ import annotations

import importlib
from typing import Any

import msgspec
import pytest

from chain.blocks import BlockRef
from chain.devnet.beacon import SEAL_ROUND, SEAL_SIGNATURE, unseal
from chain.devnet.pallets.commit_reveal import decode_row
from chain.hyperparameters import read_hyperparameters
from chain.payload import SEAL_OVERHEAD_BYTES, SEALABLE_BYTES
from chain.scale import compact
from chain.sealing import DrandSealer, SealedRow, encode_row, sealer_for
from config.errors import ConfigurationError
from config.limits import CHAIN

ROW = SealedRow(b"\x11" * 32, (0, 258), (65_535, 3), 2**40 + 7)


def test_the_row_encoding_is_scale() -> None:
    """Hotkey, UIDs, values and version key are laid out as the runtime's payload type."""
    vectors = b"\x08\x00\x00\x02\x01" + b"\x08\xff\xff\x03\x00"
    assert encode_row(ROW) == b"\x80" + b"\x11" * 32 + vectors + (2**40 + 7).to_bytes(8, "little")


async def test_the_devnet_opens_what_the_devnet_profile_seals(world: Any) -> None:
    """Both kinds of sealed bytes open under the public signature, labelled with a round still to come."""
    sealer = sealer_for("devnet")
    head = await world.client.head()
    sealed = await sealer.seal_reveal(world.client, b"payload", head, 5)
    assert unseal(sealed.ciphertext) == b"payload"
    assert sealed.reveal_round == SEAL_ROUND + head.number + 4
    parameters = await read_hyperparameters(world.client, world.netuid, head)
    row = await sealer.seal_row(world.client, ROW, parameters)
    assert row.reveal_round == SEAL_ROUND + 19  # the pulse of the last block before the epoch of block 20
    opened = decode_row(unseal(row.ciphertext))
    assert (opened.hotkey, opened.row, opened.version_key) == (ROW.public_key, [(0, 65_535), (258, 3)], 2**40 + 7)


@pytest.mark.parametrize("profile", ["devnet", "finney"])
@pytest.mark.parametrize("size", [0, 1, 131, 779, SEALABLE_BYTES])
async def test_sealing_adds_a_constant_number_of_bytes(world: Any, profile: str, size: int) -> None:
    """What a payload may measure follows from the runtime's bound and this constant, for both kinds of network."""
    sealed = await sealer_for(profile).seal_reveal(world.client, b"x" * size, await world.client.head(), 100)
    assert len(sealed.ciphertext) == size + SEAL_OVERHEAD_BYTES <= CHAIN.timelock_ciphertext_bytes


@pytest.mark.parametrize("profile", ["devnet", "finney"])
async def test_what_the_runtime_cannot_store_is_not_sealed(world: Any, profile: str) -> None:
    """One byte too many is refused here; on the chain it would be an extrinsic that nobody can decode."""
    with pytest.raises(ConfigurationError) as caught:
        await sealer_for(profile).seal_reveal(world.client, b"x" * (SEALABLE_BYTES + 1), BlockRef(5, "0x"), 100)
    assert caught.value.code == "PAYLOAD_UNSEALABLE"
    assert "781 bytes" in caught.value.message


async def test_real_networks_seal_to_a_future_drand_round(world: Any) -> None:
    """The public beacon's next rounds are used, and the known signature of a past round does not open the bytes."""
    timelock = importlib.import_module("bittensor.timelock")
    core = importlib.import_module("bittensor_core")
    sealer = sealer_for("finney")
    assert isinstance(sealer, DrandSealer)
    head = BlockRef(5, "0x")
    before = timelock.current_round()
    sealed = await sealer.seal_reveal(world.client, b"payload", head, 100)
    assert sealed.reveal_round > before
    envelope = compact(len(sealed.ciphertext)) + sealed.ciphertext + sealed.reveal_round.to_bytes(8, "little")
    with pytest.raises((ValueError, RuntimeError)):
        core.decrypt_with_signature(envelope, SEAL_SIGNATURE)
    parameters = await read_hyperparameters(world.client, world.netuid, await world.client.head())
    # an epoch of the test chain is shorter than a round of the beacon; one of a real network is far longer
    parameters = msgspec.structs.replace(parameters, tempo=360)
    row = await sealer.seal_row(world.client, ROW, parameters)
    assert row.reveal_round > before
    assert row.ciphertext[-8:] == b"AES_GCM_"


def test_an_unknown_profile_has_no_convention() -> None:
    """Nothing is sealed by guess."""
    with pytest.raises(ConfigurationError) as caught:
        sealer_for("mainnet")
    assert caught.value.code == "SETTINGS_INVALID"
