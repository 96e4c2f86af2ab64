"""The attack battery with every layer left out in turn, as root and as an ordinary user, and the table of the docs.

Run: `python benchmarks/sandbox_ablation.py`, as root for both halves. Writes `benchmarks/results/sandbox_ablation.json`
and the generated part of `docs/threat-model.md`, unless an earlier host offered more. Exits with 1 when an attack gets
through with all layers in place.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ROOT = HERE.parent
TESTS = ROOT / "tests" / "qualify" / "sandbox"
sys.path.append(str(TESTS))

import sandbox_battery  # noqa: E402 - helpers of the tests are plain modules

RESULT = HERE / "results" / "sandbox_ablation.json"
DOCUMENT = ROOT / "docs" / "threat-model.md"
BEGIN, END = "<!-- ablation table begins -->", "<!-- ablation table ends -->"
ORDINARY_UID = 4242
FRONT = "landlock+seccomp"
WHY_KEPT = {
    "uid": "With the mounts in place root owns nothing inside. It is the last wall behind them: without both, root's"
    " own wallet is read.",
    "no_new_privs": "Without it the kernel refuses to install Landlock and seccomp, so nothing starts. Without those"
    " too, set-uid programs stay harmless: binds carry no set-uid bit and the user namespace knows no root.",
    "seccomp": "The descriptors that it could use then are those that earlier attacks of the same child had opened.",
    "ipcns": "seccomp forbids System V calls; this is the wall behind it.",
    "caps": "seccomp kills on every call that a capability would serve; this is the wall behind it.",
    "cgroup": "Only where a subtree is delegated; it also counts tasks exactly, so that no burst goes unnamed.",
}

Matrix = dict[str, dict[str, str]]


def run(as_user: int) -> dict[str, Any]:
    """Run the matrix in its own process, as this user or as an ordinary one."""
    with tempfile.TemporaryDirectory() as name:
        os.chmod(name, 0o755)
        command = [sys.executable, str(TESTS / "sandbox_ablation.py"), "--folder", name]
        command += ["--as-user", str(as_user)] if as_user >= 0 else []
        environment = {"PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(done.stderr)
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def passing(results: dict[str, str]) -> set[str]:
    """Return the attacks that got through."""
    return {name for name, said in results.items() if said.startswith("allowed")}


def summarise(matrix: Matrix) -> dict[str, dict[str, list[str]]]:
    """Return {layer: {"alone": attacks, "behind": attacks}}; what is open anyway is left out."""
    behind = passing(matrix[FRONT])
    summary = {}
    for layer in (name for name in matrix if name != "none" and "+" not in name):
        alone = passing(matrix[layer]) - passing(matrix["none"])
        joined = matrix.get(f"{layer}+{FRONT}")
        more = passing(joined) - behind if joined is not None else set()
        summary[layer] = {"alone": sorted(alone), "behind": sorted(more - alone)}
    return summary


def table(halves: dict[str, dict[str, Any]]) -> str:
    """Return the Markdown table: the union of both halves, marked where only one of them saw it."""
    summaries = {half: summarise(answer["results"]) for half, answer in halves.items()}
    layers = list(dict.fromkeys(layer for summary in summaries.values() for layer in summary))
    lines = ["| layer left out | gets through | gets through as well without Landlock and seccomp |", "|---|---|---|"]
    for layer in layers:
        found = {half: summary.get(layer, {}) for half, summary in summaries.items()}
        cells = [_cell(found, column) for column in _COLUMNS]
        refused = next((answer["results"][layer].get("(does not start)") for answer in halves.values()), None)
        if refused:
            cells[0] = f"nothing: no child starts ({refused.partition(':')[0]} is refused)"
        lines.append(f"| `{layer}` | {cells[0]} | {cells[1]} |")
    lines += ["", *(f"- `{layer}`: {why}" for layer, why in WHY_KEPT.items() if why and layer in layers)]
    return "\n".join(lines)


_COLUMNS = ("alone", "behind")


def _cell(found: dict[str, dict[str, list[str]]], column: str) -> str:
    lists = {half: set(summary.get(column, ())) for half, summary in found.items() if summary}
    names = sorted(set().union(*lists.values()))
    marked = []
    for name in names:
        seen = [half for half, attacks in lists.items() if name in attacks]
        marked.append(name if len(seen) == len(lists) else f"{name} ({', '.join(seen)} only)")
    return "; ".join(marked) or "nothing"


def document(text: str) -> None:
    """Replace the generated part of the threat model."""
    page = DOCUMENT.read_text("utf-8")
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    DOCUMENT.write_text(f"{before}{BEGIN}\n{text}\n{END}{after}", "utf-8")


def _poorer_than_last(halves: dict[str, dict[str, Any]]) -> bool:
    """Say whether the last result knows the cgroup layer and this host does not."""
    last = json.loads(RESULT.read_text("utf-8"))["halves"] if RESULT.exists() else {}
    return any(half["cgroup"] for half in last.values()) and not any(half["cgroup"] for half in halves.values())


def main() -> int:
    """Run both halves, write the result, print the table."""
    halves = {"root": run(-1), "user": run(ORDINARY_UID)} if os.geteuid() == 0 else {"user": run(-1)}
    result = {
        "what": "every attack of the battery with each layer left out; 'allowed' means that it got through",
        "kernel": os.uname().release,
        "python": sys.version.split()[0],
        "summary": {half: summarise(answer["results"]) for half, answer in halves.items()},
        "halves": halves,
    }
    text = table(halves)
    if _poorer_than_last(halves):
        print("no cgroup v2 subtree is delegated here: the last result, which has that row, stays")
    else:
        RESULT.write_text(sandbox_battery.without_host_paths(json.dumps(result, indent=1)) + "\n", "utf-8")
        document(text)
    print(text)
    escaped = {half: sorted(passing(answer["results"]["none"])) for half, answer in halves.items()}
    print(f"with every layer: {escaped}")
    return 1 if any(escaped.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
