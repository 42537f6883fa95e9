"""Healthy models of the fresh rounds: known parts and types in other sizes, and fresh hosts varied."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from leadline.testing.faults.fresh.resizing import Sizes, settings_of_size
from leadline.testing.faults.fresh.rounds import AGAIN
from leadline.testing.faults.hosts import (
    build_hf,
    build_part,
    build_recipe,
    drawn_inputs,
    host,
    text_inputs,
)
from leadline.testing.faults.hosts.entry import Host
from leadline.testing.faults.split import digest
from leadline.testing.faults.variations import (
    INPUTS,
    TUNING,
    Variation,
    pad,
    vary_inputs,
    vary_model,
    with_gains,
    zero_output,
)

__all__ = ["build_fresh"]

SIZES = ((4, 48, 3), (5, 96, 6), (9, 80, 5), (12, 56, 4), (14, 128, 8), (16, 72, 2))
"""Depth, width and heads of a resized model; its name decides."""
TYPE_SIZES = ((5, 96, 6), (4, 128, 8), (6, 48, 4), (7, 80, 4))
"""The same for types of the zoo, whose heads come in pairs."""
FROZEN = ("parameters-frozen",)


def build_fresh(kind: str, name: str) -> Variation:
    """What builds a control of a fresh round, what feeds it, and which notes are right."""
    if kind == "resized_type":
        return _resized_type(name)
    if kind.startswith("resized_"):
        return _resized_part(kind.removeprefix("resized_"), name)
    if kind == "sound_design":
        return _design(name)
    table = {"odd_inputs": _ODD, "text": _TEXT, "fine_tuning": _TUNING}[kind]
    words = next(one for one in table if name.startswith(one))
    return table[words](host(name.removeprefix(words).removeprefix("-")))


# --- other sizes ------------------------------------------------------------------------------


def _of_size(table: Sequence[Sizes], name: str, prefix: str = "") -> tuple[Sizes, str]:
    """The size that a name decides, and the name without `again-`, which stands for the next size."""
    plain = name.removeprefix(AGAIN)
    place = digest(f"size {prefix}{plain}") + (plain != name)
    return table[place % len(table)], plain


def _resized_part(part: str, name: str) -> Variation:
    (depth, width, heads), choice = _of_size(SIZES, name, f"{part} ")
    sizes = {"depth": depth, "width": width, "heads": heads, "vocabulary": 150, "context": 96}
    build = functools.partial(build_part, part, choice, **sizes)
    return build, functools.partial(drawn_inputs, examples=3, tokens=30), ()


def _resized_type(full: str) -> Variation:
    """A type of the zoo in another size, with the weights that transformers draws."""
    sizes, name = _of_size(TYPE_SIZES, full)

    def build(seed: int) -> nn.Module:
        from leadline.testing.zoo import ZOO

        tiny = ZOO[name].build(seed)
        config: Any = tiny.config
        with warnings.catch_warnings(), torch.random.fork_rng(devices=[]):
            warnings.simplefilter("ignore")
            torch.manual_seed(seed)
            return type(tiny)(type(config)(**settings_of_size(config, sizes))).eval()

    def inputs(model: nn.Module, seed: int) -> Any:
        from leadline.testing.zoo import ZOO

        return ZOO[name].inputs(model, seed)

    # Some types keep fixed positions as parameters that do not learn.
    return build, inputs, FROZEN


# --- hosts, varied ----------------------------------------------------------------------------

Vary = Callable[[Host], Variation]


def _shaped(examples: int, tokens: int) -> Vary:
    feed = functools.partial(drawn_inputs, examples=examples, tokens=tokens)
    return lambda healthy: (healthy.build, feed, ())


def _one_window(healthy: Host) -> Variation:
    return healthy.build, functools.partial(text_inputs, examples=1), ()


def _two_kinds(ids: Tensor) -> dict[str, Tensor]:
    """Two ids in turns that are not periodic."""
    return {"input_ids": torch.where(ids % 2 == 0, 11, 29)}


_ODD: Mapping[str, Vary] = {
    **{name: INPUTS[name] for name in INPUTS if not name.endswith("text")},
    "many-examples": _shaped(12, 10),
    "long": _shaped(2, 90),
    "two-kinds-of-tokens": vary_inputs(_two_kinds),
}
_TEXT: Mapping[str, Vary] = {
    **{name: INPUTS[name] for name in INPUTS if name.endswith("text")},
    "padded-text": vary_inputs(lambda ids: pad(ids, left=False)),
    "one-window": _one_window,
}


def _freeze_norms(model: nn.Module, healthy: Host) -> None:
    for block in model.get_submodule(healthy.layout.outer.blocks).children():
        for path in healthy.layout.norms.values():
            block.get_submodule(path).requires_grad_(False)


_TUNING: Mapping[str, Vary] = {**TUNING, "frozen-norms": vary_model(_freeze_norms, *FROZEN)}


# --- designs ----------------------------------------------------------------------------------


def _set(family: str, **settings: Any) -> Variation:
    def build(seed: int) -> nn.Module:
        return build_hf(family, seed, **settings)

    return build, host(family).inputs, ()


def _no_positions(depth: int) -> Variation:
    fields = {"positions": "none", "depth": depth, "width": 80, "heads": 5, "norm": "rmsnorm"}
    return functools.partial(build_recipe, fields), drawn_inputs, ()


def _in_precision(family: str, dtype: torch.dtype) -> Variation:
    """The host with its parameters in another precision; buffers such as frequencies stay exact."""
    healthy = host(family)

    def build(seed: int) -> nn.Module:
        model = healthy.build(seed)
        for parameter in model.parameters():
            parameter.data = parameter.data.to(dtype)
        return model

    return build, healthy.inputs, ()


_ONE_HEAD: dict[str, Any] = {"num_attention_heads": 1}


def _design(name: str) -> Variation:
    for words, build in _DESIGNS.items():
        if name.startswith(words):
            return build(name.removeprefix(words))
    return _SINGLE[name]


_DESIGNS: Mapping[str, Callable[[str], Variation]] = {
    "zero-output-": zero_output,
    "zero-gain-": lambda family: with_gains(family, 0.0, 1),
    "bfloat16-": lambda family: _in_precision(family, torch.bfloat16),
    "float64-": lambda family: _in_precision(family, torch.float64),
    "tied-": lambda family: _set(family, tie_word_embeddings=True),
    "eager-": lambda family: _set(family, attn_implementation="eager"),
    "no-positions-": lambda depth: _no_positions(int(depth)),
}
_SINGLE: Mapping[str, Variation] = {
    "layer-scale-deit": with_gains("deit", 1e-4, 96),
    "layer-scale-seed_oss": with_gains("seed_oss", 1e-4, 80),
    "deep-ernie4_5": _set("ernie4_5", num_hidden_layers=24),
    "deep-cohere": _set("cohere", num_hidden_layers=20),
    "two-layers-glm": _set("glm", num_hidden_layers=2),
    "one-layer-nemotron": _set("nemotron", num_hidden_layers=1),
    "one-head-seed_oss": _set("seed_oss", num_key_value_heads=1, head_dim=80, **_ONE_HEAD),
    "one-head-biogpt": _set("biogpt", **_ONE_HEAD),
}
