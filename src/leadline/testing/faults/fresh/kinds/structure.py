"""Faults of code, initialisation and structure: sums, sharing, cut gradients, rank, digits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from leadline.testing.faults.fault import FaultSite, fresh_fault
from leadline.testing.faults.kinds.residual import adds
from leadline.testing.faults.lora import LoraLinear, add_lora
from leadline.testing.faults.subject import Subject

DROPPED = 0.1
"""How often an example loses an update where drop path is on."""


def _sublayer(role: str) -> str:
    return "attention" if role == "output" else "mlp"


# --- residual and norms -----------------------------------------------------------------------


@fresh_fault("sum-halved", "residual-weight-odd", fits=adds)
def sum_halved(subject: Subject) -> FaultSite:
    """One sublayer takes the mean of stream and update instead of their sum."""
    layer, role = subject.inner_layer(), subject.role()
    subject.edit(layer, role, "0.5 * ({add})")
    parallel = subject.addition(role).role == "both"
    return FaultSite((layer,), None if parallel else role)


@fresh_fault(
    "block-result-dropped",
    "write-lost",
    "write-dead",
    "gradient-cut",
    "parameters-unused",
    "depth-unused",
)
def block_result_dropped(subject: Subject) -> FaultSite:
    """One block runs and what it returns is not used: the next one reads what this one read."""
    layer = subject.inner_layer()

    def dropped(forward: Callable[..., Any], _block: nn.Module, x: Any, *a: Any, **k: Any) -> Any:
        result = forward(x, *a, **k)
        return (x, *result[1:]) if isinstance(result, tuple) else x

    subject.wrap(subject.block(layer), dropped)
    return FaultSite((layer,))


@fresh_fault(
    "norm-over-tokens",
    "future-leaks",
    fits=lambda host: host.layout.causal and not host.has("lanes"),
)
def norm_over_tokens(subject: Subject) -> FaultSite:
    """One norm takes its mean square over the tokens instead of the features."""
    layer = subject.inner_layer()
    role = subject.random.choice(list(subject.layout.norms))
    offset = subject.layout.gain_offset

    def over_tokens(_forward: object, module: nn.Module, x: Tensor) -> Tensor:
        scaled = x / (x.pow(2).mean(1, keepdim=True) + 1e-5).sqrt()
        return (module.weight + offset) * scaled  # type: ignore[operator]

    subject.wrap(subject.norm(layer, role), over_tokens)
    path = subject.path(layer, subject.layout.norms[role])
    return FaultSite((layer,), parameter=path, names_stack=False)


@fresh_fault("drop-path-on", "random-in-evaluation", fits=adds)
def drop_path_on(subject: Subject) -> FaultSite:
    """Stochastic depth without a look at the mode: examples lose updates in evaluation."""

    def drop_path(update: Tensor) -> Tensor:
        shape = (update.shape[0],) + (1,) * (update.ndim - 1)
        return update * (torch.rand(shape) >= DROPPED) / (1 - DROPPED)

    for layer in subject.layers:
        subject.edit_all(layer, "{stream} + drop_path({update})", drop_path=drop_path)
    return FaultSite()


# --- sharing and gradients --------------------------------------------------------------------


def _put(subject: Subject, layer: int, path: str, module: nn.Module) -> None:
    """Exchange a module inside a block."""
    owner, _, name = path.rpartition(".")
    setattr(subject.module(layer, owner), name, module)


@fresh_fault("norm-shared", "modules-shared", fits=lambda host: not host.has("lanes"))
def norm_shared(subject: Subject) -> FaultSite:
    """All layers use the norms of the first one."""
    for layer in subject.layers[1:]:
        for role, path in subject.layout.norms.items():
            _put(subject, layer, path, subject.norm(1, role))
    return FaultSite()


@fresh_fault(
    "attention-shared-by-two-layers",
    "modules-shared",
    "layers-cloned",
    fits=lambda host: host.kind != "encoder-decoder" and not host.has("lanes"),
)
def attention_shared_by_two_layers(subject: Subject) -> FaultSite:
    """Two neighbouring layers have one attention module."""
    layer, path = subject.inner_layer(), subject.layout.attention
    config: Any = getattr(subject.model, "config", None)
    if hasattr(config, "use_cache"):
        # One module has one place in a cache, where the second layer would find the first's keys.
        config.use_cache = False
    _put(subject, layer + 1, path, subject.module(layer, path))
    return FaultSite((layer, layer + 1), "attention")


@fresh_fault("embedding-detached", "gradient-cut", fits=lambda host: not host.has("tied"))
def embedding_detached(subject: Subject) -> FaultSite:
    """The embedding is looked up without gradients and never learns."""

    def detached(forward: Callable[..., Tensor], _module: nn.Module, *a: Any, **k: Any) -> Tensor:
        return forward(*a, **k).detach()

    subject.wrap(subject.outer("embedding"), detached)
    return FaultSite(parameter=f"{subject.layout.outer.embedding}.weight")


def _lora(subject: Subject) -> list[LoraLinear]:
    return add_lora(subject.model, subject.host, generator=subject.generator)


@fresh_fault("lora-frozen", "adapter-cannot-learn", "parameters-frozen")
def lora_frozen(subject: Subject) -> FaultSite:
    """The model is frozen after its adapters were put in, and they are frozen with it."""
    _lora(subject)
    subject.model.requires_grad_(False)
    return FaultSite()


@fresh_fault("lora-detached", "adapter-cannot-learn", "gradient-cut")
def lora_detached(subject: Subject) -> FaultSite:
    """Every adapter adds a detached update."""

    def detached(_forward: Any, module: Any, x: Tensor) -> Tensor:
        return module.layer(x) + module.lora_B(module.lora_A(x)).detach()

    for adapter in _lora(subject):
        subject.wrap(adapter, detached)
    return FaultSite()


# --- weights ----------------------------------------------------------------------------------


@fresh_fault(
    "layer-default-init",
    "weights-scale-odd",
    "weights-foreign",
    fits=lambda host: (
        not host.trained
        and (
            (host.has("config") and not host.has("other-range"))
            or host.name in ("plain-gpt", "plain-llama")
        )
    ),
)
def layer_default_init(subject: Subject) -> FaultSite:
    """One layer was forgotten by the initialisation and is as torch draws linear layers."""
    layer = subject.inner_layer()
    for role in subject.matrices:
        weight = subject.weight(layer, role)
        noise = torch.rand(weight.shape, generator=subject.generator)
        weight.copy_((2 * noise - 1) * weight.shape[-1] ** -0.5)
    return FaultSite((layer,))


@fresh_fault("tensor-constant", "weights-low-rank", "weights-foreign")
def tensor_constant(subject: Subject) -> FaultSite:
    """One matrix holds one number throughout, of the size that its numbers had."""
    layer, role = subject.inner_layer(), subject.random.choice(["output", "up", "down"])
    weight = subject.weight(layer, role)
    weight.fill_(float(weight.pow(2).mean().sqrt()))
    return FaultSite((layer,), _sublayer(role), subject.parameter(layer, role))


@fresh_fault("mlp-units-equal", "weights-low-rank")
def mlp_units_equal(subject: Subject) -> FaultSite:
    """All units of one MLP start alike: one row was repeated for all."""
    layer = subject.inner_layer()
    weight = subject.weight(layer, "up")
    weight.copy_(weight[:1].clone().expand_as(weight))
    return FaultSite((layer,), "mlp", subject.parameter(layer, "up"))


@fresh_fault("layer-in-float8", "weights-quantised")
def layer_in_float8(subject: Subject) -> FaultSite:
    """The matrices of one layer went through a float of eight bits, two of them for the digits."""
    layer = subject.inner_layer()
    for role in subject.matrices:
        weight = subject.weight(layer, role)
        weight.copy_(weight.to(torch.float8_e5m2).to(weight.dtype))
    return FaultSite((layer,))


@fresh_fault("embedding-quantised", "weights-quantised")
def embedding_quantised(subject: Subject) -> FaultSite:
    """The embedding is rounded to three bits and the rest is not."""
    weight = subject.outer("embedding").weight
    assert isinstance(weight, Tensor)
    step = weight.abs().max() / 3
    weight.copy_((weight / step).round() * step)
    return FaultSite(parameter=f"{subject.layout.outer.embedding}.weight")
