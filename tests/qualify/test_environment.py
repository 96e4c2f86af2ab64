"""The environment record, and the process state while measuring."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

from config.errors import HostError
from qualify import environment


def test_the_last_allowed_core_is_taken_by_default() -> None:
    """An operator may name another one, if the process may use it."""
    allowed = sorted(os.sched_getaffinity(0))
    assert environment.choose_core(()) == allowed[-1]
    assert environment.choose_core((allowed[0],)) == allowed[0]
    with pytest.raises(HostError) as caught:
        environment.choose_core((10_000,))
    assert caught.value.code == "ARM_CORE_UNAVAILABLE"
    assert "arm_cores" in caught.value.hint


def test_measuring_leaves_the_arms_core_alone_and_restores_everything() -> None:
    """Inside, the referee computes on one thread and off the arms' core; outside, all is as before."""
    allowed = os.sched_getaffinity(0)
    before = (torch.get_num_threads(), torch.is_grad_enabled(), os.sched_getscheduler(0))
    core = max(allowed)
    with environment.measuring(core):
        assert torch.get_num_threads() == 1
        assert not torch.is_grad_enabled()
        assert os.sched_getaffinity(0) == (allowed - {core} or allowed)
    assert os.sched_getaffinity(0) == allowed
    assert (torch.get_num_threads(), torch.is_grad_enabled(), os.sched_getscheduler(0)) == before


def test_a_process_shares_the_cores_it_may_run_on_and_their_hardware_threads() -> None:
    """Watching for an answer on the arm's own physical core would take time from the arm."""
    allowed = os.sched_getaffinity(0)
    core = max(allowed)
    assert environment.shares_core(core)
    with environment.measuring(core):
        path = Path(f"/sys/devices/system/cpu/cpu{core}/topology/thread_siblings_list")
        elsewhere = [
            other for other in allowed if str(other) not in path.read_text().strip().replace("-", ",").split(",")
        ]
        assert environment.shares_core(core) is (not elsewhere)
    assert not environment.shares_core(10_000)


def test_favour_never_fails() -> None:
    """Without the right to set priorities, or without the process, nothing happens."""
    environment.favour(2**22 - 1)


def test_the_machine_has_a_stable_opaque_id() -> None:
    """Two calls agree and the id tells nothing."""
    assert environment.machine_id() == environment.machine_id()
    assert len(environment.machine_id()) == 16


def test_the_record_is_complete() -> None:
    """Every field is filled and lists are sorted."""
    record = environment.describe(1, "0.00 0.00 0.00", ("b", "a"), ("z", "y"), "outside")
    assert record.cores == (1, 1)
    assert (record.layers_present, record.layers_waived) == (("a", "b"), ("y", "z"))
    assert all((record.cpu, record.kernel, record.python, record.torch, record.load_after, record.governor))
