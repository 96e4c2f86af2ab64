"""One bucket of an S3-compatible object store, as far as publishing an archive needs it.

Invariants
1. An object is only ever made, never replaced: the write is conditional (`If-None-Match: *`), and where a store does
   not know conditional writes, it follows a read that found nothing.
2. Credentials come from where the ecosystem keeps them (AWS environment variables, shared files, profiles, instance
   roles), are read by the client library alone, and are in no message.
3. Every error of the client library becomes one of ours, with the store's own code and words.
4. Every call has a deadline; a broken transfer is repeated a few times by the library, and the condition of rule 1
   makes the repetition harmless.
"""

from __future__ import annotations

import base64
import hashlib
import importlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from enum import Enum
from typing import Any

from config.errors import CacheonError, ConfigurationError, HostError, NetworkError

_PREFIX = re.compile(r"[A-Za-z0-9._~-]+(/[A-Za-z0-9._~-]+)*")
_CHUNK_BYTES = 64 * 1024
_CONNECT_SECONDS, _READ_SECONDS, _TRIES = 10, 60, 4
_ABSENT = frozenset({"NoSuchKey", "404", "NotFound"})
_EXISTS = frozenset({"PreconditionFailed", "ConditionalRequestConflict", "412", "409"})
_DENIED = frozenset({"AccessDenied", "403", "Forbidden", "AllAccessDisabled", "AccountProblem"})
_BAD_KEYS = frozenset(
    {"InvalidAccessKeyId", "SignatureDoesNotMatch", "InvalidToken", "ExpiredToken", "TokenRefreshRequired"}
)
_SKEWED = frozenset({"RequestTimeTooSkewed", "RequestExpired", "RequestInTheFuture"})
_ELSEWHERE = frozenset(
    {"PermanentRedirect", "AuthorizationHeaderMalformed", "301", "307", "IllegalLocationConstraintException"}
)


class Unread(Enum):
    """Why an object could not be read: there is none, or these credentials may not know."""

    ABSENT = "absent"
    DENIED = "denied"


@dataclass(frozen=True)
class Place:
    """A bucket. Empty texts mean: as the AWS environment and files have it."""

    bucket: str
    endpoint_url: str = ""
    region: str = ""
    public_url: str = ""  # address under which the bucket's objects are read; "" = the bucket's own


@dataclass(frozen=True)
class NewObject:
    """What is written: `metadata` become `x-amz-meta-*` headers."""

    key: str
    data: bytes
    content_type: str
    cache_control: str
    metadata: Mapping[str, str]


def object_key(prefix: str, content_hash: str) -> str:
    """Return the key of a bundle's archive. Raises `ConfigurationError` (S3_PLACE_INVALID)."""
    trimmed = prefix.strip("/")
    if trimmed and not (_PREFIX.fullmatch(trimmed) and not {".", ".."} & set(trimmed.split("/"))):
        raise ConfigurationError(
            "S3_PLACE_INVALID",
            f"the prefix {prefix!r} cannot be part of a plain URL",
            hint="use letters, digits, '-', '_', '.', '~' and '/' between them",
        )
    return "/".join(part for part in (trimmed, "sha256", f"{content_hash}.tar.gz") if part)


class ObjectStore:
    """A client of one bucket. Blocks; use it from a thread where that matters."""

    def __init__(self, place: Place) -> None:
        """Find credentials and region; nothing is sent yet.

        Raises `ConfigurationError` (S3_PLACE_INVALID, S3_CREDENTIALS_MISSING).
        """
        self._place = place
        try:
            self._session = importlib.import_module("botocore.session").Session()
            self._client = self._new_client()
        except Exception as error:
            raise self._translated(error) from error

    def _new_client(self, **more: Any) -> Any:
        config: Any = importlib.import_module("botocore.config").Config(
            connect_timeout=_CONNECT_SECONDS,
            read_timeout=_READ_SECONDS,
            retries={"mode": "standard", "total_max_attempts": _TRIES},
            # checksums as trailers are newer than most compatible stores; the body is covered by Content-MD5
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
            s3={"addressing_style": "path"} if self._place.endpoint_url else None,
            user_agent_extra="cacheon",
            **more,
        )
        region = self._place.region or self._session.get_config_variable("region") or "us-east-1"
        return self._session.create_client(
            "s3", region_name=region, endpoint_url=self._place.endpoint_url or None, config=config
        )

    def url(self, key: str) -> str:
        """Return the address under which anybody reads the object, if the bucket lets them."""
        if self._place.public_url:
            return f"{self._place.public_url.rstrip('/')}/{key}"
        try:
            unsigned = self._new_client(signature_version=importlib.import_module("botocore").UNSIGNED)
            parameters = {"Bucket": self._place.bucket, "Key": key}
            return str(unsigned.generate_presigned_url("get_object", Params=parameters)).partition("?")[0]
        except Exception as error:
            raise self._translated(error) from error

    def read(self, key: str, limit: int) -> bytes | Unread:
        """Return the object, at most its first `limit` + 1 bytes.

        Raises `ConfigurationError`, `HostError` and `NetworkError` (S3_*).
        """
        try:
            answer = self._client.get_object(Bucket=self._place.bucket, Key=key)
            with answer["Body"] as body:
                return _first_bytes(body, limit + 1)
        except Exception as error:
            code = _code_of(error)
            if code in _ABSENT:
                return Unread.ABSENT
            if code in _DENIED:  # also what a store says of a missing object to who may not list the bucket
                return Unread.DENIED
            raise self._translated(error) from error

    def create(self, new: NewObject) -> bool:
        """Write the object unless one is there; return whether it was written.

        Raises `ConfigurationError`, `HostError` and `NetworkError` (S3_*).
        """
        try:
            self._put(new, IfNoneMatch="*")
        except Exception as error:
            code = _code_of(error)
            if code in _EXISTS:
                return False
            if code != "NotImplemented":
                raise self._translated(error) from error
        else:
            return True
        try:
            self._put(new)
        except Exception as error:
            raise self._translated(error) from error
        return True

    def _put(self, new: NewObject, **condition: str) -> None:
        self._client.put_object(
            Bucket=self._place.bucket,
            Key=new.key,
            Body=new.data,
            ContentType=new.content_type,
            CacheControl=new.cache_control,
            ContentMD5=base64.b64encode(hashlib.md5(new.data, usedforsecurity=False).digest()).decode(),
            Metadata=dict(new.metadata),
            **condition,
        )

    def _translated(self, error: Exception) -> CacheonError:
        return translate(error, self._place)

    def close(self) -> None:
        """Close the connections."""
        self._client.close()


def translate(error: Exception, place: Place) -> CacheonError:
    """Return our error for one of the client library."""
    answer = getattr(error, "response", None)
    if isinstance(answer, dict):
        return _refused(answer, place)
    kinds = {kind.__name__ for kind in type(error).__mro__}
    said = " ".join(str(error).split())[:300]
    if kinds & {
        "NoCredentialsError",
        "PartialCredentialsError",
        "CredentialRetrievalError",
        "ProfileNotFound",
        "SSOError",
    }:
        return ConfigurationError(
            "S3_CREDENTIALS_MISSING",
            f"no usable credentials for the object store: {said}",
            hint="set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE with a profile in ~/.aws/credentials",
        )
    if kinds & {"HTTPClientError", "ConnectionError", "IncompleteReadError", "OSError"}:
        return NetworkError(
            "S3_UNREACHABLE",
            f"the object store cannot be reached, or broke off: {said}",
            hint="start the command again; what was uploaded completely is not uploaded twice",
        )
    return ConfigurationError(
        "S3_PLACE_INVALID",
        f"bucket {place.bucket!r} at {place.endpoint_url or 'the standard endpoint'} cannot be used: {said}",
        hint="check --bucket, --endpoint-url and --region",
    )


def _refused(answer: Mapping[str, Any], place: Place) -> CacheonError:
    code = str(answer.get("Error", {}).get("Code", ""))
    said = " ".join(str(answer.get("Error", {}).get("Message", "")).split())[:300]
    words = f"{code}: {said}" if said else code
    meta = answer.get("ResponseMetadata", {})
    if code == "NoSuchBucket":
        return ConfigurationError(
            "S3_BUCKET_MISSING",
            f"there is no bucket {place.bucket!r} at {place.endpoint_url or 'the standard endpoint'}",
            hint="create the bucket, or correct --bucket and --endpoint-url",
        )
    if code in _SKEWED:
        return HostError(
            "S3_CLOCK_SKEWED",
            f"the object store refuses this machine's clock{_skew(meta.get('HTTPHeaders', {}))}",
            hint="set the clock, and let a time service keep it",
        )
    if code in _BAD_KEYS:
        return ConfigurationError(
            "S3_CREDENTIALS_REFUSED",
            f"the object store does not accept the credentials ({words})",
            hint="check the access key in the AWS environment variables or files, and that it belongs to this store",
        )
    if code in _DENIED:
        return ConfigurationError(
            "S3_ACCESS_DENIED",
            f"the credentials may not write to bucket {place.bucket!r} ({words})",
            hint="allow s3:PutObject and s3:GetObject on the prefix for this access key",
        )
    if code in _ELSEWHERE:
        return ConfigurationError(
            "S3_PLACE_INVALID",
            f"bucket {place.bucket!r} belongs to another region ({words})",
            hint="name the bucket's region with --region or AWS_REGION",
        )
    if int(meta.get("HTTPStatusCode", 0) or 0) >= 500 or code in {
        "SlowDown",
        "RequestTimeout",
        "BadDigest",
        "IncompleteBody",
    }:
        return NetworkError(
            "S3_UNREACHABLE", f"the object store failed ({words})", hint="start the command again in a while"
        )
    return ConfigurationError(
        "S3_REFUSED", f"the object store refused the request ({words})", hint="see the store's own documentation of it"
    )


def _skew(headers: Mapping[str, str]) -> str:
    try:
        ahead = (datetime.now(UTC) - parsedate_to_datetime(headers["date"])).total_seconds()
    except (KeyError, ValueError, TypeError):
        return ""
    return f": it is {abs(ahead):.0f} s {'ahead of' if ahead > 0 else 'behind'} the store's"


def _code_of(error: Exception) -> str:
    answer = getattr(error, "response", None)
    return str(answer.get("Error", {}).get("Code", "")) if isinstance(answer, dict) else ""


def _first_bytes(body: Any, limit: int) -> bytes:
    parts: list[bytes] = []
    left = limit
    while left > 0:
        part = body.read(min(left, _CHUNK_BYTES))
        if not part:
            break
        parts.append(part)
        left -= len(part)
    return b"".join(parts)
