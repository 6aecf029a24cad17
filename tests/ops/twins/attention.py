"""Attention in torch."""

from __future__ import annotations

import torch
import torch.nn.functional as F


def attention(q, k, v, mask=None, *, scale, causal):
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=causal, scale=scale)


def gradients(wanted):
    def twin(dy, *operands, scale, causal):
        operands = [x.detach().requires_grad_() for x in operands]
        return torch.autograd.grad(attention(*operands, scale=scale, causal=causal), operands[wanted], dy)

    return twin


TWINS = {
    "attention": attention,
    "attention_calls": attention,
    "attention_grad": gradients(slice(3)),
    "attention_mask_grad": gradients(slice(3, 4)),
}
