"""The stock form of attention.msa_block_score: one batched product, a mask, and a maximum over blocks.

It is loaded into arms by the same loader, along the same path, as the source of a bundle.
"""

import torch


def msa_block_score(q, index_k, seq_lens, block_size, out):  # type: ignore[no-untyped-def]
    query = q.float().sum(dim=1)
    scores = torch.bmm(index_k.squeeze(2).float(), query.unsqueeze(-1)).squeeze(-1)
    hidden = torch.arange(scores.shape[1], device=q.device)[None, :] >= seq_lens[:, None]
    scores.masked_fill_(hidden, float("-inf"))
    blocks = out.shape[1]
    out.copy_(scores[:, : blocks * block_size].view(-1, blocks, block_size).amax(dim=-1))
