"""Settings lines: what the operator decided is shown, and what cannot be decided is refused."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

import pytest

from config.errors import ConfigurationError
from config.settings import QualifySettings, SandboxSettings, Settings
from node.doctor.check import State, Subject
from node.doctor.configuration import look_arena, look_settings, look_waivers, require_waivers
from qualify.sandbox.layers import LAYERS

WELL = Settings(profile="devnet", state_dir="/srv/node")


def test_well_chosen_settings() -> None:
    """Profile, folder and arena are shown."""
    (settings,), (arena,) = look_settings(Subject(WELL)), look_arena(Subject(WELL))
    assert (settings.state, arena.state) == (State.PASS, State.PASS)
    assert "devnet" in settings.seen
    assert arena.seen.startswith("cpu-small")


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('"norm.rmsnorm"', '"norm.other"', "norm.other"),
        ('dtype = "bfloat16"\nshapes = [{ num_tokens = 512, d', 'members = ["norm.rmsnorm"] # d', "other members"),
    ],
)
def test_an_arena_measures_registered_targets_whole(tmp_path: Path, old: str, new: str, words: str) -> None:
    """An unknown target and one with other members than its own are refused before anything is measured."""
    text = (resources.files("config") / "arenas" / "cpu-small.toml").read_text("utf-8")
    assert old in text
    path = tmp_path / "arena.toml"
    path.write_text(text.replace(old, new, 1))
    settings = Settings(profile="devnet", state_dir="/srv/node", qualify=QualifySettings(arena=str(path)))
    with pytest.raises(ConfigurationError, match=words) as caught:
        look_arena(Subject(settings))
    assert caught.value.code == "ARENA_TARGET_UNKNOWN"


def test_no_settings_and_broken_ones() -> None:
    """Without settings the machine alone is looked at; settings that cannot be read are a failure with their code."""
    (finding,) = look_settings(Subject())
    assert finding.state is State.SKIP
    error = ConfigurationError("SETTINGS_NOT_FOUND", "no file", hint="give one")
    (finding,) = look_settings(Subject(settings_error=error))
    assert (finding.state, finding.error, finding.fix) == (State.FAIL, error, "give one")


def test_every_wrong_waiver_is_named_at_once() -> None:
    """All names that cannot be waived are told together, a misspelt one with the name that was meant."""
    settings = Settings(sandbox=SandboxSettings(waive=("landlok", "userns", "seccomp", "nothing like it")))
    with pytest.raises(ConfigurationError) as caught:
        require_waivers(settings)
    assert caught.value.message == (
        "sandbox.waive: 'landlok' is no isolation layer (did you mean 'landlock'?); 'userns' is required and cannot be "
        "waived; 'nothing like it' is no isolation layer"
    )


@pytest.mark.parametrize("name", sorted(LAYERS))
def test_waivers(name: str) -> None:
    """A layer that can be waived warns when it is; a required one is an error that lists what can."""
    settings = Settings(sandbox=SandboxSettings(waive=(name,)))
    if LAYERS[name].waivable:
        (finding,) = look_waivers(Subject(settings))
        assert (finding.state, name in finding.seen) == (State.WARN, True)
        return
    with pytest.raises(ConfigurationError) as caught:
        require_waivers(settings)
    assert caught.value.code == "WAIVER_INVALID"
    assert "landlock" in caught.value.hint
