"""How pure attention loses rank, followed without cancellation.

Tokens are carried as a reference and what sets them apart, each with an exact exponent of its own
(`split.split`), through the model's own modules. So residuals are right to many digits where a
plain forward pass shows rounding: float32 from the third or fourth layer on, float64 soon after.

`compute_collapse` follows any `Transformer` whose parts torch can do on split tokens: attention of one or
more heads, bidirectional or causal, grouped, rotary; LayerNorm, RMSNorm and others at any place;
ReLU, GELU, SiLU and gated MLPs; every connection made of sums and products. What cannot be
followed is refused by name. `compute_collapse_weights` takes bare matrices. With `facts=True` the
result also has the facts that the theorems need. `leadline.collapse` and `leadline.collapse_weights`
write the result into a record.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from leadline.anatomy import unsharded, untouched
from leadline.errors import InputError, Progress, check_progress, check_seed
from leadline.instruments.collapse.facts import Notebook, by_head, stack_facts
from leadline.instruments.collapse.inputs import (
    check_stream,
    checked_layers,
    entering_streams,
    streams_of,
)
from leadline.instruments.collapse.result import Collapse
from leadline.instruments.collapse.split.facts import attention_facts
from leadline.instruments.collapse.split.rules import activations as split_activations
from leadline.instruments.collapse.split.rules import arithmetic as split_arithmetic
from leadline.instruments.collapse.split.rules import attention as split_attention
from leadline.instruments.collapse.split.rules import norms as split_norms
from leadline.instruments.collapse.split.split import Rounding, Split, log10_of, split_tokens
from leadline.models.loading import LoadedModel
from leadline.parts import Transformer
from leadline.parts.branches import Run

__all__ = ["compute_collapse", "compute_collapse_weights", "follow"]

Tensor = torch.Tensor
Step = Callable[[Any], Any]
assert (
    split_attention and split_activations and split_norms and split_arithmetic
)  # they enter the rules when they are imported


def compute_collapse(
    model: nn.Module | LoadedModel,
    stream: Any,
    *,
    facts: bool = False,
    seed: int = 0,
    progress: Progress | None = None,
) -> Collapse:
    """Follow the residual of `stream` through the layers of one of our Transformers.

    `stream` is [token, width] or [example, token, width]: what enters the first layer (of a model
    without an embedding: what the model is called with). Whole numbers, or what `random_tokens`
    and the like return, are token ids, which are embedded in the model's own precision. Weights are
    taken as they are, computed with in float64. `facts` adds what bounds are made of. `seed` is
    that of the error estimate.
    """
    seed = check_seed(seed)
    report = check_progress(progress)
    module = unsharded(model.model if isinstance(model, LoadedModel) else model)
    if not isinstance(module, Transformer):
        raise InputError(
            f"collapse follows leadline.Transformer, not a {type(module).__name__}; "
            "Transformer.from_hf(model) makes one of many Hugging Face models, and "
            "collapse_weights takes bare matrices."
        )
    if module.first.lanes > 1:
        raise InputError(
            f"The connection {module.recipe.choice('connection').name!r} splits the stream into "
            "lanes, and collapse can follow only a single stream; choose another connection."
        )
    with torch.no_grad(), untouched(module):
        module.eval()
        streams = entering_streams(module, stream)
        results: list[Collapse] = []
        for number, tokens in enumerate(streams):
            report_site = _site_reporter(report, number, len(streams), len(module.blocks))
            results.append(
                _through(module, tokens, facts=facts, seed=seed, report_site=report_site)
            )
    return _join_examples(results)


def compute_collapse_weights(
    stream: Any,
    layers: Sequence[Mapping[str, Any]],
    *,
    causal: bool = False,
    heads: int = 1,
    facts: bool = False,
    seed: int = 0,
) -> Collapse:
    """Follow the residual through attention layers given as matrices, without skip or norm.

    Each layer has W_Q, W_K, W_V [width, heads x head width], W_O [heads x head width, width] and
    optionally b_Q, b_K, b_V, b_O; vectors are rows, x W. Logits are scaled by
    1 / sqrt(head width). `stream` is [token, width] or [example, token, width].
    """
    seed = check_seed(seed)
    streams = streams_of(stream)
    matrices = checked_layers(layers, heads, width=streams[0].shape[1])
    with torch.no_grad():
        results = [
            _through_weights(matrices, one, causal=causal, heads=heads, facts=facts, seed=seed)
            for one in streams
        ]
    return _join_examples(results)


def follow(
    steps: Sequence[Step],
    stream: Tensor,
    *,
    causal: bool = False,
    seed: int = 0,
    watch: Callable[[Split], None] | None = None,
) -> Collapse:
    """Follow one example [token, width] through callables, each a layer from state to state.

    A state is the tokens, or a tuple that starts with them. `watch` is shown the tokens at every
    site.
    """
    check_stream(stream)
    rounding = Rounding(seed)
    state: Any = split_tokens(stream, first=causal, rounding=rounding)
    sites = [_site(state)]
    if watch is not None:
        watch(state)
    for number, step in enumerate(steps, 1):
        try:
            state = step(state)
            tokens = state[0] if isinstance(state, tuple) else state
            sites.append(_site(tokens))
            if watch is not None:
                watch(tokens)
        except InputError as error:
            raise InputError(f"At layer {number}: {error}") from error
        if isinstance(state, Split):
            state = state.gathered()
    residual, norm, error, mantissa, exponent = zip(*sites, strict=True)
    return Collapse(
        log10_residual=np.array(residual),
        log10_norm=np.array(norm),
        error=np.array(error),
        mantissa=np.array(mantissa),
        exponent=exponent,
        causal=causal,
        remarks=_remarks(residual),
    )


def _site(x: Split) -> tuple[float, float, float, float, int | None]:
    sizes, exponent = x.residual()
    if math.isinf(x.rounding.drift(sizes)):
        raise InputError(
            "What is left of the tokens' differences is below rounding: heads or updates cancel "
            "each other, or the tokens have gathered in groups. The residual is not zero, but it "
            "cannot be followed any further."
        )
    return (
        log10_of(sizes, exponent),
        log10_of(*x.norm()),
        x.rounding.drift(sizes),
        float(sizes[0]),
        exponent,
    )


def _remarks(residual: Sequence[float]) -> tuple[str, ...]:
    gone = next((layer for layer, value in enumerate(residual) if value == -math.inf), None)
    if gone is None:
        return ()
    return (f"From layer {gone} on all tokens are exactly equal: the residual is zero.",)


def _join_examples(results: list[Collapse]) -> Collapse:
    if len(results) == 1:
        return results[0]
    remarks = dict.fromkeys(
        f"Example {i}: {text}" for i, one in enumerate(results, 1) for text in one.remarks
    )
    return Collapse(
        log10_residual=np.stack([one.log10_residual for one in results]),
        log10_norm=np.stack([one.log10_norm for one in results]),
        error=np.stack([one.error for one in results]),
        mantissa=np.stack([one.mantissa for one in results]),
        exponent=tuple(one.exponent for one in results),
        causal=results[0].causal,
        name=results[0].name,
        remarks=tuple(remarks),
        examples=tuple(results),
    )


# --- a model of ours ---------------------------------------------------------------------------


def _through(
    model: Transformer, stream: Tensor, *, facts: bool, seed: int, report_site: Callable[[], None]
) -> Collapse:
    causal = bool(model.causal)
    steps = _steps(model, stream.shape[0])
    if not facts:
        result = follow(steps, stream, causal=causal, seed=seed, watch=lambda _: report_site())
        return replace(result, name=model.label)
    with Notebook(model) as notebook:

        def watch(x: Split) -> None:
            report_site()
            notebook.site(x)

        result = follow(steps, stream, causal=causal, seed=seed, watch=watch)
    return replace(result, name=model.label, facts=notebook.facts(result))


def _site_reporter(report: Progress, example: int, examples: int, depth: int) -> Callable[[], None]:
    """A function that reports one more site each time it is called."""
    sites = itertools.count(example * (depth + 1))

    def report_site() -> None:
        report("following the tokens", next(sites), examples * (depth + 1))

    return report_site


def _through_weights(
    layers: Sequence[dict[str, Tensor]],
    stream: Tensor,
    *,
    causal: bool,
    heads: int,
    facts: bool,
    seed: int,
) -> Collapse:
    states: list[Split] = []

    def step(weights: dict[str, Tensor]) -> Step:
        return lambda x: _attend(x, weights, heads=heads, causal=causal)

    result = follow(
        [step(weights) for weights in layers],
        stream,
        causal=causal,
        seed=seed,
        watch=states.append if facts else None,
    )
    if not facts:
        return result
    layer_facts = [
        attention_facts(x, by_head(weights, heads), causal=causal)
        for x, weights in zip(states, layers, strict=False)
    ]
    return replace(result, facts=stack_facts(result, states, layer_facts))


def _steps(model: Transformer, tokens: int) -> list[Step]:
    positions = torch.arange(tokens)
    run = Run(
        rotate=model.embedding.positions.rotation(positions, torch.float64),
        causal=bool(model.causal) and tokens > 1,
    )

    def step(number: int, block: nn.Module) -> Step:
        return lambda state: block(model.first.open(state) if number == 0 else state, run)

    return [step(number, block) for number, block in enumerate(model.blocks)]


# --- bare weights ------------------------------------------------------------------------------


def _attend(x: Split, weights: dict[str, Tensor], *, heads: int, causal: bool) -> Split:
    runs, tokens, _ = x.shape

    def projected(name: str) -> Any:
        y = F.linear(x, weights[f"W_{name}"].mT, weights.get(f"b_{name}"))  # pyright: ignore
        return y.view(runs, tokens, heads, -1).transpose(1, 2)

    out = F.scaled_dot_product_attention(
        projected("Q"), projected("K"), projected("V"), is_causal=causal
    )
    joined = out.transpose(1, 2).reshape(runs, tokens, -1)
    return F.linear(joined, weights["W_O"].mT, weights.get("b_O"))  # pyright: ignore
