"""`config/settings.py`: layers, origins and errors."""

from __future__ import annotations

from pathlib import Path

import pytest

from config.errors import ConfigurationError, ExitCode
from config.settings import PROFILES, known_keys, load_settings


def write(folder: Path, text: str) -> Path:
    """Write a settings file and return its path."""
    path = folder / "node.toml"
    path.write_text(text)
    return path


def test_later_layers_win_and_are_remembered(tmp_path: Path) -> None:
    """Flags beat the environment, which beats the file, which beats the profile."""
    path = write(tmp_path, 'profile = "devnet"\n[chain]\nnetuid = 3\nwallet = "file"\nhotkey = "file"\n')
    resolved = load_settings(
        path,
        environ={"CACHEON_CHAIN__WALLET": "env", "CACHEON_CHAIN__HOTKEY": "env", "HOME": "/root"},
        overrides={"chain.hotkey": "flag"},
    )
    chain = resolved.settings.chain
    assert (chain.netuid, chain.wallet, chain.hotkey, chain.start_block) == (3, "env", "flag", 1)
    origins = {key: resolved.origins[f"chain.{key}"] for key in ("hotkey", "wallet", "netuid", "start_block")}
    assert origins == {"hotkey": "flag", "wallet": "environment", "netuid": "file", "start_block": "profile"}
    assert resolved.origins["chain.wallet_path"] == "default"


@pytest.mark.parametrize("profile", PROFILES)
def test_every_profile_loads(profile: str) -> None:
    """Each built-in profile names endpoints and loads without a file."""
    assert load_settings(None, overrides={"profile": profile}).settings.chain.endpoints


def test_an_unknown_key_names_the_nearest_and_the_line(tmp_path: Path) -> None:
    """A misspelt key is an error with the file, the line and a suggestion."""
    path = write(tmp_path, "[chain]\nwallet = 'a'\nnetiud = 2\n")
    with pytest.raises(ConfigurationError) as caught:
        load_settings(path)
    error = caught.value
    assert error.code == "SETTINGS_UNKNOWN_KEY"
    assert "chain.netuid" in error.hint
    assert error.location is not None
    assert (error.location.path, error.location.line) == (str(path), 3)
    assert error.exit_code is ExitCode.USAGE


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("[chain\n", "SETTINGS_MALFORMED"),
        ("profile = 'mainnet'\n", "SETTINGS_INVALID"),
        ("[chain]\nnetuid = '2'\n", "SETTINGS_INVALID"),
        ("[chain]\nnetuid = -1\n", "SETTINGS_INVALID"),
        ("[chain]\npoll_seconds = 0\n", "SETTINGS_INVALID"),
        ("[log]\nformat = 'xml'\n", "SETTINGS_INVALID"),
        ("[intake]\nabi_cutover_block = -1\n", "SETTINGS_INVALID"),
        ("[intake]\nabi_cutover_block = true\n", "SETTINGS_INVALID"),
        ("chain = 3\n", "SETTINGS_UNKNOWN_KEY"),
        ("[sandbox.waive]\nx = 1\n", "SETTINGS_INVALID"),
    ],
)
def test_bad_files_are_one_error(tmp_path: Path, text: str, code: str) -> None:
    """Every kind of bad file ends in one configuration error with a code."""
    with pytest.raises(ConfigurationError) as caught:
        load_settings(write(tmp_path, text))
    assert caught.value.code == code


def test_malformed_toml_names_its_line(tmp_path: Path) -> None:
    """A syntax error carries the line the parser stopped at."""
    with pytest.raises(ConfigurationError) as caught:
        load_settings(write(tmp_path, "profile = 'devnet'\n[chain\n"))
    assert caught.value.location is not None
    assert caught.value.location.line == 2


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    """A settings file that was named but cannot be read is never silently skipped."""
    with pytest.raises(ConfigurationError) as caught:
        load_settings(tmp_path / "absent.toml")
    assert caught.value.code == "SETTINGS_NOT_FOUND"


def test_environment_lists_and_types() -> None:
    """Lists are comma separated; unknown variables with our prefix are refused."""
    environ = {"CACHEON_QUALIFY__ARM_CORES": "1, 3", "CACHEON_CHAIN__POLL_SECONDS": "2"}
    settings = load_settings(None, environ=environ).settings
    assert settings.qualify.arm_cores == (1, 3)
    assert settings.chain.poll_seconds == 2.0
    with pytest.raises(ConfigurationError) as caught:
        load_settings(None, environ={"CACHEON_CHAIN_NETUID": "3"})
    assert caught.value.code == "SETTINGS_UNKNOWN_KEY"


def test_the_abi_cut_over_is_the_first_block_without_the_legacy_spelling() -> None:
    """Reveals before the configured block may use it, that block and later ones may not; unset, none may."""
    assert not load_settings(None).settings.intake.admits_legacy_abi(0)
    intake = load_settings(None, environ={"CACHEON_INTAKE__ABI_CUTOVER_BLOCK": "1000"}).settings.intake
    assert [intake.admits_legacy_abi(block) for block in (0, 999, 1000, 1001)] == [True, True, False, False]


def test_known_keys_cover_every_section() -> None:
    """The list of keys reaches into every section."""
    sections = {key.partition(".")[0] for key in known_keys()}
    assert sections == {
        "profile", "state_dir", "chain", "intake", "qualify", "sandbox", "publication", "http", "evaluation_cost", "log"
    }
