"""Which software had a part in a measurement, and that it is unchanged.

Invariant: a package is told by its version and by the digest of the list that its installation left, which holds the
SHA-256 of every file. Two machines with equal digests installed equal wheels in the same way.
"""

from __future__ import annotations

import functools
import platform
from importlib import metadata

from config.canonical import sha256_hex
from scoring.attempt import Package

_PACKAGES = ("msgspec", "numpy", "torch", "triton")


@functools.cache
def packages() -> tuple[Package, ...]:
    """Return the packages that compute or record, as far as they are installed, sorted by name."""
    found = []
    for name in _PACKAGES:
        try:
            distribution = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            continue
        listed = distribution.read_text("RECORD")
        found.append(Package(name, distribution.version, sha256_hex(listed.encode("utf-8")) if listed else ""))
    return tuple(found)


@functools.cache
def libc() -> str:
    """Return the C library and its version, such as "glibc 2.36"; empty when the interpreter does not tell."""
    return " ".join(platform.libc_ver()).strip()
