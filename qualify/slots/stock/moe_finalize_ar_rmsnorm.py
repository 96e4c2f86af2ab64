"""The stock form of collective.moe_finalize_ar_rmsnorm: gather, weight, sum, normalise, in float32.

It is loaded into arms by the same loader, along the same path, as the source of a bundle.
"""

import torch


def moe_finalize_ar_rmsnorm(  # type: ignore[no-untyped-def] # noqa: PLR0913
    gemm_out, row_map, scales, residual, weight, eps, out_norm, out_residual, group
):
    tokens = residual.shape[0]
    rows = row_map.view(scales.shape[1], scales.shape[0])[:, :tokens].long()
    total = torch.zeros(residual.shape, dtype=torch.float32, device=residual.device)
    for choice, chosen in enumerate(rows):
        total.addcmul_(gemm_out[chosen].float(), scales[:tokens, choice].unsqueeze(-1))
    torch.distributed.all_reduce(total, group=group)
    total += residual
    out_residual.copy_(total)
    variance = total.pow(2).mean(-1, keepdim=True)
    torch.mul(total * torch.rsqrt(variance + eps), weight, out=total)
    out_norm.copy_(total)
