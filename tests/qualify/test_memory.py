"""Shared memory: the arm can read inputs, write outputs, and change nothing else about the files."""

from __future__ import annotations

import fcntl
import mmap
import os
from collections.abc import Iterator

import pytest
import torch

from qualify.call_memory import GUARD, CallMemory
from qualify.content import NORMAL, Content
from qualify.memory import ArmMemory, Region, SharedFile
from qualify.slots.registry import SLOTS

SILU = SLOTS["activation.silu_and_mul"]
CASE = {"num_tokens": 5, "d": 12}


@pytest.fixture
def content() -> Content:
    """A content source over a fixed seed."""
    return Content(bytes(32), "attempt", dtype="bfloat16", elements=4096, words=4096)


@pytest.fixture
def memory() -> Iterator[CallMemory]:
    """Memory for one small case."""
    held = CallMemory(SILU, "bfloat16", (CASE,))
    yield held
    held.close()


def test_inputs_cannot_be_mapped_writable_or_written() -> None:
    """After the seal no new writable mapping, upgrade or write call reaches the inputs; the referee still writes."""
    shared = SharedFile("inputs", 8192, arm_may_write=False)
    with pytest.raises(OSError, match="not permitted"):
        mmap.mmap(shared.fd, 8192, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
    with pytest.raises(OSError, match="not permitted"):
        os.pwrite(shared.fd, b"x", 0)
    reopened = os.open(f"/proc/self/fd/{shared.fd}", os.O_RDWR)
    with pytest.raises(OSError, match="not permitted"):
        os.pwrite(reopened, b"x", 0)
    os.close(reopened)
    seen = mmap.mmap(shared.fd, 8192, mmap.MAP_SHARED, mmap.PROT_READ)
    shared.view(0, (4,), torch.float32).fill_(1.0)
    assert seen[:4] == b"\x00\x00\x80\x3f"
    shared.close()
    shared.close()


@pytest.mark.parametrize("arm_may_write", [True, False])
def test_files_cannot_be_resized_or_sealed_again(arm_may_write: bool) -> None:
    """An arm can neither make the referee's reads fault nor lock it out."""
    shared = SharedFile("file", 4096, arm_may_write=arm_may_write)
    for size in (0, 1 << 20):
        with pytest.raises(OSError, match="not permitted"):
            os.ftruncate(shared.fd, size)
    with pytest.raises(OSError, match="not permitted"):
        fcntl.fcntl(shared.fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE)
    shared.close()


def test_the_arm_sees_what_the_referee_wrote(memory: CallMemory, content: Content) -> None:
    """Both sides look at the same bytes without a copy."""
    arm = ArmMemory(memory.inputs.fd, memory.outputs.fd)
    places = memory.place(CASE, 1, content.generator("places", 1))
    x = torch.empty(5, 24, dtype=torch.bfloat16)
    content.fill(x, NORMAL, content.generator("x"))
    memory.write_inputs(places, {"x": x})
    assert torch.equal(arm.input(places.offsets[0], (5, 24), torch.bfloat16), x)
    arm.output(places.offsets[1], (5, 12), torch.bfloat16).fill_(2.0)
    assert torch.equal(memory.outputs_in_place(places)["out"], torch.full((5, 12), 2.0, dtype=torch.bfloat16))
    assert memory.inputs_intact(places, {"x": x})
    memory.inputs.view(places.offsets[0], (1,), torch.uint8).add_(1)
    assert not memory.inputs_intact(places, {"x": x})


def test_places_are_fresh_and_halves_do_not_overlap(memory: CallMemory, content: Content) -> None:
    """Consecutive calls use other addresses, and the two halves never touch."""
    seen = set()
    for call in range(20):
        places = [memory.place(CASE, half, content.generator("places", call)) for half in (0, 1)]
        seen.add(places[0].offsets)
        end = places[0].offsets[1] + 2 * 5 * 12 + GUARD
        assert end <= places[1].offsets[1] - GUARD
        assert all(offset % 64 == 0 for offset in places[0].offsets + places[1].offsets)
    assert len(seen) > 15


@pytest.mark.parametrize("place", [-1, -GUARD, 2 * 5 * 12 + 8, 2 * 5 * 12 + GUARD - 9])
def test_writes_outside_the_output_change_the_guards(memory: CallMemory, content: Content, place: int) -> None:
    """A store just before or after an output is seen."""
    places = memory.place(CASE, 0, content.generator("places"))
    memory.write_filler(places, content, content.generator("filler"))
    before = memory.guards(places)
    memory.outputs.view(places.offsets[1] + place, (1,), torch.uint8).bitwise_xor_(255)
    assert not before.still(memory.guards(places))


def test_an_output_of_odd_length_is_guarded_to_the_byte() -> None:
    """The first byte behind an output is a guard, also where the output ends inside a word."""
    case = {"num_tokens": 1, "d": 1}
    content = Content(bytes(32), "attempt", dtype="bfloat16", elements=4096, words=4096)
    memory = CallMemory(SILU, "bfloat16", (case,))
    places = memory.place(case, 0, content.generator("places"))
    for place in (-1, 2, 3, 7, 2 + GUARD - 1):
        memory.write_filler(places, content, content.generator("filler"))
        before = memory.guards(places)
        memory.outputs.view(places.offsets[1] + place, (1,), torch.uint8).bitwise_xor_(255)
        assert not before.still(memory.guards(places)), place
    memory.close()


def test_filler_is_recognised_only_while_it_is_untouched(memory: CallMemory, content: Content) -> None:
    """An output that was never written can be told from one that was written wrongly."""
    places = memory.place(CASE, 0, content.generator("places"))
    memory.write_filler(places, content, content.generator("filler"))
    assert memory.holds_filler(places, content, content.generator("filler"))
    mark = memory.fingerprint(places, content)
    memory.outputs_in_place(places)["out"][0, 0] += 1
    assert not memory.holds_filler(places, content, content.generator("filler"))
    assert memory.fingerprint(places, content) != mark


def test_changes_that_keep_the_fingerprint_are_seen(memory: CallMemory, content: Content) -> None:
    """Two top bits cancel each other in a sum modulo 2^64; copies do not."""
    places = memory.place(CASE, 0, content.generator("places"))
    copies, mark = memory.copy_outputs(places), memory.fingerprint(places, content)
    assert memory.outputs_still(places, copies)
    memory.outputs.words(places.outputs[0].region)[:2] ^= torch.iinfo(torch.int64).min
    assert memory.fingerprint(places, content) == mark
    assert not memory.outputs_still(places, copies)


def test_words_cover_a_region_that_is_not_aligned() -> None:
    """Fingerprints never miss the last bytes of an output."""
    shared = SharedFile("file", 4096, arm_may_write=True)
    assert shared.words(Region(64, 13)).numel() == 2
    shared.close()
