"""What `cacheon` loads before it knows what to do."""

from __future__ import annotations

import subprocess
import sys

import pytest

from config.errors import ExitCode

HEAVY = (
    "botocore",
    "torch",
    "triton",
    "cuda",
    "bittensor",
    "bittensor_core",
    "sqlalchemy",
    "alembic",
    "aiohttp",
    "numpy",
)
PROBE = """
import sys
from node.cli.main import run
code = run(sys.argv[1:])
print("LOADED", *sorted({name.partition(".")[0] for name in sys.modules}))
raise SystemExit(code)
"""


@pytest.mark.parametrize(
    "arguments",
    [
        ("--help",),
        ("--version",),
        ("node", "--help"),
        ("node", "run", "--help"),
        ("chain-submit", "--help"),
        ("chain-publish", "--help"),
        ("verify", "--help"),
        ("bench", "--help"),
        ("demo", "--help"),
        ("devnet", "--help"),
        ("explain", "USAGE"),
        ("targets",),
        ("slots",),
        ("init", "--help"),
        ("init", ".", "--target", "no.such.target"),
        ("config", "show"),
        ("no-such-command",),
    ],
)
def test_start_up_loads_nothing_heavy(arguments: tuple[str, ...]) -> None:
    """Help, look-ups and refusals load neither torch nor CUDA nor the chain SDK nor the store."""
    done = subprocess.run([sys.executable, "-c", PROBE, *arguments], capture_output=True, text=True, timeout=300)
    loaded = next(line for line in done.stdout.splitlines() if line.startswith("LOADED")).split()
    assert "typer" in loaded
    assert not set(HEAVY) & set(loaded)


EVERY_PAGE = """
import sys
from node.cli.app import command_tree
from node.cli.main import run
def paths(command, path):
    yield path
    for name, one in getattr(command, "commands", {}).items():
        yield from paths(one, [*path, name])
codes = [run([*path, "--help"]) for path in paths(command_tree(), [])]
print("LOADED", *sorted({name.partition(".")[0] for name in sys.modules}))
print("PAGES", len(codes), set(codes))
"""
NEEDLESS = ("rich", "pydantic", "pydantic_core", "markdown_it", "pygments", "tomli")


def test_no_page_of_help_loads_what_it_does_not_need() -> None:
    """Help of every command and group loads neither the validation nor the printing library."""
    done = subprocess.run([sys.executable, "-c", EVERY_PAGE], capture_output=True, text=True, timeout=300)
    lines = done.stdout.splitlines()
    loaded = next(line for line in lines if line.startswith("LOADED")).split()
    pages = next(line for line in lines if line.startswith("PAGES")).split()
    assert int(pages[1]) > 30
    assert pages[2] == "{0}"
    assert sorted({*HEAVY, *NEEDLESS} & set(loaded)) == []


STOPPED = """
import sys
class Stopping:
    def find_spec(self, name, path=None, target=None):
        if name == sys.argv[1]:
            raise KeyboardInterrupt
sys.meta_path.insert(0, Stopping())
from node.cli.main import run
raise SystemExit(run(["scan", "."]))
"""


@pytest.mark.parametrize("module", ["node.cli.process", "msgspec", "config.errors", "node.cli.boundary"])
def test_an_interrupt_while_the_command_is_being_loaded_prints_no_traceback(module: str) -> None:
    done = subprocess.run([sys.executable, "-c", STOPPED, module], capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout, done.stderr) == (ExitCode.INTERRUPTED, "", "")
