"""The closed list of isolation layers, and the one exception that says a layer is not there.

Invariants
1. Every layer has a name, a sentence and a fix; a refusal always names exactly one of them.
2. Only layers marked waivable can be given up, and only by naming them in the policy.
3. `cgroup` is used where it is delegated and otherwise reported as absent. Its absence refuses only the GPU profile,
   whose memory nothing else bounds. `devices` and `bubblewrap` belong to the profiles that use them.
4. `ABLATABLE` is for tests: layers without which a child can still be started, to see what they hold.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Layer:
    """One isolation layer: what it does, and what an operator does when it is missing."""

    name: str
    purpose: str
    fix: str
    waivable: bool = False


_USER_NAMESPACES = (
    "Allow unprivileged user namespaces: set user.max_user_namespaces above 0, kernel.unprivileged_userns_clone=1 on"
    " Debian kernels and kernel.apparmor_restrict_unprivileged_userns=0 on Ubuntu; in a container, allow unshare."
)
_NAMESPACES = "Use a kernel built with this namespace and a container profile that allows unshare and mount."
_INTERNAL = "Read the detail: this is a fault of the sandbox itself or of its host, not of the bundle."

LAYERS: dict[str, Layer] = {
    layer.name: layer
    for layer in (
        Layer("architecture", "system-call numbers and filters are known", "Run on x86_64 Linux."),
        Layer("uid", "a root node gives up root before anything else", "Map a range of user ids into the container."),
        Layer("rlimits", "memory, CPU, files and tasks are bounded", "Raise the hard limits of the service unit."),
        Layer("cores", "the child stays on the cores it was given", "Name cores that this machine has."),
        Layer("userns", "a private user namespace without privileges outside", _USER_NAMESPACES),
        Layer("mntns", "a private mount table", _NAMESPACES),
        Layer("netns", "a private network without interfaces", _NAMESPACES),
        Layer("ipcns", "private System V and POSIX queues", _NAMESPACES),
        Layer("utsns", "a private host name", _NAMESPACES),
        Layer("cgroupns", "a private view of control groups", _NAMESPACES),
        Layer("pidns", "no other process can be named, and all die together", _NAMESPACES),
        Layer("mount", "a minimal read-only root", "Allow mount, pivot_root and mount_setattr (kernel 5.12 or newer)."),
        Layer(
            "proc",
            "a /proc that shows the processes of the sandbox and nothing of the host",
            "Run outside a container that masks /proc, or start it with an unmasked /proc"
            " (docker: --security-opt systempaths=unconfined).",
        ),
        Layer("caps", "no capabilities", _INTERNAL),
        Layer("no_new_privs", "no program can gain privileges", _INTERNAL),
        Layer(
            "landlock",
            "file, TCP, abstract-socket and signal rules that survive a mistake in the mounts",
            "Use kernel 6.7 or newer with landlock in the lsm= list.",
            waivable=True,
        ),
        Layer("seccomp", "an allow-list of system calls", "Use a kernel with CONFIG_SECCOMP_FILTER.", waivable=True),
        Layer(
            "cgroup",
            "kernel-accounted memory and task limits and a one-write kill",
            "Delegate a cgroup v2 subtree with the memory and pids controllers (systemd: Delegate=yes).",
            waivable=True,
        ),
        Layer(
            "devices",
            "the nodes of the graphics devices it was given, and no other",
            "Load the driver so that /dev/nvidia0, nvidiactl, nvidia-uvm and nvidia-uvm-tools exist and the node may"
            " open them (run `nvidia-smi` and `nvidia-modprobe -u` once as root).",
        ),
        Layer(
            "bubblewrap",
            "namespaces, a private root and no privileges around a step that runs compilers",
            "Install bubblewrap (Debian, Ubuntu: apt install bubblewrap) so that /usr/bin/bwrap exists.",
        ),
        Layer("setup", "the child reached its starting point", _INTERNAL),
        Layer("verify", "the kernel confirms every layer before the first foreign byte", _INTERNAL),
    )
}

ABLATABLE = frozenset(
    (
        *("uid", "rlimits", "netns", "ipcns", "utsns", "cgroupns", "pidns", "mount", "proc", "caps", "no_new_privs"),
        *("landlock", "seccomp", "cgroup"),
    )
)


class LayerMissing(Exception):  # noqa: N818 - a finding about the host, turned into HostError at the room's edge
    """A layer could not be put in place; `layer` is a key of `LAYERS`."""

    def __init__(self, layer: str, reason: str) -> None:
        super().__init__(f"{layer}: {reason}")
        self.layer = layer
        self.reason = reason


@contextmanager
def layer(name: str) -> Iterator[None]:
    """Turn any `OSError` or `ValueError` inside the block into `LayerMissing(name)`."""
    try:
        yield
    except (OSError, ValueError) as error:
        raise LayerMissing(name, f"{type(error).__name__}: {error}") from error
