"""The stock form of attention.sdpa: torch's own fused attention, heads repeated for groups.

It is loaded into arms by the same loader, along the same path, as the source of a bundle.
"""

import torch


def attention(q, k, v, out, sm_scale, causal):  # type: ignore[no-untyped-def]
    query, key, value = (tensor.transpose(0, 1).unsqueeze(0) for tensor in (q, k, v))
    result = torch.nn.functional.scaled_dot_product_attention(
        query, key, value, is_causal=causal, scale=sm_scale, enable_gqa=True
    )
    out.copy_(result.squeeze(0).transpose(0, 1))
