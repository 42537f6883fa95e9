"""Faults of initialisation, and of scales over depth."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from leadline.testing.faults.fault import FaultSite, fault
from leadline.testing.faults.hosts import build_recipe
from leadline.testing.faults.hosts.entry import Host
from leadline.testing.faults.subject import Subject


def _is_fresh(host: Host) -> bool:
    return not host.trained


def _tensors(subject: Subject) -> Iterator[Tensor]:
    """The matrices of the blocks, the embedding, the positions and the head."""
    for layer in subject.layers:
        for role in subject.matrices:
            yield subject.weight(layer, role)
    tables = {}
    for name in ("embedding", "positions", "head"):
        if getattr(subject.layout.outer, name):
            weight = subject.outer(name).weight
            assert isinstance(weight, Tensor)
            tables[weight.data_ptr()] = weight.detach()  # a tied one only once
    yield from tables.values()


def _scale_all(subject: Subject, factor: float) -> FaultSite:
    for tensor in _tensors(subject):
        tensor.mul_(factor)
    return FaultSite()


@fault("init-times-10", "init-too-large", fits=_is_fresh)
def init_times_10(subject: Subject) -> FaultSite:
    """Every matrix is drawn ten times too large."""
    return _scale_all(subject, 10.0)


@fault("init-over-10", "init-too-small", fits=_is_fresh)
def init_over_10(subject: Subject) -> FaultSite:
    """Every matrix is drawn ten times too small."""
    return _scale_all(subject, 0.1)


def _has_range(host: Host) -> bool:
    named_otherwise = host.name in ("t5", "opt") or host.has("other-range")
    return not host.trained and host.has("config") and not named_otherwise


def _configured(subject: Subject, factor: float) -> FaultSite:
    # OPT, T5 and a few more name the deviation of their weights otherwise.
    config: Any = copy.deepcopy(subject.model.config)
    config.initializer_range *= factor
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(subject.random.randrange(1000))
        return FaultSite(model=type(subject.model)(config).eval())


@fault("init-config-times-10", "init-too-large", fits=_has_range)
def init_config_times_10(subject: Subject) -> FaultSite:
    """The configuration asks for an initialisation that is ten times too large."""
    return _configured(subject, 10.0)


@fault("init-config-over-10", "init-too-small", fits=_has_range)
def init_config_over_10(subject: Subject) -> FaultSite:
    """The configuration asks for an initialisation that is ten times too small."""
    return _configured(subject, 0.1)


def _is_depth_scaled(host: Host) -> bool:
    return host.layout.depth_scaled and not host.trained


def _unscale(subject: Subject, roles: tuple[str, ...]) -> FaultSite:
    for layer in subject.layers:
        for role in roles:
            subject.weight(layer, role).mul_(math.sqrt(2 * subject.depth))
    return FaultSite()


@fault("depth-scale-missing", "depth-scale-missing", fits=_is_depth_scaled)
def depth_scale_missing(subject: Subject) -> FaultSite:
    """What blocks write is not divided by sqrt(2 depth)."""
    return _unscale(subject, ("output", "down"))


@fault("depth-scale-missing-mlp", "depth-scale-missing", fits=_is_depth_scaled)
def depth_scale_missing_mlp(subject: Subject) -> FaultSite:
    """What MLPs write is not divided by sqrt(2 depth); the attention is right."""
    return _unscale(subject, ("down",))


# --- embedding and head -----------------------------------------------------------------------


def _embeds_plainly(host: Host) -> bool:
    """Whether the scale of the embedding matters: no norm follows it at once."""
    return not host.trained and host.layout.placement != "post" and host.kind != "vision"


def _scale_embedding(subject: Subject, factor: float = 1.0, *, root: float = 0.0) -> FaultSite:
    """Multiply the embedding by a factor and by a power of its width."""
    weight = subject.outer("embedding").weight
    assert isinstance(weight, Tensor)
    factor *= weight.shape[1] ** root
    weight.mul_(factor)
    name = f"{subject.layout.outer.embedding}.weight"
    # A tied head grows with the embedding.
    tied = ("output-head-too-large",) if subject.host.has("tied") and factor > 1 else ()
    return FaultSite(parameter=name, causes=tied)


@fault(
    "embedding-times-sqrt-width",
    "embedding-scale-wrong",
    "writes-drowned",
    "init-too-large",
    fits=_embeds_plainly,
)
def embedding_times_sqrt_width(subject: Subject) -> FaultSite:
    """The embedding is multiplied by sqrt(width) where it should not be, or once too often."""
    return _scale_embedding(subject, root=0.5)


@fault(
    "embedding-over-sqrt-width",
    "embedding-scale-wrong",
    "init-too-small",
    "first-writes-too-large",
    fits=_embeds_plainly,
)
def embedding_over_sqrt_width(subject: Subject) -> FaultSite:
    """The embedding is divided by sqrt(width)."""
    return _scale_embedding(subject, root=-0.5)


def _has_own_head(host: Host) -> bool:
    return not host.trained and not host.has("tied") and host.kind == "decoder"


@fault("head-times-30", "output-head-too-large", "init-too-large", fits=_has_own_head)
def head_times_30(subject: Subject) -> FaultSite:
    """The head is drawn thirty times too large."""
    weight = subject.outer("head").weight
    assert isinstance(weight, Tensor)
    weight.mul_(30.0)
    return FaultSite(parameter=f"{subject.layout.outer.head}.weight")


@fault(
    "final-gain-times-30",
    "output-head-too-large",
    "norm-gain-odd",
    fits=lambda host: not host.trained and host.kind == "decoder" and bool(host.layout.outer.final),
)
def final_gain_times_30(subject: Subject) -> FaultSite:
    """The norm before the head has thirty times its gain."""
    weight = subject.outer("final").weight
    assert isinstance(weight, Tensor)
    offset = subject.layout.gain_offset
    weight.copy_(30.0 * (weight + offset) - offset)
    return FaultSite(parameter=f"{subject.layout.outer.final}.weight")


# --- scales over depth ------------------------------------------------------------------------


def _is_plain_pre(host: Host) -> bool:
    return host.layout.placement == "pre" and not host.has("lanes")


@fault(
    "post-norm-24-layers",
    "tokens-equal",
    "gradient-vanishing",
    fits=lambda host: host.has("recipe") and host.layout.placement == "post" and not host.trained,
)
def post_norm_24_layers(subject: Subject) -> FaultSite:
    """24 post-norm layers with Xavier's initialisation, as they would train only with warm-up."""
    seed = subject.random.randrange(1000)
    recipe: Any = subject.model.recipe
    sizes = {name: getattr(recipe, name) for name in ("width", "heads", "vocabulary")}
    fields = {"depth": 24, "placement": "post", "connection": "identity", "init": "xavier"}
    return FaultSite(model=build_recipe({**sizes, **fields}, seed))


@fault(
    "weights-grow-with-depth",
    "stream-exploding",
    "weights-scale-odd",
    "init-too-large",
    fits=_is_plain_pre,
)
def weights_grow_with_depth(subject: Subject) -> FaultSite:
    """What a layer writes is drawn 2.5 times as large as in the layer below."""
    for layer in subject.layers:
        for role in ("output", "down"):
            subject.weight(layer, role).mul_(2.5 ** (layer - 1))
    return FaultSite()


@fault(
    "embedding-times-100",
    "writes-drowned",
    "embedding-scale-wrong",
    "init-too-large",
    fits=lambda host: _embeds_plainly(host) and _is_plain_pre(host),
)
def embedding_times_100(subject: Subject) -> FaultSite:
    """The embedding is so large that nothing the layers write matters."""
    return _scale_embedding(subject, 100.0)


@fault(
    "upper-half-over-1000",
    "depth-unused",
    "weights-scale-odd",
    "init-too-small",
    fits=_is_plain_pre,
)
def upper_half_over_1000(subject: Subject) -> FaultSite:
    """The upper half of the layers writes a thousandth of what it should."""
    upper = tuple(subject.layers[subject.depth // 2 :])
    for layer in upper:
        for role in ("output", "down"):
            subject.weight(layer, role).mul_(1e-3)
            bias = subject.bias(layer, role)
            if bias is not None:
                bias.mul_(1e-3)
    return FaultSite(upper)


@fault(
    "mean-vector-huge",
    "tokens-equal",
    "writes-drowned",
    "embedding-scale-wrong",
    fits=lambda host: _is_plain_pre(host) and host.kind == "decoder",
)
def mean_vector_huge(subject: Subject) -> FaultSite:
    """All token vectors share one large vector, so that all tokens look the same."""
    weight = subject.outer("embedding").weight
    assert isinstance(weight, Tensor)
    shared = torch.randn(weight.shape[1], generator=subject.generator)
    weight.add_(50.0 * weight.std() * shared)
    return FaultSite(parameter=f"{subject.layout.outer.embedding}.weight")
