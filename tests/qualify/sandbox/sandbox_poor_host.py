"""Programs that run in their own process: hosts that lack something, and a client that is killed.

`python sandbox_poor_host.py MODE`, with PYTHONPATH set to the checkout; prints one JSON object.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

import sandbox_battery

from qualify.sandbox import syscalls
from qualify.sandbox.client import SandboxRefused
from qualify.sandbox.doctor_probe import probe_layers
from qualify.sandbox.policy import SandboxPolicy


def _become_container_root() -> None:
    """Become root of a new user namespace that has no other user, with an own mount table."""
    uid, gid = os.geteuid(), os.getegid()
    syscalls.unshare(syscalls.CLONE_NEWUSER | syscalls.CLONE_NEWNS)
    for name, text in (("setgroups", "deny"), ("gid_map", f"0 {gid} 1"), ("uid_map", f"0 {uid} 1")):
        with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
            file.write(text)
    syscalls.mount(None, "/", None, syscalls.MS_REC | syscalls.MS_PRIVATE)


def _without(what: str) -> None:
    _become_container_root()
    if what == "userns":
        with open("/proc/sys/user/max_user_namespaces", "w", encoding="ascii") as file:
            file.write("0")
    elif what == "proc":
        syscalls.mount("tmpfs", "/proc/sys", "tmpfs", 0, None)


def _spawn() -> dict[str, Any]:
    with sandbox_battery.start_zygote() as zygote:
        try:
            with zygote.spawn("misbehave", SandboxPolicy(), argument=b"print") as child:
                return {"outcome": child.wait().describe()}
        except SandboxRefused as refusal:
            return {"code": refusal.code, "layer": refusal.outcome.layer, "hint": refusal.hint}


def _probe() -> dict[str, Any]:
    return {finding.name: finding.state.value for finding in probe_layers()}


def _client_to_kill() -> None:
    zygote = sandbox_battery.start_zygote()
    children = [zygote.spawn("sleep", SandboxPolicy()) for _ in range(3)]
    children[1].freeze()
    print(json.dumps({"zygote": zygote.pid, "children": [child.host_pid for child in children]}), flush=True)
    time.sleep(600)


def _main(mode: str) -> None:
    match mode:
        case "client to kill":
            _client_to_kill()
            return
        case "container root":
            _become_container_root()
            result = {**_spawn(), "probe": _probe()}
        case _:
            _without(mode)
            result = {**_spawn(), "probe": _probe()}
    print(json.dumps(result))


if __name__ == "__main__":
    _main(sys.argv[1])
