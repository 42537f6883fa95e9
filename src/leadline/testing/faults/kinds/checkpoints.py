"""Faults of loading and converting, which only trained weights can show."""

from __future__ import annotations

import copy
from collections.abc import Callable

import torch
from torch import Tensor, nn

from leadline.parts import Transformer
from leadline.testing.faults.fault import FaultSite, fault
from leadline.testing.faults.hosts.entry import Host
from leadline.testing.faults.kinds.weights import frequencies
from leadline.testing.faults.subject import Subject

_ATTENTION = ("query", "key", "value", "output")


def _is_trained(host: Host) -> bool:
    return host.trained


def _two_layers(subject: Subject) -> tuple[int, int]:
    """Two layers that are not neighbours."""
    first = subject.random.randrange(1, subject.depth - 1)
    return first, subject.random.randrange(first + 2, subject.depth + 1)


def _sublayer(role: str) -> str:
    return "attention" if role in _ATTENTION else "mlp"


@fault("tensor-redrawn", "weights-foreign", fits=_is_trained)
def tensor_redrawn(subject: Subject) -> FaultSite:
    """One matrix was not loaded: random numbers of the right size."""
    layer, role = subject.inner_layer(), subject.random.choice(subject.matrices)
    weight = subject.weight(layer, role)
    noise = torch.randn(weight.shape, generator=subject.generator)
    weight.copy_(noise * weight.pow(2).mean().sqrt())
    return FaultSite((layer,), _sublayer(role), subject.parameter(layer, role))


@fault("tensor-transposed", "weights-foreign", fits=_is_trained)
def tensor_transposed(subject: Subject) -> FaultSite:
    """The square output projection of one attention is transposed."""
    layer = subject.inner_layer()
    weight = subject.weight(layer, "output")
    weight.copy_(weight.t().clone())
    return FaultSite((layer,), "attention", subject.parameter(layer, "output"))


def _swap(first: Tensor, second: Tensor) -> None:
    kept = first.clone()
    first.copy_(second)
    second.copy_(kept)


@fault("layers-swapped", "weights-foreign", "write-harmful", fits=_is_trained)
def layers_swapped(subject: Subject) -> FaultSite:
    """Two layers have each other's weights."""
    layers = _two_layers(subject)
    one, other = (dict(subject.block(layer).named_parameters()) for layer in layers)
    for name in one:
        _swap(one[name], other[name])
    return FaultSite(layers)


@fault("tensors-swapped", "weights-foreign", "write-harmful", fits=_is_trained)
def tensors_swapped(subject: Subject) -> FaultSite:
    """Two layers have each other's last MLP matrix or output projection."""
    layers, role = _two_layers(subject), subject.random.choice(["output", "down"])
    _swap(*(subject.weight(layer, role) for layer in layers))
    return FaultSite(layers, _sublayer(role))


def _fresh(model: nn.Module) -> nn.Module:
    """The same model as it is initialised."""
    if isinstance(model, Transformer):
        return Transformer(model.recipe, seed=model.seed + 1)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        return type(model)(copy.deepcopy(model.config))


@fault("layer-redrawn", "weights-foreign", "weights-scale-odd", fits=_is_trained)
def layer_redrawn(subject: Subject) -> FaultSite:
    """One layer was not in the checkpoint and is as it was initialised."""
    layer = subject.inner_layer()
    path = subject.path(layer, "").rstrip(".")
    fresh = _fresh(subject.model).get_submodule(path)
    for own, other in zip(subject.block(layer).parameters(), fresh.parameters(), strict=True):
        own.copy_(other)
    return FaultSite((layer,))


_OUTCOMES = ("loss-worse-than-unigram", "loss-worse-than-uniform")


@fault(
    "head-redrawn",
    "weights-foreign",
    "weights-scale-odd",
    *_OUTCOMES,
    fits=lambda host: host.trained and not host.has("tied"),
)
def head_redrawn(subject: Subject) -> FaultSite:
    """The head was not loaded."""
    weight = subject.outer("head").weight
    assert isinstance(weight, Tensor)
    noise = torch.randn(weight.shape, generator=subject.generator)
    weight.copy_(noise * weight.pow(2).mean().sqrt())
    return FaultSite(parameter=f"{subject.layout.outer.head}.weight")


# --- layout -----------------------------------------------------------------------------------


def _each_head(subject: Subject, roles: tuple[str, ...], order: Callable[[Tensor], Tensor]) -> None:
    """Reorder the rows of every head of these weights, biases included."""
    for layer in subject.layers:
        for role in roles:
            for tensor in (subject.weight(layer, role), subject.bias(layer, role)):
                if tensor is not None:
                    rows = subject.by_head(tensor)
                    rows.copy_(order(rows.clone()))


@fault(
    "rope-layout-wrong",
    "weights-layout-wrong",
    fits=lambda host: host.trained and host.has("rotary"),
)
def rope_layout_wrong(subject: Subject) -> FaultSite:
    """Queries and keys are stored as neighbouring pairs, and the model turns halves."""

    # Some families turn only the first part of a head.
    turned = 2 * len(frequencies(subject)[0][1])

    def neighbours(rows: Tensor) -> Tensor:
        order = torch.arange(turned).view(2, -1).t().flatten()
        return torch.cat([rows[:, order], rows[:, turned:]], dim=1)

    _each_head(subject, ("query", "key"), neighbours)
    return FaultSite(sublayer="attention")


@fault("keys-values-exchanged", "weights-layout-wrong", "weights-foreign", fits=_is_trained)
def keys_values_exchanged(subject: Subject) -> FaultSite:
    """Every layer has its keys where values belong."""
    for layer in subject.layers:
        _swap(subject.weight(layer, "key"), subject.weight(layer, "value"))
        key, value = subject.bias(layer, "key"), subject.bias(layer, "value")
        if key is not None and value is not None:
            _swap(key, value)
    return FaultSite(sublayer="attention")


@fault("head-order-wrong", "weights-layout-wrong", "weights-foreign", fits=_is_trained)
def head_order_wrong(subject: Subject) -> FaultSite:
    """The output projection of every layer takes the heads in another order than they come."""
    for layer in subject.layers:
        weight = subject.weight(layer, "output")
        weight.copy_(weight.roll(subject.head_width, dims=1))
    return FaultSite(sublayer="attention")


# --- vocabulary and positions -----------------------------------------------------------------


def _with_other_ids(subject: Subject, order: Tensor) -> FaultSite:
    def look_up(forward: Callable[[Tensor], Tensor], _module: nn.Module, ids: Tensor) -> Tensor:
        return forward(order[ids])

    subject.wrap(subject.outer("embedding"), look_up)
    return FaultSite()


def _rows(subject: Subject) -> int:
    weight = subject.outer("embedding").weight
    assert isinstance(weight, Tensor)
    return weight.shape[0]


@fault("vocabulary-shifted", *_OUTCOMES, "weights-foreign", fits=_is_trained)
def vocabulary_shifted(subject: Subject) -> FaultSite:
    """The tokenizer counts from one and the embedding from zero."""
    return _with_other_ids(subject, torch.arange(_rows(subject)).roll(-1))


@fault("vocabulary-permuted", *_OUTCOMES, "weights-foreign", fits=_is_trained)
def vocabulary_permuted(subject: Subject) -> FaultSite:
    """The tokenizer is that of another model."""
    order = torch.randperm(_rows(subject), generator=subject.generator)
    return _with_other_ids(subject, order)


@fault("logits-negated", "loss-worse-than-uniform", "loss-worse-than-unigram", fits=_is_trained)
def logits_negated(subject: Subject) -> FaultSite:
    """The head returns its logits with the wrong sign."""

    def negated(forward: Callable[[Tensor], Tensor], _module: nn.Module, x: Tensor) -> Tensor:
        return -forward(x)

    if isinstance(subject.model, Transformer):
        subject.outer("head").weight.mul_(-1.0)  # type: ignore[operator]
    else:
        subject.wrap(subject.outer("head"), negated)
    return FaultSite()


@fault(
    "rotary-base-wrong",
    "positions-wrong",
    "buffer-wrong",
    fits=lambda host: host.has("rotary"),
)
def rotary_base_wrong(subject: Subject) -> FaultSite:
    """The rotary base is 100 instead of 10,000: the default of other code, not of the checkpoint."""
    for _, buffer in frequencies(subject):
        count = len(buffer)
        buffer.copy_(100.0 ** -(torch.arange(count) / count))
    return FaultSite(parameter=frequencies(subject)[0][0])
