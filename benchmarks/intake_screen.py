"""How fast and how large intake is, measured on one core.

Run: `.venv/bin/python benchmarks/intake_screen.py`

Cases, with the numbers we hold ourselves to: a valid 200-file, 6 MB bundle screened at least 10 times per second within
64 MiB above the bare interpreter; 8 MiB of Python scanned in 1.5 s; hostile archives refused in 50 ms at the 99th
percentile; the content hash within 1.3 times `hashlib.sha256` over the same bytes.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from config.errors import IntakeError  # noqa: E402 - the path comes first
from intake.content_hash import hash_files, hash_tree  # noqa: E402
from intake.package import package_bytes  # noqa: E402
from intake.screen import screen_archive, screen_files  # noqa: E402

MANIFEST = b"""bundle_id = "bench"
abi_version = "cacheon-op-abi-v0"
[[ops]]
slot = "activation.silu_and_mul"
source = "kernels/kernel.py"
entry = "silu_and_mul"
"""
FUNCTION = '''

def helper_{index}(x, out, scale=1.0):
    """Scale the two halves of `x` and write their product; {index}."""
    half = x.shape[-1] // 2
    # The reference casts to the input type before it multiplies.
    gate = torch.nn.functional.silu(x[..., :half].float() * scale).to(x.dtype)
    for row in range(out.shape[0]):
        out[row].copy_(gate[row] * x[row, ..., half:] + {index})
    return out
'''


def python_source(size: int, entry: str = "") -> bytes:
    """Return ordinary kernel code of about `size` bytes."""
    parts = ["import torch\n", entry]
    length = index = 0
    while length < size:
        parts.append(FUNCTION.format(index=index))
        length += len(parts[-1])
        index += 1
    return "".join(parts).encode()


def valid_bundle() -> dict[str, bytes]:
    """Return 200 files and 6 MB: some code, much metadata and text."""
    dice = random.Random(7)
    helpers = 20
    entry = "def silu_and_mul(x, out):\n    return out\n"
    imports = "".join(f"import kernels.part{index}\n" for index in range(helpers))
    files = {"manifest.toml": MANIFEST, "kernels/kernel.py": python_source(4000, imports + entry)}
    for index in range(helpers):
        files[f"kernels/part{index}.py"] = python_source(8000)
    for index in range(178):
        rows = {f"key{row}": dice.randrange(10**9) for row in range(1450)}
        files[f"metadata/table{index}.json"] = json.dumps(rows).encode()
    return files


def timed(work: Callable[[], object], repeats: int) -> list[float]:
    """Return the seconds of each of `repeats` runs."""
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - start)
    return seconds


def refused(archive: bytes) -> None:
    """Screen an archive that has to be refused."""
    with contextlib.suppress(IntakeError):
        screen_archive(archive, "0" * 64)


def peak_mib(code: str) -> float:
    """Return the peak resident MiB of a fresh interpreter that runs `code`."""
    # ru_maxrss would count this process's pages from before the exec.
    report = f"{code}\nprint(next(line for line in open('/proc/self/status') if line.startswith('VmHWM')).split()[1])"
    done = subprocess.run([sys.executable, "-c", report], capture_output=True, text=True, check=True, cwd=ROOT)
    return int(done.stdout) / 1024


def main() -> None:
    """Print one line per case."""
    files = valid_bundle()
    size = sum(map(len, files.values()))
    archive, digest = package_bytes(files), hash_files(files)
    best = min(timed(lambda: screen_archive(archive, digest), 7))
    print(f"valid bundle: {len(files)} files, {size / 1e6:.1f} MB: {1 / best:.1f} per second ({best * 1e3:.0f} ms)")

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "bundle.tar.gz"
        path.write_bytes(archive)
        bare = peak_mib("pass")
        code = "from pathlib import Path\nfrom intake.screen import screen_archive\n"
        loaded = peak_mib(code)
        full = peak_mib(f"{code}screen_archive(Path({str(path)!r}).read_bytes(), {digest!r})")
        print(
            f"memory: bare {bare:.0f} MiB, screen imported {loaded:.0f}, after a bundle {full:.0f} (+{full - bare:.0f})"
        )
        tree = Path(folder) / "tree"
        for name, content in files.items():
            target = tree / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)
        ours = min(timed(lambda: hash_tree(tree), 7))
        joined = b"".join(files.values())
        plain = min(timed(lambda: hashlib.sha256(joined).hexdigest(), 7))
        everything = " ".join(f"'{tree / name}'" for name in files)
        shell = min(
            timed(
                lambda: subprocess.run(
                    f"cat {everything} | sha256sum", shell=True, check=True, stdout=subprocess.DEVNULL
                ),
                5,
            )
        )
        line = f"content hash of the tree: {ours * 1e3:.1f} ms; sha256 of the joined bytes: {plain * 1e3:.1f} ms"
        print(f"{line}; cat | sha256sum: {shell * 1e3:.1f} ms")

    source = python_source(400_000)
    many = {
        "manifest.toml": MANIFEST,
        "kernels/kernel.py": python_source(100, "def silu_and_mul(x, out):\n    return out\n"),
    }
    pieces = 20
    many.update({f"kernels/part{index}.py": source for index in range(pieces)})
    spent = timed(lambda: refused_files(many), 1)[0]
    total = sum(map(len, many.values())) / (1 << 20)
    print(f"python: {total:.1f} MiB parsed, scanned and refused as unreachable in {spent:.2f} s")

    vectors = json.loads((ROOT / "tests/golden/archive_vectors.json").read_text())
    hostile = [base64.b64decode(row["archive_b64"]) for row in vectors if row.get("archive_b64") and not row["accept"]]
    spans = sorted(span for item in hostile for span in timed(lambda item=item: refused(item), 3))
    middle, worst = spans[len(spans) // 2] * 1e3, spans[-1] * 1e3
    print(f"hostile archives: {len(hostile)}: median {middle:.2f} ms, worst {worst:.2f} ms")


def refused_files(files: dict[str, bytes]) -> None:
    """Screen a file table that has to be refused."""
    with contextlib.suppress(IntakeError):
        screen_files(files)


if __name__ == "__main__":
    main()
