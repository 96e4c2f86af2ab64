"""config/slot_judging.toml, made from the slots: `python -m qualify.slots.judging > config/slot_judging.toml`."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator

from qualify.content import CROWDED, DENORMAL, INTEGERS, LARGE, PADDED, RAGGED, SCALARS
from qualify.slots.admission import admit
from qualify.slots.base import Slot
from qualify.slots.registry import PROFILES, SLOTS

_HEAD = "# How slots are judged, in words. Made by `python -m qualify.slots.judging`; edit qualify/slots/ instead.\n"
EDGES = {
    DENORMAL.name: "denormal values: what is left of them is not asked for, but nothing may become large or no number",
    INTEGERS.name: "whole numbers for which the call, or one of its outputs, is exact in every dtype; so is the answer",
    LARGE.name: "attention: logits above 100, which overflow an exponential unless the largest is subtracted first",
    RAGGED.name: "lengths at the edges of what is legal, and bait behind them that must not be seen",
    CROWDED.name: "all tokens choose the same experts",
    SCALARS.name: "scalars that no model has (`eps`, `sm_scale`), and inputs for which they matter",
    PADDED.name: "huge values in rows that belong to no token",
}


def document() -> str:
    """Return the whole file."""
    parts = [_HEAD, "[edges]\n", *(f"{name} = {_text(meaning)}\n" for name, meaning in sorted(EDGES.items()))]
    for slot in sorted(SLOTS.values(), key=lambda slot: slot.id):
        parts += _slot(slot)
    return "".join(parts)


def controls_of(slot: Slot) -> tuple[str, ...]:
    """Return the wrong answers that the admission of a slot has to find out, in the order they are tried."""
    table = (trial for dtype in ("float32", "bfloat16") for trial in admit(slot, dtype))
    return tuple(dict.fromkeys(trial.control for trial in table if not trial.wanted))


def _slot(slot: Slot) -> Iterator[str]:
    yield f"\n[slots.{_text(slot.id)}]\n"
    yield f"edges = {_list(style.name for style in slot.edges)}\ncontrols = {_list(controls_of(slot))}\n"
    for profile in sorted((one for one in PROFILES.values() if one.id == slot.id), key=lambda one: one.model):
        yield f"\n[[slots.{_text(slot.id)}.profiles]]\nmodel = {_text(profile.model)}\n"
        yield f"edges = {_list(style.name for style in profile.edges)}\n"


def _list(items: Iterable[str]) -> str:
    lines = "".join(f"  {_text(item)},\n" for item in items)
    return f"[\n{lines}]" if lines else "[]"


def _text(value: str) -> str:
    return json.dumps(value)  # plain text is written the same way in both


if __name__ == "__main__":
    sys.stdout.write(document())
