"""The stock form of attention.decode: torch's own fused attention over the whole cache, with a mask for short rows.

It is loaded into arms by the same loader, along the same path, as the source of a bundle.
"""

import torch


def attention_decode(q, k, v, seq_lens, sm_scale, out):  # type: ignore[no-untyped-def]
    visible = torch.arange(k.shape[1], device=q.device)[None, :] < seq_lens[:, None]
    result = torch.nn.functional.scaled_dot_product_attention(
        q.unsqueeze(2), k.transpose(1, 2), v.transpose(1, 2), attn_mask=visible[:, None, None, :], scale=sm_scale,
        enable_gqa=True,
    )  # fmt: skip
    out.copy_(result.squeeze(2))
