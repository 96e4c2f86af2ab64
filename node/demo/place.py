"""The demo's state folder: where things lie, which ports are used, and who may work here.

Invariants
1. One demo per folder at a time (an flock that the kernel drops with the last process of a run).
2. `demo.json` is replaced atomically; a half-written plan cannot exist.
3. The archive port is part of URLs on the chain: once anything is committed it is never changed. Ports are taken
   below the range from which the kernel picks ports for outgoing connections, so that a restart finds them free.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import shutil
import socket
import time
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import msgspec

from config.errors import HostError

PLAN_SCHEMA = "cacheon.demo-plan.v1"
LOCK_SECONDS = 5.0
_FIRST_PORT, _PORTS = 20_000, 10_000


class Plan(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a restarted demo has to know again."""

    schema: str
    chain_port: int
    archive_port: int


@dataclass(frozen=True)
class Place:
    """Absolute paths inside the demo's state folder."""

    root: Path

    @property
    def plan(self) -> Path:
        """The ports in use."""
        return self.root / "demo.json"

    @property
    def wallets(self) -> Path:
        """Wallets of the owner, the validator and the miners."""
        return self.root / "wallets"

    @property
    def archives(self) -> Path:
        """What the archive host serves."""
        return self.root / "archives"

    @property
    def genesis(self) -> Path:
        """Block 0 of the local chain."""
        return self.root / "genesis.json"

    @property
    def chain_state(self) -> Path:
        """The local chain across restarts."""
        return self.root / "chain.state"

    @property
    def node_state(self) -> Path:
        """The validator node's state folder."""
        return self.root / "node"

    @property
    def node_settings(self) -> Path:
        """The validator node's settings file."""
        return self.root / "node.toml"

    @property
    def logs(self) -> Path:
        """Logs of the child processes."""
        return self.root / "logs"

    @property
    def result(self) -> Path:
        """The result document of the last finished run."""
        return self.root / "result.json"

    def create(self) -> None:
        """Create the folders. Raises `HostError` (STATE_UNWRITABLE)."""
        try:
            self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
            for folder in (self.archives, self.logs):
                folder.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise self._unwritable(error) from error

    def lock(self) -> BinaryIO:
        """Take the folder for this process and return the open lock.

        Children inherit the lock, so it is free only once every process of an earlier run is gone; for that it waits a
        moment. Raises `HostError` (DEMO_RUNNING, STATE_UNWRITABLE).
        """
        try:
            handle = (self.root / "demo.lock").open("ab")
        except OSError as error:
            raise self._unwritable(error) from error
        deadline = time.monotonic() + LOCK_SECONDS
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return handle
            except OSError as error:
                if time.monotonic() > deadline:
                    handle.close()
                    raise HostError(
                        "DEMO_RUNNING",
                        f"another demo is working in {self.root}",
                        hint="wait for it, or give another --state",
                    ) from error
                time.sleep(0.05)

    def _unwritable(self, error: OSError) -> HostError:
        return HostError(
            "STATE_UNWRITABLE",
            f"the state folder {self.root} cannot be written: {error.strerror or error}",
            hint="name a folder of your own with --state",
        )


def remove(root: Path) -> bool:
    """Remove a state folder with the read-only bundles inside it; say whether it is gone."""
    for folder, _, _ in os.walk(root):  # top down, and links are not followed
        with contextlib.suppress(OSError):
            os.chmod(folder, 0o700)
    shutil.rmtree(root, ignore_errors=True)
    return not root.exists()


def make_plan(place: Place) -> Plan:
    """Return the plan of an earlier run with busy ports replaced, or a new one, and store it.

    Raises `HostError` (PORT_IN_USE) when another program took the archive port that committed URLs name.
    """
    old = _read_plan(place)
    if old is None:
        plan = Plan(PLAN_SCHEMA, _free_port(), _free_port())
    else:
        if not _is_free(old.archive_port) and place.chain_state.exists():
            raise HostError(
                "PORT_IN_USE",
                f"port {old.archive_port}, which this demo's submissions name, is taken",
                hint="stop the program that listens there, or start afresh with another --state",
            )
        archive = old.archive_port if _is_free(old.archive_port) else _free_port()
        plan = Plan(PLAN_SCHEMA, old.chain_port if _is_free(old.chain_port) else _free_port(), archive)
    write_atomically(place.plan, msgspec.json.encode(plan))
    return plan


def _read_plan(place: Place) -> Plan | None:
    try:
        return msgspec.json.decode(place.plan.read_bytes(), type=Plan)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError) as error:
        raise HostError(
            "DEMO_STATE_FOREIGN",
            f"{place.plan} is not a plan of this demo: {error}",
            hint="give an empty --state folder",
        ) from error


def write_atomically(path: Path, data: bytes) -> None:
    """Replace `path` with `data` in one step."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_bytes(data)
    temporary.replace(path)


def _free_port() -> int:
    while True:
        port = _FIRST_PORT + secrets.randbelow(_PORTS)
        if _is_free(port):
            return port


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        # connections of a killed run linger; what matters is whether somebody listens
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
