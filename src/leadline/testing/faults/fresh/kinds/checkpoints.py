"""Faults of loading and converting, which only trained weights can show."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from leadline.testing.faults.fault import FaultSite, fresh_fault
from leadline.testing.faults.hosts.entry import Host
from leadline.testing.faults.subject import Subject

_OUTCOMES = ("loss-worse-than-unigram", "loss-worse-than-uniform")


def _is_trained(host: Host) -> bool:
    return host.trained


def _swap(first: Tensor, second: Tensor) -> None:
    kept = first.clone()
    first.copy_(second)
    second.copy_(kept)


def _swap_roles(subject: Subject, layer: int, one: str, other: str) -> None:
    """Exchange two matrices of a layer with their biases."""
    _swap(subject.weight(layer, one), subject.weight(layer, other))
    biases = subject.bias(layer, one), subject.bias(layer, other)
    if biases[0] is not None and biases[1] is not None:
        _swap(biases[0], biases[1])


@fresh_fault(
    "gate-up-exchanged",
    "weights-layout-wrong",
    "weights-foreign",
    fits=lambda host: host.trained and "gate" in host.layout.weights,
)
def gate_up_exchanged(subject: Subject) -> FaultSite:
    """Every gated MLP has its gate where the other factor belongs."""
    for layer in subject.layers:
        _swap_roles(subject, layer, "gate", "up")
    return FaultSite(sublayer="mlp")


@fresh_fault("value-heads-rolled", "weights-layout-wrong", "weights-foreign", fits=_is_trained)
def value_heads_rolled(subject: Subject) -> FaultSite:
    """The values of one layer are stored in another order of heads than its output expects."""
    layer = subject.inner_layer()
    for tensor in (subject.weight(layer, "value"), subject.bias(layer, "value")):
        if tensor is not None:
            heads = subject.by_head(tensor)
            heads.copy_(heads.roll(1, 0))
    return FaultSite((layer,), "attention", subject.parameter(layer, "value"))


@fresh_fault(
    "queries-keys-exchanged",
    "weights-foreign",
    "weights-layout-wrong",
    fits=lambda host: host.trained and not host.has("grouped"),
)
def queries_keys_exchanged(subject: Subject) -> FaultSite:
    """One layer has its queries where keys belong."""
    layer = subject.inner_layer()
    _swap_roles(subject, layer, "query", "key")
    return FaultSite((layer,), "attention")


@fresh_fault("mlp-units-misordered", "weights-foreign", fits=_is_trained)
def mlp_units_misordered(subject: Subject) -> FaultSite:
    """One MLP reads its units in another order than it computes them: half a pruning."""
    layer = subject.inner_layer()
    weight = subject.weight(layer, "down")
    order = torch.randperm(weight.shape[1], generator=subject.generator)
    weight.copy_(weight[:, order])
    return FaultSite((layer,), "mlp", subject.parameter(layer, "down"))


def _tensors(subject: Subject) -> list[dict[str, Tensor]]:
    """A copy of the parameters of every layer."""
    return [
        {name: parameter.clone() for name, parameter in subject.block(layer).named_parameters()}
        for layer in subject.layers
    ]


def _load(subject: Subject, layer: int, tensors: dict[str, Tensor]) -> None:
    for name, parameter in subject.block(layer).named_parameters():
        parameter.copy_(tensors[name])


@fresh_fault("layers-reversed", "weights-foreign", "write-harmful", fits=_is_trained)
def layers_reversed(subject: Subject) -> FaultSite:
    """The layers were loaded in the reverse order."""
    for layer, tensors in zip(subject.layers, reversed(_tensors(subject)), strict=True):
        _load(subject, layer, tensors)
    return FaultSite(tuple(subject.layers))


@fresh_fault(
    "layers-shifted", "layers-cloned", "weights-foreign", "write-harmful", fits=_is_trained
)
def layers_shifted(subject: Subject) -> FaultSite:
    """Every layer has the weights of the one below it: a counter that starts at one."""
    for layer, tensors in zip(subject.layers[1:], _tensors(subject), strict=False):
        _load(subject, layer, tensors)
    return FaultSite(tuple(subject.layers))


# --- vocabulary -------------------------------------------------------------------------------

FIRST, NEW = 64, 3
"""Where tokens were inserted, and how many."""


@fresh_fault("tokens-inserted", *_OUTCOMES, "weights-foreign", fits=_is_trained)
def tokens_inserted(subject: Subject) -> FaultSite:
    """Three tokens were inserted amid the vocabulary: all rows above stand three too high."""
    table = subject.outer("embedding").weight
    assert isinstance(table, Tensor)
    table[FIRST:] = table[FIRST:].roll(NEW, 0)
    return FaultSite()


@fresh_fault(
    "head-tied-by-mistake",
    "weights-foreign",
    "tying-broken",
    *_OUTCOMES,
    fits=lambda host: host.trained and not host.has("tied") and bool(host.layout.outer.head),
)
def head_tied_by_mistake(subject: Subject) -> FaultSite:
    """The head has a matrix of its own in the checkpoint, and the loader ties it instead."""
    head = subject.outer("head")
    head.weight = subject.outer("embedding").weight
    return FaultSite(parameter=f"{subject.layout.outer.head}.weight")


# --- biases and norms -------------------------------------------------------------------------


def _has_bias(host: Host) -> bool:
    own = host.has("recipe") and not host.has("rotary")
    return host.trained and (own or host.has("mlp-bias") or host.has("attention-bias"))


@fresh_fault("bias-lost", "weights-zero", "weights-foreign", fits=_has_bias)
def bias_lost(subject: Subject) -> FaultSite:
    """One bias is not in the converted checkpoint and is zero."""
    layer = subject.inner_layer()
    roles = [
        role for role in ("value", "output", "up", "down") if subject.bias(layer, role) is not None
    ]
    role = subject.random.choice(roles)
    bias = subject.bias(layer, role)
    assert bias is not None
    bias.zero_()
    slot = subject.layout.weights[role]
    sublayer = "attention" if role in ("value", "output") else "mlp"
    return FaultSite((layer,), sublayer, f"{subject.path(layer, slot.path)}.{slot.bias}")


@fresh_fault("gain-not-loaded", "weights-foreign", "norm-gain-odd", fits=_is_trained)
def gain_not_loaded(subject: Subject) -> FaultSite:
    """The norms of one layer were not in the checkpoint: gains one, biases zero."""
    layer = subject.inner_layer()
    for role in subject.layout.norms:
        norm = subject.norm(layer, role)
        for name, parameter in norm.named_parameters():
            parameter.fill_(0.0 if name == "bias" else 1.0 - subject.layout.gain_offset)
    return FaultSite((layer,))


@fresh_fault("norms-exchanged", "weights-foreign", "norm-gain-odd", fits=_is_trained)
def norms_exchanged(subject: Subject) -> FaultSite:
    """One layer has the norm of its attention before the MLP, and the other way round."""
    layer = subject.inner_layer()
    one, other = (subject.norm(layer, role) for role in ("attention", "mlp"))
    for first, second in zip(one.parameters(), other.parameters(), strict=True):
        _swap(first, second)
    return FaultSite((layer,))


@fresh_fault(
    "final-norm-twice",
    "norm-misplaced",
    fits=lambda host: host.trained and bool(host.layout.outer.final),
)
def final_norm_twice(subject: Subject) -> FaultSite:
    """The last norm is applied in the body and once more before the head."""

    def twice(forward: Callable[[Tensor], Tensor], _module: nn.Module, x: Tensor) -> Tensor:
        return forward(forward(x))

    subject.wrap(subject.outer("final"), twice)
    return FaultSite(parameter=subject.layout.outer.final)
