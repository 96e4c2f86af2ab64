"""Typed views of the storage: read-only at one block, and a writable session for the block being built.

Invariants
1. Values cross this seam decoded; raw byte access exists for values the generic codec would change.
2. A session never touches the history: its layers collapse into one diff, committed with the block.
3. `transaction()` keeps all writes of its body or, when the body raises, none.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from chain.devnet.codec import Codec
from chain.devnet.history import History, StateSource


class StorageView:
    """Read access to the storage as it stood after one block."""

    def __init__(self, codec: Codec, source: StateSource, block: int) -> None:
        self.codec = codec
        self._source = source
        self.block = block

    def raw(self, key: bytes) -> bytes | None:
        """Return the stored bytes under a full key."""
        return self._source.get(key, self.block)

    def raw_keys(self, prefix: bytes) -> list[bytes]:
        """Return all full keys with that prefix, in byte order."""
        return self._source.keys(prefix, self.block)

    def key_page(self, prefix: bytes, after: bytes, limit: int) -> list[bytes]:
        """Return at most `limit` full keys with that prefix, in byte order, strictly after `after`."""
        return self._source.keys(prefix, self.block, after=after, limit=limit)

    def get_raw(self, pallet: str, item: str, *params: Any) -> bytes | None:
        """Return the stored bytes of an item."""
        return self.raw(self.codec.key(pallet, item, params))

    def get(self, pallet: str, item: str, *params: Any) -> Any:
        """Return the decoded value of an item, its default when it is missing, or None when it is optional."""
        return self.codec.decode_value(pallet, item, self.get_raw(pallet, item, *params))

    def entries(self, pallet: str, item: str, *params: Any) -> Iterator[tuple[Any, bytes]]:
        """Yield `(free key parts, raw value)` of a map, with leading parts fixed by `params`."""
        for key in self.raw_keys(self.codec.key(pallet, item, params)):
            value = self.raw(key)
            if value is not None:
                yield self.codec.map_keys(pallet, item, key, len(params)), value


class Session(StorageView):
    """A view of the head that also takes writes; `block` is the number of the block being built."""

    def __init__(self, codec: Codec, history: History, block: int) -> None:
        super().__init__(codec, history, block)
        self._history = history
        self._layers: list[dict[bytes, bytes | None]] = [{}]

    def raw(self, key: bytes) -> bytes | None:
        """Return the newest bytes under a full key."""
        for layer in reversed(self._layers):
            if key in layer:
                return layer[key]
        return self._history.latest(key)

    def raw_keys(self, prefix: bytes) -> list[bytes]:
        """Return all full keys with that prefix, in byte order, with the session's own changes."""
        found = set(self._history.keys(prefix, self.block))
        for layer in self._layers:
            for key, value in layer.items():
                if key.startswith(prefix):
                    (found.discard if value is None else found.add)(key)
        return sorted(found)

    def put_raw(self, key: bytes, value: bytes | None) -> None:
        """Write or (None) delete the bytes under a full key."""
        self._layers[-1][key] = value

    def put(self, pallet: str, item: str, *params: Any, value: Any) -> None:
        """Encode and write an item."""
        self.put_raw(self.codec.key(pallet, item, params), self.codec.encode_value(pallet, item, value))

    def delete(self, pallet: str, item: str, *params: Any) -> None:
        """Remove an item."""
        self.put_raw(self.codec.key(pallet, item, params), None)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Keep the writes of the body, or none of them when it raises."""
        self._layers.append({})
        try:
            yield
        except BaseException:
            self._layers.pop()
            raise
        layer = self._layers.pop()
        self._layers[-1].update(layer)

    def diff(self) -> dict[bytes, bytes | None]:
        """Return the changes against the head, in key order and without writes that changed nothing."""
        (layer,) = self._layers
        return {key: layer[key] for key in sorted(layer) if layer[key] != self._history.latest(key)}
