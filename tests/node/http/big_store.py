"""A store as it looks after years: many submissions, attempts, publications and events, written row by row."""

from __future__ import annotations

from sqlalchemy import Connection, insert

from node.jobs import JobState
from node.store.schema import attempts, events, jobs, publications, submissions

STATES = tuple(state.value for state in JobState)
OUTCOMES = (("graded", "PASS", ""), ("graded", "FAIL", "NOT_FASTER"), ("graded", "RETRY", "MACHINE_UNFIT"),
            ("lost", "", "ATTEMPT_INTERRUPTED"), ("graded", "FAIL", "A_CODE_THAT_NOBODY_KNOWS"), ("running", "", ""))


def fill(connection: Connection, count: int) -> None:
    """Write `count` submissions with one attempt each, three records of `count` // 3 publications, and 2 * `count`
    events, none of them of a kind that anybody looks for."""
    names = [f"{number:064x}" for number in range(count)]
    connection.execute(insert(submissions), [
        {"submission_id": name, "block": number, "hotkey": "5Secret" + name, "payload_digest": name,
         "url": "https://secret.example/" + name}
        for number, name in enumerate(names)
    ])
    connection.execute(insert(jobs), [
        {"submission_id": name, "state": STATES[number % len(STATES)], "detail": "/secret/place"}
        for number, name in enumerate(names)
    ])
    kinds = [OUTCOMES[number % len(OUTCOMES)] for number in range(count)]
    connection.execute(insert(attempts), [
        {"attempt_id": f"a{name}", "submission_id": name, "path": f"attempts/secret/{name}", "state": state,
         "outcome": outcome, "code": code}
        for name, (state, outcome, code) in zip(names, kinds, strict=True)
    ])
    connection.execute(insert(publications), [
        {"sequence": 3 * number + step + 1, "digest": f"d{number}.{step}", "prior_digest": f"p{number}.{step}",
         "publication_id": names[number], "status": status, "recorded_ms": 1000 * (3 * number + step + 1), "body": "{}"}
        for number in range(count // 3)
        for step, status in enumerate(("intent", "submitted", ("confirmed", "dropped", "expired")[number % 3]))
    ])
    connection.execute(insert(events), [
        {"sequence": 10_000_000 + number, "at_ms": 1, "kind": "job.moved", "subject": names[number % count],
         "digest": f"e{number}", "body": "{}"}
        for number in range(2 * count)
    ])
