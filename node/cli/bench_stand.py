"""A miner's bundle on this machine, ready for the screens: what `verify` and `bench` have in common.

Invariants
1. The bundle goes the way it goes at a validator: sandboxed intake, immutable publication, sandboxed arms. Only the
   store is a temporary folder.
2. Leaving the stand, also by Ctrl-C, SIGTERM or SIGHUP, leaves no process and no file behind.
"""

from __future__ import annotations

import contextlib
import signal
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from config.arena import load_arena
from config.errors import ConfigurationError
from config.settings import Settings
from intake.publish import publish
from node.cli.miner import bundle_path
from node.cli.resolve import resolve
from qualify.arm_server import start_arm_server
from qualify.intake_runner import IntakeRunner
from qualify.request import AttemptRequest, BundleRef, Holding
from qualify.sandbox.client import Zygote
from qualify.screens.base import Emit, ScreenReceipt
from qualify.screens.pipeline import run_screens
from qualify.screens.static import Static, Submission
from scoring.attempt import Reservation

if TYPE_CHECKING:
    from qualify.intake_runner import ScreenedBundle

NOTICE = (
    "a validator draws other shapes, inputs and launch orders from a seed of its own, on its own machine: "
    "what passes here is no promise there"
)


@dataclass(frozen=True)
class Choice:
    """What the command line says about where and against what a bundle is run; None means: as the settings have it."""

    arena: str | None = None
    target: str | None = None
    against: str | None = None
    config: str | None = None


@dataclass(frozen=True)
class Candidate:
    """The outcome of `static`: its receipt, and, when it passed, the bundle and the request for an attempt."""

    receipts: tuple[ScreenReceipt, ...]
    bundle: ScreenedBundle | None = None
    request: AttemptRequest | None = None


class Stand:
    """One bundle's place on this machine."""

    def __init__(self, choice: Choice, settings: Settings, store: Path) -> None:
        self._choice = choice
        self._settings = settings
        self.store = store  # a folder that ends with the stand
        self.arena = choice.arena or settings.qualify.arena

    def admit(self, bundle: str, attempt_id: str, progress: Emit) -> Candidate:
        """Run `static` on `bundle` and prepare the request for an attempt against the incumbent.

        Raises `ConfigurationError`: BUNDLE_FOLDER_MISSING, VERIFY_CHOICE_INVALID, INCUMBENT_REFUSED.
        """
        with IntakeRunner(waive=self._settings.sandbox.waive) as runner:
            static, submission = Static(runner), Submission(bundle_path(bundle))
            receipts = run_screens((static,), submission, progress)
            if submission.screened is None:
                return Candidate(receipts)
            target_id = submission.screened.report.target_id
            if self._choice.target not in (None, target_id):
                raise ConfigurationError(
                    "VERIFY_CHOICE_INVALID", f"the bundle competes for {target_id}, not for {self._choice.target}"
                )
            incumbent = self._admit_incumbent(static, target_id)
        request = AttemptRequest(
            attempt_id=attempt_id,
            role="primary",
            target_id=target_id,
            arena=self.arena,
            candidate=self._publish(submission.screened),
            stack=() if incumbent is None else (Holding(target_id, incumbent),),
            reservation=Reservation(0, 0, "local"),
            waive=self._settings.sandbox.waive,
            arm_cores=self._settings.qualify.arm_cores,
        )
        return Candidate(receipts, submission.screened, request)

    def _admit_incumbent(self, static: Static, target_id: str) -> BundleRef | None:
        against = self._choice.against
        if against is None:
            return None
        submission = Submission(bundle_path(against))
        receipt = static.run(submission)
        if submission.screened is None:
            raise ConfigurationError(
                "INCUMBENT_REFUSED", f"{against} cannot be the incumbent: {receipt.message} [{receipt.code}]"
            )
        if submission.screened.report.target_id != target_id:
            other = submission.screened.report.target_id
            raise ConfigurationError("INCUMBENT_REFUSED", f"{against} competes for {other}, not for {target_id}")
        return self._publish(submission.screened)

    def _publish(self, bundle: ScreenedBundle) -> BundleRef:
        published = publish(bundle.stream, bundle.report, self.store)
        return BundleRef(published.content_hash, str(published.tree), str(published.report_path))


@contextlib.contextmanager
def open_stand(choice: Choice) -> Iterator[Stand]:
    """Open a stand. Raises `ConfigurationError` for settings or an arena that cannot be used."""
    settings = resolve(choice.config).settings
    load_arena(choice.arena or settings.qualify.arena)
    with ending_in_order(), tempfile.TemporaryDirectory(prefix="cacheon-stand-") as folder:
        yield Stand(choice, settings, Path(folder))


@contextlib.contextmanager
def ending_in_order() -> Iterator[None]:
    """Turn SIGTERM and SIGHUP into `KeyboardInterrupt`, so that whatever was opened is closed."""
    with contextlib.ExitStack() as stack:
        for number in (signal.SIGTERM, signal.SIGHUP):
            stack.callback(signal.signal, number, signal.signal(number, _interrupt))
        yield


@contextlib.contextmanager
def warming_arms() -> Iterator[Callable[[], Zygote]]:
    """Start a fork server of arms beside everything else; what is lent returns it once it is warm.

    That raises `HostError`.
    """
    with ThreadPoolExecutor(1) as thread:
        arms = thread.submit(start_arm_server)
        try:
            yield arms.result
        finally:
            if arms.exception() is None:
                arms.result().close()


def _interrupt(_number: int, _frame: object) -> None:
    raise KeyboardInterrupt
