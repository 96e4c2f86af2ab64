"""The speed test: exact under any noise, monotone, and deterministic."""

from __future__ import annotations

import dataclasses
import itertools
import math
import random
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from config.errors import GradeError
from scoring.attempt import Block, CallCheck, Launch, RoleBlock
from scoring.policy import POLICIES, POLICY, BettingPolicy
from scoring.speed import Decision, SequentialTest, block_value, launch_value
from tests.scoring.support import FakeReferee, change, make_arena

MARGIN = math.log(1.05)
Noise = Callable[[Sequence[float], int], float]  # what slot 0 is faster by: values before this unit, launch in the unit


def run(
    coins: Sequence[int], noise: Noise, *, gain: float = MARGIN, alpha_ppm: int = 5000, open_launches: int = 12
) -> SequentialTest:
    """Return a test fed until it decides or the coins run out; later coins serve exchanged pairs."""
    betting = dataclasses.replace(POLICY.betting, open_launches=open_launches, look_every=1)
    test = SequentialTest(margin_ppm=50_000, alpha_ppm=alpha_ppm, betting=betting)
    seen: list[float] = []
    for number, coin in enumerate(coins):
        slots = (coin,) if number < open_launches else (coin, 1 - coin)
        values = [gain + (1 - 2 * slot) * noise(seen, which) for which, slot in enumerate(slots)]
        seen.extend(values)
        for slot, value in zip(slots, values, strict=True):
            if test.decision is Decision.CONTINUE:
                test.add_launch(value, slot)
    return test


BETTING = [pytest.param(policy.betting, id=name) for name, policy in sorted(POLICIES.items())]


def feed(betting: BettingPolicy, coins: Sequence[int], noise: Noise, gain: float) -> list[float]:
    """Return the log-wealth after every unit, when nothing stops the test."""
    test = SequentialTest(margin_ppm=50_000, alpha_ppm=1, betting=betting)
    seen: list[float] = []
    path = []
    for coin in coins:
        slots = (coin,) if len(seen) < betting.open_launches else (coin, 1 - coin)
        values = [gain + (1 - 2 * slot) * noise(seen, which) for which, slot in enumerate(slots)]
        seen.extend(values)
        for slot, value in zip(slots, values, strict=True):
            test.add_launch(value, slot)
        path.append(test.log_wealth)
    return path


BASES = st.one_of(
    st.lists(st.floats(-0.5, 0.5), min_size=16, max_size=16),
    st.floats(-0.5, 0.5).map(lambda level: [level] * 16),
    st.floats(-0.5, 0.5).map(lambda level: [level, -level] * 8),
)


@settings(max_examples=40, deadline=None)
@given(
    BASES,
    st.floats(-2, 2),
    st.integers(0, 9),
    st.floats(0, 0.3),
)
def test_no_noise_makes_identical_code_pass_more_often_than_alpha(
    base: list[float], feedback: float, open_launches: int, shortfall: float
) -> None:
    """Over all coin sequences, noise chosen by an adversary who sees everything but the next coin stays below alpha."""

    def noise(seen: Sequence[float], which: int) -> float:
        return base[len(seen) + which] + feedback * (seen[-1] - MARGIN if seen else 0.0)

    alpha_ppm = 60_000
    outcomes = [
        run(coins, noise, gain=MARGIN - shortfall, alpha_ppm=alpha_ppm, open_launches=open_launches).decision
        for coins in itertools.product((0, 1), repeat=8)
    ]
    assert outcomes.count(Decision.PASS) <= len(outcomes) * alpha_ppm / 1_000_000


@settings(max_examples=40, deadline=None)
@given(BASES, st.integers(0, 9), st.floats(0, 0.3))
def test_a_candidate_at_the_margin_is_not_called_slower_more_often_than_alpha(
    base: list[float], open_launches: int, surplus: float
) -> None:
    """The mirrored process keeps the same promise to a candidate that does have the margin."""
    alpha_ppm = 60_000

    def noise(seen: Sequence[float], which: int) -> float:
        return base[len(seen) + which]

    outcomes = [
        run(coins, noise, gain=MARGIN + surplus, alpha_ppm=alpha_ppm, open_launches=open_launches)
        for coins in itertools.product((0, 1), repeat=8)
    ]
    refused = sum(test.decision is Decision.NOT_FASTER for test in outcomes)
    assert refused <= len(outcomes) * alpha_ppm / 1_000_000


def wild_noise(chance: random.Random) -> Noise:
    """Return noise with a slot bias, a drifting level and heavy tails."""
    bias, drift = chance.gauss(0, 0.03), [0.0]

    def noise(_seen: Sequence[float], _which: int) -> float:
        drift[0] += chance.gauss(0, 0.01)
        return bias + drift[0] + chance.gauss(0, 0.02) / max(0.05, abs(chance.gauss(0, 1)))

    return noise


def test_identical_code_on_a_biased_noisy_machine_rarely_passes() -> None:
    """In 3,000 seeded A/A attempts at the margin, with slot bias, drift and heavy tails, at most alpha pass."""
    chance = random.Random(7)
    passed = 0
    for _ in range(3000):
        passed += run([chance.randint(0, 1) for _ in range(20)], wild_noise(chance)).decision is Decision.PASS
    assert passed <= 3000 * 0.005 + 3 * math.sqrt(3000 * 0.005)


@pytest.mark.parametrize(
    ("gain", "decision", "launches"),
    [(MARGIN + 0.05, Decision.PASS, 10), (MARGIN - 0.05, Decision.NOT_FASTER, 10), (MARGIN, Decision.CONTINUE, 24)],
)
def test_a_quiet_machine_decides_in_ten_launches(gain: float, decision: Decision, launches: int) -> None:
    """With little noise, gains 5 % off the margin are decided as early as alpha allows; a gain at it stays open."""
    chance = random.Random(3)
    test = SequentialTest(margin_ppm=50_000, alpha_ppm=5000)
    slot = 0
    while test.launches < 24 and test.decision is Decision.CONTINUE:
        slot = chance.randint(0, 1) if test.launches < 12 or test.launches % 2 == 0 else 1 - slot
        test.add_launch(gain + (1 - 2 * slot) * 0.01 + chance.gauss(0, 0.004), slot)
    assert (test.decision, test.launches) == (decision, launches)


def test_nothing_is_decided_with_fewer_coins_than_alpha_needs() -> None:
    """One coin is worth a factor of two at most, so seven launches never prove anything at alpha = 0.005."""
    test = SequentialTest(margin_ppm=0, alpha_ppm=5000)
    for index in range(7):
        test.add_launch(5.0, index % 2)
    assert (test.lower_ppm, test.upper_ppm, test.decision) == (0, 1_000_000_000, Decision.CONTINUE)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.floats(-0.4, 0.6), st.integers(0, 1)), min_size=1, max_size=20))
def test_bounds_are_ordered_and_only_tighten(launches: list[tuple[float, int]]) -> None:
    """The lower bound never falls, the upper never rises, and decisions agree with the bounds."""
    test = SequentialTest(margin_ppm=50_000, alpha_ppm=200_000)
    lower, upper = 0, 1_000_000_000
    for value, slot in launches:
        if test.decision is not Decision.CONTINUE:
            break
        test.add_launch(value, slot)
        assert test.lower_ppm >= lower
        assert test.upper_ppm <= upper
        lower, upper = test.lower_ppm, test.upper_ppm
    assert (test.decision is Decision.PASS) == (lower >= 1_050_000 and test.decision is not Decision.CONTINUE)
    if test.decision is Decision.NOT_FASTER:
        assert upper <= 1_050_000


@settings(max_examples=40, deadline=None)
@given(st.lists(st.floats(-0.2, 0.4), min_size=12, max_size=12), st.floats(0.001, 0.5))
def test_a_faster_candidate_never_gets_a_lower_bound(values: list[float], surplus: float) -> None:
    """Adding the same gain to every launch moves both bounds up."""
    one, other = (SequentialTest(margin_ppm=10**9, alpha_ppm=200_000) for _ in range(2))
    for index, value in enumerate(values):
        one.add_launch(value, index % 2)
        other.add_launch(value + surplus, index % 2)
        if Decision.CONTINUE not in (one.decision, other.decision):
            break
    assert other.lower_ppm >= one.lower_ppm
    assert other.upper_ppm >= one.upper_ppm


def test_a_noisier_machine_never_makes_passing_easier() -> None:
    """The bar does not move with the noise: at each gain, attempts pass at most as often when the noise grows."""
    for gain in (MARGIN, MARGIN + 0.03):
        rates = []
        for size in (0.01, 0.05, 0.2):
            chance = random.Random(11)
            tests = [
                run([chance.randint(0, 1) for _ in range(16)], lambda *_: chance.gauss(0, size), gain=gain)  # noqa: B023
                for _ in range(300)
            ]
            rates.append(sum(test.decision is Decision.PASS for test in tests))
        assert rates[0] + 3 >= rates[1] and rates[1] + 3 >= rates[2]  # noqa: PT018 - one statement: it never rises


def test_exhaustion_is_its_own_decision() -> None:
    """When the launches run out undecided, the test says so."""
    test = SequentialTest(margin_ppm=50_000, alpha_ppm=5000, launches_max=4)
    for index in range(4):
        test.add_launch(MARGIN, index % 2)
    assert test.decision is Decision.EXHAUSTED


def test_no_decision_before_the_registered_minimum() -> None:
    """`launches_min` holds the decision back and loses nothing that was proved."""
    test = SequentialTest(margin_ppm=50_000, alpha_ppm=5000, launches_min=16)
    for index in range(16):
        assert test.decision is Decision.CONTINUE
        test.add_launch(0.5, index % 2)
    assert test.decision is Decision.PASS


@pytest.mark.parametrize(
    ("value", "slot", "code"),
    [(math.nan, 0, "VALUE_NOT_FINITE"), (math.inf, 0, "VALUE_NOT_FINITE"), (0.1, 2, "SLOT_UNKNOWN")],
)
def test_bad_values_are_refused(value: float, slot: int, code: str) -> None:
    """NaN, infinities and unknown slots get a code each."""
    with pytest.raises(GradeError) as refused:
        SequentialTest(margin_ppm=0, alpha_ppm=5000).add_launch(value, slot)
    assert refused.value.code == code


@pytest.mark.parametrize("change", [{"alpha_ppm": 0}, {"margin_ppm": -1}, {"launches_min": 9, "launches_max": 8}])
def test_bad_parameters_are_refused(change: dict[str, int]) -> None:
    """Parameters outside their range never make a test."""
    with pytest.raises(GradeError) as refused:
        SequentialTest(**{"margin_ppm": 0, "alpha_ppm": 5000, **change})
    assert refused.value.code == "SPEED_PARAMETERS"


def test_a_decided_test_takes_no_more_launches() -> None:
    """Feeding a decided test is an error."""
    test = SequentialTest(margin_ppm=50_000, alpha_ppm=5000, launches_max=2)
    test.add_launch(0, 0)
    test.add_launch(0, 1)
    with pytest.raises(GradeError) as refused:
        test.add_launch(0, 1)
    assert refused.value.code == "TEST_DECIDED"


def make_block(case: int, baseline: tuple[int, ...], candidate: tuple[int, ...]) -> Block:
    """Return a block with the given call times."""
    checks = (CallCheck("0" * 16, "0" * 16, "", 0),) * len(baseline)
    return Block(case, "baseline", RoleBlock(0, baseline, checks), RoleBlock(0, candidate, checks))


def make_launch(*blocks: Block) -> Launch:
    """Return a launch with the given blocks."""
    return change(FakeReferee(make_arena()).launch(0), "blocks", blocks)


def test_a_launch_value_is_the_mean_over_shapes_of_block_medians() -> None:
    """One outlying block does not move it, and each shape weighs the same."""
    blocks = [make_block(0, (100, 100), (50, 50))] * 2 + [make_block(0, (10**6, 1), (1, 1))]
    blocks.append(make_block(1, (100, 300), (100, 100)))
    assert launch_value(make_launch(*blocks)) == pytest.approx(math.log(2))


def test_a_gap_weighs_like_any_shape_and_gains_exactly_nothing() -> None:
    """Two shapes measured and two left to stock: half of the gain, to the last digit."""
    blocks = [make_block(0, (200,), (100,)), make_block(2, (200,), (100,))]
    assert launch_value(make_launch(*blocks), 2) == round(math.log(2) / 2, 9)
    equal = [make_block(case, (100,), (100,)) for case in (1, 3)]
    assert launch_value(make_launch(*blocks, *equal)) == launch_value(make_launch(*blocks), 2)


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(1, 2**40), st.integers(1, 2**40)), min_size=1, max_size=9))
def test_exchanging_the_roles_flips_the_sign_of_the_value(times: list[tuple[int, int]]) -> None:
    """The launch value is antisymmetric; the test's symmetry argument needs it to be."""
    forward = make_launch(*(make_block(0, (b,), (c,)) for b, c in times))
    backward = make_launch(*(make_block(0, (c,), (b,)) for b, c in times))
    assert launch_value(forward) == -launch_value(backward)


@pytest.mark.parametrize("times", [(), (0,), (5, -3)])
def test_times_that_are_not_positive_are_refused(times: tuple[int, ...]) -> None:
    """A duration of zero, a negative one or none at all has no logarithm."""
    with pytest.raises(GradeError) as refused:
        block_value(make_block(0, times, (1,)))
    assert refused.value.code == "TIMING_NOT_POSITIVE"


def test_a_launch_without_blocks_has_no_value() -> None:
    """There is nothing to take a median of."""
    with pytest.raises(GradeError) as refused:
        launch_value(make_launch())
    assert refused.value.code == "LAUNCH_INCOMPLETE"


@pytest.mark.parametrize("betting", BETTING)
@settings(max_examples=25, deadline=None)
@given(BASES, st.floats(-2, 2), st.floats(0, 0.3))
def test_betting_is_a_game_that_cannot_be_expected_to_win(
    betting: BettingPolicy, base: list[float], feedback: float, shortfall: float
) -> None:
    """Over all coin sequences the mean wealth never exceeds 1 and never rises, whatever noise answers earlier coins."""

    def noise(seen: Sequence[float], which: int) -> float:
        return base[len(seen) + which] + feedback * (seen[-1] - MARGIN if seen else 0.0)

    paths = [
        [math.exp(log) for log in feed(betting, coins, noise, MARGIN - shortfall)]
        for coins in itertools.product((0, 1), repeat=6)
    ]
    means = [1.0] + [math.fsum(at) / len(paths) for at in zip(*paths, strict=True)]
    for before, after in itertools.pairwise(means):
        assert after <= before * (1 + 1e-9) + 1e-12


@pytest.mark.parametrize("betting", BETTING)
def test_betting_twice_on_one_coin_would_win(betting: BettingPolicy) -> None:
    """The check above can fail: pretending that both launches of a pair have coins lets alternating noise win."""
    pretended = dataclasses.replace(betting, open_launches=1000, share=0.0)
    wealth = []
    for coins in itertools.product((0, 1), repeat=3):
        test = SequentialTest(margin_ppm=50_000, alpha_ppm=1, betting=pretended)
        for coin in coins:
            for slot, noise in ((coin, 0.1), (1 - coin, -0.1)):
                test.add_launch(MARGIN + (1 - 2 * slot) * noise, slot)
        wealth.append(math.exp(test.log_wealth))
    assert math.fsum(wealth) / len(wealth) > 1.5


LAUNCHES = st.lists(st.tuples(st.floats(-0.4, 0.6), st.integers(0, 1)), min_size=1, max_size=16)


@pytest.mark.parametrize("betting", BETTING)
@settings(max_examples=25, deadline=None)
@given(LAUNCHES, st.integers(0, 300_000), st.integers(0, 300_000))
def test_a_higher_margin_is_never_easier(
    betting: BettingPolicy, launches: list[tuple[float, int]], one: int, other: int
) -> None:
    """On the same launches the wealth against a higher margin is never larger."""
    tests = [SequentialTest(margin_ppm=margin, alpha_ppm=1, betting=betting) for margin in sorted((one, other))]
    for value, slot in launches:
        for test in tests:
            test.add_launch(value, slot)
        assert tests[1].log_wealth <= tests[0].log_wealth + 1e-9


@pytest.mark.parametrize("betting", BETTING)
@settings(max_examples=25, deadline=None)
@given(LAUNCHES)
def test_the_names_of_the_slots_do_not_matter_and_replay_is_equal(
    betting: BettingPolicy, launches: list[tuple[float, int]]
) -> None:
    """Exchanging slot 0 and slot 1 throughout, or running again, changes nothing, to the last bit."""
    results = []
    for exchange in (0, 0, 1):
        test = SequentialTest(margin_ppm=50_000, alpha_ppm=50_000, betting=betting)
        for value, slot in launches:
            if test.decision is Decision.CONTINUE:
                test.add_launch(value, slot ^ exchange)
        results.append((test.decision, test.launches, test.log_wealth, test.lower_ppm, test.upper_ppm))
    assert results[0] == results[1] == results[2]


@pytest.mark.parametrize("betting", BETTING)
@settings(max_examples=15, deadline=None)
@given(LAUNCHES)
def test_bounds_of_every_policy_only_tighten(betting: BettingPolicy, launches: list[tuple[float, int]]) -> None:
    """Whatever comes, the lower bound never falls and the upper never rises."""
    test = SequentialTest(margin_ppm=50_000, alpha_ppm=200_000, betting=betting)
    bounds = [(0, 1_000_000_000)]
    for value, slot in launches:
        if test.decision is Decision.CONTINUE:
            test.add_launch(value, slot)
            bounds.append((test.lower_ppm, test.upper_ppm))
    assert all(old[0] <= new[0] and new[1] <= old[1] for old, new in itertools.pairwise(bounds))


@pytest.mark.parametrize("betting", BETTING)
@settings(max_examples=15, deadline=None)
@given(LAUNCHES)
def test_bounds_do_not_depend_on_when_they_were_asked_for(
    betting: BettingPolicy, launches: list[tuple[float, int]]
) -> None:
    """A grader asks once and bisects the whole range; a referee asks after every launch, and goes on from there."""
    often = SequentialTest(margin_ppm=50_000, alpha_ppm=200_000, betting=betting)
    made: list[tuple[float, int]] = []
    for value, slot in launches:
        if often.decision is Decision.CONTINUE:
            made.append((value, slot))
            often.add_launch(value, slot)
            once = SequentialTest(margin_ppm=50_000, alpha_ppm=200_000, betting=betting)
            for launch in made:
                once.add_launch(*launch)
            assert (often.lower_ppm, often.upper_ppm) == (once.lower_ppm, once.upper_ppm)


@pytest.mark.parametrize("betting", BETTING)
@settings(max_examples=20, deadline=None)
@given(st.lists(st.floats(-0.1, 0.1), min_size=6, max_size=6), st.floats(1.0, 5.0), st.floats(0.0, 0.05))
def test_noisier_baselines_never_lower_the_bar(
    betting: BettingPolicy, base: list[float], louder: float, gain: float
) -> None:
    """The bar is the margin, whatever the noise: with the same noise made louder, no more coin sequences pass at it."""

    def rate(volume: float) -> float:
        paths = [
            feed(betting, coins, lambda seen, which: volume * base[(len(seen) + which) % 6], MARGIN - gain)
            for coins in itertools.product((0, 1), repeat=6)
        ]
        return sum(max(path) >= math.log(1 / 0.05) for path in paths) / len(paths)

    assert max(rate(1.0), rate(louder)) <= 0.05


def test_one_bad_launch_does_not_spoil_the_predicted_bias() -> None:
    """Medians forget an outlier at once; the weighed mean of the first policy carries it along."""
    wealth = {}
    for name, policy in POLICIES.items():
        test = SequentialTest(margin_ppm=0, alpha_ppm=1, betting=policy.betting)
        for index in range(11):
            outlier = -0.5 if index == 4 else 0.0
            slot = (index // 2 + index) % 2 if policy.betting.open_launches else index % 2
            test.add_launch(0.03 + (1 - 2 * slot) * 0.03 + outlier, slot)
        wealth[name] = test.log_wealth
    assert wealth["cacheon.speed.v2"] > wealth["cacheon.speed.v1"] + math.log(2)
