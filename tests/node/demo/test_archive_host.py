"""The demo's archive host."""

from __future__ import annotations

from pathlib import Path

import aiohttp
import pytest

from config.errors import HostError
from node.demo.archive_host import ArchiveHost
from node.demo.place import Place, make_plan

GOOD, BROKEN = "a" * 64, "b" * 64


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two archives and a file that is none."""
    for name in (GOOD, BROKEN):
        (tmp_path / f"{name}.tar.gz").write_bytes(name.encode())
    (tmp_path / "secret.tar.gz").write_bytes(b"secret")
    return tmp_path


@pytest.fixture
def port(tmp_path: Path) -> int:
    """A free port."""
    place = Place(tmp_path / "state")
    place.create()
    return make_plan(place).archive_port


async def get(host: ArchiveHost, port: int, name: str) -> tuple[int, bytes]:
    """Fetch once."""
    url = host.url(port, name)
    async with aiohttp.ClientSession() as session, session.get(url) as response:
        return response.status, await response.read()


async def test_archives_are_served_by_hash(folder: Path, port: int) -> None:
    """An archive is served under its hash; other files of the folder and unknown hashes are not there."""
    host = ArchiveHost(folder, {})
    async with host.serving(port):
        assert await get(host, port, GOOD) == (200, GOOD.encode())
        assert (await get(host, port, "secret"))[0] == 404
        assert (await get(host, port, "c" * 64))[0] == 404


async def test_a_broken_archive_fails_once_then_lies(folder: Path, port: int) -> None:
    """The first request gets 503, all later ones the decoy, across restarts of the host too."""
    async with ArchiveHost(folder, {BROKEN: GOOD}).serving(port):
        pass
    first = ArchiveHost(folder, {BROKEN: GOOD})
    async with first.serving(port):
        assert (await get(first, port, BROKEN))[0] == 503
        assert await get(first, port, BROKEN) == (200, GOOD.encode())
    second = ArchiveHost(folder, {BROKEN: GOOD})
    async with second.serving(port):
        assert await get(second, port, BROKEN) == (200, GOOD.encode())


async def test_a_taken_port_is_one_error(folder: Path, port: int) -> None:
    """Two hosts on one port: the second says PORT_IN_USE."""
    async with ArchiveHost(folder, {}).serving(port):
        with pytest.raises(HostError) as caught:
            async with ArchiveHost(folder, {}).serving(port):
                pass
        assert caught.value.code == "PORT_IN_USE"
