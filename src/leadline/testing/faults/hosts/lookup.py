"""Finds a host by its name: what builds it, what it is fed, and how its code is laid out."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING

from leadline.errors import UnknownName
from leadline.testing.faults.hosts.building import build_hf, build_nano, build_recipe
from leadline.testing.faults.hosts.entry import Host
from leadline.testing.faults.hosts.families import FAMILIES, RECIPES
from leadline.testing.faults.hosts.hf_layouts import HF_LAYOUTS
from leadline.testing.faults.hosts.inputs import drawn_inputs, text_inputs
from leadline.testing.faults.hosts.layout import Layout
from leadline.testing.faults.hosts.own_layouts import OWN_LAYOUTS
from leadline.testing.faults.split import HOSTS as NAMES

if TYPE_CHECKING:
    from torch import nn

    from leadline.models.inputs import Inputs

__all__ = ["all_hosts", "host"]


def _build_pair(name: str, _seed: int) -> nn.Module:
    from leadline.lab import pair

    model, _ = pair.pre() if name == "pre" else pair.post()
    return model.eval()


def _build_trained(name: str, _seed: int) -> nn.Module:
    from leadline.testing.faults.hosts.trained import trained_model

    return trained_model(name)


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


def _hf_host(name: str) -> Host:
    _, _, _, layout, kind, traits = FAMILIES[name]
    return Host(
        name,
        kind,
        functools.partial(build_hf, name),
        drawn_inputs,
        HF_LAYOUTS[layout],
        traits=_set(traits) | {"config", "plain-residual"},
    )


def _recipe_host(name: str) -> Host:
    fields, layout, traits = RECIPES[name]
    build = functools.partial(build_recipe, fields)
    return Host(
        name, "decoder", build, drawn_inputs, OWN_LAYOUTS[layout], traits=_set(traits) | {"recipe"}
    )


def _nano_host(name: str) -> Host:
    traits = _set("plain-residual" + (" tied dropout" if name == "nano-gpt" else " rotary"))
    build = functools.partial(build_nano, name)
    return Host(name, "decoder", build, drawn_inputs, OWN_LAYOUTS[name], traits=traits)


def _pair_host(name: str) -> Host:
    placement = name.removeprefix("trained-pair-")
    return Host(
        name,
        "decoder",
        functools.partial(_build_pair, placement),
        text_inputs,
        OWN_LAYOUTS[f"recipe-{placement}"],
        trained=True,
        traits=_set("plain-residual recipe"),
    )


def _trained_host(name: str) -> Host:
    family = name.removeprefix("trained-")
    untrained = host(family)
    inputs: Callable[[nn.Module, int], Inputs] = text_inputs
    if family == "bert":
        inputs = functools.partial(text_inputs, masked=True)
    elif family == "nano-gpt":
        inputs = functools.partial(text_inputs, name="idx")
    layout: Layout = untrained.layout
    # Qwen's small models tie their head, and so does this one.
    tied = {"tied"} if family == "qwen3" else set[str]()
    return Host(
        name,
        untrained.kind,
        functools.partial(_build_trained, family),
        inputs,
        layout,
        trained=True,
        traits=untrained.traits | tied,
    )


@functools.cache
def host(name: str) -> Host:
    """The host of this name."""
    if name in FAMILIES:
        return _hf_host(name)
    if name in RECIPES:
        return _recipe_host(name)
    if name in OWN_LAYOUTS:
        return _nano_host(name)
    if name.startswith("trained-pair-"):
        return _pair_host(name)
    if name in NAMES["trained_learned"] + NAMES["trained_rotary"] + NAMES["trained_other"]:
        return _trained_host(name)
    raise UnknownName("host", name, [one for names in NAMES.values() for one in names])


def all_hosts() -> list[Host]:
    """Every host, in the order of the split's strata."""
    return [host(name) for names in NAMES.values() for name in names]
