"""Every layer carries weight: without it something gets through, nothing starts, or another layer is seen to hold."""

from __future__ import annotations

import ast
import os
from pathlib import Path
from typing import Any

import pytest
import sandbox_ablation
import sandbox_attacks
import sandbox_battery

from config.errors import InternalError
from qualify.sandbox.client import SandboxRefused, Zygote
from qualify.sandbox.layers import ABLATABLE, LAYERS
from qualify.sandbox.policy import SandboxPolicy

OPENS = {
    "landlock": {"list the root"},
    "seccomp": {"fork", "make a socket", "make shared memory", "make a memfd", "move to other cores", "keyctl"},
    "netns": {"see the host's sockets"},
    "utsns": {"learn the host's name"},
    "pidns": {"see the host's processes"},
    "mount": {"learn of the wallet"},
    "proc": {"see the host's load"},
    "caps": {"keep capabilities"},
    "rlimits": {"take descriptors without end"},
}
"""What gets through when only this layer is left out."""
OPENS_BEHIND = {
    "netns": {"connect to loopback", "connect to an abstract socket", "send to an abstract socket", "send a packet"},
    "ipcns": {"read the host's shared memory"},
    "mount": {"read the wallet", "read another bundle", "connect to a socket file"},
    "caps": {"mount", "chroot", "change the host name"},
}
"""What gets through when Landlock and seccomp are left out as well, and does not when only those two are."""
ALWAYS_CLOSED = {
    "connect to loopback",
    "connect to an abstract socket",
    "send to an abstract socket",
    "read the wallet",
    "read another bundle",
    "read /etc/shadow",
    "read the memory of pid 1",
    "write to the root",
    "write to /usr",
    "write to a package",
    "write a kernel setting",
    "kill the host's parent",
    "become root",
    "run a set-uid program",
}
"""What no single layer's absence opens."""


@pytest.fixture
def reachable(open_folder: Path) -> Any:
    """Targets that only the sandbox keeps out of reach: their folders are open to every user."""
    with sandbox_battery.targets(open_folder) as facts:
        yield {**facts, "signal": 0}


def _through(zygote: Zygote, facts: dict[str, Any], names: set[str], left_out: tuple[str, ...]) -> set[str]:
    """Run each attack in a child of its own; return those that got through."""
    policy = sandbox_battery.policy_for(facts, ablate=left_out)
    found = set()
    for name in names:
        results, outcome = sandbox_battery.attack(zygote, facts, [name], policy)
        said = results.get(name, "")
        if sandbox_ablation.through(sandbox_battery.of_bomb(said, outcome) if name in sandbox_attacks.BOMBS else said):
            found.add(name)
    return found


@pytest.mark.parametrize("layer", sorted(OPENS))
def test_each_layer_carries_weight(zygote: Zygote, reachable: dict[str, Any], layer: str) -> None:
    """Without one layer some attack gets through; with it, none does."""
    assert _through(zygote, reachable, OPENS[layer], ()) == set()
    assert _through(zygote, reachable, OPENS[layer], (layer,)) == OPENS[layer]


@pytest.mark.parametrize("layer", sorted(set(LAYERS) & ABLATABLE - {"cgroup", "no_new_privs"}))
def test_no_single_layer_is_the_last_one(zygote: Zygote, reachable: dict[str, Any], layer: str) -> None:
    """Network, wallet, bundles, foreign processes and privileges stay closed whichever layer fails."""
    if layer == "uid" and os.geteuid() != 0:
        pytest.skip("an ordinary user has no other uid to become")
    policy = sandbox_battery.policy_for(reachable, ablate=(layer,))
    results, outcome = sandbox_battery.attack(zygote, reachable, sorted(ALWAYS_CLOSED), policy)
    assert outcome.ok, outcome.describe()
    assert not any(name.partition(":")[0] == layer for name in outcome.layers)
    assert {name for name, said in results.items() if sandbox_ablation.through(said)} == set()


@pytest.mark.parametrize("layer", sorted(OPENS_BEHIND))
def test_layers_behind_the_filters_hold_by_themselves(zygote: Zygote, reachable: dict[str, Any], layer: str) -> None:
    """With Landlock and seccomp gone this layer alone still stops what it is there for."""
    front = sandbox_ablation.FRONT
    assert _through(zygote, reachable, OPENS_BEHIND[layer], front) == set()
    assert _through(zygote, reachable, OPENS_BEHIND[layer], (layer, *front)) == OPENS_BEHIND[layer]


@pytest.mark.skipif(os.geteuid() != 0, reason="an ordinary user has no other uid to become")
def test_root_is_given_up_in_case_the_mounts_fail(zygote: Zygote, reachable: dict[str, Any]) -> None:
    """Where mounts, Landlock and seccomp all fail, the node's uid still keeps root's own files closed."""
    policy = sandbox_battery.policy_for(reachable, ablate=("mount", *sandbox_ablation.FRONT))
    private = "read root's own wallet"
    assert sandbox_battery.attack(zygote, reachable, [private], policy)[0][private].startswith("blocked")
    policy = sandbox_battery.policy_for(reachable, ablate=("uid", "mount", *sandbox_ablation.FRONT))
    assert sandbox_battery.attack(zygote, reachable, [private], policy)[0][private].startswith("allowed")


def test_nothing_starts_without_no_new_privs(zygote: Zygote) -> None:
    """The kernel grants both filters only to a process that can gain no privileges."""
    with pytest.raises(SandboxRefused) as caught:
        zygote.spawn("sleep", SandboxPolicy(ablate=("no_new_privs",)))
    assert caught.value.outcome.layer == "landlock"


@pytest.mark.parametrize("layer", sorted(ABLATABLE - {"cgroup", "no_new_privs", "uid"}))
def test_a_layer_that_silently_does_nothing_is_found(zygote: Zygote, layer: str) -> None:
    """The verification from inside sees each gap by itself, and refuses with the layer's name."""
    with pytest.raises(SandboxRefused) as caught:
        zygote.spawn("sleep", SandboxPolicy(ablate=(layer,), ablate_silently=True))
    assert caught.value.outcome.layer == layer


@pytest.mark.skipif(os.geteuid() != 0, reason="an ordinary user has no other uid to become")
def test_a_uid_that_was_silently_kept_is_found(zygote: Zygote) -> None:
    """A child that is still root outside is refused."""
    with pytest.raises(SandboxRefused) as caught:
        zygote.spawn("sleep", SandboxPolicy(ablate=("uid",), ablate_silently=True))
    assert caught.value.outcome.layer == "uid"


def test_an_ordinary_fork_server_leaves_no_layer_out() -> None:
    """A fork server that was not started for such tests refuses the policy, whoever asks."""
    with Zygote.start() as ordinary, pytest.raises(SandboxRefused) as caught:
        ordinary.spawn("probe", SandboxPolicy(ablate=("netns",)))
    assert caught.value.outcome.layer == "netns"


@pytest.mark.parametrize("layer", ["userns", "mntns", "verify", "setup", "no such layer"])
def test_some_layers_cannot_even_be_left_out(layer: str) -> None:
    """No child could start without these."""
    with pytest.raises(InternalError) as caught:
        SandboxPolicy(ablate=(layer,))
    assert caught.value.code == "SANDBOX_BAD_POLICY"


def test_no_program_code_asks_for_ablation() -> None:
    """Only the sandbox itself knows the word: no setting, command or service can leave a layer out."""
    root = sandbox_battery.ROOT
    asking: list[str] = []
    for room in ("config", "chain", "intake", "qualify", "scoring", "node"):
        for path in (root / room).rglob("*.py"):
            if (root / "qualify" / "sandbox") in path.parents:
                continue
            words = [node.arg for node in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(node, ast.keyword)]
            asking += [f"{path}: {word}" for word in words if word in ("ablate", "ablate_silently", "ablation")]
    assert asking == []
