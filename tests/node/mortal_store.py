"""A store that dies: what tests use to end the node around one of its transactions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sqlalchemy import event

from node.store.engine import Store
from node.store.layout import StateLayout
from node.store.lock import StateLock


class Killed(BaseException):
    """The process ends here; no handler of the node may catch it."""


class MortalStore(Store):
    """A store whose process dies at its n-th transaction, before it or after its commit."""

    dies_at = -1
    after_commit = False
    count = 0

    def __init__(self, layout: StateLayout, lock: StateLock) -> None:
        super().__init__(layout, lock)
        event.listen(self._engine, "connect", _forget_power_cuts)

    def _transaction(self, work: Callable[..., Any], arguments: Any, keywords: Any) -> Any:
        self.count += 1
        if self.count == self.dies_at and not self.after_commit:
            raise Killed
        result = super()._transaction(work, arguments, keywords)
        if self.count == self.dies_at and self.after_commit:
            raise Killed
        return result


def _forget_power_cuts(connection: Any, _record: Any) -> None:
    connection.execute("PRAGMA synchronous=OFF")  # what dies here is the process: what it gave to the system stays
