"""Faults of attention: scale, mask, softmax, and how heads are split and merged."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from leadline.testing.faults.fault import FaultSite, fault
from leadline.testing.faults.hosts.entry import Host
from leadline.testing.faults.kernels import Kernel, attend, causal, put_kernel, with_mask
from leadline.testing.faults.subject import Subject


def has_kernel(host: Host) -> bool:
    """Whether the attention calls a kernel that can be exchanged."""
    return bool(host.layout.kernel)


def _is_scaled(host: Host) -> bool:
    return host.layout.is_scaled


def _set_scale(subject: Subject, layer: int, scale: float) -> None:
    setattr(subject.module(layer, subject.layout.attention), subject.layout.scale, scale)


def _scale_everywhere(subject: Subject, scale: float) -> FaultSite:
    for layer in subject.layers:
        _set_scale(subject, layer, scale)
    return FaultSite(sublayer="attention")


@fault("scale-dropped", "attention-scale-wrong", fits=_is_scaled)
def scale_dropped(subject: Subject) -> FaultSite:
    """The logits are not divided by sqrt(head width)."""
    return _scale_everywhere(subject, 1.0)


@fault("scale-squared", "attention-scale-wrong", fits=_is_scaled)
def scale_squared(subject: Subject) -> FaultSite:
    """The logits are divided by the head width instead of its root."""
    return _scale_everywhere(subject, 1 / subject.head_width)


@fault("scale-dropped-one-layer", "attention-scale-wrong", fits=_is_scaled)
def scale_dropped_one_layer(subject: Subject) -> FaultSite:
    """One layer does not divide its logits by sqrt(head width)."""
    layer = subject.inner_layer()
    _set_scale(subject, layer, 1.0)
    return FaultSite((layer,), "attention")


@fault(
    "logits-zero",
    "attention-uniform",
    "attention-scale-wrong",
    fits=lambda host: host.trained and _is_scaled(host) and has_kernel(host),
)
def logits_zero(subject: Subject) -> FaultSite:
    """The scale is 1 // sqrt(head width), which is zero: every token sees all equally."""
    return _everywhere(
        subject, lambda q, k, v, allowed, _scale, bias: attend(q, k, v, allowed, 0.0, bias)
    )


@fault(
    "queries-keys-times-20",
    "attention-saturated",
    "init-too-large",
    "weights-scale-odd",
    fits=lambda host: not host.has("qk-norm"),
)
def queries_keys_times_20(subject: Subject) -> FaultSite:
    """Queries and keys of all layers are twenty times too large: every token sees one other."""
    for layer in subject.layers:
        for role in ("query", "key"):
            subject.weight(layer, role).mul_(20.0)
    return FaultSite(sublayer="attention")


# --- masks ------------------------------------------------------------------------------------


def _is_causal(host: Host) -> bool:
    return host.layout.causal and has_kernel(host)


def _mask_everywhere(subject: Subject, mask: Callable[[int], Tensor | None]) -> FaultSite:
    for layer in subject.layers:
        put_kernel(subject, layer, with_mask(mask))
    return FaultSite(sublayer="attention", names_stack=False)


@fault("mask-removed", "future-leaks", fits=_is_causal)
def mask_removed(subject: Subject) -> FaultSite:
    """No layer hides later tokens."""
    return _mask_everywhere(subject, lambda _: None)


@fault("mask-removed-one-layer", "future-leaks", fits=_is_causal)
def mask_removed_one_layer(subject: Subject) -> FaultSite:
    """One layer does not hide later tokens."""
    layer = subject.inner_layer()
    put_kernel(subject, layer, with_mask(lambda _: None))
    return FaultSite((layer,), "attention", names_stack=False)


@fault("mask-one-ahead", "future-leaks", fits=_is_causal)
def mask_one_ahead(subject: Subject) -> FaultSite:
    """Every token sees the one that follows it: tril(diagonal=1)."""
    return _mask_everywhere(subject, lambda tokens: causal(tokens, ahead=1))


@fault("mask-without-self", "past-unreached", fits=_is_causal)
def mask_without_self(subject: Subject) -> FaultSite:
    """No token but the first sees itself: tril(diagonal=-1)."""

    def mask(tokens: int) -> Tensor:
        allowed = causal(tokens, ahead=-1)
        allowed[0, 0] = True
        return allowed

    return _mask_everywhere(subject, mask)


@fault("window-of-two", "past-unreached", fits=_is_causal)
def window_of_two(subject: Subject) -> FaultSite:
    """Every token sees itself and the one before it, nothing else."""
    return _mask_everywhere(subject, lambda tokens: causal(tokens).triu(-1))


@fault("self-only-one-layer", "past-unreached", fits=_is_causal)
def self_only_one_layer(subject: Subject) -> FaultSite:
    """In one layer every token sees only itself."""
    layer = subject.inner_layer()
    put_kernel(subject, layer, with_mask(lambda tokens: torch.eye(tokens, dtype=torch.bool)))
    return FaultSite((layer,), "attention")


@fault("mask-row-empty", "mask-row-empty", "not-finite", "past-unreached", fits=_is_causal)
def mask_row_empty(subject: Subject) -> FaultSite:
    """The first token sees nothing, and the softmax of nothing is not a number."""

    def kernel(
        q: Tensor, k: Tensor, v: Tensor, _: Tensor | None, scale: float, bias: Tensor | None
    ) -> Tensor:
        logits = q @ k.transpose(-1, -2) * scale
        allowed = causal(q.shape[-2], ahead=-1)
        return torch.softmax(logits.masked_fill(~allowed, float("-inf")), dim=-1) @ v

    for layer in subject.layers:
        put_kernel(subject, layer, kernel)
    return FaultSite(sublayer="attention", names_stack=False)


# --- axes -------------------------------------------------------------------------------------


def _everywhere(subject: Subject, kernel: Kernel) -> FaultSite:
    for layer in subject.layers:
        put_kernel(subject, layer, kernel)
    return FaultSite(sublayer="attention", names_stack=False)


def _softmax_over(axis: int) -> Kernel:
    return lambda q, k, v, allowed, scale, bias: attend(q, k, v, allowed, scale, bias, axis=axis)


@fault("softmax-over-queries", "softmax-axis-wrong", "future-leaks", fits=has_kernel)
def softmax_over_queries(subject: Subject) -> FaultSite:
    """softmax(dim=-2): the weights of a key sum to one, those of a query do not."""
    return _everywhere(subject, _softmax_over(-2))


@fault("softmax-over-heads", "softmax-axis-wrong", "future-leaks", fits=has_kernel)
def softmax_over_heads(subject: Subject) -> FaultSite:
    """softmax(dim=1): the heads share one unit of weight, and masked tokens get their part."""
    return _everywhere(subject, _softmax_over(1))


def _mixed(x: Tensor) -> Tensor:
    """[example, head, token, width] read as if it were [example, token, head, width]."""
    examples, heads, tokens, width = x.shape
    return x.transpose(1, 2).reshape(examples, heads, tokens, width)


def _unmixed(x: Tensor) -> Tensor:
    """What `_mixed` did, undone as the same slip would undo it."""
    examples, heads, tokens, width = x.shape
    return x.reshape(examples, tokens, heads, width).transpose(1, 2)


@fault("heads-split-without-transpose", "heads-split-wrong", "past-unreached", fits=has_kernel)
def heads_split_without_transpose(subject: Subject) -> FaultSite:
    """view(example, head, token, width) without a transpose: a head gets a part of the tokens.

    Head h then holds all heads' pieces of the h-th part of the text, and sees no other part.
    """

    def kernel(
        q: Tensor,
        k: Tensor,
        v: Tensor,
        allowed: Tensor | None,
        scale: float,
        bias: Tensor | None,
    ) -> Tensor:
        q, k, v = _mixed(q), _mixed(k), _mixed(v)
        return _unmixed(attend(q, k, v, allowed, scale, bias))

    return _everywhere(subject, kernel)


@fault("heads-merged-without-transpose", "heads-split-wrong", "future-leaks", fits=has_kernel)
def heads_merged_without_transpose(subject: Subject) -> FaultSite:
    """The heads' outputs are reshaped without a transpose: a token gets those of other tokens."""

    def kernel(
        q: Tensor,
        k: Tensor,
        v: Tensor,
        allowed: Tensor | None,
        scale: float,
        bias: Tensor | None,
    ) -> Tensor:
        return _unmixed(attend(q, k, v, allowed, scale, bias))

    return _everywhere(subject, kernel)


@fault("attention-over-examples", "examples-mixed", "past-unreached", fits=has_kernel)
def attention_over_examples(subject: Subject) -> FaultSite:
    """The batch comes second and the attention expects it first: examples see each other."""

    def kernel(
        q: Tensor,
        k: Tensor,
        v: Tensor,
        allowed: Tensor | None,
        scale: float,
        bias: Tensor | None,
    ) -> Tensor:
        q, k, v = (x.transpose(0, 2) for x in (q, k, v))
        return F.scaled_dot_product_attention(q, k, v, scale=scale).transpose(0, 2)

    return _everywhere(subject, kernel)


# --- heads ------------------------------------------------------------------------------------


def _equal_heads(subject: Subject, layer: int) -> None:
    for role in ("query", "key", "value"):
        for tensor in (subject.weight(layer, role), subject.bias(layer, role)):
            if tensor is not None:
                heads = subject.by_head(tensor)
                heads.copy_(heads[:1].clone().expand_as(heads))


@fault("heads-equal-everywhere", "heads-equal", "weights-low-rank")
def heads_equal_everywhere(subject: Subject) -> FaultSite:
    """One projection is repeated for all heads, in every layer."""
    for layer in subject.layers:
        _equal_heads(subject, layer)
    return FaultSite(sublayer="attention")


@fault("heads-equal-one-layer", "heads-equal", "weights-low-rank")
def heads_equal_one_layer(subject: Subject) -> FaultSite:
    """One projection is repeated for all heads of one layer."""
    layer = subject.inner_layer()
    _equal_heads(subject, layer)
    return FaultSite((layer,), "attention")
