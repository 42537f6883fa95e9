"""Faults of structure: modules that are unused or shared, gradients that are cut, what is frozen."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from leadline.testing.faults.fault import FaultSite, fault
from leadline.testing.faults.hosts.entry import Host
from leadline.testing.faults.kinds.residual import adds
from leadline.testing.faults.rewriting import Edit, rewrite
from leadline.testing.faults.subject import Subject


def _norms_in_one_forward(host: Host) -> bool:
    mlp = host.layout.addition("mlp")
    return mlp is not None and mlp.owner == "" and bool(mlp.normed)


@fault("second-norm-unused", "parameters-unused", "norm-missing", fits=_norms_in_one_forward)
def second_norm_unused(subject: Subject) -> FaultSite:
    """In one layer the MLP uses the norm of the attention, and its own is never called."""
    layer = subject.inner_layer()
    one, attention = subject.addition("mlp"), subject.addition("attention")
    other = one.normed.replace(one.norm, attention.norm)
    rewrite(subject.block(layer), Edit(one.normed, other))
    path = subject.path(layer, subject.layout.norms["mlp"])
    return FaultSite((layer,), parameter=path)


@fault("module-unused", "parameters-unused")
def module_unused(subject: Subject) -> FaultSite:
    """One block has a norm that its code never calls."""
    layer = subject.inner_layer()
    width = subject.weight(layer, "output").shape[0]
    subject.block(layer).add_module("extra_norm", nn.LayerNorm(width))
    return FaultSite((layer,), parameter=subject.path(layer, "extra_norm"))


def _is_uniform(host: Host) -> bool:
    """Whether a block could stand in the place of another."""
    return host.kind != "encoder-decoder" and not host.has("lanes")


@fault("one-module-for-all-layers", "modules-shared", "layers-cloned", fits=_is_uniform)
def one_module_for_all_layers(subject: Subject) -> FaultSite:
    """ModuleList([block] * depth): all layers are one module."""
    blocks = subject.blocks
    config: Any = getattr(subject.model, "config", None)
    if hasattr(config, "use_cache"):
        # One module has one place in a cache, where all layers would find the first one's keys.
        config.use_cache = False
    for layer in subject.layers[1:]:
        blocks[layer - 1] = blocks[0]
    return FaultSite()


def _has_mlp(host: Host) -> bool:
    return bool(host.layout.mlp)


@fault("mlp-shared-by-two-layers", "modules-shared", "layers-cloned", fits=_has_mlp)
def mlp_shared_by_two_layers(subject: Subject) -> FaultSite:
    """Two layers use one MLP."""
    layer = subject.inner_layer()
    owner, _, name = subject.layout.mlp.rpartition(".")
    shared = subject.module(layer, subject.layout.mlp)
    setattr(subject.module(layer + 1, owner), name, shared)
    return FaultSite((layer, layer + 1), "mlp")


# --- gradient ---------------------------------------------------------------------------------


@fault("block-input-detached", "gradient-cut", "gradient-vanishing")
def block_input_detached(subject: Subject) -> FaultSite:
    """One block detaches what it reads: nothing below it learns."""
    layer = subject.inner_layer()

    def detached(forward: Callable[..., Any], _block: nn.Module, x: Any, *a: Any, **k: Any) -> Any:
        return forward(x.detach(), *a, **k)

    subject.wrap(subject.block(layer), detached)
    return FaultSite(tuple(range(1, layer + 1)))


@fault("block-without-gradient", "gradient-cut", "gradient-vanishing")
def block_without_gradient(subject: Subject) -> FaultSite:
    """One block runs under torch.no_grad."""
    layer = subject.inner_layer()

    def without(forward: Callable[..., Any], _block: nn.Module, *a: Any, **k: Any) -> Any:
        with torch.no_grad():
            return forward(*a, **k)

    subject.wrap(subject.block(layer), without)
    return FaultSite(tuple(range(1, layer + 1)))


@fault("update-detached", "gradient-cut", fits=adds)
def update_detached(subject: Subject) -> FaultSite:
    """One sublayer adds a detached update: its weights never learn."""
    layer, role = subject.inner_layer(), subject.role()
    subject.edit(layer, role, "{stream} + {update}.detach()")
    parallel = subject.addition(role).role == "both"
    return FaultSite((layer,), None if parallel else role)


@fault("skip-detached", "gradient-cut", "gradient-vanishing", "residual-missing", fits=adds)
def skip_detached(subject: Subject) -> FaultSite:
    """One sublayer adds to a detached stream: gradients go on through the branch alone."""
    layer, role = subject.inner_layer(), subject.role()
    subject.edit(layer, role, "{stream}.detach() + {update}")
    parallel = subject.addition(role).role == "both"
    return FaultSite((layer,), None if parallel else role)


# --- frozen -----------------------------------------------------------------------------------


@fault("layer-frozen", "parameters-frozen")
def layer_frozen(subject: Subject) -> FaultSite:
    """The parameters of one layer do not ask for gradients."""
    layer = subject.inner_layer()
    subject.block(layer).requires_grad_(False)
    return FaultSite((layer,))


@fault("norms-frozen", "parameters-frozen")
def norms_frozen(subject: Subject) -> FaultSite:
    """The norms of all blocks do not ask for gradients."""
    for _, _, norm in subject.norms():
        norm.requires_grad_(False)
    return FaultSite()


@fault(
    "stream-pooled",
    "tokens-equal",
    "residual-from-wrong-point",
    "residual-missing",
    fits=lambda host: adds(host) and not host.layout.causal,
)
def stream_pooled(subject: Subject) -> FaultSite:
    """One sublayer gives every token the mean of all: a pooling that was meant for the end."""
    layer, role = subject.inner_layer(), subject.role()
    subject.edit(layer, role, "({add}).mean(1, keepdim=True).expand_as({stream})")
    return FaultSite((layer,), role)
