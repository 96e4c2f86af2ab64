"""explain, targets and config show."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import tomli

from config.settings import known_keys
from config.target_catalog import load_catalog

if TYPE_CHECKING:
    from tests.node.cli.conftest import RunCli


def test_help_shows_the_exit_codes(cli: RunCli) -> None:
    """The epilogue of the help lists every exit code."""
    ran = cli("--help")
    assert ran.code == 0
    words = " ".join(ran.out.split())
    assert "Exit codes: 0 done; 1 defect of ours; 2 command line or settings; 3 rejected" in words
    assert "130 interrupted" in words


def test_explain_prints_the_long_text(cli: RunCli) -> None:
    """A known code, in any case, gives summary, blame and what to do."""
    ran = cli("explain", "settings_unknown_key")
    assert ran.code == 0
    assert ran.out.startswith("SETTINGS_UNKNOWN_KEY\nA settings key does not exist.\nblame: operator")


def test_explain_suggests(cli: RunCli) -> None:
    """A misspelt code is answered with the nearest ones."""
    ran = cli("explain", "SETTINGS_UNKNOWN_KEYS")
    assert ran.code == 7
    assert "did you mean SETTINGS_UNKNOWN_KEY" in ran.err


def test_explain_lists_everything(cli: RunCli) -> None:
    """Without a code every documented code is listed."""
    rows = cli("explain", "--json").document["data"]
    codes = [row["code"] for row in rows]
    assert "UNEXPECTED" in codes
    assert codes == sorted(codes)


def test_targets_lists_the_catalog(cli: RunCli) -> None:
    """The listing has every target and the catalog's digest."""
    data = cli("targets", "--json").document["data"]
    assert [row["id"] for row in data["targets"]] == sorted(load_catalog().targets)
    assert data["catalog_digest"] == load_catalog().digest


def test_config_show_is_a_settings_file(cli: RunCli, tmp_path: Path) -> None:
    """What is printed can be used as a settings file and gives the same settings."""
    first = cli("config", "show", env={"CACHEON_PROFILE": "devnet"})
    tomli.loads(first.out)
    (tmp_path / "again.toml").write_text(first.out, "utf-8")
    assert cli("config", "show", "-c", "again.toml").out == first.out


def test_config_show_says_where_from(cli: RunCli, tmp_path: Path) -> None:
    """Every key is listed with the layer that set it."""
    (tmp_path / "node.toml").write_text('profile = "devnet"\n[chain]\nnetuid = 7\n', "utf-8")
    ran = cli("config", "show", "-c", "node.toml", "--json", env={"CACHEON_LOG__LEVEL": "debug"})
    rows = {row["key"]: row for row in ran.document["data"]}
    assert set(rows) == set(known_keys())
    assert rows["chain.netuid"] == {"key": "chain.netuid", "value": 7, "origin": "file"}
    assert rows["log.level"]["origin"] == "environment"
    assert rows["chain.poll_seconds"]["origin"] == "profile"
    assert rows["chain.wallet"]["origin"] == "default"


def test_unknown_settings_key(cli: RunCli, tmp_path: Path) -> None:
    """A misspelt key is refused with file, line and the nearest key."""
    (tmp_path / "node.toml").write_text('profile = "devnet"\n\n[chain]\nnetuidd = 7\n', "utf-8")
    ran = cli("config", "show", "-c", "node.toml")
    assert ran.code == 2
    assert ran.err.splitlines()[:3] == [
        "error[SETTINGS_UNKNOWN_KEY]: setting 'chain.netuidd' does not exist",
        "  --> node.toml:4",
        "  hint: did you mean 'chain.netuid'?",
    ]
