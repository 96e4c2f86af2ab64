import torch

ROWS = 64  # queries handled together: a block of them looks only at the keys its last query sees


def attention(q, k, v, out, sm_scale, causal):
    tokens, heads, head_dim = q.shape
    keys, kv_heads, _ = k.shape
    group = heads // kv_heads
    # Query heads that share keys and values become rows of one product: keys and values are read once for all of them.
    query = q.view(tokens, kv_heads, group, head_dim).transpose(0, 1).float() * sm_scale
    key, value = k.permute(1, 2, 0).float(), v.transpose(0, 1).float()
    answer = out.view(tokens, kv_heads, group, head_dim).transpose(0, 1)
    hidden = torch.ones(ROWS, ROWS, dtype=torch.bool).triu_(1)
    for start in range(0, tokens, ROWS):
        stop = min(start + ROWS, tokens)
        count = stop - start
        seen = keys - tokens + stop if causal else keys
        rows = query[:, start:stop].reshape(kv_heads, count * group, head_dim)
        scores = torch.bmm(rows, key[:, :, :seen])
        if causal:
            own = scores.view(kv_heads, count, group, seen)[..., seen - count :]
            own.masked_fill_(hidden[:count, None, :count], float("-inf"))
        result = torch.bmm(torch.softmax(scores, dim=-1), value[:, :seen])
        answer[:, start:stop].copy_(result.view(kv_heads, count, group, head_dim))
