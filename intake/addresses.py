"""Which network addresses a bundle may be fetched from.

Invariants
1. An address is public only if it is globally routable unicast: no loopback, private, shared, link-local, site-local,
   documentation, benchmarking, reserved, unspecified or multicast address, no cloud metadata address.
2. IPv6 forms that carry an IPv4 address (mapped, NAT64, 6to4, Teredo, ISATAP) are refused or judged by what they carry;
   a translator could lead them anywhere.
3. Every address of a name has to pass. One bad answer refuses the name, because the next answer may be that one.
"""

from __future__ import annotations

import ipaddress

_REFUSED = tuple(
    ipaddress.ip_network(text)
    for text in (
        "192.0.0.0/24",  # protocol assignments, anycast helpers among them
        "192.88.99.0/24",  # 6to4 relays
        "64:ff9b::/96",  # NAT64
        "64:ff9b:1::/48",  # local NAT64
        "2002::/16",  # 6to4
        "2001::/32",  # Teredo
        "fec0::/10",  # site-local, deprecated
        "5f00::/16",  # segment routing
    )
)
_ISATAP = ("00005efe", "02005efe")

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def parse_address(text: str) -> Address | None:
    """Return the address that `text` spells exactly (a zone suffix is dropped), or None."""
    try:
        return ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None


def address_problem(text: str, *, allow_loopback: bool = False) -> str:
    """Return why the address `text` may not be contacted, or "" when it may.

    `allow_loopback` admits loopback addresses and nothing else.
    """
    address = parse_address(text)
    if address is None:
        return "is not an IP address"
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    if allow_loopback:
        return "" if address.is_loopback else "is not a loopback address"
    if not address.is_global or address.is_multicast or address.is_reserved or address.is_unspecified:
        return "is not a public address"
    if any(address.version == network.version and address in network for network in _REFUSED):
        return "belongs to a range that is not a plain public host"
    if isinstance(address, ipaddress.IPv6Address) and f"{int(address) & (2**64 - 1):016x}".startswith(_ISATAP):
        return "carries an embedded IPv4 address"
    return ""
