"""One canonical JSON, one digest, one strict reader, one order of paths.

Rules
1. Canonical JSON is UTF-8 with keys sorted by code point, separators `,` and `:`, non-ASCII kept literally.
   Values are null, bool, int, str, arrays and objects with string keys. Floats, bytes and sets are refused:
   a number that has to be exact is an integer in a named unit, or text.
2. A domain digest is SHA-256 (lower hex) of the canonical JSON of `{"domain", "payload", "schema_version"}`.
3. The strict reader refuses duplicate keys, NaN, floats and (on request) bytes that are not canonical.
4. Paths inside bundles are ordered by their tuple of components, never by the flat string.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable
from typing import Any, NoReturn

from config.errors import CacheonError, InternalError

_DOMAIN = re.compile(r"[a-z0-9][a-z0-9._-]*")
_LEAVES = frozenset({str, int, bool, type(None)})  # most of what there is; asked here, it costs no call
_DIGEST = re.compile(r"[0-9a-f]{64}")


class CanonicalJsonError(CacheonError):
    """Bytes or values outside canonical JSON."""


def canonical_json(value: object) -> bytes:
    """Return the canonical JSON bytes of `value`.

    Raises `CanonicalJsonError` (NOT_CANONICAL_JSON) for a value outside the allowed types.
    """
    try:
        _require_plain(value, "$")
        text = json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"), allow_nan=False)
        return text.encode("utf-8")
    except CanonicalJsonError:
        raise
    except (ValueError, RecursionError) as error:
        raise CanonicalJsonError("NOT_CANONICAL_JSON", f"value has no canonical form: {error}") from error


def _require_plain(value: object, where: str) -> None:
    if value is None or isinstance(value, bool | int | str):
        return
    if isinstance(value, list | tuple):
        for index, item in enumerate(value):
            if type(item) not in _LEAVES:
                _require_plain(item, f"{where}[{index}]")
        return
    if isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(key, str):
                raise CanonicalJsonError("NOT_CANONICAL_JSON", f"object key at {where} is not text")
            if type(item) not in _LEAVES:
                _require_plain(item, f"{where}.{key}")
        return
    raise CanonicalJsonError("NOT_CANONICAL_JSON", f"{type(value).__name__} at {where} has no canonical form")


def domain_digest(domain: str, payload: object, *, schema_version: int = 1) -> str:
    """Return the lower-hex SHA-256 that names `payload` inside `domain`.

    Raises `InternalError` (BAD_DIGEST_DOMAIN) for a malformed domain or version.
    """
    return domain_digest_of(domain, canonical_json(payload), schema_version=schema_version)


def domain_digest_of(domain: str, payload: bytes, *, schema_version: int = 1) -> str:
    """Return `domain_digest` of a payload that is given as its canonical JSON bytes.

    Raises `InternalError` (BAD_DIGEST_DOMAIN).
    """
    if not _DOMAIN.fullmatch(domain) or isinstance(schema_version, bool) or schema_version < 1:
        raise InternalError("BAD_DIGEST_DOMAIN", f"{domain!r} version {schema_version!r} is not a digest domain")
    return sha256_hex(b'{"domain":"%b","payload":%b,"schema_version":%d}' % (domain.encode(), payload, schema_version))


def sha256_hex(data: bytes | bytearray | memoryview) -> str:
    """Return the lower-hex SHA-256 of `data`."""
    return hashlib.sha256(data).hexdigest()


def is_digest(value: object) -> bool:
    """Say whether `value` is 64 lower-case hexadecimal characters."""
    return isinstance(value, str) and _DIGEST.fullmatch(value) is not None


def read_json(data: bytes, *, require_canonical: bool = False) -> Any:
    """Parse JSON strictly.

    Raises `CanonicalJsonError`: JSON_MALFORMED for bytes that are not UTF-8 JSON, hold a duplicate key, a float
    or NaN, or nest too deeply; NOT_CANONICAL_JSON when `require_canonical` and re-encoding differs.
    """
    try:
        value = json.loads(
            data.decode("utf-8"),
            object_pairs_hook=_unique_keys,
            parse_float=_refuse_number,
            parse_constant=_refuse_number,
        )
    except CanonicalJsonError:
        raise
    except (UnicodeDecodeError, ValueError, RecursionError) as error:
        raise CanonicalJsonError("JSON_MALFORMED", f"not strict JSON: {error}") from error
    if require_canonical and canonical_json(value) != data:
        raise CanonicalJsonError("NOT_CANONICAL_JSON", "JSON is valid but not in canonical form")
    return value


def _unique_keys(pairs: list[tuple[str, object]]) -> dict[str, object]:
    result = dict(pairs)
    if len(result) != len(pairs):
        keys = Counter(key for key, _ in pairs)
        raise CanonicalJsonError("JSON_MALFORMED", f"duplicate key {keys.most_common(1)[0][0]!r}")
    return result


def _refuse_number(text: str) -> NoReturn:
    raise CanonicalJsonError("JSON_MALFORMED", f"number {text[:40]} is not an integer")


def path_order(path: str) -> tuple[str, ...]:
    """Return the sort key of a bundle-relative POSIX path: its tuple of components."""
    return tuple(path.split("/"))


def sorted_paths(paths: Iterable[str]) -> list[str]:
    """Return `paths` in the project's one path order."""
    return sorted(paths, key=path_order)
