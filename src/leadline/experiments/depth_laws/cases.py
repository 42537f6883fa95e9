"""One design for every law of depth, built so that it meets the assumptions, and its measurement.

    stream.variance       m_l = mean square of the stream at the sites 0 ... L
    jacobian.through      log10 sigma_1(J_l ... J_1) at the sites 0 ... L, and the band of that model
    gradient.parameters   |dLoss / dW_2| of the last block
    update.ratio          |u| / |x| at the MLPs: the root of the mean u² over the mean x² of all

All designs have plain attention without positions and a ReLU MLP as wide as the stream, so that
c = 1/2 and a = 1 (see `theory.depth`). The rows of the embedding are divided by their root mean
square: all tokens enter with mean square 1, as the laws without norms assume and as Xiong et al.
(2020, arXiv 2002.04745) do. Everything is float64; attention is computed as plain products (see
`_flow_start` for why).

What a law asks about a model is read from the model: from a short measurement of it, as for any
record. A law whose assumptions are not all met is an error here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

import torch

from leadline.errors import InputError, ProbeError
from leadline.experiments.gradient_flow.starts import (
    batch_of,
    measured,
    plain_attention,
    seen_writes,
)
from leadline.instruments.passes.measurement import measure
from leadline.lab.tasks import Batch
from leadline.parts import Recipe, Transformer
from leadline.reading.bounds.depth.facts import DepthStack, depth_stacks
from leadline.theory.depth import LAWS, Band, DepthFacts, Law

__all__ = ["CASES", "LawCase", "Seen", "bands_of", "checked", "law_of", "look", "model_of"]

HEADS = 4
VOCABULARY = 256
"""Bytes."""
FACTS_TOKENS = 8
"""So many tokens tell how a model is built."""
PRODUCT_TOKENS = 16
"""So many tokens has the example whose Jacobians are taken."""
TOLERANCE = 1e-5
"""Relative accuracy of the singular values; their estimated error is counted in."""


@dataclass(frozen=True)
class LawCase:
    """A law and a design that meets it."""

    law: str
    name: str
    fields: Callable[[int, int], Mapping[str, Any]]
    """Fields of the recipe, from depth and width."""
    ratio: bool = False
    """Whether the law multiplies: log(m_L / m_0) is fitted, and not m_L - m_0."""
    logarithmic: bool = False
    """Whether it is drawn as log10."""

    @property
    def title(self) -> str:
        """What a table or a remark calls it."""
        return f"{self.law} ({self.name})"


CASES: tuple[LawCase, ...] = (
    LawCase("xiong-stream", "pre", lambda _depth, _width: {}),
    # d s² = 1, as Xavier has it: with GPT-2's own 0.02 nothing would be seen at this width.
    LawCase("gpt2-scaling", "gpt2 init", lambda _, width: {"init": f"gpt2(std={width**-0.5!r})"}),
    LawCase(
        "layernorm-scaling", "norms / √l", lambda _depth, _width: {"placement": "layernorm_scaling"}
    ),
    LawCase(
        "noci", "no norm, writes / √(2L)",
        lambda _depth, _width: {"connection": "weighted(alpha=depth)", "placement": "none"},
        ratio=True,
    ),
    LawCase(
        "unnormed-stream", "no norm",
        lambda _depth, _width: {"placement": "none"},
        ratio=True, logarithmic=True,
    ),
    LawCase("xiong-last-gradient", "pre, last gradient", lambda _depth, _width: {}),
    LawCase("xiong-last-gradient", "post, last gradient", lambda _depth, _width: {"placement": "post"}),
    LawCase(
        "deepnorm", "deepnorm",
        lambda _depth, _width: {
            "connection": "deepnorm", "placement": "post", "init": "deepnorm",
        },
    ),
    LawCase("residual-product", "pre, product", lambda _depth, _width: {}, logarithmic=True),
    LawCase(
        "residual-product", "pre, writes / 2L, product",
        lambda depth, _: {"connection": f"weighted(alpha={1.0 / (2.0 * depth)!r})"},
        logarithmic=True,
    ),
)  # fmt: skip
"""Two designs where a law says two things: Xiong's gradient falls in pre-norm and not in post-norm,
and the left end of a product says something only where every |J - I| is below 1."""


@dataclass(frozen=True)
class Seen:
    """What one model of one seed shows."""

    case: LawCase
    depth: int
    seed: int
    values: tuple[float, ...]
    """At the sites 0 ... L; one number where the law is about depth."""
    facts: DepthFacts | None = None
    """What the law asks about it; None where another seed of the same design told it."""
    errors: tuple[float, ...] = ()
    """How far off the values may be, where they were estimated."""


def law_of(case: LawCase) -> Law:
    """The law itself."""
    return cast("Law", LAWS.build(case.law))


def model_of(case: LawCase, depth: int, *, width: int, length: int, seed: int) -> Transformer:
    """The untrained model, with tokens that all have mean square 1."""
    plain: dict[str, Any] = {
        "init": "xavier", "mlp": f"relu(hidden={width})", "positions": "none", "heads": HEADS,
    }  # fmt: skip
    sizes = {"depth": depth, "width": width, "vocabulary": VOCABULARY, "context": length}
    recipe = Recipe(**{**plain, **sizes, **case.fields(depth, width)})
    model = Transformer(recipe, seed=seed).double().eval()
    with torch.no_grad():
        rows = dict(model.embedding.weights())["embedding"]
        rows.div_(rows.square().mean(-1, keepdim=True).sqrt())
    return model


def look(
    case: LawCase, depth: int, *, width: int, length: int, examples: int, seed: int, facts: bool
) -> Seen:
    """Build one model and measure what the law is about; `facts`: read what the law asks, too."""
    batch = batch_of(length, examples=examples, seed=seed)
    model = model_of(case, depth, width=width, length=length, seed=seed)
    quantity = law_of(case).quantity
    if quantity == "jacobian.through":
        seen = _product(case, model, batch, seed)
    else:
        told = _stack(model, batch, "stream", tokens=FACTS_TOKENS).facts if facts else None
        seen = Seen(case, depth, seed, _MEASURES[quantity](model, batch), told)
    if not all(math.isfinite(value) for value in seen.values):
        raise InputError(
            f"The design of {case.title} leaves float64 at {depth} layers (seed {seed}); "
            "give smaller depths."
        )
    return seen


def checked(case: LawCase, facts: DepthFacts) -> DepthFacts:
    """Give the facts back where they meet every assumption of the law; refuse them otherwise."""
    law = law_of(case)
    for condition in law.conditions(facts):
        if not condition.holds:
            why = condition.because or "that is not known"
            raise ProbeError(
                f"The design of {case.title} at {facts.depth} layers does not meet its law, which "
                f"asks that {condition.assumption}: {why}. Change the design."
            )
    if not law.applies(facts):
        raise ProbeError(
            f"The law of {case.title} has no prediction at {facts.depth} layers, because a number "
            "is missing. Change the design."
        )
    return facts


def _stream(model: Transformer, batch: Batch) -> tuple[float, ...]:
    with plain_attention(), torch.no_grad(), seen_writes(model) as seen:
        model.stream(batch.ids)
        sites = seen.sites(writes=len(model.recipe.branches))
        return tuple(float(x.square().mean()) for x in sites)


def _gradient(model: Transformer, batch: Batch) -> tuple[float, ...]:
    return (measured(model, batch, design="", seed=0).weight,)


def _ratio(model: Transformer, batch: Batch) -> tuple[float, ...]:
    with plain_attention(), torch.no_grad(), seen_writes(model) as seen:
        model.stream(batch.ids)
        mlp = model.recipe.branches.index("mlp")
        every = len(model.recipe.branches)
        written = sum(float(u.square().mean()) for u in seen.updates[mlp::every])
        before = sum(float(x.square().mean()) for x in seen.states[mlp:-1:every])
        return (math.sqrt(written / before),)


_MEASURES: Mapping[str, Callable[[Transformer, Batch], tuple[float, ...]]] = {
    "stream.variance": _stream,
    "gradient.parameters": _gradient,
    "update.ratio": _ratio,
}


def _product(case: LawCase, model: Transformer, batch: Batch, seed: int) -> Seen:
    probe = f"jacobian(through=true, k=1, probes=2, tolerance={TOLERANCE!r})"
    with plain_attention():
        stack = _stack(model, batch, probe, tokens=PRODUCT_TOKENS)
    read = stack.measured["jacobian.through"]
    depth = model.recipe.depth
    found = [read[layer] for layer in range(1, depth + 1)]
    values = (0.0, *(math.log10(one.value) for one in found))  # the product of none is I
    upper = [one.value if one.upper is None else one.upper for one in found]
    errors = (0.0, *(math.log10(u / one.value) for u, one in zip(upper, found, strict=True)))
    return Seen(case, depth, seed, values, stack.facts, errors)


def _stack(model: Transformer, batch: Batch, probe: str, *, tokens: int) -> DepthStack:
    """Measure one example with one probe; nothing was trained here."""
    record = measure(model, batch.ids[:1, :tokens], probes=[probe])
    (stack,) = depth_stacks(record, initial=True)
    return stack


def bands_of(case: LawCase, facts: DepthFacts) -> tuple[Band, ...]:
    """The band of a law along layers at the sites 0 ... L, once its assumptions were checked."""
    bands = law_of(case).predicted(checked(case, facts))
    assert bands is not None
    return bands
