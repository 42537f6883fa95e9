"""Faults of single weights: zero, too large, cloned, low rank, quantised, not finite, wrong buffers."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from leadline.testing.faults.fault import FaultSite, fault
from leadline.testing.faults.hosts.entry import Host
from leadline.testing.faults.subject import Subject

__all__ = ["frequencies"]

_ATTENTION = ("query", "key", "value", "output")


def _sublayer(role: str) -> str:
    return "attention" if role in _ATTENTION else "mlp"


def _zero(subject: Subject, role: str) -> FaultSite:
    layer = subject.inner_layer()
    subject.weight(layer, role).zero_()
    bias = subject.bias(layer, role)
    if bias is not None:
        bias.zero_()
    return FaultSite((layer,), _sublayer(role), subject.parameter(layer, role))


@fault("mlp-zero", "weights-zero", "write-dead")
def mlp_zero(subject: Subject) -> FaultSite:
    """The last matrix of one MLP is zero."""
    return _zero(subject, "down")


@fault("attention-output-zero", "weights-zero", "write-dead")
def attention_output_zero(subject: Subject) -> FaultSite:
    """The output projection of one attention is zero."""
    return _zero(subject, "output")


@fault("head-zero", "weights-zero", "write-dead")
def head_zero(subject: Subject) -> FaultSite:
    """What one head writes is multiplied by zero."""
    layer, head = subject.inner_layer(), subject.random.randrange(subject.heads)
    width = subject.head_width
    subject.weight(layer, "output")[:, head * width : (head + 1) * width].zero_()
    return FaultSite((layer,), "attention", subject.parameter(layer, "output"))


@fault("value-head-zero", "write-dead", "weights-zero")
def value_head_zero(subject: Subject) -> FaultSite:
    """The values of one head, or of one group of heads, are zero."""
    layer = subject.inner_layer()
    value = subject.by_head(subject.weight(layer, "value"))
    head = subject.random.randrange(len(value))
    value[head].zero_()
    bias = subject.bias(layer, "value")
    if bias is not None:
        subject.by_head(bias)[head].zero_()
    return FaultSite((layer,), "attention", subject.parameter(layer, "value"))


def _has_mlp_bias(host: Host) -> bool:
    """Families whose MLP is not gated and has biases."""
    own = host.has("mlp-bias") or (host.has("recipe") and not host.has("rotary"))
    return own or host.name.removeprefix("trained-") in (
        "gpt2",
        "opt",
        "starcoder2",
        "gpt_neox",
        "phi",
        "bert",
        "roberta",
        "vit",
        "nano-gpt",
    )


@fault("rectifier-dead", "write-dead", "weights-scale-odd", fits=_has_mlp_bias)
def rectifier_dead(subject: Subject) -> FaultSite:
    """The bias before one activation is so low that no unit is ever active."""
    layer = subject.inner_layer()
    bias = subject.bias(layer, "up")
    assert bias is not None
    bias.fill_(-100.0)
    return FaultSite((layer,), "mlp", subject.path(layer, subject.layout.weights["up"].path))


# --- scale ------------------------------------------------------------------------------------


def _scale(subject: Subject, layer: int, roles: list[str], factor: float) -> None:
    for role in roles:
        subject.weight(layer, role).mul_(factor)


@fault("qkv-times-100", "weights-scale-odd", "attention-saturated")
def qkv_times_100(subject: Subject) -> FaultSite:
    """Query, key and value of one layer are a hundred times too large."""
    layer = subject.inner_layer()
    _scale(subject, layer, ["query", "key", "value"], 100.0)
    return FaultSite((layer,), "attention")


def _one_tensor(subject: Subject, factor: float) -> FaultSite:
    layer, role = subject.inner_layer(), subject.random.choice(subject.matrices)
    _scale(subject, layer, [role], factor)
    return FaultSite((layer,), _sublayer(role), subject.parameter(layer, role))


@fault("tensor-times-30", "weights-scale-odd")
def tensor_times_30(subject: Subject) -> FaultSite:
    """One matrix is thirty times too large."""
    return _one_tensor(subject, 30.0)


@fault("tensor-over-30", "weights-scale-odd")
def tensor_over_30(subject: Subject) -> FaultSite:
    """One matrix is thirty times too small."""
    return _one_tensor(subject, 1 / 30)


@fault("layer-times-10", "weights-scale-odd")
def layer_times_10(subject: Subject) -> FaultSite:
    """All matrices of one layer are ten times too large."""
    layer = subject.inner_layer()
    _scale(subject, layer, subject.matrices, 10.0)
    return FaultSite((layer,))


@fault("first-layer-times-30", "first-writes-too-large", "weights-scale-odd")
def first_layer_times_30(subject: Subject) -> FaultSite:
    """What the first layer writes is thirty times too large."""
    _scale(subject, 1, ["output", "down"], 30.0)
    return FaultSite((1,))


@fault("bias-huge", "weights-scale-odd", "tokens-equal", "writes-drowned", fits=_has_mlp_bias)
def bias_huge(subject: Subject) -> FaultSite:
    """One MLP adds a large constant vector to all tokens."""
    layer = subject.inner_layer()
    bias = subject.bias(layer, "down")
    assert bias is not None
    size = 100.0 if subject.host.trained else 10.0
    bias.copy_(size * torch.randn(bias.shape, generator=subject.generator))
    return FaultSite((layer,), "mlp", subject.path(layer, subject.layout.weights["down"].path))


# --- copies -----------------------------------------------------------------------------------


def _copy_layer(subject: Subject, source: int, target: int) -> None:
    tensors = dict(subject.block(source).named_parameters())
    for name, parameter in subject.block(target).named_parameters():
        # The first layer of T5 has a bias of positions, which the others lack.
        if name in tensors:
            parameter.copy_(tensors[name])


@fault("layer-cloned", "layers-cloned")
def layer_cloned(subject: Subject) -> FaultSite:
    """One layer has the weights of the layer below it."""
    layer = subject.inner_layer()
    _copy_layer(subject, layer, layer + 1)
    return FaultSite((layer, layer + 1))


@fault("layers-all-equal", "layers-cloned", "modules-shared")
def layers_all_equal(subject: Subject) -> FaultSite:
    """Every layer is a copy of the first, as `copy.deepcopy` of one initialised layer gives them."""
    for layer in subject.layers[1:]:
        _copy_layer(subject, 1, layer)
    return FaultSite()


def _is_tied(host: Host) -> bool:
    return host.has("tied") and bool(host.layout.outer.head)


def _untie(subject: Subject, weight: Tensor) -> FaultSite:
    subject.outer("head").weight = nn.Parameter(weight)
    return FaultSite(parameter=f"{subject.layout.outer.head}.weight")


@fault("tying-broken", "tying-broken", "weights-foreign", "weights-scale-odd", fits=_is_tied)
def tying_broken(subject: Subject) -> FaultSite:
    """The head, which should be the embedding, is a fresh random matrix."""
    table = subject.outer("embedding").weight
    assert isinstance(table, Tensor)
    return _untie(subject, 0.02 * torch.randn(table.shape, generator=subject.generator))


@fault("head-stale", "tying-broken", "weights-foreign", fits=_is_tied)
def head_stale(subject: Subject) -> FaultSite:
    """The head is an older copy of the embedding: near it, and no longer equal."""
    table = subject.outer("embedding").weight
    assert isinstance(table, Tensor)
    noise = torch.randn(table.shape, generator=subject.generator)
    return _untie(subject, table.detach() + 0.3 * table.detach().std() * noise)


# --- digits and rank --------------------------------------------------------------------------


def _quantise(weight: Tensor, bits: int = 3) -> None:
    """Round to the nearest of 2^bits - 1 equal steps between minus and plus the largest value."""
    step = weight.abs().max() / (2 ** (bits - 1) - 1)
    weight.copy_((weight / step).round() * step)


@fault("quantised-layer", "weights-quantised")
def quantised_layer(subject: Subject) -> FaultSite:
    """The matrices of one layer are rounded to three bits."""
    layer = subject.inner_layer()
    for role in subject.matrices:
        _quantise(subject.weight(layer, role))
    return FaultSite((layer,))


@fault("quantised-everywhere", "weights-quantised")
def quantised_everywhere(subject: Subject) -> FaultSite:
    """The matrices of all layers are rounded to three bits."""
    for layer in subject.layers:
        for role in subject.matrices:
            _quantise(subject.weight(layer, role))
    return FaultSite()


def _lower_rank(weight: Tensor, rank: int = 4) -> None:
    matrix = weight.reshape(-1, weight.shape[-1])
    u, s, vh = torch.linalg.svd(matrix, full_matrices=False)
    low = (u[:, :rank] * s[:rank]) @ vh[:rank]
    # The norm stays, so that nothing but the rank tells it.
    weight.copy_((low * (matrix.norm() / low.norm())).view_as(weight))


@fault("low-rank-tensor", "weights-low-rank")
def low_rank_tensor(subject: Subject) -> FaultSite:
    """One matrix of the MLP or the output projection has rank 4."""
    layer, role = subject.inner_layer(), subject.random.choice(["output", "up", "down"])
    _lower_rank(subject.weight(layer, role))
    return FaultSite((layer,), _sublayer(role), subject.parameter(layer, role))


@fault("low-rank-layer", "weights-low-rank")
def low_rank_layer(subject: Subject) -> FaultSite:
    """All matrices of one layer have rank 4."""
    layer = subject.inner_layer()
    for role in subject.matrices:
        _lower_rank(subject.weight(layer, role))
    return FaultSite((layer,))


def _one_value(subject: Subject, value: float) -> FaultSite:
    layer, role = subject.inner_layer(), subject.random.choice(subject.matrices)
    weight = subject.weight(layer, role)
    weight[(0,) * weight.ndim] = value
    return FaultSite((layer,), _sublayer(role), subject.parameter(layer, role))


@fault("weight-nan", "weights-not-finite", "not-finite")
def weight_nan(subject: Subject) -> FaultSite:
    """One number of one matrix is not a number."""
    return _one_value(subject, float("nan"))


@fault("weight-infinite", "weights-not-finite", "not-finite")
def weight_infinite(subject: Subject) -> FaultSite:
    """One number of one matrix is infinite."""
    return _one_value(subject, float("inf"))


# --- buffers ----------------------------------------------------------------------------------


def frequencies(subject: Subject) -> list[tuple[str, Tensor]]:
    """The buffers of rotary frequencies that are in use, by their full names."""
    rotary = subject.outer("rotary")
    return [
        (f"{subject.layout.outer.rotary}.{name}", buffer)
        for name, buffer in rotary.named_buffers()
        if name == "frequencies" or (name.endswith("inv_freq") and "original" not in name)
    ]


def _is_rotary(host: Host) -> bool:
    return host.has("rotary")


@fault("frequencies-garbage", "buffer-wrong", "positions-wrong", fits=_is_rotary)
def frequencies_garbage(subject: Subject) -> FaultSite:
    """The rotary frequencies are what stood in memory: a buffer that nobody filled."""
    for _, buffer in frequencies(subject):
        buffer.copy_(1e3 * torch.randn(buffer.shape, generator=subject.generator))
    return FaultSite(parameter=frequencies(subject)[0][0])


@fault("frequencies-zero", "buffer-wrong", "positions-unused", "positions-wrong", fits=_is_rotary)
def frequencies_zero(subject: Subject) -> FaultSite:
    """The rotary frequencies are zero, so that no token is turned."""
    for _, buffer in frequencies(subject):
        buffer.zero_()
    return FaultSite(parameter=frequencies(subject)[0][0])


@fault(
    "embed-scale-one",
    "embedding-scale-wrong",
    "buffer-wrong",
    fits=lambda host: "embed scale" in host.layout.traits,
)
def embed_scale_one(subject: Subject) -> FaultSite:
    """The embedding is not multiplied by sqrt(width): its buffer was lost and is one."""
    scale = subject.outer("embedding").embed_scale
    assert isinstance(scale, Tensor)
    scale.fill_(1.0)
    return FaultSite(parameter=f"{subject.layout.outer.embedding}.embed_scale")
