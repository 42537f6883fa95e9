"""Faults of running: precision, randomness in evaluation, adapters."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from leadline.testing.faults.fault import FaultSite, fault
from leadline.testing.faults.hosts.entry import Host
from leadline.testing.faults.kinds.residual import adds
from leadline.testing.faults.lora import LoraLinear, add_lora
from leadline.testing.faults.subject import Subject


def _is_fresh_pre(host: Host) -> bool:
    plain = host.layout.placement == "pre" and not host.has("lanes")
    return plain and not host.trained and host.kind == "decoder"


@fault(
    "stream-near-float16",
    "float16-overflow",
    "weights-scale-odd",
    "massive-activations",
    "stream-exploding",
    "writes-drowned",
    fits=lambda host: host.layout.placement == "pre" and not host.has("lanes"),
)
def stream_near_float16(subject: Subject) -> FaultSite:
    """One MLP writes numbers of 40,000: finite in float32, and twice as much is not in float16."""
    layer = subject.inner_layer()
    down = subject.module(layer, subject.layout.weights["down"].path)
    largest: list[float] = []
    hook = down.register_forward_hook(
        lambda _module, _inputs, output: largest.append(float(output.abs().max()))
    )
    inputs = subject.host.inputs(subject.model, 0)
    subject.model(**inputs.tensors)
    hook.remove()
    subject.weight(layer, "down").mul_(4e4 / largest[0])
    return FaultSite((layer,), "mlp")


@fault(
    "stream-large-in-bfloat16",
    "bfloat16-write-loss",
    "writes-drowned",
    "embedding-scale-wrong",
    "init-too-large",
    fits=_is_fresh_pre,
)
def stream_large_in_bfloat16(subject: Subject) -> FaultSite:
    """A bfloat16 stream so large that most of what layers write is rounded away."""
    weight = subject.outer("embedding").weight
    assert isinstance(weight, Tensor)
    weight.mul_(300.0)
    tied = ("output-head-too-large",) if subject.host.has("tied") else ()
    return FaultSite(model=subject.model.to(torch.bfloat16), causes=tied)


@fault("dropout-always-on", "random-in-evaluation", fits=adds)
def dropout_always_on(subject: Subject) -> FaultSite:
    """F.dropout without training=self.training, on every update."""
    for layer in subject.layers:
        subject.edit_all(layer, "{stream} + dropout({update}, 0.1)", dropout=F.dropout)
    return FaultSite()


@fault("dropout-in-training-mode", "random-in-evaluation", fits=lambda host: host.has("dropout"))
def dropout_in_training_mode(subject: Subject) -> FaultSite:
    """The dropout modules are still in training mode."""
    for module in subject.model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.1
            module.train()
    return FaultSite()


# --- adapters ---------------------------------------------------------------------------------


def _lora(subject: Subject) -> list[LoraLinear]:
    return add_lora(subject.model, subject.host, generator=subject.generator)


@fault("lora-both-zero", "adapter-cannot-learn", "gradient-cut")
def lora_both_zero(subject: Subject) -> FaultSite:
    """Both factors of every adapter are zero, so that neither gets a gradient."""
    for adapter in _lora(subject):
        adapter.lora_A.weight.zero_()
    return FaultSite()


@fault("lora-not-added", "adapter-cannot-learn", "parameters-unused", "gradient-cut")
def lora_not_added(subject: Subject) -> FaultSite:
    """Every adapter is computed and its result is not added."""

    def forgetful(_forward: Any, module: Any, x: Tensor) -> Tensor:
        module.lora_B(module.lora_A(x))
        return module.layer(x)

    for adapter in _lora(subject):
        subject.wrap(adapter, forgetful)
    return FaultSite()
