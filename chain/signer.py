"""What can sign: an address, a public key and a `sign` method.

Invariant: code that publishes or commits sees this protocol only, so the key may lie in a file, in another process or
in a device, and tests can prove that nothing but `sign` is used.
"""

from __future__ import annotations

from typing import Protocol


class Signer(Protocol):
    """One key pair; the SDK's own key pairs fulfil this."""

    @property
    def ss58_address(self) -> str:
        """The address, SS58 format 42."""
        ...

    @property
    def public_key(self) -> bytes:
        """The 32-byte public key."""
        ...

    @property
    def crypto_type(self) -> int:
        """0 = ed25519, 1 = sr25519."""
        ...

    def sign(self, message: bytes) -> bytes:
        """Return the 64-byte signature of `message`."""
        ...
