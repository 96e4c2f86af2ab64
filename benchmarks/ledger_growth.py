"""How large is a ledger document, what do all of them take together, and how many crowns fit into the largest one?

A ledger is written whole after every settlement that changed it, so all documents that a node ever wrote grow with the
square of its crowns; it keeps the newest. One target whose crown passes on and on, two events each after the first; a
receipt for each crown. Processor time of signing, and of verifying and replaying, beside SHA-256 of the same bytes (the
floor).
Run: `python benchmarks/ledger_growth.py`. Writes `benchmarks/results/ledger_growth.json`.
"""

from __future__ import annotations

import json
import os
import platform
import resource
import time
from pathlib import Path

from config.canonical import sha256_hex
from config.limits import RECEIPT_BYTES
from scoring.dsse import public_key, sign, verify
from scoring.ledger import check_ledger, ledger_statement, make_ledger, read_ledger_predicate
from scoring.settle import Candidate, CrownState, FinalizedOrder, SettlementEvent, apply_event, incumbents, plan

COUNTS, TARGET = (100, 1000, 4000, 10_000), "norm.rmsnorm"


def history(crowns: int) -> tuple[list[SettlementEvent], dict[str, str]]:
    """Return the events of so many crowns of one target, one after the other, and their receipts."""
    state, events, receipts = CrownState(), list[SettlementEvent](), dict[str, str]()
    for number in range(crowns):
        name = sha256_hex(b"%d" % number)
        order = FinalizedOrder(1000 + number, 0, 0, f"5{name[:47]}", name)
        candidate = Candidate(
            submission_id=name, order=order, target_id=TARGET, members=(TARGET,), tree_digest=name,
            speedup_ppm=1_100_000, measured_against=incumbents(state, (TARGET,)), evidence=(name, name),
        )
        for event in plan(state, [candidate]).events:
            state = apply_event(state, event)
            events.append(event)
            if event.type == "CROWN":
                receipts[event.digest] = name
    return events, receipts


def measure(events: list[SettlementEvent], receipts: dict[str, str], crowns: int) -> dict[str, float]:
    """Return what the ledger of the first `crowns` crowns takes."""
    own = events[: 2 * crowns - 1]
    named = {event.digest: receipts[event.digest] for event in own if event.type == "CROWN"}
    started = time.process_time()
    predicate = make_ledger(own, named, genesis_hash="0x" + "1" * 64, netuid=2, hotkey="5Validator")
    envelope = sign(ledger_statement(predicate), bytes(32))
    signed = time.process_time()
    check_ledger(read_ledger_predicate(verify(envelope, [public_key(bytes(32))])))
    verified = time.process_time()
    sha256_hex(envelope)
    floor = time.process_time()
    return {
        "crowns": crowns, "events": len(own), "bytes": len(envelope),
        "all_documents_bytes": len(envelope) * (crowns + 1) // 2, "sign_seconds": round(signed - started, 3),
        "verify_seconds": round(verified - signed, 3), "floor_seconds": round(floor - verified, 5),
    }


def main() -> None:
    """Measure every size and write the result."""
    events, receipts = history(max(COUNTS))
    rows = [measure(events, receipts, crowns) for crowns in COUNTS]
    each = rows[-1]["bytes"] / rows[-1]["crowns"]
    result = {
        "rows": rows, "bytes_per_crown": round(each), "crowns_in_the_largest_document": int(RECEIPT_BYTES / each),
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        "environment": {
            "python": platform.python_version(), "machine": platform.machine(), "cores": os.cpu_count(),
            "clock": "processor time", "load_average": [round(load, 2) for load in os.getloadavg()],
        },
    }
    target = Path(__file__).parent / "results" / "ledger_growth.json"
    target.write_text(json.dumps(result, indent=1, sort_keys=True) + "\n", "utf-8")
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
