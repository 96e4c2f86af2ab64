"""Whole attempts in the `cpu-small` arena: how long they take, what they conclude, and whether equal code ever passes.

Run: `python benchmarks/attempt_cpu.py [--equal N] [--repeat N]`. Every attempt is a process of its own,
as the node starts it, with real sandboxed arms. `equal` rows measure the stock form against itself dressed up as a
bundle: none may pass. Writes `benchmarks/results/attempt_cpu.json`. Goals: an attempt of at most 12 s on two cores,
no PASS among the equal rows, PASS for the faster examples, NOT_FASTER for the slower one. `outside_arms_share` is what
the referee does while no arm runs or starts: drawing inputs, emptying caches, references and checks together. What
checking alone takes, and its goal, are measured by `referee_cost.py`.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import statistics
import subprocess
import sys
import tempfile
import uuid
from pathlib import Path
from typing import Any

import msgspec

from config.arena import load_arena
from intake.content_hash import read_tree
from intake.file_stream import encode_stream
from intake.publish import publish
from intake.screen import screen_files
from qualify.request import AttemptRequest, BundleRef, encode_request
from scoring.attempt import Attempt, Launch, Reservation, RoleBlock, read_attempt
from scoring.grade import Verdict, grade

ROOT = Path(__file__).parent.parent
RESULT = Path(__file__).parent / "results" / "attempt_cpu.json"
ARENA = "cpu-small"
EXAMPLES = {
    "silu_fast": "activation.silu_and_mul",
    "silu_slow": "activation.silu_and_mul",
    "silu_wrong": "activation.silu_and_mul",
    "silu_late": "activation.silu_and_mul",
    "rmsnorm_fast": "norm.rmsnorm",
}
MANIFEST = """bundle_id = "equal"
abi_version = "cacheon-op-abi-v0"

[competition]
target = "{target}"
mode = "slot"

[[ops]]
slot = "{target}"
source = "kernels/k.py"
entry = "entry"
"""
EQUAL = {
    "activation.silu_and_mul": """import torch


def entry(x, out):
    width = x.shape[-1] // 2
    gate = torch.nn.functional.silu(x[..., :width].float()).to(x.dtype)
    torch.mul(gate, x[..., width:], out=out)
""",
    "norm.rmsnorm": """import torch


def entry(x, weight, out, eps):
    wide = x.float()
    variance = wide.pow(2).mean(-1, keepdim=True)
    torch.mul((wide * torch.rsqrt(variance + eps)).to(x.dtype), weight, out=out)
""",
}


def publish_files(files: dict[str, bytes], store: Path) -> BundleRef:
    """Take a file table through the real intake and return the published bundle."""
    screened = screen_files(files)
    published = publish(b"".join(encode_stream(screened.files)), screened.report, store)
    return BundleRef(published.content_hash, str(published.tree), str(published.report_path))


def measure(candidate: BundleRef, target: str, scratch: Path) -> tuple[Attempt, Verdict]:
    """Run one attempt process; return its evidence and its verdict."""
    request = AttemptRequest(
        attempt_id=uuid.uuid4().hex,
        role="primary",
        target_id=target,
        arena=ARENA,
        candidate=candidate,
        reservation=Reservation(1, 0, "5Benchmark"),
    )
    attempt = measure_attempt(request, scratch)
    return attempt, grade(attempt, load_arena(ARENA))


def measure_attempt(request: AttemptRequest, scratch: Path) -> Attempt:
    """Run one attempt process and return its evidence."""
    folder = scratch / request.attempt_id
    folder.mkdir()
    (folder / "request.json").write_bytes(encode_request(request))
    command = [sys.executable, "-m", "qualify.attempt_main", "--request", str(folder / "request.json")]
    done = subprocess.run([*command, "--out", str(folder)], cwd=ROOT, check=True, capture_output=True)
    path = json.loads(done.stdout.splitlines()[-1])["path"]
    return read_attempt(gzip.decompress(Path(path).read_bytes()))


def summarise(name: str, attempt: Attempt, verdict: Verdict) -> dict[str, Any]:
    """Return one row of the result."""
    wall_ns = sum(launch.end_ns - launch.start_ns for launch in attempt.launches)
    arms_ns = sum(arm_time(launch) for launch in attempt.launches)
    return {
        "name": name,
        "code": verdict.code,
        "lower_ppm": verdict.lower_ppm,
        "upper_ppm": verdict.upper_ppm,
        "launches": len(attempt.launches),
        "seconds": round((attempt.ended_unix_ns - attempt.started_unix_ns) / 1e9, 2),
        "launch_ms": round(wall_ns / max(1, len(attempt.launches)) / 1e6),
        "outside_arms_share": round(1 - arms_ns / wall_ns, 3) if wall_ns else None,
        "load_before": attempt.environment.load_before,
    }


def arm_time(launch: Launch) -> int:
    """Return the ns of a launch in which arms were started or ran (warm-up calls other than the first left out)."""
    roles = (launch.baseline, launch.candidate)
    blocks: list[RoleBlock] = [role for block in launch.blocks for role in (block.baseline, block.candidate)]
    return sum(arm.ready_ns - arm.start_ns + arm.first_call_ns for arm in roles) + sum(
        sum(block.call_ns) for block in blocks
    )


def main() -> int:
    """Measure, print and write the table; return 1 when equal code passed or an example came out otherwise."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--equal", type=int, default=12, help="attempts of equal code per target")
    parser.add_argument("--repeat", type=int, default=3, help="attempts per example")
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        jobs = [
            (example, target, publish_files(read_tree(ROOT / "examples" / example), scratch / "store"))
            for example, target in EXAMPLES.items()
            for _ in range(options.repeat)
        ]
        for target, source in EQUAL.items():
            files = {"manifest.toml": MANIFEST.format(target=target).encode(), "kernels/k.py": source.encode()}
            jobs += [(f"equal {target}", target, publish_files(files, scratch / "store"))] * options.equal
        for job, target, reference in jobs:
            attempt, verdict = measure(reference, target, scratch)
            rows.append(summarise(job, attempt, verdict))
            environment = msgspec.to_builtins(attempt.environment)
            print(json.dumps(rows[-1]), flush=True)
    failures = [row for row in rows if row["code"] == "PASS" and not row["name"].endswith("_fast")]
    failures += [row for row in rows if row["code"] != "PASS" and row["name"].endswith("_fast")]
    result = {
        "what": f"attempts of arena {ARENA}; seconds are from the seed to the evidence, without waiting for the core",
        "arena_digest": load_arena(ARENA).digest,
        "cores": os.cpu_count(),
        "environment": environment,
        "median_seconds": {
            job: statistics.median(row["seconds"] for row in rows if row["name"] == job)
            for job in dict.fromkeys(row["name"] for row in rows)
        },
        "equal_attempts": sum(row["name"].startswith("equal") for row in rows),
        "equal_passed": sum(row["name"].startswith("equal") and row["code"] == "PASS" for row in rows),
        "rows": rows,
    }
    RESULT.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
