"""Running a script in the interpreter of another SDK."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.chain.sdk.install import interpreter, is_current

_SCRIPTS = Path(__file__).parent / "scripts"
# A first import compiles hundreds of modules; on a loaded machine that alone may take minutes.
LIMIT_SECONDS = 900


def needs(version: str) -> pytest.MarkDecorator:
    """Skip a test where the SDK is not installed; `make test` installs it first and fails if that fails."""
    reason = f"SDK {version} is not installed in .sdk/{version}; `make sdk` installs it"
    return pytest.mark.skipif(not is_current(version), reason=reason)


async def run(program: Path, arguments: list[str], home: Path) -> tuple[str, str]:
    """Return what a program printed on standard output and on standard error; its home and caches are in `home`.

    When it fails, so does the test, with all that was printed.
    """
    keep = ("PATH", "LANG", "LC_ALL")
    environment = {name: os.environ[name] for name in keep if name in os.environ}
    child = await asyncio.create_subprocess_exec(
        str(program),
        *arguments,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={
            **environment,
            "HOME": str(home),
            "COLUMNS": "250",
            "NO_COLOR": "1",
            "BITTENSOR_RUNTIME_CACHE_DIR": str(home / "runtime"),
        },
        cwd=home,
    )
    try:
        output, complaints = await asyncio.wait_for(child.communicate(), LIMIT_SECONDS)
    except BaseException:
        child.kill()
        await child.wait()
        raise
    assert child.returncode == 0, (output + complaints).decode()
    return output.decode(), complaints.decode()


async def run_script(version: str, script: str, arguments: list[str], home: Path) -> Any:
    """Return the document that a script prints in the interpreter with that SDK."""
    output, _ = await run(interpreter(version), [str(_SCRIPTS / f"{script}.py"), *arguments], home)
    return json.loads(output[output.index("{") if "{" in output else output.index("[") :])
