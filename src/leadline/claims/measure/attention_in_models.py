"""Attention in models, before and after training: norms, column sums, logits.

Three trials, one run per seed each, by the probes `attention` and `attention_product`:

    STARTED   24 layers of width 64 on 32 random tokens, with the norm before the branch (pre), after
              the addition (post) or nowhere (none), drawn as Xavier draws and as GPT-2 does
    TRAINED   the two trained models of `leadline.lab.pair` on windows of text, which the seed draws
    PADDED    the note's experiment on attention norms with padding removed and kept: two untrained
              models, built like GPT-1 and GPT-2, on random sentences of 1 to 5 and of 12 to 18 tokens

The note's bound has M = Gamma^2 sigma_Q sigma_K sqrt(d), Gamma the largest gain of the norm. At GPT-2's
start and in the trained model M is 14 to 50, and from M = 1/2 ln n + 1 on the bound is at least
sqrt(n) / sqrt(1 + e^-2) = 0.94 sqrt(n). With small weights (GPT-2's draw at width 64, M below 1) it does
press: the condition. M is the same in all layers at the start; whether its growth in training is
exponential cannot be told from six layers of one model. From the second layer on post-norm attention
also reads the output of a norm, so the same bound holds there. Each trained model is one draw.

"Very near 1" of column sums has two meanings, and both are checked: the bound n alpha that the note
derives, and the sums themselves. With equal logits a causal column sums to 1 + 1/2 + ... + 1/n.

Without a norm attention "may" soar, which asks for one case: Xavier's draw, where the stream grows and
the logits with it. That it always does is the reach. That longer sentences have larger norms is read in
language models; "inevitably" is the reach: a head that looks at its own token has the norm 1.

For 1 to 5 tokens the note reads 2.25 from its figure, 2.2 to 0.05, but no norm is above sqrt(5) = 2.236;
where all lengths come equally often the mean is at most 1.68. The numbers can be norms of padded
sentences: the note's script keeps the rows of padding, which see the real keys. One real token padded
to five gives a column of five ones and the norm sqrt(5).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from leadline.claims.catalog import Measured, Results, Trial, measures
from leadline.claims.claim import Picture
from leadline.claims.measure.architecture import (
    attention_by_layer,
    attention_record,
    farthest_from_one,
    gpt2_start,
    hf_model,
    transformer,
)

AS_WRITTEN = "pre-norm-as-written"
"""The note's bound in the catalog of theory."""

DEPTH, WIDTH, HEADS, TOKENS, EXAMPLES = 24, 64, 4, 32, 4
"""Of the untrained models of STARTED."""
AT_START = ("spectral_norm", "column_sum", "logit_span", "norm_gain", "query_weight", "key_weight")

WINDOW, WINDOWS = 64, 8
"""The length and the number of the texts of TRAINED."""
AFTER_TRAINING = (*AT_START, "distance", "head_divergence", "norm_shift")

SENTENCES = 64
SHORT_SENTENCES, LONG_SENTENCES = "1 to 5 tokens", "12 to 18 tokens"
GPT2_CONTEXT = 1024


def bound_of(name: str, facts: Any) -> float:
    """A bound of the catalog of theory, which must know these facts."""
    from leadline.theory import BOUNDS

    value = BOUNDS.get(name)().value(facts)
    assert value is not None
    return value


def bound_at(name: str, tokens: int, **facts: Any) -> float:
    """The same for as many queries as keys."""
    from leadline.theory import AttentionFacts

    return bound_of(name, AttentionFacts(queries=tokens, keys=tokens, **facts))


def text_windows(seed: int, *, length: int, examples: int) -> Any:
    """Windows of Python's standard library, [example, token]."""
    from leadline.lab.tasks import build_task

    return build_task(f"stdlib(length={length})").train(0, examples, seed=1000 + seed).ids


def _started_model(placement: str, norm: str, init: str, seed: int) -> Any:
    sizes = {"depth": DEPTH, "width": WIDTH, "heads": HEADS, "vocabulary": 100, "context": TOKENS}
    return transformer(**sizes, placement=placement, norm=norm, init=init, seed=seed)


def _run_started(seed: int) -> Mapping[str, Any]:
    from leadline.models.inputs import random_tokens

    cells: dict[str, Any] = {}
    for placement, norm in (("pre", "layernorm"), ("post", "layernorm"), ("none", "none")):
        for init in ("xavier", "gpt2"):
            model = _started_model(placement, norm, init, seed)
            ids = random_tokens(model, examples=EXAMPLES, length=TOKENS, seed=seed)
            record = attention_record(model, ids, seed=seed)
            cell: dict[str, list[float | None]] = {}
            for name in AT_START:
                cell[name] = [None] * DEPTH
                if f"attention.{name}" in record:
                    profile = record.by_layer(f"attention.{name}", point="attention")
                    for layer, value in zip(profile.layers, profile.values, strict=True):
                        cell[name][int(layer) - 1] = float(value)
            cells[f"{placement}-{init}"] = cell
    return cells


def _run_trained(seed: int) -> Mapping[str, Any]:
    from leadline.lab import pair

    ids = text_windows(seed, length=WINDOW, examples=WINDOWS)
    return {
        "tokens": WINDOW,
        "pre": _after_training(pair.pre()[0], ids, seed),
        "post": _after_training(pair.post()[0], ids, seed),
    }


def _after_training(model: Any, ids: Any, seed: int) -> dict[str, Any]:
    """Lists by layer (the mean over the heads, or the largest), and by layer and head."""
    from leadline.instruments.passes.measurement import measure
    from leadline.reading.bounds.attention_facts import attention_sublayers, facts_of, head_readings
    from leadline.theory import BOUNDS

    record = measure(model, ids, probes="attention,attention_product", seed=seed)
    sublayers = attention_sublayers(record)
    cell: dict[str, Any] = {}
    for name in AFTER_TRAINING:
        quantity = f"attention.{name}"
        readings = head_readings(record, quantity, record.quantities[quantity].headline)
        heads = [
            [one.value for head in layer.head_numbers for one in readings.at(layer.address, head)]
            for layer in sublayers
        ]
        whole = [[one.value for one in readings.at(layer.address, None)] for layer in sublayers]
        cell[name] = [
            max(alone or each, default=None) for alone, each in zip(whole, heads, strict=True)
        ]
        cell[f"{name}_by_head"] = heads
    facts = facts_of(record, sublayers)
    for name in (AS_WRITTEN, "causal-measured"):
        bound = BOUNDS.get(name)()
        values = [[bound.value(one) for one in facts[layer.address, None]] for layer in sublayers]
        cell[name] = [max(math.inf if one is None else one for one in each) for each in values]
    cell["normed"] = [facts[layer.address, None][0].gain is not None for layer in sublayers]
    products = record.by_layer("attention.product_norm", point="attention")
    return cell | {"product_norm": [float(value) for value in products.values]}


def _run_padded(seed: int) -> Mapping[str, Any]:
    from leadline.experiments.attention_spectra import attention_spectra
    from leadline.models.loading import LoadedModel
    from leadline.parts import Recipe, Transformer

    def small(name: str) -> LoadedModel:
        recipe = Recipe.named(name).but(
            depth=4, width=64, heads=4, vocabulary=200, context=32, init="xavier"
        )
        return LoadedModel(Transformer(recipe, seed=seed), name, "claims")

    outcome = attention_spectra(
        {name: lambda name=name: small(name) for name in ("gpt1", "gpt2")},
        count=SENTENCES,
        as_in_the_note=True,
        seed=seed,
    )
    return {
        f"{line.name}; {line.panel}": {
            "values": list(line.values),
            "most_possible": line.facts["most_possible"],
        }
        for line in outcome.lines
    }


STARTED = Trial("attention-at-the-start", _run_started, seconds=3.0)
TRAINED = Trial("attention-trained-pair", _run_trained, seconds=1.5)
PADDED = Trial("attention-padded-sentences", _run_padded, seconds=2.0)


def _gains(cell: Mapping[str, Any], *, first: int = 0) -> np.ndarray:
    """Gamma^2 sigma_Q sigma_K by layer, from one of them on."""
    gain, query, key = (
        np.array(cell[name][first:], dtype=float)
        for name in ("norm_gain", "query_weight", "key_weight")
    )
    return gain**2 * query * key


@measures("column-sum-near-one", needs=(TRAINED, STARTED))
def column_sum_near_one(seed: int, results: Results) -> Measured:
    """The note's bound on column sums at GPT-2's start, and measured column sums."""
    facts = gpt2_start(seed, tokens=GPT2_CONTEXT)
    bound = bound_of(AS_WRITTEN, facts)
    trained = results[TRAINED.name]["pre"]["column_sum"]
    start = float(np.mean(results[STARTED.name]["pre-gpt2"]["column_sum"]))
    harmonic = float(sum(1 / i for i in range(1, TOKENS + 1)))
    return Measured(
        gpt2_reach=facts.gain**2 * facts.query_weight * facts.key_weight * facts.width**0.5,
        gpt2_column_bound=bound**2,
        gpt2_share_of_root=bound / GPT2_CONTEXT**0.5,
        trained_column_sum=np.mean(trained),
        start_column_sum=start,
        harmonic_error=abs(start / harmonic - 1),
        picture=Picture(
            "layer",
            "largest column sum",
            {"trained, pre-norm": trained, "what the note expects": 1.0},
            over=1,
            faint=("what the note expects",),
        ),
    )


@measures("gains-do-not-grow-with-depth", needs=(STARTED, TRAINED))
def gains_do_not_grow_with_depth(seed: int, results: Results) -> Measured:
    """The slope of ln(Gamma^2 sigma_Q sigma_K) over layers, before and after training."""
    from leadline.lab import pair

    model: Any = pair.pre()[0]
    by_hand = np.array(
        [float(block.attention.enter.weight.detach().abs().max()) for block in model.blocks]
    )
    start, trained = (
        _gains(results[STARTED.name]["pre-xavier"]),
        _gains(results[TRAINED.name]["pre"]),
    )

    def slope(values: np.ndarray) -> float:
        return float(np.polyfit(np.arange(len(values)), np.log(values), 1)[0])

    return Measured(
        slope_start=slope(start),
        slope_trained=slope(trained),
        spread_start=start.max() / start.min(),
        spread_trained=trained.max() / trained.min(),
        gain_ratio=farthest_from_one(np.array(results[TRAINED.name]["pre"]["norm_gain"]) / by_hand),
        picture=Picture(
            "layer",
            "product of gains",
            {"at the start": start, "trained": trained},
            over=1,
            y_log=True,
        ),
    )


@measures("pre-norm-presses-the-bound", needs=(TRAINED, STARTED))
def pre_norm_presses_the_bound(seed: int, results: Results) -> Measured:
    """The note's bound from measured weights, as a share of the root of n, in three models."""
    pre, tokens = results[TRAINED.name]["pre"], results[TRAINED.name]["tokens"]
    edges: list[float] = []
    for size in (64, 1024, 10**6):  # M = 1/2 ln n + 1, set by the gain
        gain = math.sqrt((0.5 * math.log(size) + 1) / WIDTH**0.5)
        weights = {"width": WIDTH, "gain": gain, "query_weight": 1.0, "key_weight": 1.0}
        edges.append(bound_at(AS_WRITTEN, size, **weights) / size**0.5)
    cell = results[STARTED.name]["pre-gpt2"]
    narrow, reach = [], []
    for gain, query, key in zip(
        cell["norm_gain"], cell["query_weight"], cell["key_weight"], strict=True
    ):
        weights = {"width": WIDTH, "gain": gain, "query_weight": query, "key_weight": key}
        narrow.append(bound_at(AS_WRITTEN, TOKENS, **weights))
        reach.append(gain**2 * query * key * WIDTH**0.5)
    bounds = np.array(narrow)
    return Measured(
        share_gpt2=bound_of(AS_WRITTEN, gpt2_start(seed, tokens=GPT2_CONTEXT)) / GPT2_CONTEXT**0.5,
        share_trained=min(pre[AS_WRITTEN]) / tokens**0.5,
        share_measured=float(np.mean(pre["spectral_norm"])) / tokens**0.5,
        share_at_edge=min(edges),
        share_narrow=float(bounds.mean()) / TOKENS**0.5,
        narrow_reach=np.mean(reach),
        depth_change=(bounds.max() - bounds.min()) / bounds.mean(),
        measured_over_bound=max(
            max(heads) / bound
            for heads, bound in zip(
                pre["spectral_norm_by_head"], pre["causal-measured"], strict=True
            )
        ),
        picture=Picture(
            "layer",
            "spectral norm",
            {
                "measured, trained pre-norm model": pre["spectral_norm"],
                "the note's bound": pre[AS_WRITTEN],
                "square root of n": tokens**0.5,
            },
            over=1,
            faint=("the note's bound", "square root of n"),
        ),
    )


@measures("post-norm-lacks-control", needs=(STARTED, TRAINED))
def post_norm_lacks_control(seed: int, results: Results) -> Measured:
    """Bounds and norms of post-norm beside pre-norm, at the start and after training."""
    started, trained = results[STARTED.name], results[TRAINED.name]
    pre, post = started["pre-xavier"], started["post-xavier"]
    of_pre, of_post = _gains(pre, first=1), _gains(post, first=1)
    norms = post["spectral_norm"]
    means = {name: float(np.mean(trained[name]["spectral_norm"])) for name in ("pre", "post")}
    return Measured(
        reach_growth=of_post[-1] / of_post[0],
        norm_growth=norms[-1] / norms[1],
        trained_post=means["post"],
        trained_pre=means["pre"],
        trained_gap=means["post"] - means["pre"],
        reach_ratio=farthest_from_one(of_post / of_pre),
        layers_without_norm=sum(not one for one in trained["post"]["normed"]),
        picture=Picture(
            "layer",
            "mean spectral norm",
            {"pre-norm": pre["spectral_norm"], "post-norm": norms},
            over=1,
        ),
    )


@measures("without-norm-attention-saturates", needs=(STARTED,))
def without_norm_attention_saturates(seed: int, results: Results) -> Measured:
    """Norms and logits of the first and of the last layer, without norms and with pre-norm."""
    cells = results[STARTED.name]
    (span_first, _), (span_last, top_weight) = _spans_by_hand(seed)
    norms = {name: cell["spectral_norm"] for name, cell in cells.items()}

    def growth(name: str) -> float:
        return norms[name][-1] / norms[name][0]

    return Measured(
        growth_xavier=growth("none-xavier"),
        share_of_root=norms["none-xavier"][-1] / TOKENS**0.5,
        span_first=span_first,
        span_last=span_last,
        span_ratio=cells["none-xavier"]["logit_span"][0] / span_first,
        top_weight=top_weight,
        growth_gpt2=growth("none-gpt2"),
        growth_pre=growth("pre-xavier"),
        picture=Picture(
            "layer",
            "mean spectral norm",
            {
                "no norm, Xavier": norms["none-xavier"],
                "no norm, GPT-2's draw": norms["none-gpt2"],
                "pre-norm, Xavier": norms["pre-xavier"],
                "square root of n": TOKENS**0.5,
            },
            over=1,
            faint=("square root of n",),
        ),
    )


def _spans_by_hand(seed: int) -> list[tuple[float, float]]:
    """Of the first and the last layer of the trial's model: mean span of a head, mean top weight."""
    import torch

    from leadline.models.inputs import random_tokens

    model = _started_model("none", "none", "xavier", seed)
    spans: list[tuple[float, float]] = []
    hidden = torch.ones(TOKENS, TOKENS).triu(1).bool()

    def look(branch: Any, inputs: tuple[Any, ...]) -> None:
        projected = branch.qkv(inputs[0]).double().unflatten(-1, (3, HEADS, WIDTH // HEADS))
        query, key = projected.permute(2, 0, 3, 1, 4)[:2]
        logits = query @ key.mT / (WIDTH // HEADS) ** 0.5
        top = logits.masked_fill(hidden, -torch.inf)
        least = logits.masked_fill(hidden, torch.inf)
        span = (top.amax(-1) - least.amin(-1)).amax(-1)
        spans.append((float(span.mean()), float(top.softmax(-1).amax(-1).mean())))

    ids = random_tokens(model, examples=EXAMPLES, length=TOKENS, seed=seed).main
    hooks = [
        model.blocks[layer].attention.branch.register_forward_pre_hook(look) for layer in (0, -1)
    ]
    with torch.no_grad():
        model(ids)
    for hook in hooks:
        hook.remove()
    return spans


@measures("norm-grows-with-length", needs=(PADDED,))
def norm_grows_with_length(seed: int, results: Results) -> Measured:
    """Norms at two lengths: untrained, trained, and where each token looks at itself."""
    import torch

    from leadline.lab import pair
    from leadline.numerics.spectra.spectrum import attention_spectral_norm

    short, long = 3, 15
    lines = results[PADDED.name]
    untrained = [
        np.mean([lines[f"{name}; {panel}"]["values"] for name in ("gpt1", "gpt2")])
        for panel in (SHORT_SENTENCES, LONG_SENTENCES)
    ]
    trained, itself = [], []
    for length in (short, long):
        ids = text_windows(seed, length=length, examples=32)
        trained.append(attention_by_layer(pair.pre()[0], ids, "spectral_norm", seed=seed).mean())
        # Queries and keys of one token each point its own way, sharply.
        each = 100 * torch.eye(length, dtype=torch.float64)[None]
        itself.append(float(attention_spectral_norm(each, each, causal=True).value[0]))
    return Measured(
        growth_untrained=untrained[1] / untrained[0],
        growth_trained=trained[1] / trained[0],
        growth_own_token=itself[1] / itself[0],
        own_token_norm=itself[1],
        short=short,
        long=long,
    )


@measures("norms-of-short-sentences", needs=(PADDED,))
def norms_of_short_sentences(seed: int, results: Results) -> Measured:
    """Mean norms with padding removed and kept, beside the largest that such sentences can have."""
    import torch

    from leadline.numerics.spectra.spectrum import spectral_norm

    lines = results[PADDED.name]
    real, padded = (
        [lines[f"{name}{padding}; {SHORT_SENTENCES}"]["values"] for name in ("gpt1", "gpt2")]
        for padding in ("", ", padding kept")
    )
    model = hf_model("gpt2", seed=seed, attn_implementation="eager")
    ids = torch.randint(1, 50, (1, 5), generator=torch.Generator().manual_seed(4960 + seed))
    there = torch.tensor([[1, 0, 0, 0, 0]])
    with torch.no_grad():
        alone = model(ids[:, :1], output_attentions=True).attentions
        filled = model(ids, attention_mask=there, output_attentions=True).attentions
    singles = [float(spectral_norm(torch.stack(each)).value.mean()) for each in (alone, filled)]
    most = lines[f"gpt2; {SHORT_SENTENCES}"]["most_possible"]
    return Measured(
        largest_norm=bound_at("sqrt-queries", 5),
        most_possible=most,
        padded_mean=np.mean(padded),
        real_mean=np.mean(real),
        raised_by=np.mean(padded) - np.mean(real),
        single_real=singles[0],
        single_padded=singles[1],
        picture=Picture(
            "layer",
            "mean spectral norm",
            {
                "padding removed": np.mean(real, 0),
                "padding kept": np.mean(padded, 0),
                "largest possible": most,
            },
            over=1,
            faint=("largest possible",),
        ),
    )
