"""Made-up reveals for the node's tests."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from config.canonical import sha256_hex
from node.store.engine import Store
from node.store.submission_rows import Cursor, Submission, read_cursor, record_scan

GENESIS = "0x" + "11" * 32
HOTKEY_A, HOTKEY_B = "5A" + "a" * 46, "5B" + "b" * 46

_MANIFEST = """
bundle_id = "{name}"
abi_version = "cacheon-op-abi-v0"

[competition]
target = "norm.rmsnorm"
mode = "slot"

[[ops]]
slot = "norm.rmsnorm"
source = "kernel.py"
entry = "rmsnorm"
dtypes = ["bfloat16"]
"""


def submission(number: int, *, hotkey: str = HOTKEY_A, content: str = "", reason: str = "") -> Submission:
    """Return the `number`-th made-up reveal; its content hash is derived from `content` (default: its number)."""
    return Submission(
        submission_id=sha256_hex(f"submission {number}".encode()),
        block=10 + number,
        block_hash="0x" + sha256_hex(f"block {number}".encode()),
        event_index=0,
        sub_index=0,
        hotkey=hotkey,
        registered_block=1,
        payload_hex="00",
        payload_digest=sha256_hex(f"payload {number}".encode()),
        content_hash="" if reason else sha256_hex(f"content {content or number}".encode()),
        url=f"http://127.0.0.1:1/{number}.tar.gz",
        reason=reason,
    )


def cursor(number: int) -> Cursor:
    """Return a made-up cursor."""
    return Cursor(number, "0x" + sha256_hex(f"block {number}".encode()))


async def record(store: Store, *found: Submission) -> None:
    """Store reveals as one scan would."""
    before = await store.read(read_cursor)
    after = cursor((before.block if before else 0) + 1)
    await store.write(record_scan, before, after, found)


async def until(condition: Callable[[], bool | Awaitable[bool]]) -> None:
    """Return as soon as `condition` holds; the test's own time-out bounds the wait."""
    while True:
        answer = condition()
        if answer if isinstance(answer, bool) else await answer:
            return
        await asyncio.sleep(0.01)


def rmsnorm_bundle(name: str, kernel: str) -> dict[str, bytes]:
    """Return the files of a bundle of one kernel for `norm.rmsnorm`."""
    return {"manifest.toml": _MANIFEST.format(name=name).encode(), "kernel.py": kernel.lstrip().encode()}
