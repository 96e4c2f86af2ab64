"""The sealed schedule: every random choice of an attempt follows from one seed that is committed to beforehand.

Invariants
1. The commitment is SHA-256(seed || attempt id) and is published before the first launch; the seed is 32 bytes.
2. Each choice is one SHA-256 over (seed, attempt id, purpose, indices): fair, independent of everything measured,
   and recomputable by anyone once the seed is revealed.
3. The referee and the grader call the same functions, so a choice that does not follow from the seed is detectable.
4. The first `open_launches` launches, which is up to the speed policy, take one coin each; after them launches come in
   pairs that share one coin and exchange roles.
"""

from __future__ import annotations

import hashlib
import re

from config.errors import EvidenceError
from scoring.policy import POLICY

SEED_BYTES = 32
_SEED_HEX = re.compile(r"[0-9a-f]{64}")


def commitment(seed: bytes, attempt_id: str) -> str:
    """Return the lower-hex commitment to `seed` for one attempt. Raises `GradeError` (SEED_MALFORMED)."""
    _require_seed(seed)
    return hashlib.sha256(seed + attempt_id.encode("utf-8")).hexdigest()


def parse_seed(revealed: str) -> bytes:
    """Return the seed bytes of its hex form. Raises `GradeError` (SEED_MALFORMED)."""
    if not _SEED_HEX.fullmatch(revealed):
        raise EvidenceError("SEED_MALFORMED", f"a seed is {2 * SEED_BYTES} lower-case hexadecimal characters")
    return bytes.fromhex(revealed)


def derive(seed: bytes, attempt_id: str, purpose: str, *indices: int) -> bytes:
    """Return 32 pseudo-random bytes for one named choice; use it for input content, filler and hidden shapes too.

    `purpose` is a short constant name; `indices` say which choice of that name.
    """
    _require_seed(seed)
    parts = [b"cacheon.sealing.v1", attempt_id.encode("utf-8"), purpose.encode("utf-8")]
    parts += [str(index).encode("ascii") for index in indices]
    message = b"".join(len(part).to_bytes(4, "big") + part for part in parts)
    return hashlib.sha256(seed + message).digest()


def candidate_slot(
    seed: bytes, attempt_id: str, launch: int, *, open_launches: int = POLICY.betting.open_launches
) -> int:
    """Return the slot (0 or 1) that the candidate takes in launch number `launch`; the baseline takes the other."""
    paired = launch - open_launches
    if paired < 0:
        return _bit(derive(seed, attempt_id, "candidate-slot", launch))
    return _bit(derive(seed, attempt_id, "candidate-slot-pair", paired // 2)) ^ (paired & 1)


def candidate_first(seed: bytes, attempt_id: str, launch: int, block: int) -> bool:
    """Say whether the candidate runs before the baseline in block number `block` of launch number `launch`."""
    return _bit(derive(seed, attempt_id, "block-order", launch, block)) == 1


def _bit(digest: bytes) -> int:
    return digest[0] & 1


def _require_seed(seed: bytes) -> None:
    if len(seed) != SEED_BYTES:
        raise EvidenceError("SEED_MALFORMED", f"a seed has {SEED_BYTES} bytes, not {len(seed)}")
