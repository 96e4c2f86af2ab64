import torch


def msa_block_score(q, index_k, seq_lens, block_size, out):
    batch, context, _, head = index_k.shape
    scores = torch.einsum("bsd,bd->bs", index_k[:, :, 0].float(), q.float().sum(1))
    scores.masked_fill_(torch.arange(context) >= seq_lens[:, None], float("-inf"))
    out.copy_(scores.view(batch, -1, block_size)[:, :, : block_size * 3 // 4].amax(-1))
