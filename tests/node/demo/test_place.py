"""The demo's state folder."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from config.errors import HostError
from node.demo.place import Place, make_plan, remove


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """An empty state folder."""
    made = Place(tmp_path / "state")
    made.create()
    return made


def listen(port: int) -> socket.socket:
    """Occupy a port."""
    taken = socket.socket()
    taken.bind(("127.0.0.1", port))
    taken.listen()
    return taken


def test_a_plan_is_kept(place: Place) -> None:
    """A second start uses the ports of the first."""
    assert make_plan(place) == make_plan(place)


def test_ports_stay_out_of_the_way_of_outgoing_connections(place: Place) -> None:
    """Ports lie below the range from which the kernel picks local ports, so that a restart finds them free."""
    plan = make_plan(place)
    first_ephemeral = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text("ascii").split()[0])
    assert 1024 < plan.chain_port < first_ephemeral
    assert 1024 < plan.archive_port < first_ephemeral


def test_a_busy_chain_port_is_replaced(place: Place) -> None:
    """Another program on the chain's port costs nothing but another port."""
    plan = make_plan(place)
    with listen(plan.chain_port):
        again = make_plan(place)
    assert again.chain_port != plan.chain_port
    assert again.archive_port == plan.archive_port


def test_a_committed_archive_port_is_never_replaced(place: Place) -> None:
    """Once the chain exists, URLs name the archive port: another program on it is an error, before that it is not."""
    plan = make_plan(place)
    with listen(plan.archive_port):
        moved = make_plan(place)
    assert moved.archive_port != plan.archive_port
    place.chain_state.touch()
    with listen(moved.archive_port), pytest.raises(HostError) as caught:
        make_plan(place)
    assert caught.value.code == "PORT_IN_USE"


def test_one_demo_per_folder(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second demo on the same folder is refused while the first works there, and admitted afterwards."""
    monkeypatch.setattr("node.demo.place.LOCK_SECONDS", 0.0)
    with place.lock():
        with pytest.raises(HostError) as caught:
            place.lock()
        assert caught.value.code == "DEMO_RUNNING"
    place.lock().close()


def test_a_foreign_folder_is_refused(place: Place) -> None:
    """A demo.json that is something else is not overwritten."""
    place.plan.write_text('{"schema": 3}', "utf-8")
    with pytest.raises(HostError) as caught:
        make_plan(place)
    assert caught.value.code == "DEMO_STATE_FOREIGN"


def test_an_unwritable_folder_is_one_error(tmp_path: Path) -> None:
    """A state folder below a file cannot exist, and says so."""
    (tmp_path / "file").touch()
    with pytest.raises(HostError) as caught:
        Place(tmp_path / "file" / "state").create()
    assert caught.value.code == "STATE_UNWRITABLE"


def test_read_only_bundles_are_removed(place: Place) -> None:
    """A finished demo leaves nothing behind, although the node keeps its bundles read-only."""
    tree = place.node_state / "bundles" / "tree"
    tree.mkdir(parents=True)
    (tree / "a.py").write_bytes(b"")
    tree.chmod(0o500)
    tree.parent.chmod(0o500)
    assert remove(place.root)
    assert not place.root.exists()


def test_a_lock_that_cannot_be_made_is_no_defect(place: Place) -> None:
    """A folder that this user cannot write, or where the lock is something else, is refused as such."""
    (place.root / "demo.lock").mkdir()
    with pytest.raises(HostError) as caught:
        place.lock()
    assert caught.value.code == "STATE_UNWRITABLE"
