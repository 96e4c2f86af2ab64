"""What the attention slots share: the reference, how queries and keys are drawn, and bounds.

The reference works head by head with a softmax written out, so it shares nothing with torch's attention kernels.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch

from qualify.comparison import Tolerance
from qualify.content import LARGE, SCALARS, Source, Style

# Probabilities are rounded to the dtype of the call before they meet the values in every fused kernel, so a row may be
# off by one more rounding than elementwise code. Outputs are averages: their elements are small beside their inputs.
ATTENTION_TOLERANCES: Mapping[str, Tolerance] = {
    "bfloat16": Tolerance(0.02, 0.02, 0.012, 0.008, 1e-38, stray=0.01, outlier=4.0, spread=1.0),
    "float16": Tolerance(0.01, 0.01, 0.002, 0.0015, 6e-8, stray=0.01, outlier=4.0, spread=1.0),
    "float32": Tolerance(1e-5, 1e-5, 1e-5, 1e-5, 1e-38, stray=0.01, outlier=8.0, spread=1.0),
}
# Queries and keys that are drawn wide are narrowed: a softmax that is all on one key would test nothing else, and a
# common shift of all logits by hundreds would cost float32 itself more digits than the bounds leave.
_WIDE_SCALE, _SHIFTED_SCALE = 0.15, 0.4
_LARGE_KEYS = (8, 12)
_STRETCH = (1.6, 2.5)  # what a scale that no model has is multiplied with, or divided by


def draw_queries_and_keys(query: torch.Tensor, key: torch.Tensor, style: Style, source: Source) -> None:
    """Fill both, so that several keys matter to every query.

    `LARGE` logits lie about 110 to 170, above what an exponential in float32 can hold: a kernel that does not subtract
    the largest overflows. They are sums of products of whole numbers, so no precision is lost before the softmax.
    """
    if style is LARGE:
        source.integers(query, 1, 2)
        source.integers(key, *_LARGE_KEYS)
        return
    scale = _SHIFTED_SCALE if style.shift else 1.0
    if style.scale_high > 2.0 or style.cubed:
        scale = _WIDE_SCALE
    for tensor in (query, key):
        source.fill(tensor, style, scale)


def drawn_scale(head: int, style: Style, source: Source) -> dict[str, float]:
    """Return the `sm_scale` of style `SCALARS` for heads of that many features; none for other styles."""
    if style is not SCALARS:
        return {}
    stretch = source.scalar(*_STRETCH)
    return {"sm_scale": head**-0.5 * (stretch if source.index(2) else 1.0 / stretch)}


def whole_groups(dimensions: Mapping[str, int]) -> dict[str, int]:
    """Return `dimensions` with as many query heads as make whole groups, one for each key-value head."""
    heads = dimensions["num_kv_heads"]
    return {**dimensions, "num_q_heads": -(-dimensions["num_q_heads"] // heads) * heads}


def attend(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, visible: torch.Tensor, scale: float
) -> torch.Tensor:
    """Return float32 (T, Hq, D) for `query` (T, Hq, D), `key` and `value` (S, Hkv, D), `visible` bool (T, S).

    Every query has to see at least one key.
    """
    heads, group = query.shape[1], query.shape[1] // key.shape[1]
    result = torch.empty(query.shape, dtype=torch.float32)
    for head in range(heads):
        logits = (query[:, head] @ key[:, head // group].T).mul_(scale)
        logits.masked_fill_(~visible, -torch.inf)
        weights = torch.exp(logits.sub_(logits.amax(dim=-1, keepdim=True)))
        weights.div_(weights.sum(dim=-1, keepdim=True))
        result[:, head] = weights @ value[:, head // group]
    return result
