"""Build the interpreters with other SDKs: `python -m tests.chain.sdk.install` (what `make sdk` runs).

Invariants
1. `.sdk/VERSION` holds exactly the packages of `pins/VERSION.txt`, and a copy of that file, written when it is whole.
2. A folder whose recorded pins are the current ones is left alone, so a second run does nothing.
3. `pins/9.12.2.txt` holds that SDK's sealing library only: the SDK itself cannot encode a netuid of today's runtimes.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).parents[3]
ENVIRONMENTS = ROOT / ".sdk"
PINS = Path(__file__).parent / "pins"
VERSIONS = tuple(sorted(path.stem for path in PINS.glob("*.txt")))
_LIMIT_SECONDS = 600


def interpreter(version: str) -> Path:
    """Return the path of the interpreter with that SDK."""
    return ENVIRONMENTS / version / "bin" / "python"


def is_current(version: str) -> bool:
    """Say whether the environment is there and was made from the current pins."""
    try:
        return (ENVIRONMENTS / version / "pins.txt").read_text() == (PINS / f"{version}.txt").read_text()
    except OSError:
        return False


def build(version: str) -> float:
    """Make the environment of one version anew and return the seconds it took; raises `CalledProcessError`."""
    start = time.monotonic()
    target, pins = ENVIRONMENTS / version, PINS / f"{version}.txt"
    shutil.rmtree(target, ignore_errors=True)
    _run([sys.executable, "-m", "venv", "--without-pip", str(target)])
    # The pins are complete, so nothing needs to be resolved.
    _run([
        sys.executable, "-m", "pip", "--python", str(interpreter(version)), "install", "-qq", "--no-deps",
        "--no-compile", "--only-binary", ":all:", "--disable-pip-version-check", "--requirement", str(pins),
    ])
    shutil.copyfile(pins, target / "pins.txt")
    return time.monotonic() - start


def _run(command: list[str]) -> None:
    subprocess.run(command, check=True, timeout=_LIMIT_SECONDS, stdin=subprocess.DEVNULL)


def main() -> int:
    """Build what is missing or outdated, side by side, and return the exit code."""
    missing = [version for version in VERSIONS if not is_current(version)]
    ENVIRONMENTS.mkdir(exist_ok=True)
    try:
        with ThreadPoolExecutor(len(VERSIONS)) as pool:
            for version, seconds in zip(missing, pool.map(build, missing), strict=True):
                sys.stderr.write(f"SDK {version}: installed in {seconds:.0f} s\n")
    except (subprocess.SubprocessError, OSError) as error:
        sys.stderr.write(f"an SDK could not be installed: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
