"""A store that dies: what tests use to end the node around one of its transactions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from node.store.engine import Store


class Killed(BaseException):
    """The process ends here; no handler of the node may catch it."""


class MortalStore(Store):
    """A store whose process dies at its n-th transaction, before it or after its commit."""

    dies_at = -1
    after_commit = False
    count = 0

    def _transaction(self, work: Callable[..., Any], arguments: Any, keywords: Any) -> Any:
        self.count += 1
        if self.count == self.dies_at and not self.after_commit:
            raise Killed
        result = super()._transaction(work, arguments, keywords)
        if self.count == self.dies_at and self.after_commit:
            raise Killed
        return result
