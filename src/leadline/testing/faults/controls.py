"""Healthy controls: models and inputs in which a diagnosis must find nothing wrong.

connection, placement, norm, init, mlp, recipe    Transformers of parts, at initialisation
default, lively    model types of the zoo: as transformers draws them, and with redrawn weights
inputs             odd but valid inputs
tuning             fine-tuning at its start: adapters, frozen layers, dropout in eval mode
design             zero-initialised, deep, narrow and half-precision models
host               the hosts of the faults themselves

The kinds of the fresh rounds stand in `leadline.testing.faults.fresh.rounds`.
"""

from __future__ import annotations

import copy
import functools
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from leadline.errors import UnknownName
from leadline.testing.faults.fresh.rounds import Round, names_in, round_of_control
from leadline.testing.faults.hosts import build_part, drawn_inputs, host
from leadline.testing.faults.hosts.families import VOCABULARY
from leadline.testing.faults.split import CONTROLS as NAMES
from leadline.testing.faults.split import HOSTS, Side, side_of_control

if TYPE_CHECKING:
    from torch import nn

    from leadline.parts import Recipe

__all__ = ["Control", "control", "control_names", "controls"]

Build = Callable[[int], "nn.Module"]
Feed = Callable[["nn.Module", int], Any]


@dataclass(frozen=True)
class Control:
    """A healthy model: `build(seed)` gives it in eval mode, `inputs(model, seed)` a batch for it."""

    name: str
    build: Build
    inputs: Feed
    notes: frozenset[str] = frozenset()
    """Rules whose notes are right about this model; anything worse than a note is a false alarm."""


def controls(side: Side | Round | None = None) -> list[Control]:
    """Every control of a side, of both sides, or of a fresh round."""
    return [control(name) for name in control_names(side)]


def control_names(side: Side | Round | None = None) -> list[str]:
    """The names of the controls of a side, of both, or of a fresh round; loads no torch."""
    if side in ("round-2", "round-3", "round-4"):
        return names_in(side, of="controls")
    listed = [f"{kind}/{name}" for kind, names in NAMES.items() for name in names]
    listed += [f"host/{name}" for names in HOSTS.values() for name in names]
    return [name for name in listed if side is None or side_of_control(name) == side]


@functools.cache
def control(name: str) -> Control:
    """The control of this name, such as `connection/rezero`."""
    kind, _, choice = name.partition("/")
    is_fresh = round_of_control(name) is not None
    if not is_fresh and name not in control_names():
        raise UnknownName("control", name, control_names())
    if kind in ("default", "lively"):
        return _zoo_control(name, choice, lively=kind == "lively")
    if kind == "host":
        healthy = host(choice)
        return Control(name, healthy.build, healthy.inputs)
    if is_fresh:
        from leadline.testing.faults.fresh.variations import build_fresh

        build, inputs, notes = build_fresh(kind, choice)
        return Control(name, build, inputs, frozenset(notes))
    if kind in ("inputs", "tuning", "design"):
        from leadline.testing.faults.variations import build_variation

        build, inputs, notes = build_variation(kind, choice)
        return Control(name, build, inputs, frozenset(notes))
    if kind == "recipe":
        return Control(name, functools.partial(_build_named, choice), drawn_inputs)
    return Control(name, functools.partial(build_part, kind, choice), drawn_inputs)


# --- Transformers of parts --------------------------------------------------------------------


def _build_named(name: str, seed: int) -> nn.Module:
    from leadline.parts import Recipe, Transformer

    recipe: Recipe = Recipe.named(name)
    mlp = recipe.choice("mlp").name
    attention = recipe.choice("attention")
    # Widths that a recipe spells out are those of the large model.
    options = {k: v for k, v in attention.options.items() if k != "head_width"}
    if options.get("groups") not in (None, 1):
        options["groups"] = 2
    small = recipe.but(
        depth=6,
        width=64,
        heads=4,
        vocabulary=VOCABULARY,
        context=160,
        mlp=mlp,
        attention={"name": attention.name, **options},
    )
    return Transformer(small, seed=seed).eval()


# --- the zoo ----------------------------------------------------------------------------------


def _zoo_control(name: str, specimen_name: str, *, lively: bool) -> Control:
    def build(seed: int) -> nn.Module:
        from leadline.testing.zoo import ZOO

        model = ZOO[specimen_name].build(seed)
        return model if lively else _as_initialised(model, seed)

    def inputs(model: nn.Module, seed: int) -> Any:
        from leadline.testing.zoo import ZOO

        return ZOO[specimen_name].inputs(model, seed)

    # Some types keep fixed positions as parameters that do not learn.
    return Control(name, build, inputs, frozenset({"parameters-frozen"}))


def _as_initialised(model: nn.Module, seed: int) -> nn.Module:
    """The same class and configuration with the weights that transformers draws."""
    import torch

    with warnings.catch_warnings(), torch.random.fork_rng(devices=[]):
        warnings.simplefilter("ignore")
        torch.manual_seed(seed)
        return type(model)(copy.deepcopy(model.config)).eval()
