"""The node against a model of the rules, over random histories with faults, losses, persons and deaths in between."""

from __future__ import annotations

import contextlib

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from node.jobs import JobState
from node.store.events import verify_chain
from node.store.job_rows import entries
from tests.node.settlement_driver import TARGETS, Driver, KilledError, One

NEVER = 10**9
ACTIONS = ("screen", "measure", "measure", "measure", "settle", "settle", "mend", "lose")


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[One], list[str], int]:
    """Return submissions, what the node does in which order, and the seed of everything else."""
    count = draw(st.integers(2, 8))
    ones = [
        One(
            number, draw(st.sampled_from(TARGETS)), draw(st.integers(-1, 9)),
            draw(st.sampled_from([NEVER, NEVER, NEVER, 20, 60])), draw(st.integers(0, 7)) == 0,
        )
        for number in range(count)
    ]
    return ones, draw(st.lists(st.sampled_from(ACTIONS), max_size=60)), draw(st.integers(0, 2**32))


@settings(deadline=None, max_examples=15, suppress_health_check=list(HealthCheck))
@given(histories())
def test_the_node_does_what_the_model_says(history: tuple[list[One], list[str], int]) -> None:
    """After every step the crowns are the model's; in the end everybody has a verdict, and the ledger holds."""
    live(*history)


def live(ones: list[One], actions: list[str], seed: int) -> None:
    """Play one history."""
    driver = Driver(ones, seed)
    for action in actions:
        with contextlib.suppress(KilledError):
            getattr(driver, action)()
        driver.check()
    driver.calm = True
    for _ in range(400):
        driver.screen()
        moved = driver.measure()
        moved = driver.settle() or moved
        driver.check()
        if not moved and not driver.look(lambda connection: entries(connection, JobState.RESERVED)):
            left = [job for job, _ in driver.look(entries) if job.state not in (JobState.SETTLED, JobState.FAILED)]
            if not left:
                break
            driver.mend()
    else:
        raise AssertionError(f"the node never comes to rest: {driver.look(entries)}")
    driver.look(verify_chain)
    driver.engine.dispose()
