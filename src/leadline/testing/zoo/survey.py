"""Further model types of transformers, and what Leadline says about each.

The zoo holds models whose anatomy is known beforehand; the survey goes on from there. A type is
built as `leadline measure --random-init TYPE` builds it, with a configuration made small by rules,
and fed with inputs that Leadline draws. What comes out is one of three:

    balanced    a proved anatomy
    refused     Leadline's reason for not reading it
    own error   the model refused the inputs; its words, in a sentence

    survey("qwen2_vl").outcome        # 'balanced'
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from leadline.anatomy import Anatomy, read_anatomy, untouched
from leadline.errors import InputError, LeadlineError, require
from leadline.instruments.passes.running import call
from leadline.models.inputs import random_inputs
from leadline.models.inputs.model_facts import forward_names
from leadline.models.loading.configuration import class_of
from leadline.testing.zoo._shrinking import small
from leadline.testing.zoo._specimen import enliven
from leadline.testing.zoo.types import TYPES

__all__ = ["OUTCOMES", "TYPES", "SurveyAnswer", "build", "survey"]

OUTCOMES = ("balanced", "refused", "own error")


@dataclass(frozen=True)
class SurveyAnswer:
    """What Leadline says about one model type."""

    model_type: str
    kind: str
    outcome: str
    inputs: str
    """What was drawn for it, in words."""
    anatomy: Anatomy | None = None
    reason: str = ""


def build(model_type: str, **settings: Any) -> nn.Module:
    """A small model of this type with random weights, in eval mode."""
    transformers = require("transformers", extra="hf")
    with warnings.catch_warnings(), torch.random.fork_rng(devices=[]):
        # Some modelling files warn while they are imported: they still use torch.jit.script.
        warnings.simplefilter("ignore")
        torch.manual_seed(0)
        config_class = transformers.CONFIG_MAPPING[model_type]
        config = config_class(**small(config_class, _merged(TYPES[model_type], settings)))
        model = class_of(config)(config)
    enliven(model, 0)
    return model.eval()


def _merged(defaults: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(defaults)
    for name, value in more.items():
        nested = isinstance(value, Mapping) and isinstance(merged.get(name), Mapping)
        merged[name] = _merged(merged[name], value) if nested else value
    return merged


def survey(model_type: str) -> SurveyAnswer:
    """Build the type, draw inputs for it and read its anatomy, judged on a second batch."""
    model = build(model_type)
    inputs = "nothing"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            fit, fresh = (random_inputs(model, examples=2, length=12, seed=s) for s in (1, 2))
            inputs = fit.kind.removeprefix("random ")
            with untouched(model):
                anatomy = read_anatomy(model, lambda: call(model, fit), lambda: call(model, fresh))
    except LeadlineError as error:
        is_own = isinstance(error, InputError) and error.__cause__ is not None
        outcome = "own error" if is_own else "refused"
        return SurveyAnswer(model_type, _kind(model), outcome, inputs, reason=str(error))
    return SurveyAnswer(model_type, _kind(model), "balanced", inputs, anatomy=anatomy)


def _kind(model: nn.Module) -> str:
    """One of `KINDS`, by the arguments of `forward`."""
    names = forward_names(model)
    sight = any(name.startswith(("pixel", "visual")) or name == "grid_thw" for name in names)
    sound = any(name in ("input_features", "input_values", "audio_mel") for name in names)
    if "input_ids" in names and (sight or sound):
        return "multimodal"
    if "decoder_input_ids" in names:
        return "encoder-decoder"
    if sight or sound:
        return "vision" if sight else "audio"
    return "decoder" if type(model).__name__.endswith(("CausalLM", "LMHeadModel")) else "encoder"
