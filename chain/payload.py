"""The reveal payload, version 1 and 2, byte for byte.

`{"v":1,"h":"<64 hex>","u":"<url>"}`, or with `"v":2` and `,"p":{"b":<block>,"i":<index>}` after the URL.

Invariants
1. There is exactly one byte string per payload: decoding accepts only what encoding would have written.
2. A payload is at most 1024 bytes; the hash is 64 lower-case hex characters; the URL obeys `config.urls`.
3. A payment pointer names a block > 0 and an extrinsic index >= 0, both of at most 32 bits as in the runtime; booleans
   are not integers here.
4. Decoding never raises, whatever it is given: it returns a `PayloadRefusal` with a stable code.
5. The order of checks is fixed, so the same bytes always get the same code.
6. Reading accepts what the format allows, 1024 bytes. What is to be committed must also fit into a sealed commitment,
   which the runtime bounds; `sealable_payload` checks that, before anything is signed.
"""

from __future__ import annotations

import json

import msgspec

from config.canonical import CanonicalJsonError, is_digest, read_json
from config.errors import Blame, ConfigurationError
from config.limits import CHAIN
from config.urls import url_problem

SEAL_OVERHEAD_BYTES = 244  # what timelock encryption adds to the plaintext, whatever its length; a test measures it
SEALABLE_BYTES = CHAIN.timelock_ciphertext_bytes - SEAL_OVERHEAD_BYTES
_LARGEST_INTEGER = 2**32 - 1  # the runtime counts blocks and extrinsics in 32 bits; stores take 63


class Payload(msgspec.Struct, frozen=True):
    """What a miner commits: the bundle's content hash, where it lies, and optionally which extrinsic paid for it."""

    content_hash: str
    url: str
    payment_block: int | None = None
    payment_index: int | None = None


class PayloadRefusal(msgspec.Struct, frozen=True):
    """Why bytes are not a payload: a stable code and one sentence."""

    code: str
    message: str


def encode_payload(payload: Payload, *, allow_loopback_http: bool = False) -> bytes:
    """Return the one byte string of `payload`.

    Raises `ConfigurationError` (PAYLOAD_INVALID) when a field breaks a rule or the result exceeds 1024 bytes.
    """
    problem = _field_problem(payload, allow_loopback_http)
    data = b"" if problem else _encode(payload)
    if not problem and len(data) > CHAIN.payload_bytes:
        problem = PayloadRefusal("PAYLOAD_TOO_LARGE", f"the payload has {len(data)} of {CHAIN.payload_bytes} bytes")
    if problem:
        raise ConfigurationError(
            "PAYLOAD_INVALID",
            f"Nothing can be committed: {problem.message}.",
            hint="host the archive at a public https:// URL; plain http is for loopback hosts on a devnet",
            blame=Blame.MINER,
        )
    return data


def sealable_payload(payload: Payload, *, allow_loopback_http: bool = False) -> bytes:
    """Return the one byte string of `payload`, short enough to be sealed and committed.

    Raises `ConfigurationError` (PAYLOAD_INVALID; PAYLOAD_UNSEALABLE, which names the longest URL that fits).
    """
    data = encode_payload(payload, allow_loopback_http=allow_loopback_http)
    if len(data) > SEALABLE_BYTES:
        raise unsealable(len(data), len(payload.url), longest_url(payload))
    return data


def longest_url(payload: Payload) -> int:
    """Return how many characters the URL of `payload` may have beside its other fields.

    Each double quote and backslash in a URL counts twice.
    """
    return SEALABLE_BYTES - len(_encode(msgspec.structs.replace(payload, url="")))


def unsealable(size: int, url: int = 0, longest: int = 0) -> ConfigurationError:
    """Return the refusal of a payload of `size` bytes, with a URL of `url` characters where `longest` fit."""
    about_url = f": the URL has {url} characters, and {longest} fit" if url else ""
    return ConfigurationError(
        "PAYLOAD_UNSEALABLE",
        f"Nothing can be committed: the payload has {size} bytes, and a sealed commitment holds {SEALABLE_BYTES}"
        f"{about_url}.",
        hint="Publish the archive under a shorter URL; signed URLs with long queries are the usual reason.",
        blame=Blame.MINER,
    )


def decode_payload(data: object, *, allow_loopback_http: bool = False) -> Payload | PayloadRefusal:
    """Return the payload that `data` (bytes, framing already removed) spells, or why there is none; never raises."""
    if not isinstance(data, bytes):
        return PayloadRefusal("PAYLOAD_NOT_BYTES", "the payload is not a byte string")
    if not data:
        return PayloadRefusal("PAYLOAD_EMPTY", "the payload is empty")
    if len(data) > CHAIN.payload_bytes:
        return PayloadRefusal("PAYLOAD_TOO_LARGE", f"the payload has {len(data)} of {CHAIN.payload_bytes} bytes")
    if not data.isascii():
        return PayloadRefusal("PAYLOAD_NOT_ASCII", "the payload holds bytes outside ASCII")
    try:
        document = read_json(data)
    except CanonicalJsonError as error:
        return PayloadRefusal("PAYLOAD_NOT_JSON", error.message)
    payload = _from_document(document)
    if isinstance(payload, PayloadRefusal):
        return payload
    problem = _field_problem(payload, allow_loopback_http)
    if problem:
        return problem
    if _encode(payload) != data:
        return PayloadRefusal("PAYLOAD_NOT_CANONICAL", "the payload is not spelled in its one canonical form")
    return payload


def arrival_problem(hotkey: object, block: object) -> str:
    """Return "" when a reveal's sender and block can identify a submission, else a code; never raises."""
    if not isinstance(block, int) or isinstance(block, bool) or block < 0:
        return "REVEAL_BLOCK_INVALID"
    if not isinstance(hotkey, str) or not 1 <= len(hotkey) <= 256 or hotkey != hotkey.strip():
        return "REVEAL_HOTKEY_INVALID"
    return "REVEAL_HOTKEY_INVALID" if any(character in hotkey for character in "\0\r\n") else ""


def _from_document(document: object) -> Payload | PayloadRefusal:
    if not isinstance(document, dict):
        return PayloadRefusal("PAYLOAD_FIELDS", "the payload is not a JSON object")
    version = document.get("v")
    if not _is_integer(version) or version not in (1, 2):
        return PayloadRefusal("PAYLOAD_VERSION", "the payload's version is neither 1 nor 2")
    expected = {"v", "h", "u"} if version == 1 else {"v", "h", "u", "p"}
    if set(document) != expected:
        return PayloadRefusal("PAYLOAD_FIELDS", f"a version {version} payload has exactly {sorted(expected)}")
    if version == 1:
        return Payload(document["h"], document["u"])
    pointer = document["p"]
    if not isinstance(pointer, dict) or set(pointer) != {"b", "i"}:
        return PayloadRefusal("PAYLOAD_POINTER", "the payment pointer has exactly the fields b and i")
    if pointer["b"] is None or pointer["i"] is None:
        return PayloadRefusal("PAYLOAD_POINTER", "the payment pointer's fields are integers")
    return Payload(document["h"], document["u"], pointer["b"], pointer["i"])


def _field_problem(payload: Payload, allow_loopback_http: bool) -> PayloadRefusal | None:
    # Struct fields are not checked at construction, and documents come from strangers: look at types, too.
    if not is_digest(payload.content_hash):
        return PayloadRefusal("PAYLOAD_HASH", "the content hash is not 64 lower-case hexadecimal characters")
    problem = url_problem(payload.url, allow_loopback_http=allow_loopback_http)
    if problem:
        return PayloadRefusal("PAYLOAD_URL", f"the bundle URL {problem}")
    block, index = payload.payment_block, payload.payment_index
    if block is None and index is None:
        return None
    if not _is_integer(block) or not _is_integer(index) or not (0 < _int(block) <= _LARGEST_INTEGER):
        return PayloadRefusal("PAYLOAD_POINTER", "a payment pointer needs a block above zero and an index")
    if not 0 <= _int(index) <= _LARGEST_INTEGER:
        return PayloadRefusal("PAYLOAD_POINTER", "a payment pointer's index is not negative")
    return None


def _encode(payload: Payload) -> bytes:
    document: dict[str, object] = {"v": 1, "h": payload.content_hash, "u": payload.url}
    if payload.payment_block is not None:
        document["v"] = 2
        document["p"] = {"b": payload.payment_block, "i": payload.payment_index}
    return json.dumps(document, separators=(",", ":"), ensure_ascii=True).encode("ascii")


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _int(value: object) -> int:
    return value if isinstance(value, int) else -1
