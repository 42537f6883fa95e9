"""The coverage of a measurement: which quantities have numbers, which have none, and why."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

from torch import nn

from leadline.anatomy import Anatomy
from leadline.instruments.passes.probe_plan import Plan
from leadline.instruments.passes.running import PassOutcome
from leadline.instruments.passes.unseen import unseen
from leadline.models.inputs import Inputs
from leadline.models.inputs.model_facts import forward_names, token_beyond, vocabulary_field
from leadline.numerics.patterns.patterns import LONG
from leadline.record.file.unfinished import Refusal
from leadline.record.rows.quantity import ABSENT, Quantity, Requirement

__all__ = ["coverage_of", "with_linear"]

_SPECIAL = re.compile(r"'[^']*'|\d[\d.e+-]*")
"""Names of modules and numbers, in which the reasons of two layers may differ."""

_Sense = Literal["image", "audio"]
_NOTABLE = 0.001
"""The share of all parameters from which on a part that did not run is named."""
_SENSES: Mapping[_Sense, re.Pattern[str]] = {
    "image": re.compile(r"pixel|imag|vis(ion|ual)|vit\b|video"),
    "audio": re.compile(r"audio|speech|sound|input_(features|values)"),
}
"""Names of modules and arguments of `forward` that have to do with images or with sound."""


def coverage_of(
    module: nn.Module,
    batch: Inputs,
    plan: Plan,
    outcome: PassOutcome,
    anatomy: Anatomy,
    *,
    frozen: int,
) -> dict[str, Any]:
    """The coverage of the passes, without linear maps. `frozen` parameters had no gradient."""
    refused: list[dict[str, str]] = []

    def refuse(what: str, why: str) -> None:
        refused.append({"what": what, "why": why})

    without = {one.name for result, _ in outcome.collector.refused for one in result.quantities}
    one_lane = all(stack.lanes == 1 for stack in anatomy.stacks)
    linear_names = {quantity.name for probe in plan.linear for quantity in probe.quantities}
    for quantity in plan.quantities:
        if quantity.name in outcome.collector.measured or quantity.name in linear_names:
            continue
        # Lanes belong to the default set; where there is one stream nothing is missing.
        if "lanes" in quantity.requires and one_lane:
            continue
        # An ingredient that a model does not have (a soft cap, a bias) is not missing; what a
        # probe refused has its reason below, and so has attention that was not seen.
        if quantity.ingredient_of or quantity.name in without:
            continue
        if "attention" in quantity.requires and not outcome.collector.attentions:
            continue
        # Shared weights have their reason below.
        if not ("trainable" in quantity.requires and outcome.shared_weights):
            refuse(quantity.name, _why_not(quantity, outcome))
    for what, why in _idle(module, batch, outcome, anatomy):
        refuse(what, why)
    for what in outcome.shared_weights:
        refuse(what, "one set of weights serves several layers; their gradients add up")
    for stack, layer in sorted(outcome.without_gradient):
        refuse(f"gradient at {stack} layer {layer}", "this tensor carries no gradient")
    for what, why in _by_reason(_refused_by_probes(outcome)):
        refuse(what, why)
    if plan.attention:
        for what, why in unseen(module, anatomy, outcome):
            refuse(what, why)
        if outcome.collector.several:
            refuse(
                "numbers over all heads of a layer",
                "some sublayers compute their heads in several calls of attention",
            )
    for stack in sorted(outcome.collector.unmasked):
        refuse(
            f"padding of the {stack}",
            "the mask has another shape than the stream, so padded tokens are counted",
        )
    if frozen and plan.seeing("parameters"):
        refuse(f"gradient of {frozen} parameter tensors", "requires_grad is False")
    return {
        "measured": sorted(outcome.collector.measured),
        "refused": refused,
        "layers": {stack.name: f"0-{stack.depth}" for stack in anatomy.stacks},
        "precision": "statistics in float32 (float64 for a float64 stream), means over tokens in float64",
    }


def _idle(
    module: nn.Module, batch: Inputs, outcome: PassOutcome, anatomy: Anatomy
) -> Iterator[tuple[str, str]]:
    """(what, why) of the large parts of a model that did not run, such as a tower for images.

    A part is a module with modules inside it, none of which was called. Single layers do not
    count: others may use their weights without a call, as torch's attention does. Nor does what
    is inside a block: an expert that no token chose is no missing measurement.
    """
    blocks = {block.module for stack in anatomy.stacks for block in stack.blocks}
    total = sum(parameter.numel() for parameter in module.parameters())
    # Lists and dictionaries of modules are never called themselves; what is in them is.
    busy = {"", *outcome.called_paths}
    for name in outcome.called_paths:
        steps = name.split(".")
        busy |= {".".join(steps[:count]) for count in range(1, len(steps))}
    idle: list[str] = []
    for name, part in module.named_modules():
        if name in busy or any(_is_inside(name, other) for other in (*blocks, *idle)):
            continue
        size = sum(parameter.numel() for parameter in part.parameters())
        if next(part.children(), None) is not None and 0 < size >= _NOTABLE * total:
            idle.append(name)
    absent_senses = _missing_senses(module, batch)
    reasons: dict[str, list[str]] = {}
    for name in idle:
        own_senses: list[_Sense] = [
            one for one in absent_senses if _SENSES[one].search(name.lower())
        ]
        reasons.setdefault(_why_idle(module, own_senses or absent_senses), []).append(name)
    for why, names in reasons.items():
        they, them = ("it", "it") if len(names) == 1 else ("they", "them")
        reason = why or f"nothing in these inputs leads to {them}"
        yield ", ".join(names), f"{they} did not run, because {reason}"


def _is_inside(name: str, other: str) -> bool:
    return name == other or name.startswith(f"{other}.")


def _missing_senses(module: nn.Module, batch: Inputs) -> list[_Sense]:
    """The senses that the model takes beside its tokens and did not get."""
    return [
        sense
        for sense, pattern in _SENSES.items()
        if any(map(pattern.search, forward_names(module)))
        and not any(map(pattern.search, batch.tensors))
    ]


def _why_idle(module: nn.Module, senses: Sequence[_Sense]) -> str:
    if not senses:
        return ""
    nouns = {"image": "image", "audio": "sound"}
    why = f"the inputs hold no {' and no '.join(nouns[sense] for sense in senses)}"
    for sense in senses:
        if (beyond := token_beyond(module, sense)) is not None:
            field = vocabulary_field(module)
            token, size = beyond
            # Tables are made in steps of 64 rows, which matrix products like.
            change = f"{field}={(token // 64 + 1) * 64}"
            why += (
                f": the configuration's {sense} token {token} lies outside its vocabulary of "
                f"{size} tokens; build the model with {change} (--set {change})"
            )
    return why


def with_linear(
    coverage: Mapping[str, Any],
    plan: Plan,
    measured: Iterable[str],
    *,
    refused: Iterable[Refusal],
    padded: bool,
) -> dict[str, Any]:
    """The coverage with the results of the probes of linear maps added."""
    measured, refused = set(measured), list(refused)
    entries = [{"what": what, "why": why} for what, why in _by_reason(_alike(refused))]
    answered = measured | {name for names, *_ in refused for name in names}
    entries += [
        {"what": quantity.name, "why": "no block gave a number"}
        for probe in plan.linear
        for quantity in probe.quantities
        if quantity.name not in answered
    ]
    if padded:
        entries.append(
            {
                "what": "linear maps without padding",
                "why": "padded tokens are tokens of the map like all others; give examples of one "
                "length to leave them out (leadline.random_tokens, --random 4x128)",
            }
        )
    return {
        **coverage,
        "measured": sorted({*coverage["measured"], *measured}),
        "refused": [*coverage["refused"], *entries],
    }


def _alike(refused: Iterable[Refusal]) -> Iterator[Refusal]:
    """The refusals, with one wording for reasons that differ in names and numbers alone."""
    first: dict[str, str] = {}
    several: set[str] = set()
    refusals = list(refused)
    for _, _, why in refusals:
        shape = _SPECIAL.sub("", why)
        if first.setdefault(shape, why) != why:
            several.add(shape)
    for names, site, why in refusals:
        shape = _SPECIAL.sub("", why)
        likewise = " (likewise in the others)" if shape in several else ""
        yield names, site, f"{first[shape]}{likewise}"


def _refused_by_probes(outcome: PassOutcome) -> Iterator[Refusal]:
    for result, site in outcome.collector.refused:
        yield tuple(quantity.name for quantity in result.quantities), site, result.why


def _by_reason(refused: Iterable[Refusal]) -> Iterator[tuple[str, str]]:
    """(what, why) of quantities that some sites have no number of; layers of one reason together."""
    groups: dict[tuple[str, str, str, str], list[int]] = {}
    for names, site, why in refused:
        groups.setdefault((", ".join(names), site.stack, site.point, why), []).append(site.layer)
    for (names, stack, point, why), layers in groups.items():
        yield f"{names} of the {point} of the {stack}, {_in_words(sorted(set(layers)))}", why


def _in_words(layers: list[int]) -> str:
    """layer 3; layers 1 to 12; layers 2, 5, 8."""
    if len(layers) == 1:
        return f"layer {layers[0]}"
    if layers == list(range(layers[0], layers[-1] + 1)):
        return f"layers {layers[0]} to {layers[-1]}"
    return f"layers {', '.join(map(str, layers))}"


def _why_not(quantity: Quantity, outcome: PassOutcome) -> str:
    """Why a probe gave no number: the first thing that it requires and the model lacks."""
    attentions, collector = outcome.collector.attentions, outcome.collector
    longest = max((shape["keys"] for one in attentions for shape in one["shapes"]), default=0)
    lacking: dict[Requirement, bool] = {
        "logits": any(one["altered"] for one in attentions),
        "attention": bool(collector.several),
        "matrix": longest >= LONG,
        "trainable": True,
    }
    reasons: dict[Requirement, str] = {
        **ABSENT,
        "attention": ABSENT["all heads"],
        "matrix": f"it needs the whole matrix, and none is formed from {LONG:,} keys on",
    }
    for requirement, is_lacking in lacking.items():
        if is_lacking and requirement in quantity.requires:
            return reasons[requirement]
    return "too few tokens"
