"""Launch noise, recorded and invented, for `verdict_power.py`: what slot 0 is faster by, one log-ratio per launch."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Draw = Callable[[np.random.Generator, Floats], Floats]  # (generator, sides) -> slot log-ratios, in the shape of `sides`
FILES = {
    "2-core": "cpu2core_launches", "16-core": "cpu16core_launches",
    "referee, 2-core,": "referee2core", "referee, 16-core,": "referee16core",
}  # fmt: skip


def recorded(name: str) -> dict[str, tuple[Floats, Floats]]:
    """Return load -> (log(t1 / t0), log t0) per recorded launch, medians over blocks of the host clock."""
    path = Path(__file__).parent / "data" / "noise" / f"{name}.json"
    result = {}
    for load in json.loads(path.read_text("utf-8"))["loads"]:
        rows = [[(row[0][0], row[1][0]) for row in launch["rows"]] for launch in load["launches"]]
        ratio = [float(np.median([math.log(b / a) for a, b in launch])) for launch in rows]
        level = [float(np.median([math.log(a) for a, _ in launch])) for launch in rows]
        result[load["name"]] = (np.array(ratio), np.array(level))
    return result


def pairs_of(values: Floats) -> Draw:
    """Draw consecutive recorded pairs with replacement."""

    def draw(chance: np.random.Generator, sides: Floats) -> Floats:
        attempts, launches = sides.shape
        first = 2 * chance.integers(0, len(values) // 2, (attempts, launches // 2))
        return np.stack([values[first], values[first + 1]], axis=2).reshape(attempts, launches)

    return draw


def sources() -> dict[str, Draw]:
    """Return all recorded and modelled noise rows."""
    rows: dict[str, Draw] = {}
    for prefix, file in FILES.items():
        for load, (ratio, _) in recorded(file).items():
            rows[f"{prefix} {load}"] = pairs_of(ratio)
    rows["H200 graph mid, device events"] = lambda chance, sides: chance.normal(0, 0.0037, sides.shape)
    rows["H200 graph tiny, device events"] = lambda chance, sides: chance.normal(0, 0.0075, sides.shape)
    return rows


def invented() -> dict[str, Draw]:
    """Noise made to break a test that assumes something."""

    def walk(chance: np.random.Generator, sides: Floats) -> Floats:
        return np.cumsum(chance.normal(0, 0.02, sides.shape), axis=1)

    def drift(chance: np.random.Generator, sides: Floats) -> Floats:
        return np.linspace(-0.3, 0.3, sides.shape[1]) + chance.normal(0, 0.01, sides.shape)

    def correlated(chance: np.random.Generator, sides: Floats) -> Floats:
        fresh = chance.normal(0, 0.05, sides.shape)
        for at in range(1, sides.shape[1]):
            fresh[:, at] += 0.75 * fresh[:, at - 1]
        return fresh

    def spikes(chance: np.random.Generator, sides: Floats) -> Floats:
        spike = chance.random(sides.shape) < 0.1
        return chance.normal(0, 0.01, sides.shape) + spike * chance.choice([-1.0, 1.0], sides.shape)

    def cauchy(chance: np.random.Generator, sides: Floats) -> Floats:
        return np.clip(0.02 * chance.standard_cauchy(sides.shape), -5, 5)

    def alternating(_: np.random.Generator, sides: Floats) -> Floats:
        return np.tile(0.1 * (-1.0) ** np.arange(sides.shape[1]), (len(sides), 1))

    def constant(_: np.random.Generator, sides: Floats) -> Floats:
        return np.full(sides.shape, 0.1)

    def switch(chance: np.random.Generator, sides: Floats) -> Floats:
        sign = np.where(np.arange(sides.shape[1]) < 12, 1.0, -1.0)
        return 0.08 * sign * chance.choice([-1.0, 1.0], (len(sides), 1)) + chance.normal(0, 0.005, sides.shape)

    def follower(_: np.random.Generator, sides: Floats) -> Floats:
        earlier = np.roll(sides, 2, axis=1)  # two launches ago: never a coin of the same unit
        earlier[:, :2] = 0
        return 0.08 * earlier

    def growing(chance: np.random.Generator, sides: Floats) -> Floats:
        return chance.choice([-1.0, 1.0], sides.shape) * 0.005 * 1.1 ** np.arange(sides.shape[1])

    return {
        "random walk": walk, "linear drift": drift, "autocorrelation 0.75": correlated, "spikes": spikes,
        "heavy tails": cauchy, "alternating bias": alternating, "constant bias": constant,
        "bias that switches at launch 12": switch, "bias follows earlier coins": follower, "noise that grows": growing,
    }  # fmt: skip
