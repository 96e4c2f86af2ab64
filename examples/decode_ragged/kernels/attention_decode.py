import torch


def attention_decode(q, k, v, seq_lens, sm_scale, out):
    batch, heads, head_dim = q.shape
    shared = (k.shape[2], heads // k.shape[2], head_dim)
    # Only the positions a sequence has are read, and each head of keys once for all query heads that share it.
    for row, length in enumerate(seq_lens.tolist()):
        key, value = k[row, :length].permute(1, 2, 0), v[row, :length].transpose(0, 1)
        scores = torch.bmm(q[row].view(shared).float(), key.float()).mul_(sm_scale)
        weights = torch.softmax(scores, dim=-1)
        out[row].view(shared).copy_(torch.bmm(weights, value.float()))
