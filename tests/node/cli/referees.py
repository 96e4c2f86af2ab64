"""A referee inside the test process: a fork server of arms that is warm already serves many commands."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from node.cli import bench_stand
from node.cli.actions import verify
from node.cli.actions.examination import Asked, Examination, examine
from qualify.sandbox.client import Zygote
from qualify.sandbox.closing import Closing

if TYPE_CHECKING:
    from qualify.screens.base import Emit


class RefereeInside(Closing):
    """What `node.cli.warm_referee.WarmReferee` is to `verify`, in this process."""

    def __init__(self, server: Zygote) -> None:
        self._server = server

    def close(self) -> None:
        """Leave the fork server to its owner."""

    def examine(self, asked: Asked, progress: Emit) -> Examination:
        """Run the screens here."""
        return examine(asked, self._server, progress)


class SharedServer:
    """A fork server that outlives the command that thinks it owns it."""

    def __init__(self, server: Zygote) -> None:
        self._server = server
        self.spawn = server.spawn

    def close(self) -> None:
        """Leave it to its owner."""


def judge_inside(monkeypatch: pytest.MonkeyPatch, arms: Zygote) -> None:
    """Let `verify` and `bench`, run inside this process, use the fork server `arms`."""
    monkeypatch.setattr(verify, "WarmReferee", lambda: RefereeInside(arms))
    monkeypatch.setattr(bench_stand, "start_arm_server", lambda: SharedServer(arms))
