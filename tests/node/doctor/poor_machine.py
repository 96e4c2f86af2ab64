"""Machines that lack something: `python poor_machine.py MODE ARGUMENT...` runs `cacheon ARGUMENT...` on one.

It becomes root of a user namespace of its own first, so that it may take things away from nobody but itself. The state
folder of the settings is `./disk/state`.
"""

from __future__ import annotations

import os
import sys

from node.cli.main import run
from qualify.sandbox import syscalls


def _own_namespaces() -> None:
    uid, gid = os.geteuid(), os.getegid()
    syscalls.unshare(syscalls.CLONE_NEWUSER | syscalls.CLONE_NEWNS)
    for name, text in (("setgroups", "deny"), ("gid_map", f"0 {gid} 1"), ("uid_map", f"0 {uid} 1")):
        with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
            file.write(text)
    syscalls.mount(None, "/", None, syscalls.MS_REC | syscalls.MS_PRIVATE)


def _make(mode: str) -> None:
    os.makedirs("disk", exist_ok=True)
    match mode:
        case "no userns":
            with open("/proc/sys/user/max_user_namespaces", "w", encoding="ascii") as file:
                file.write("0")
        case "full disk":
            syscalls.mount("tmpfs", os.path.abspath("disk"), "tmpfs", 0, "size=64k")
            os.mkdir("disk/state")
            with open("disk/full", "wb", buffering=0) as file:
                try:
                    while True:
                        file.write(bytes(4096))
                except OSError:
                    return
        case "read-only disk":
            syscalls.mount("tmpfs", os.path.abspath("disk"), "tmpfs", 0, "size=64m")
            os.mkdir("disk/state")
            syscalls.restrict_mount(os.path.abspath("disk"))


if __name__ == "__main__":
    _own_namespaces()
    _make(sys.argv[1])
    sys.exit(run(sys.argv[2:]))
