"""Finds a host by its name: what builds it, what it is fed, and how its code is laid out."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import TYPE_CHECKING

from leadline.errors import UnknownName
from leadline.testing.faults.fresh.hosts.families import FRESH_FAMILIES, FRESH_RECIPES
from leadline.testing.faults.fresh.hosts.layouts import FRESH_LAYOUTS
from leadline.testing.faults.fresh.resizing import Sizes, changed_sizes
from leadline.testing.faults.fresh.rounds import AGAIN, Round, names_in, round_of_host
from leadline.testing.faults.fresh.rounds import HOSTS as FRESH_NAMES
from leadline.testing.faults.hosts.building import (
    build_hf,
    build_nano,
    build_plain,
    build_recipe,
)
from leadline.testing.faults.hosts.entry import Host
from leadline.testing.faults.hosts.families import FAMILIES, RECIPES
from leadline.testing.faults.hosts.hf_layouts import HF_LAYOUTS
from leadline.testing.faults.hosts.inputs import drawn_inputs, text_inputs
from leadline.testing.faults.hosts.layout import Layout
from leadline.testing.faults.hosts.own_layouts import OWN_LAYOUTS
from leadline.testing.faults.split import HOSTS as NAMES
from leadline.testing.faults.split import digest

if TYPE_CHECKING:
    from torch import nn

    from leadline.models.inputs import Inputs

__all__ = ["all_hosts", "host", "hosts_of_round"]

_FAMILIES = {**FAMILIES, **FRESH_FAMILIES}
_RECIPES = {**RECIPES, **FRESH_RECIPES}
_LAYOUTS = {**HF_LAYOUTS, **OWN_LAYOUTS, **FRESH_LAYOUTS}
_SHAPES = ((2, 32), (3, 20), (6, 16), (4, 40), (5, 28))
"""Examples and tokens that a fresh host may be fed; its name decides."""
_AGAIN_SIZES: tuple[Sizes, ...] = ((6, 64, 2), (9, 96, 6), (5, 128, 8), (11, 64, 4), (10, 96, 4))
"""Depth, width and heads that a host of round 4 may have; its name decides."""


def _build_pair(name: str, _seed: int) -> nn.Module:
    from leadline.lab import pair

    model, _ = pair.pre() if name == "pre" else pair.post()
    return model.eval()


def _build_trained(name: str, _seed: int) -> nn.Module:
    from leadline.testing.faults.hosts.trained import trained_model

    return trained_model(name)


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


def _fed(name: str) -> Callable[[nn.Module, int], Inputs]:
    """What a host that is not trained is fed."""
    if round_of_host(name) is None:
        return drawn_inputs
    examples, tokens = _SHAPES[digest(f"shape {name}") % len(_SHAPES)]
    return functools.partial(drawn_inputs, examples=examples, tokens=tokens)


def _hf_host(name: str) -> Host:
    _, _, _, layout, kind, traits = _FAMILIES[name]
    return Host(
        name,
        kind,
        functools.partial(build_hf, name),
        _fed(name),
        _LAYOUTS[layout],
        traits=_set(traits) | {"config", "plain-residual"},
    )


def _recipe_host(name: str) -> Host:
    fields, layout, traits = _RECIPES[name]
    build = functools.partial(build_recipe, fields)
    return Host(
        name, "decoder", build, _fed(name), _LAYOUTS[layout], traits=_set(traits) | {"recipe"}
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


_PLAIN_TRAITS = {
    "plain-gpt": "tied mlp-bias dropout",
    "plain-llama": "rotary",
    "plain-encoder": "mlp-bias",
}


def _plain_host(name: str) -> Host:
    layout = FRESH_LAYOUTS[name]
    return Host(
        name,
        "decoder" if layout.causal else "encoder",
        functools.partial(build_plain, name),
        _fed(name),
        layout,
        traits=_set(_PLAIN_TRAITS[name] + " plain-residual"),
    )


def _build_fresh_trained(name: str, _seed: int) -> nn.Module:
    from leadline.testing.faults.fresh.hosts.trained import fresh_trained_model

    return fresh_trained_model(name)


# A trained recipe has no host of its name among those at initialisation.
_LIKE = {
    "recipe-rotary": "recipe-rotary-12",
    "recipe-post": "recipe-post-5",
    "recipe-sandwich": "recipe-sandwich-9",
}


def _fresh_trained_host(name: str) -> Host:
    family = name.removeprefix("trained-")
    untrained = host(_LIKE.get(family, family))
    named = functools.partial(text_inputs, name="ids" if family in _PLAIN_TRAITS else "input_ids")
    return Host(
        name,
        untrained.kind,
        functools.partial(_build_fresh_trained, family),
        named,
        untrained.layout,
        trained=True,
        traits=untrained.traits,
    )


def _build_again(name: str, sizes: Sizes, seed: int) -> nn.Module:
    depth, width, heads = sizes
    if name in _FAMILIES:
        config = build_hf(name, 0).config
        return build_hf(name, seed, **changed_sizes(config, sizes))
    if name in _RECIPES:
        fields = {**_RECIPES[name][0], "depth": depth, "width": width, "heads": heads}
        if "groups" in str(fields.get("attention")):
            fields["attention"] = f"multihead(bias=false, groups={heads // 2})"
        return build_recipe(fields, seed)
    if name == "plain-gpt":
        return build_plain(name, seed, depth=depth, width=width, n_head=heads)
    return build_plain(name, seed, n_layers=depth, dim=width, n_heads=heads)


def _host_again(name: str) -> Host:
    """A host of rounds 2 and 3 in another size; a trained one is trained again, from other weights."""
    plain = name.removeprefix(AGAIN)
    before = host(plain)
    if before.trained:
        build = functools.partial(_build_fresh_trained, AGAIN + plain.removeprefix("trained-"))
        return dataclasses.replace(before, name=name, build=build)
    sizes = _AGAIN_SIZES[digest(f"size {name}") % len(_AGAIN_SIZES)]
    build = functools.partial(_build_again, plain, sizes)
    return dataclasses.replace(before, name=name, build=build, inputs=_fed(name))


@functools.cache
def host(name: str) -> Host:
    """The host of this name."""
    if name.startswith(AGAIN) and round_of_host(name) is not None:
        return _host_again(name)
    if name in _FAMILIES:
        return _hf_host(name)
    if name in _RECIPES:
        return _recipe_host(name)
    if name in _PLAIN_TRAITS:
        return _plain_host(name)
    if name.startswith("trained-") and round_of_host(name) is not None:
        return _fresh_trained_host(name)
    if name in OWN_LAYOUTS:
        return _nano_host(name)
    if name.startswith("trained-pair-"):
        return _pair_host(name)
    if name in NAMES["trained_learned"] + NAMES["trained_rotary"] + NAMES["trained_other"]:
        return _trained_host(name)
    known = [one for strata in (NAMES, FRESH_NAMES) for names in strata.values() for one in names]
    raise UnknownName("host", name, known)


def all_hosts() -> list[Host]:
    """Every host of the first round, in the order of the split's strata."""
    return [host(name) for names in NAMES.values() for name in names]


def hosts_of_round(side: Round) -> list[Host]:
    """Every host of a fresh round."""
    return [host(name) for name in names_in(side, of="hosts")]
