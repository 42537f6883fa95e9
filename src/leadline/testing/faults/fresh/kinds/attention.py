"""Faults of attention: masks that leak or hide, scales, heads, dropout, detached queries."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from leadline.testing.faults.fault import FaultSite, fresh_fault
from leadline.testing.faults.hosts.entry import Host
from leadline.testing.faults.kernels import Kernel, attend, causal, put_kernel, with_mask
from leadline.testing.faults.subject import Subject

CHUNK = 8
"""How many tokens see each other where the mask is cut into chunks."""
DROPPED = 0.1
"""The share of attention weights that dropout takes away."""


def _has_kernel(host: Host) -> bool:
    return bool(host.layout.kernel)


def _is_causal(host: Host) -> bool:
    return host.layout.causal and _has_kernel(host)


def _everywhere(subject: Subject, kernel: Kernel) -> FaultSite:
    for layer in subject.layers:
        put_kernel(subject, layer, kernel)
    return FaultSite(sublayer="attention", names_stack=False)


def _masked(subject: Subject, mask: Callable[[int], Tensor | None]) -> FaultSite:
    return _everywhere(subject, with_mask(mask))


def _weights(q: Tensor, k: Tensor, scale: float, bias: Tensor | None) -> Tensor:
    """The logits, with the bias where there is one."""
    logits = q @ k.transpose(-1, -2) * scale
    return logits if bias is None else logits + bias


@fresh_fault("mask-added-as-one", "future-leaks", fits=_is_causal)
def mask_added_as_one(subject: Subject) -> FaultSite:
    """The mask of ones and zeros is added to the logits, where minus infinity was meant."""

    def kernel(
        q: Tensor, k: Tensor, v: Tensor, allowed: Tensor | None, scale: float, bias: Tensor | None
    ) -> Tensor:
        ones = causal(q.shape[-2]) if allowed is None else allowed
        return torch.softmax(_weights(q, k, scale, bias) + ones.to(q.dtype), dim=-1) @ v

    return _everywhere(subject, kernel)


@fresh_fault("mask-multiplied", "future-leaks", "softmax-axis-wrong", fits=_is_causal)
def mask_multiplied(subject: Subject) -> FaultSite:
    """The weights of later tokens are set to zero after the softmax, and the rest is not rescaled.

    What later tokens are still changes the sum by which the others were divided.
    """

    def kernel(
        q: Tensor, k: Tensor, v: Tensor, allowed: Tensor | None, scale: float, bias: Tensor | None
    ) -> Tensor:
        ones = causal(q.shape[-2]) if allowed is None else allowed
        return (torch.softmax(_weights(q, k, scale, bias), dim=-1) * ones.to(q.dtype)) @ v

    return _everywhere(subject, kernel)


@fresh_fault("mask-transposed", "future-leaks", "past-unreached", fits=_is_causal)
def mask_transposed(subject: Subject) -> FaultSite:
    """triu instead of tril: every token sees itself and what follows."""
    return _masked(subject, lambda tokens: causal(tokens).t())


@fresh_fault("mask-in-chunks", "past-unreached", fits=_is_causal)
def mask_in_chunks(subject: Subject) -> FaultSite:
    """The text is cut into chunks of eight tokens, and no token sees an earlier chunk."""

    def mask(tokens: int) -> Tensor:
        chunk = torch.arange(tokens) // CHUNK
        return causal(tokens) & (chunk[:, None] == chunk)

    return _masked(subject, mask)


@fresh_fault("first-token-hidden", "past-unreached", fits=_is_causal)
def first_token_hidden(subject: Subject) -> FaultSite:
    """`>` instead of `>=`: no token but the first sees the first one."""

    def mask(tokens: int) -> Tensor:
        allowed = causal(tokens)
        allowed[1:, 0] = False
        return allowed

    return _masked(subject, mask)


# --- scales -----------------------------------------------------------------------------------


def _is_scaled(host: Host) -> bool:
    return host.layout.is_scaled


def _scale_everywhere(subject: Subject, scale: float) -> FaultSite:
    for layer in subject.layers:
        setattr(subject.module(layer, subject.layout.attention), subject.layout.scale, scale)
    return FaultSite(sublayer="attention")


@fresh_fault("scale-of-width", "attention-scale-wrong", fits=_is_scaled)
def scale_of_width(subject: Subject) -> FaultSite:
    """The logits are divided by the root of the model's width, not of a head's."""
    return _scale_everywhere(subject, subject.weight(1, "output").shape[0] ** -0.5)


@fresh_fault("scale-multiplied", "attention-scale-wrong", "attention-saturated", fits=_is_scaled)
def scale_multiplied(subject: Subject) -> FaultSite:
    """The logits are multiplied by sqrt(head width) instead of divided by it."""
    return _scale_everywhere(subject, math.sqrt(subject.head_width))


# --- heads ------------------------------------------------------------------------------------


@fresh_fault("head-duplicated", "heads-equal")
def head_duplicated(subject: Subject) -> FaultSite:
    """Two neighbouring heads of one layer have the same queries, keys and values."""
    layer = subject.inner_layer()
    groups = len(subject.by_head(subject.weight(layer, "key")))
    times = subject.heads // groups
    # Heads of one group share keys and values already.
    roles = ("query",) if times > 1 else ("query", "key", "value")
    first = subject.random.randrange(groups if times > 1 else groups - 1) * times
    for role in roles:
        for tensor in (subject.weight(layer, role), subject.bias(layer, role)):
            if tensor is not None:
                heads = subject.by_head(tensor)
                heads[first + 1].copy_(heads[first])
    return FaultSite((layer,), "attention")


@fresh_fault(
    "groups-repeated-wrong",
    "heads-split-wrong",
    "weights-layout-wrong",
    fits=lambda host: host.trained and host.has("grouped") and _has_kernel(host),
)
def groups_repeated_wrong(subject: Subject) -> FaultSite:
    """repeat instead of repeat_interleave: heads get keys and values of other groups."""
    groups = len(subject.by_head(subject.weight(1, "key")))
    times = subject.heads // groups

    def kernel(
        q: Tensor, k: Tensor, v: Tensor, allowed: Tensor | None, scale: float, bias: Tensor | None
    ) -> Tensor:
        k, v = (x[:, ::times].repeat(1, times, 1, 1) for x in (k, v))
        return attend(q, k, v, allowed, scale, bias)

    return _everywhere(subject, kernel)


@fresh_fault("attention-dropout-on", "random-in-evaluation", fits=_has_kernel)
def attention_dropout_on(subject: Subject) -> FaultSite:
    """Attention weights are dropped in evaluation too: dropout_p without a look at the mode."""

    def kernel(
        q: Tensor, k: Tensor, v: Tensor, allowed: Tensor | None, scale: float, bias: Tensor | None
    ) -> Tensor:
        logits = _weights(q, k, scale, bias)
        if allowed is not None:
            logits = logits.masked_fill(~allowed, -1e9)
        return F.dropout(torch.softmax(logits, dim=-1), DROPPED, training=True) @ v

    return _everywhere(subject, kernel)


@fresh_fault("queries-detached", "gradient-cut", fits=_has_kernel)
def queries_detached(subject: Subject) -> FaultSite:
    """One layer computes its attention weights without gradients: queries and keys never learn."""
    layer = subject.inner_layer()

    def kernel(
        q: Tensor, k: Tensor, v: Tensor, allowed: Tensor | None, scale: float, bias: Tensor | None
    ) -> Tensor:
        return attend(q.detach(), k.detach(), v, allowed, scale, bias)

    put_kernel(subject, layer, kernel)
    return FaultSite((layer,), "attention")
