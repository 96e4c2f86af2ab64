"""How long does an observer's computer take over the receipts of a validator that published for long, and how much
memory?

A made-up validator's folder: crowns of one target, one after the other, with two verdicts and a receipt each, the
ledgers that a node keeps, and weights receipts up to the number that is asked for. `receipt verify DIR` and `weights
recompute DIR` run as commands; processor time and peak memory are their own, beside those of `--version` (the floor).
Run: `python benchmarks/receipts_read.py [RECEIPTS...]`. Writes `benchmarks/results/receipts_read.json`.
"""

from __future__ import annotations

import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

from chain.key_binding import binding_of
from chain.wallet import address_of_seed, signer_of_seed
from config.canonical import sha256_hex
from config.key_binding import binding_payload
from config.statement import pre_authentication, seal
from node.services.ledger import LEDGERS_KEPT
from scoring.dsse import public_key
from scoring.ledger import ledger_statement
from scoring.receipts import weights_statement
from tests.scoring.receipts_world import GENESIS_HASH, ReceiptsWorld

CROWNS_OF = 33  # receipts for each crown: as many as there are for one in a year of a busy subnet


def publish(folder: Path, receipts: int) -> dict[str, int]:
    """Write a folder with so many receipts and return what is in it."""
    validator = address_of_seed("//Validator")
    world = ReceiptsWorld(validator=validator)
    signer = signer_of_seed("//Validator")
    payload = binding_payload(binding_of(signer, public_key(world.secret), GENESIS_HASH, 2))
    data = seal(payload, signer.ss58_address, bytes(signer.sign(pre_authentication(payload))))
    world.envelopes[sha256_hex(data)] = data
    ledgers: list[str] = []
    crowns = max(1, receipts // CROWNS_OF)
    epochs = receipts - 3 * crowns - 1
    for number in range(crowns):
        world.crown(f"5Miner{number}", 1000 + 10_000 * number)
        ledgers.append(world.put(ledger_statement(world.ledger())))
        for epoch in range(number * epochs // crowns, (number + 1) * epochs // crowns):
            world.put(weights_statement(world.vector(epoch, 1001 + 10_000 * number + epoch)))
    for old in ledgers[:-LEDGERS_KEPT]:
        del world.envelopes[old]
    for name in ("receipts", "ledger"):
        (folder / name).mkdir(parents=True)
    kept = set(ledgers)
    for name, envelope in world.envelopes.items():
        (folder / "ledger" / name if name in kept else folder / "receipts" / f"{name}.json").write_bytes(envelope)
    return {
        "receipts": len(list((folder / "receipts").iterdir())), "crowns": crowns,
        "ledgers": len(list((folder / "ledger").iterdir())), "bytes": sum(map(len, world.envelopes.values())),
    }


def run(*arguments: str) -> dict[str, float]:
    """Run a command and return its processor time (s) and peak memory (MiB)."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    script = (
        "import sys; from node.cli.main import run\n"
        "try: run()\n"
        "finally: print(open('/proc/self/status').read().split('VmHWM:')[1].split()[0], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", script, *arguments], check=False, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{arguments}: {done.stdout[-500:]} {done.stderr[-500:]}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"seconds": round(seconds, 2), "peak_mib": int(done.stderr.split()[-1]) // 1024}


def main() -> None:
    """Measure every size and write the result."""
    rows = []
    for count in [int(text) for text in sys.argv[1:]] or [1000, 10_000]:
        with tempfile.TemporaryDirectory() as scratch:
            folder = Path(scratch) / "published"
            held = publish(folder, count)
            rows.append(held | {
                "floor": run("--version"),
                "receipt_verify": run("receipt", "verify", str(folder), "--json"),
                "weights_recompute": run("weights", "recompute", str(folder), "--json"),
            })
            print(json.dumps(rows[-1]))
    result = {"rows": rows, "environment": {
        "python": platform.python_version(), "machine": platform.machine(), "cores": os.cpu_count(),
        "clock": "processor time", "load_average": [round(load, 2) for load in os.getloadavg()],
    }}
    target = Path(__file__).parent / "results" / "receipts_read.json"
    target.write_text(json.dumps(result, indent=1, sort_keys=True) + "\n", "utf-8")


if __name__ == "__main__":
    main()
