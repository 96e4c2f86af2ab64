"""The `with` statement for whatever owns processes or descriptors and has a `close`."""

from __future__ import annotations

from types import TracebackType
from typing import Self


class Closing:
    """Leaving the `with` block closes. A subclass's `close` is safe to call more than once."""

    def __enter__(self) -> Self:
        """Return self."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        self.close()

    def close(self) -> object:
        """Release everything that is held."""
        raise NotImplementedError
