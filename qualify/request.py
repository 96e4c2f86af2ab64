"""The request for one attempt: what the node hands to `qualify.attempt_main`.

Invariants
1. The request is strict JSON with no unknown keys; it names files and documents, it carries no verdict and no seed.
2. Every path is absolute; bundles are read from where intake published them and are re-hashed before use.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec

from config.canonical import CanonicalJsonError, canonical_json, is_digest, read_json
from config.errors import ConfigurationError
from scoring.attempt import Reservation


class BundleRef(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A published bundle: its identity, its tree and its intake report."""

    content_hash: str
    bundle_dir: str
    report_path: str


class Holding(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A target and the crowned bundle that holds it."""

    target_id: str
    bundle: BundleRef


class AttemptRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One comparison to be measured: the crowned bundles, and the candidate that takes the place of one of them."""

    attempt_id: str
    role: Literal["primary", "reproduction"]
    target_id: str
    arena: str  # id of a built-in arena, or an absolute path ending in .toml
    candidate: BundleRef
    reservation: Reservation
    stack: tuple[Holding, ...] = ()  # every crowned bundle, in any order; what is not there is stock's
    previous_attempt: str = ""  # digest of the primary attempt's file, for a reproduction
    waive: tuple[str, ...] = ()
    arm_cores: tuple[int, ...] = ()  # empty = choose; arms run on the first

    @property
    def incumbent(self) -> BundleRef | None:
        """The bundle that holds exactly the target asked for; None when stock or bundles of its members do."""
        return next((one.bundle for one in self.stack if one.target_id == self.target_id), None)


def encode_request(request: AttemptRequest) -> bytes:
    """Return the bytes of a request file."""
    return canonical_json(msgspec.to_builtins(request))


def read_request(path: Path) -> AttemptRequest:
    """Read one request file. Raises `ConfigurationError` (ATTEMPT_REQUEST_INVALID)."""
    try:
        request = msgspec.convert(read_json(path.read_bytes()), AttemptRequest, strict=True)
    except OSError as error:
        raise _invalid(f"{path} cannot be read: {error.strerror}") from error
    except (CanonicalJsonError, msgspec.ValidationError) as error:
        raise _invalid(str(error)) from error
    for reference in (request.candidate, *(one.bundle for one in request.stack)):
        if not is_digest(reference.content_hash):
            raise _invalid("a content hash is not 64 lower-case hexadecimal characters")
        if not (reference.bundle_dir.startswith("/") and reference.report_path.startswith("/")):
            raise _invalid("bundle paths must be absolute")
    if (request.role == "reproduction") != is_digest(request.previous_attempt):
        raise _invalid("a reproduction, and nothing else, names the digest of its primary attempt")
    return request


def _invalid(complaint: str) -> ConfigurationError:
    return ConfigurationError("ATTEMPT_REQUEST_INVALID", f"the attempt request cannot be used: {complaint}")
