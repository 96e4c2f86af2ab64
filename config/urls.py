"""The one grammar of bundle URLs, used by the on-chain payload and by the fetcher alike.

Invariants
1. A bundle URL is 1..8192 ASCII characters without blanks, control characters or DEL.
2. It starts with lower-case `https://`, names a host, carries no user information and no fragment (one bare
   trailing `#` is tolerated), and its port is absent or 1..65535.
3. `http://` is accepted for a literal loopback host only, and only where the caller allows it (local devnet).
4. The text is parsed here and nowhere else, so the check and the fetch cannot disagree about the host. This is why
   backslashes and stray brackets in the authority are refused: clients read them differently.
5. Whether the host may be contacted is not a question of grammar; the fetcher decides that on resolved addresses.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass

from config.errors import IntakeError
from config.limits import CHAIN

_IPV_FUTURE = re.compile(r"v[0-9A-Fa-f]+\.[A-Za-z0-9\-._~!$&'()*+,;=:]+")
_AUTHORITY_END = re.compile(r"[/?#]")
_DEFAULT_PORTS = {"https": 443, "http": 80}


@dataclass(frozen=True)
class BundleUrl:
    """A URL that passed the grammar; `target` is the path and query as they go on the request line."""

    text: str
    scheme: str
    host: str  # without brackets, case as written
    port: int
    target: str


def parse_url(url: object, *, allow_loopback_http: bool = False) -> BundleUrl:
    """Return the parts of `url`.

    Raises `IntakeError` (URL_REFUSED) naming the first rule it breaks.
    """
    parsed = _parse(url, allow_loopback_http)
    if isinstance(parsed, str):
        raise IntakeError(
            "URL_REFUSED",
            f"the bundle URL {parsed}.",
            hint="Publish the archive under a plain https:// URL without user name or fragment.",
        )
    return parsed


def url_problem(url: object, *, allow_loopback_http: bool = False) -> str:
    """Return "" for an acceptable URL, else what is wrong with it as the end of a sentence; never raises."""
    parsed = _parse(url, allow_loopback_http)
    return parsed if isinstance(parsed, str) else ""


def is_loopback_host(host: str) -> bool:
    """Say whether `host` is a literal loopback address or the name `localhost`."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _parse(url: object, allow_loopback_http: bool) -> BundleUrl | str:
    if not isinstance(url, str) or not url:
        return "is not text" if url != "" else "is empty"
    if len(url) > CHAIN.url_characters:
        return f"is longer than {CHAIN.url_characters} characters"
    if not url.isascii():
        return "holds a character outside ASCII"
    if any(character <= " " or character == "\x7f" for character in url):
        return "holds a blank or control character"
    scheme, separator, rest = url.partition("://")
    if not separator or scheme not in _DEFAULT_PORTS or (scheme == "http" and not allow_loopback_http):
        return "does not start with https://"
    before, hash_mark, fragment = rest.partition("#")
    if hash_mark and fragment:
        return "has a fragment"
    end = _AUTHORITY_END.search(before)
    authority, target = (before[: end.start()], before[end.start() :]) if end else (before, "")
    split = _split_authority(authority)
    if isinstance(split, str):
        return split
    host, port_text = split
    port = _port(port_text, scheme)
    if port is None:
        return f"has port {port_text[:12]!r}, which is not 1..65535"
    if scheme == "http" and not is_loopback_host(host):
        return "uses plain http for a host that is not loopback"
    return BundleUrl(url, scheme, host, port, target if target.startswith("/") else f"/{target}")


def _split_authority(authority: str) -> tuple[str, str] | str:
    if "@" in authority:
        return "has user information"
    if "\\" in authority:
        return "has a backslash in its host"
    if authority.startswith("["):
        inside, bracket, after = authority[1:].partition("]")
        if not bracket or (after and not after.startswith(":")) or not _is_bracketed_host(inside):
            return "has a malformed bracketed host"
        return inside, after[1:]
    host, _, port_text = authority.partition(":")
    if "[" in host or "]" in host:
        return "has a stray bracket in its host"
    return (host, port_text) if host else "names no host"


def _is_bracketed_host(text: str) -> bool:
    if _IPV_FUTURE.fullmatch(text):
        return True
    try:
        ipaddress.IPv6Address(text)
    except ValueError:
        return False
    return True


def _port(text: str, scheme: str) -> int | None:
    if not text:
        return _DEFAULT_PORTS[scheme]
    if not (text.isascii() and text.isdigit()) or len(text) > 8:
        return None
    port = int(text)
    return port if 1 <= port <= 65535 else None
