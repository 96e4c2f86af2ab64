"""What the demo shows at the end."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from config.errors import ConfigurationError
from node.cli.actions import demo
from node.demo.cast import CAST
from node.demo.prepare import example_folder
from node.demo.result import ChainWeight, DemoResult, PlayerResult


def outcome() -> DemoResult:
    """An outcome as it must be."""
    players = tuple(
        PlayerResult(
            miner=player.wallet,
            example=player.example,
            what=player.what,
            hotkey=f"5Hotkey{player.number}" + "x" * 40,
            content_hash="",
            state="",
            code=player.expected[0],
            blame="" if player.wins else "miner",
            detail="",
            lower_ppm=1_310_000 if player.wins else 0,
            upper_ppm=0 if player.wins else 1_020_000,
            weight_ppm=1_000_000 if player.wins else 0,
            expected=player.expected,
            as_expected=True,
        )
        for player in CAST
    )
    weights = (ChainWeight(2, players[0].hotkey, 65535, 1_000_000),)
    return DemoResult("/s", 70, players, "activation.silu_and_mul", players[0].hotkey, 321, weights, 1, ())


def test_the_outcome_fits_and_says_it_all() -> None:
    """Every miner has one row with verdict, blame, bound and weight, within 100 columns."""
    stream = io.StringIO()
    demo.show(Console(file=stream, width=100), outcome())
    lines = stream.getvalue().splitlines()
    assert max(len(line.rstrip()) for line in lines) <= 100
    text = "\n".join(lines)
    for player in CAST:
        assert any(player.wallet in line and player.expected[0][:12] in line for line in lines)
    assert "at least 1.31x" in text
    assert "at most 1.02x" in text
    assert "100 %" in text
    assert "read back from the chain at block 321" in text


@pytest.mark.parametrize("width", [40, 60, 80])
def test_codes_stay_whole_on_narrow_terminals(width: int) -> None:
    """However narrow the terminal, a verdict can be searched for, and no line is wider than it."""
    stream = io.StringIO()
    demo.show(Console(file=stream, width=width), outcome())
    lines = [line.rstrip() for line in stream.getvalue().splitlines()]
    assert max(map(len, lines)) <= width
    for player in CAST:
        assert any(player.wallet in line and player.expected[0] in line for line in lines)


def test_an_interrupted_demo_says_how_to_go_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """After Ctrl-C the command that resumes is printed, ready for a shell even when the folder's name has spaces."""

    def stop(root: Path, *, as_json: bool) -> DemoResult:
        raise KeyboardInterrupt

    monkeypatch.setattr(demo, "_run", stop)
    folder = tmp_path / "my state"
    with pytest.raises(KeyboardInterrupt):
        demo.run(str(folder), keep=False, as_json=False)
    assert f"`cacheon demo --state '{folder}'`" in capsys.readouterr().err


def test_a_dumb_terminal_gets_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the cursor cannot be moved, progress comes as lines instead of a table that never shows."""
    used: list[object] = []

    async def look(root: Path, reporter: object) -> DemoResult:
        used.append(reporter)
        return outcome()

    monkeypatch.setattr(demo, "run_demo", look)
    monkeypatch.setattr(demo, "talk_console", lambda: Console(force_terminal=True, _environ={"TERM": "dumb"}))
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    demo._run(Path("unused"), as_json=False)
    assert isinstance(used[0], demo.PlainReporter)


def test_an_empty_state_is_refused() -> None:
    """`--state ""`, as an unset shell variable gives it, is not taken for a folder."""
    with pytest.raises(ConfigurationError) as caught:
        demo.run("", keep=False, as_json=True)
    assert caught.value.code == "STATE_NOT_GIVEN"


def test_every_example_exists() -> None:
    """The cast submits bundles that are there, and exactly one player wins."""
    for player in CAST:
        assert (example_folder(player.example) / "manifest.toml").is_file()
    assert sum(player.wins for player in CAST) == 1
