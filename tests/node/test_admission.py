"""Admission: nothing is fetched before its cost is settled, and nothing but the chain's own word refuses a payment."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from sqlalchemy import Connection, select

from chain.client import ChainClient
from chain.payment import Claim, Payment, PaymentRefusal
from config.errors import ChainError, NetworkError
from config.evaluation_cost import EvaluationCostSettings
from config.settings import IntakeSettings, Settings
from config.target_catalog import load_catalog
from node.jobs import Job, JobState, fail, park, transition
from node.services import admission
from node.services.admission import AdmissionService
from node.services.context import NodeContext
from node.services.fetching import claim_fetches
from node.services.settlement import SettlementService
from node.store.credit_rows import CREDIT, PAID, Credit, grant, list_credits
from node.store.engine import Store
from node.store.events import verify_chain
from node.store.job_rows import entries, load_job, save, unpark_all
from node.store.layout import StateLayout
from node.store.schema import payments
from node.store.submission_rows import FREE, Submission, read_cursor, record_scan
from tests.node.judging import World
from tests.node.mortal_store import Killed, MortalStore
from tests.node.support import GENESIS, HOTKEY_A, HOTKEY_B, cursor, submission
from tests.node.test_settlement import passed_twice
from tests.scoring.support import make_arena

COST = EvaluationCostSettings(amount_rao=5)


class Desk:
    """The admission service with a chain that says what it is told to."""

    def __init__(self, store: Store, cost: EvaluationCostSettings = COST) -> None:
        settings = Settings(
            state_dir=str(store.layout.root), evaluation_cost=cost,
            intake=IntakeSettings(retry_base_seconds=0.0, retry_cap_seconds=0.0),
        )
        arena, catalog = make_arena(), load_catalog()
        self.store = store
        self.context = NodeContext(settings, store.layout, store, arena, catalog, "worker", Path("/arena.toml"))
        self.service = AdmissionService(self.context, ChainClient(["ws://127.0.0.1:9"]))
        self.answers: dict[tuple[int, int], list[PaymentRefusal | Exception]] = {}  # before the payment is found
        self.asked: list[Claim] = []

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Put the made-up chain in place of the real one."""
        monkeypatch.setattr(admission, "look_up_payment", self.look_up)

    async def look_up(self, _client: ChainClient, claim: Claim, cost: EvaluationCostSettings) -> Any:
        """Stand in for `look_up_payment`."""
        assert cost is self.context.settings.evaluation_cost
        self.asked.append(claim)
        told = self.answers.get((claim.payment_block, claim.payment_index))
        answer = told.pop(0) if told else None
        if isinstance(answer, Exception):
            raise answer
        return answer or Payment(claim.payment_block, claim.payment_index, "5Payer", "5Owner", 5)

    async def reveal(self, number: int, pointer: tuple[int, int] | None = None, **changes: str) -> Submission:
        """Record the `number`-th submission, paid for at `pointer`."""
        block, index = pointer or (None, None)
        one = msgspec.structs.replace(submission(number, **changes), payment_block=block, payment_index=index)
        before = await self.store.read(read_cursor)
        after = cursor((before.block if before else 0) + 1)
        is_due = self.context.settings.evaluation_cost.is_due
        await self.store.write(record_scan, before, after, [one], is_due)
        return one

    async def job(self, one: Submission) -> Job:
        """Return a submission's job."""
        return await self.store.read(load_job, one.submission_id)

    async def fetchable(self) -> list[str]:
        """Return who would be fetched now, and claim it."""
        taken = await self.store.write(claim_fetches, self.context.transport_budget, 8, frozenset[str]())
        return [entry.submission.submission_id for entry in taken]

    async def credits(self) -> list[Credit]:
        """Return all credits."""
        return await self.store.read(list_credits)


@pytest.fixture(name="desk")
def _desk(store: Store, monkeypatch: pytest.MonkeyPatch) -> Desk:
    made = Desk(store)
    made.install(monkeypatch)
    return made


async def used(store: Store) -> list[tuple[int, int, str]]:
    """Return the payments that were used up."""

    def read(connection: Connection) -> list[tuple[int, int, str]]:
        rows = connection.execute(select(payments.c.payment_block, payments.c.payment_index, payments.c.submission_id))
        return [(row[0], row[1], row[2]) for row in rows]

    return await store.read(read)


async def test_free_submissions_wait_for_nobody(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """While nothing is due a reveal can be fetched at once, whether or not it names a payment."""
    desk = Desk(store, EvaluationCostSettings())
    desk.install(monkeypatch)
    one, two = await desk.reveal(1), await desk.reveal(2, (5, 1), hotkey=HOTKEY_B)
    assert sorted(await desk.fetchable()) == sorted([one.submission_id, two.submission_id])
    assert await desk.service.admit_once() == []
    assert (await desk.job(two)).admission == FREE
    assert desk.asked == []


async def test_unpaid_submissions_end_here(desk: Desk) -> None:
    """Without payment and credit a submission fails by name, unfetched, as its miner's."""
    one = await desk.reveal(1)
    assert await desk.fetchable() == []
    await desk.service.admit_once()
    job = await desk.job(one)
    assert (job.state, job.code, job.blame) == (JobState.FAILED, "EVALUATION_COST_UNPAID", "miner")
    assert await desk.fetchable() == []


async def test_a_payment_admits_its_submission_once(desk: Desk) -> None:
    """The earliest submission that points at a payment uses it up; a repetition of it fails and is told why."""
    first, again = await desk.reveal(1, (7, 2)), await desk.reveal(2, (7, 2), content="1")
    await desk.service.admit_once()
    assert await used(desk.store) == [(7, 2, first.submission_id)]
    assert (await desk.job(first)).admission == PAID
    assert await desk.fetchable() == [first.submission_id]
    late = await desk.job(again)
    assert (late.state, late.code) == (JobState.FAILED, "EVALUATION_COST_USED")
    assert first.submission_id in late.detail
    claim = Claim(first.content_hash, HOTKEY_A, 0, first.block, 7, 2)
    assert desk.asked[0] == claim
    await desk.store.read(verify_chain)


async def test_a_refused_payment_is_the_miners(desk: Desk) -> None:
    """What the chain says about a payment is the verdict; a credit is not spent to cover it."""
    await desk.store.write(grant, HOTKEY_A, 1, "")
    desk.answers[7, 2] = [PaymentRefusal("EVALUATION_COST_TOO_LOW", "4 of 5 rao")]
    one = await desk.reveal(1, (7, 2))
    await desk.service.admit_once()
    job = await desk.job(one)
    assert (job.state, job.code, job.detail) == (JobState.FAILED, "EVALUATION_COST_TOO_LOW", "4 of 5 rao")
    assert await used(desk.store) == []
    assert [credit.spent_by for credit in await desk.credits()] == [None]


@pytest.mark.parametrize(
    "fault",
    [
        NetworkError("CHAIN_TIMEOUT", "no answer"), ChainError("CHAIN_STATE_PRUNED", "discarded"),
        ChainError("CHAIN_DECODE_FAILED", "odd"), ValueError("a defect of ours"),
    ],
)
async def test_a_lookup_that_fails_never_fails_the_miner(desk: Desk, fault: Exception) -> None:
    """However often the chain cannot be asked, the job waits, says why, and is admitted in the end."""
    desk.answers[7, 2] = [fault] * 40
    one = await desk.reveal(1, (7, 2))
    for count in range(1, 41):
        await desk.service.admit_once()
        job = await desk.job(one)
        assert (job.state, job.admission, job.faults) == (JobState.RESERVED, "", count)
        assert job.code == getattr(fault, "code", "UNEXPECTED")
        assert job.blame != "miner"
        assert await desk.fetchable() == []
    await desk.service.admit_once()
    job = await desk.job(one)
    assert (job.admission, job.code, job.detail, job.blame, job.faults) == (PAID, "", "", "", 0)
    assert await desk.fetchable() == [one.submission_id]


async def test_one_odd_payment_delays_nobody(desk: Desk) -> None:
    """A job whose own lookup fails lets the later ones pass; a chain that is away ends the pass for all."""
    desk.answers[7, 2] = [ChainError("CHAIN_STATE_PRUNED", "discarded"), NetworkError("CHAIN_TIMEOUT", "no answer")]
    odd, good = await desk.reveal(1, (7, 2)), await desk.reveal(2, (8, 1), hotkey=HOTKEY_B)
    await desk.service.admit_once()
    assert [(await desk.job(one)).admission for one in (odd, good)] == ["", PAID]
    last = await desk.reveal(3, (9, 1), hotkey=HOTKEY_B)
    await desk.service.admit_once()
    assert [(await desk.job(one)).admission for one in (odd, last)] == ["", ""]
    await desk.service.admit_once()
    assert [(await desk.job(one)).admission for one in (odd, last)] == [PAID, PAID]


async def test_the_earliest_claim_wins_whichever_is_looked_up_first(desk: Desk) -> None:
    """A repetition does not take the payment while the original waits for a chain that did not answer."""
    desk.answers[7, 2] = [ChainError("CHAIN_STATE_PRUNED", "discarded")]
    first, again = await desk.reveal(1, (7, 2)), await desk.reveal(2, (7, 2), content="1")
    await desk.service.admit_once()
    assert [(await desk.job(one)).admission for one in (first, again)] == ["", ""]
    await desk.service.admit_once()
    assert await used(desk.store) == [(7, 2, first.submission_id)]
    assert (await desk.job(again)).code == "EVALUATION_COST_USED"


async def test_a_price_that_was_lifted_is_not_asked_for(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """An operator who turns the cost off admits whoever still waits."""
    one = await desk.reveal(1)
    free = Desk(desk.store, EvaluationCostSettings())
    free.install(monkeypatch)
    await free.service.admit_once()
    assert (await free.job(one)).admission == FREE


async def test_no_endpoint_alone_refuses_a_payment(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """With several endpoints a refusal is looked at again, elsewhere; what both refuse is refused."""
    desk = Desk(store)
    chain = msgspec.structs.replace(desk.context.settings.chain, endpoints=("ws://127.0.0.1:9", "ws://127.0.0.1:10"))
    object.__setattr__(desk.context, "settings", msgspec.structs.replace(desk.context.settings, chain=chain))
    desk.install(monkeypatch)
    absent = PaymentRefusal("EVALUATION_COST_NOT_FOUND", "block 7 has 1 extrinsics, none 2")
    desk.answers = {(7, 2): [absent], (8, 2): [absent, absent], (9, 2): [absent, NetworkError("CHAIN_TIMEOUT", "late")]}
    good, bad, open_still = await desk.reveal(1, (7, 2)), await desk.reveal(2, (8, 2)), await desk.reveal(3, (9, 2))
    await desk.service.admit_once()
    assert (await desk.job(good)).admission == PAID
    assert (await desk.job(bad)).code == "EVALUATION_COST_NOT_FOUND"
    waits = await desk.job(open_still)
    assert (waits.state, waits.admission, waits.code) == (JobState.RESERVED, "", "CHAIN_TIMEOUT")


async def test_credits_are_spent_oldest_first_and_only_without_a_payment(desk: Desk) -> None:
    """Each credit admits one submission of its hotkey; a payment keeps the credits where they are."""
    await desk.store.write(grant, HOTKEY_A, 2, "welcome")
    await desk.store.write(grant, HOTKEY_B, 1, "")
    ones = [await desk.reveal(1), await desk.reveal(2, (7, 2)), await desk.reveal(3), await desk.reveal(4)]
    await desk.service.admit_once()
    assert [(await desk.job(one)).admission for one in ones] == [CREDIT, PAID, CREDIT, ""]
    assert (await desk.job(ones[3])).code == "EVALUATION_COST_UNPAID"
    spent = [(credit.hotkey, credit.spent_by) for credit in await desk.credits()]
    assert spent == [(HOTKEY_A, ones[0].submission_id), (HOTKEY_A, ones[2].submission_id), (HOTKEY_B, None)]
    await desk.store.read(verify_chain)


async def queued(desk: Desk, number: int, pointer: tuple[int, int] | None) -> Job:
    """Bring a submission to `queued`."""
    one = await desk.reveal(number, pointer)
    await desk.service.admit_once()
    job = await desk.job(one)
    for state in (JobState.FETCHING, JobState.READY, JobState.SCREENING, JobState.QUEUED):
        job = await desk.store.write(save, job, transition(job, state, job.token))
    return job


def _park(connection: Connection, job: Job, code: str) -> Job:
    return save(connection, job, park(job, job.token, worker="w", now_ms=0, code=code, detail=""))


async def test_parking_is_made_good_while_it_lasts(desk: Desk) -> None:
    """A paid submission that parks earns one credit; when it comes back to be judged, an unspent one goes again."""
    job = await queued(desk, 1, (7, 2))
    for _ in range(2):
        await desk.store.write(_park, job, "ATTEMPT_PROCESS_FAILED")
        (credit,) = await desk.credits()
        assert (credit.hotkey, credit.origin, credit.earned_by) == (HOTKEY_A, "parked", job.submission_id)
        (job,) = await desk.store.write(unpark_all, "another build")
        assert await desk.credits() == []
    await desk.store.write(lambda connection: save(connection, job, fail(job, job.token, "NOT_FASTER")))
    assert await desk.credits() == []
    await desk.store.read(verify_chain)


async def test_what_comes_back_and_is_lost_for_good_is_made_good(desk: Desk) -> None:
    """A credit that was taken back does not stand in the way of the one that is owed at the end."""
    job = await queued(desk, 1, (7, 2))
    await desk.store.write(_park, job, "ATTEMPT_PROCESS_FAILED")
    (job,) = await desk.store.write(unpark_all, "another build")
    await desk.store.write(lambda connection: save(connection, job, fail(job, job.token, "LOST", blame="internal")))
    assert [(one.origin, one.earned_by) for one in await desk.credits()] == [("failed", job.submission_id)]


async def test_one_payment_is_no_chain_of_credits(desk: Desk) -> None:
    """A credit earned by parking admits one more submission, and parking that one earns no third."""
    job = await queued(desk, 1, (7, 2))
    await desk.store.write(_park, job, "TARGET_NOT_SERVED")
    other = await queued(desk, 2, None)
    assert other.admission == CREDIT
    await desk.store.write(_park, other, "TARGET_NOT_SERVED")
    third = await desk.reveal(3)
    await desk.service.admit_once()
    assert (await desk.job(third)).code == "EVALUATION_COST_UNPAID"
    await desk.store.write(unpark_all, "another build")
    assert [(one.earned_by, one.spent_by) for one in await desk.credits()] == [
        (job.submission_id, other.submission_id)
    ]
    await desk.store.read(verify_chain)


@pytest.mark.parametrize(
    ("code", "blame", "owed"),
    [
        ("FEATURE_NOT_SERVED", "miner", True), ("FEATURE_NOT_SERVED", "operator", True),
        ("BUNDLE_UNAVAILABLE", "miner", False), ("NOT_FASTER", "miner", False), ("SOMETHING_OF_OURS", "internal", True),
    ],
)
async def test_only_what_was_not_the_miners_fault_is_made_good(desk: Desk, code: str, blame: str, owed: bool) -> None:
    """A verdict costs what it cost; a bundle that this release cannot run, or that we lost, does not."""
    job = await queued(desk, 1, (7, 2))
    await desk.store.write(lambda connection: save(connection, job, fail(job, job.token, code, blame=blame)))
    assert bool(await desk.credits()) is owed


@pytest.mark.parametrize(("blame", "owed"), [("operator", True), ("miner", False), ("", False)])
async def test_expiry_by_our_fault_is_made_good(desk: Desk, blame: str, owed: bool) -> None:
    """A paid submission that expires because we never got to it earns a credit."""
    job = await queued(desk, 1, (7, 2))
    await desk.store.write(
        lambda connection: save(connection, job, transition(job, JobState.EXPIRED, job.token, blame=blame))
    )
    assert bool(await desk.credits()) is owed


async def test_a_suspect_speedup_is_no_fault_of_ours(desk: Desk) -> None:
    """What is parked for a person's eyes earns nothing by itself; the operator may grant a credit."""
    job = await queued(desk, 1, (7, 2))
    await desk.store.write(_park, job, "IMPLAUSIBLE_SPEEDUP")
    assert await desk.credits() == []


async def test_what_was_free_earns_nothing(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Parking a free submission gives no credit for later."""
    desk = Desk(store, EvaluationCostSettings())
    desk.install(monkeypatch)
    await desk.store.write(_park, await queued(desk, 1, None), "ATTEMPT_PROCESS_FAILED")
    assert await desk.credits() == []


async def test_a_lookup_that_never_answers_holds_no_crown_back(judging: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """An earlier submission whose payment cannot be looked up is waited for, but not for ever."""
    desk = Desk(judging.store)
    desk.install(monkeypatch)
    desk.answers[7, 2] = [ChainError("CHAIN_STATE_PRUNED", "discarded")] * 40
    early = await desk.reveal(1, (7, 2))
    await passed_twice(judging, 2)
    settlement = SettlementService(judging.context, judging.receipts)
    assert not await settlement.settle_once()
    while (await desk.job(early)).faults <= 5:
        assert not await settlement.settle_once()
        await desk.service.admit_once()
    assert await settlement.settle_once()
    assert await judging.states() == ["reserved:CHAIN_STATE_PRUNED", "settled"]


async def _live(folder: Path, monkeypatch: pytest.MonkeyPatch, *, dies_at: int, after_commit: bool) -> int:
    """Start on `folder`, admit and park until done or killed; return how many transactions were made."""
    store = await MortalStore.open(StateLayout.at(folder))
    try:
        await store.bind(GENESIS, 2)
        desk = Desk(store)
        desk.install(monkeypatch)
        if not await store.read(entries):
            await store.write(grant, HOTKEY_A, 2, "")
            for number, pointer in ((1, (7, 2)), (2, None), (3, (7, 2)), (4, None), (5, None), (6, (8, 1))):
                await desk.reveal(number, pointer, content="1" if number == 3 else "")
        store.count, store.dies_at, store.after_commit = 0, dies_at, after_commit
        while await desk.service.admit_once():
            pass
        for entry in await store.read(entries, JobState.RESERVED):
            job = await store.write(save, entry.job, transition(entry.job, JobState.FETCHING, entry.job.token))
            await store.write(_park, job, "UNEXPECTED")
        for entry in await store.read(entries, JobState.FETCHING):
            await store.write(_park, entry.job, "UNEXPECTED")
    except Killed:
        pass
    finally:
        await store.close()
    return store.count


async def _outcome(folder: Path) -> tuple[object, ...]:
    store = await Store.open(StateLayout.at(folder))
    await store.read(verify_chain)
    jobs = [(entry.job.state, entry.job.code, entry.job.admission) for entry in await store.read(entries)]
    rows = await store.read(list_credits)
    given = {(one.earned_by, one.spent_by) for one in rows}  # numbers follow the restarts
    taken = await used(store)
    await store.close()
    return jobs, given, len(rows), taken


@pytest.mark.crash
@pytest.mark.timeout(600)
@pytest.mark.parametrize("after_commit", [False, True], ids=["before", "after"])
async def test_killed_at_any_transaction(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after_commit: bool) -> None:
    """Whatever transaction it dies at, every payment and credit is used once, and every loss made good once."""
    total = await _live(tmp_path / "undisturbed", monkeypatch, dies_at=-1, after_commit=False)
    expected = await _outcome(tmp_path / "undisturbed")
    assert total > 10
    for point in range(1, total + 1, 2):  # dying after one is as dying before the next
        folder = tmp_path / f"{point}"
        await _live(folder, monkeypatch, dies_at=point, after_commit=after_commit)
        await _live(folder, monkeypatch, dies_at=-1, after_commit=False)
        assert await _outcome(folder) == expected, f"killed at transaction {point}"
