"""What must hold before the node serves: exactly the required checks of `cacheon doctor`, and nothing else.

Invariants
1. There is no second list: the host is asked by the doctor's own checks, the chain by the doctor's own `reach`.
2. Nothing is changed by looking: no extrinsic, and nothing stays in the state folder.
3. The machine is checked before the chain, so that a broken installation is named even while the chain is away.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import structlog

from chain.client import ChainClient
from chain.signer import Signer
from config.errors import InternalError
from config.settings import Settings
from node.doctor.chain import ChainReady, reach
from node.doctor.check import CHAIN_SECONDS, Finding, State, Subject
from node.doctor.checks import HOST_CHECKS
from node.doctor.run import run_checks, timed_out
from qualify.intake_runner import IntakeRunner
from qualify.sandbox.layers import LAYERS

REQUIRED = tuple(check for check in HOST_CHECKS if check.required)


async def check_host(settings: Settings, screener: IntakeRunner) -> tuple[str, ...]:
    """Ask everything that is required of this machine, its settings, wallet and state folder.

    Returns the isolation layers that a confined process confirmed, in the order of the list. Warnings are logged.
    Raises the error of the first thing that is missing, of any family but the chain's.
    """
    report = await run_checks(REQUIRED, Subject(settings, screener=screener))
    _log_warnings(line.finding for line in report.lines)
    report.raise_first()
    names = (line.finding.name for line in report.lines if line.finding.state is State.PASS)
    return tuple(layer for name in names if (layer := name.removeprefix("isolation.")) in LAYERS and layer != name)


async def check_chain(settings: Settings, client: ChainClient, signer: Signer | None) -> ChainReady:
    """Connect and check metadata, subnet and, unless the node observes (no signer), registration.

    Raises `NetworkError` and `ChainError` of the client, `WalletError` (HOTKEY_NOT_REGISTERED) and `HostError`
    (CHECK_TIMEOUT).
    """
    try:
        hotkey = "" if signer is None else signer.ss58_address
        looking = reach(settings, client, hotkey, observes=signer is None)
        reached = await asyncio.wait_for(looking, CHAIN_SECONDS)
    except TimeoutError as error:
        raise timed_out("chain", CHAIN_SECONDS) from error
    _log_warnings(reached.findings)
    for finding in reached.findings:
        if finding.error is not None:
            raise finding.error
    if reached.ready is None:
        raise InternalError("CHECK_FAILED", "the chain was not looked at to the end, and nothing says why")
    return reached.ready


def _log_warnings(findings: Iterable[Finding]) -> None:
    log = structlog.get_logger()
    for finding in findings:
        if finding.state is State.WARN:
            log.warning("node.doubtful", check=finding.name, seen=finding.seen, fix=finding.fix)
