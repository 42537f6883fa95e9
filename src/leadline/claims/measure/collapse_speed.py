"""How fast tokens become equal: in the long note's experiment, and elsewhere.

Pure attention without a mask, with weights that are neither tiny nor sharp, is the theorem's own
setting: res X' = (s/n) sum_h R W_QK,h R'R W_h to leading order, so log |res X| triples per layer.
The sentence names no conditions and is carried to where it fails: patterns near a permutation, and
a causal mask, which GPT-2, the note's subject, has. There the first token sees itself alone.
Measured from it, x_i - x_1 becomes sum_{2<=j<=i} P_ij (x_j - x_1) W: a triangular matrix, whose
powers fall like its largest diagonal entry. Equal tokens make patterns even, and then that is
P_22 = 1/2. What is left in depth points where x_2 - x_1 does, which becomes P_22 (x_2 - x_1) W
exactly, so the rate is max_{i>=2} P_ii times the gain of W along it: 1 for norm-keeping values, at
most |W|. A product of unrelated stochastic matrices falls on a straight line in the logarithm too
("linearly", in the words of numerical analysis), and attention without a mask runs away below it.

Norms in front of attention leave random weights cubic, which is the part "claim". Values that
shrink the mean token more than the differences are the exception (Wu et al. 2024, arXiv
2405.18781). Two tokens (m, +-a), RMSNorm, W_QK on the second feature alone, values (v, 1): m/a is
multiplied by v / tanh(tau) while a is the larger, so differences survive for v < tanh(tau), here
0.76, and vanish for larger v. Without the norm they vanish for every v.

The note's figure: 10 normal tokens of width 128, 12 layers with a LayerNorm before every attention,
four variants, means of |res X|_F over 32 samples in float32. Seed 0 draws the note's numbers.
Curves begin at sqrt((n - 1) d) = sqrt(9 * 128) = 33.94. What the note says of the drawing is read
on its linear axis: nearly 0 is a tenth or a hundredth of the start, coincident is less than a
marker apart, about two and a half per cent of the axis. From the fourth layer on, the curve of
attention alone is the rounding of float32, about eps times the size of the stream: one ratio of
logarithms is left below a residual of 1, and no rate can be read. The truth, followed below
rounding, does triple. With a LayerNorm the network is not the theorem's, and without it the tokens
start where c r^2 > 1 and the bound promises nothing. That skips keep the residual at every layer is
so for the mean that the figure draws (the part "claim") and not for one input, which the bound is
about: no update was asked to be orthogonal to anything.
Source: Dong, Cordonnier, Loukas 2021, arXiv 2103.03404.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from leadline.claims.catalog import Measured, Results, Trial, measures
from leadline.claims.claim import Picture
from leadline.claims.measure.token_residuals import (
    RELATIVE_RESIDUAL,
    RESIDUAL,
    Layer,
    attend,
    attention_network,
    drawn_layers,
    drawn_tokens,
    facts_of,
    follow_layers,
    follow_model,
    log10_factor,
    log10_growth,
    predicted,
    residual,
    stream,
    swapping_network,
)

if TYPE_CHECKING:
    import torch

    from leadline.instruments.collapse.result import Collapse

ATTENTION, MLP, SKIP, SKIP_AND_MLP = "SAN only", "MLP only", "skip only", "skip + MLP"


def _run_note_figure(seed: int) -> Mapping[str, Any]:
    from leadline.experiments.rank_collapse.experiment import (
        DRAWN,
        RELATIVE,
        TRUE,
        RankCollapseOptions,
        rank_collapse,
    )

    panels = {DRAWN: "drawn", TRUE: "true", RELATIVE: "relative"}
    curves: dict[str, dict[str, list[float]]] = {name: {} for name in panels.values()}
    for line in rank_collapse(RankCollapseOptions(seed=seed)).lines:
        if not line.faint:
            curves[panels[line.panel]][line.name] = list(line.values)
    return curves


NOTE_FIGURE = Trial("note-figure", _run_note_figure, seconds=6.5)


def note_curves(trials: Results, panel: str) -> Mapping[str, list[float]]:
    """By layer: residuals ("drawn"), log10 of them ("true") or of their share ("relative")."""
    return trials[NOTE_FIGURE.name][panel]


def sample_curves(seed: int) -> dict[str, torch.Tensor]:
    """The residual of every sample, [layer, sample], by variant, of forward passes in float32."""
    import torch

    from leadline.experiments.rank_collapse.experiment import VARIANTS, RankCollapseOptions
    from leadline.experiments.rank_collapse.note_block import note_blocks

    def size(x: torch.Tensor) -> torch.Tensor:
        return (x - x.mean(1, keepdim=True)).flatten(1).norm(dim=1)

    setting = RankCollapseOptions(seed=seed)
    shape = (setting.depth, setting.width, setting.heads)
    kind = {"norm": setting.norm, "causal": setting.causal}
    curves: dict[str, torch.Tensor] = {}
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.default_generator.manual_seed(seed)
        for name, (skip, mlp) in VARIANTS.items():
            blocks = note_blocks(*shape, mlp=mlp, skip=skip, **kind)
            x = torch.randn(setting.samples, setting.tokens, setting.width)
            curve = [size(x)]
            for block in blocks:
                x = block(x)
                curve.append(size(x))
            curves[name] = torch.stack(curve)
    return curves


def norm_keeping(layers: Sequence[Layer], *, sharpness: float) -> list[Layer]:
    """The same layers with an orthogonal W_V, W_O = 1, and queries times `sharpness`."""
    return [
        {
            "W_Q": sharpness * layer["W_Q"],
            "W_K": layer["W_K"],
            "W_V": np.linalg.qr(layer["W_V"])[0],
            "W_O": np.eye(len(layer["W_V"])),
        }
        for layer in layers
    ]


@measures("pure-attention-collapses-doubly")
def pure_attention_collapses_doubly(seed: int) -> Measured:
    """Follow the same layers without and with a mask, and a network that swaps tokens."""
    depth, heads = 12, 2
    x, layers = drawn_tokens(seed), drawn_layers(seed, depth=depth)
    unmasked = follow_layers(x, layers, heads=heads, facts=True)
    masked = follow_layers(x, layers, heads=heads, causal=True)
    swapped = follow_layers(*swapping_network())
    law = predicted("collapse-cubic-law", facts_of(unmasked))
    return Measured(
        depth=depth,
        ratio=unmasked.log_ratio[-1],
        last=unmasked.log10_residual[-1],
        relative=unmasked.log10_relative[-1],
        causal=masked.log_ratio[-1],
        swapped=log10_growth(swapped),
        law=abs(law[-1] - float(unmasked.log10_residual[-1])),
        picture=Picture(
            "layer",
            RESIDUAL,
            {
                "no mask": unmasked.log10_residual[:8],
                "causal": masked.log10_residual[:8],
                "each token copies one": swapped.log10_residual[:8],
            },
            over=0,
        ),
    )


@measures("causal-attention-collapses-doubly")
def causal_attention_collapses_doubly(seed: int) -> Measured:
    """Follow norm-keeping layers with and without the mask, and drawn ones with it."""
    depth = 30
    x, drawn = drawn_tokens(seed), drawn_layers(seed, depth=depth)
    layers = norm_keeping(drawn, sharpness=0.01)
    masked = follow_layers(x, layers, causal=True, facts=True)
    unmasked = follow_layers(x, layers)
    free = follow_layers(x, drawn, causal=True, facts=True)
    law, ceiling = (predicted("collapse-causal-rate", facts_of(one)) for one in (masked, free))
    apart, gain = x[1] - x[0], 1.0
    for layer in drawn:
        apart = apart @ layer["W_V"] @ layer["W_O"] / np.linalg.norm(apart)
        gain = float(np.linalg.norm(apart))
    half = [float(masked.log10_residual[0]) - 0.30103 * site for site in range(depth + 1)]
    return Measured(
        depth=depth,
        ratio=masked.log_ratio[-1],
        factor=10.0 ** float(masked.rate[-1]),
        law=abs(law[-1] - float(masked.log10_residual[-1])),
        stretched=10.0 ** float(free.rate[-1]) / (0.5 * gain),
        ceiling=10.0 ** (float(free.log10_residual[-1]) - ceiling[-1]),
        last=masked.log10_residual[-1],
        unmasked=unmasked.log10_residual[-1],
        picture=Picture(
            "layer",
            RESIDUAL,
            {
                "causal": masked.log10_residual,
                "no mask": unmasked.log10_residual[:4],
                "one half per layer": half,
            },
            over=0,
            faint=("one half per layer",),
        ),
    )


@measures("collapse-outruns-stochastic-products")
def collapse_outruns_stochastic_products(seed: int) -> Measured:
    """Multiply unrelated patterns, and follow attention without and with a mask."""
    depth = 12
    x = drawn_tokens(seed)
    rng = np.random.default_rng([seed, 10])
    rest, product = residual(x), [float(np.log10(np.linalg.norm(residual(x))))]
    for _ in range(depth):
        weights = np.exp(rng.normal(size=(len(x), len(x))))
        # Rows sum to one, so that res(P X) = res(P res X): nothing cancels.
        rest = residual(weights / weights.sum(1, keepdims=True) @ rest)
        product.append(float(np.log10(np.linalg.norm(rest))))
    layers = norm_keeping(drawn_layers(seed, depth=depth), sharpness=1.0)
    unmasked, masked = (follow_layers(x, layers, causal=causal) for causal in (False, True))
    fall = product[-1] - product[0]
    depths = np.arange(depth + 1.0)
    return Measured(
        straight=np.corrcoef(depths, product)[0, 1],
        faster=log10_growth(unmasked) / fall,
        causal=log10_growth(masked) / fall,
        causal_straight=np.corrcoef(depths, masked.log10_residual)[0, 1],
        picture=Picture(
            "layer",
            RESIDUAL,
            {
                "random product": product,
                "causal attention": masked.log10_residual,
                "attention, no mask": unmasked.log10_residual[:6],
            },
            over=0,
        ),
    )


def _two_features(mean_gain: float, *, depth: int, norm: bool) -> Collapse:
    """Follow (m, +1) and (m, -1) with m = 0.01; logit 1 of a token with itself, values (v, 1)."""
    import torch
    from torch.nn import functional as F

    from leadline.instruments.collapse.measure import follow

    # RMSNorm of width two makes (m, a) of length sqrt(2), so logits are halved with it.
    query, key, value = (
        torch.diag(torch.tensor(entries, dtype=torch.float64))
        for entries in ([0.0, 0.5 if norm else 1.0], [1.0, 1.0], [mean_gain, 1.0])
    )

    def step(x: Any) -> Any:
        return attend(F.rms_norm(x, (2,)) if norm else x, query, key, value, scale=1.0)

    tokens = torch.tensor([[0.01, 1.0], [0.01, -1.0]], dtype=torch.float64)
    with torch.no_grad():
        return follow([step] * depth, tokens)


@measures("norms-do-not-matter-for-collapse")
def norms_do_not_matter_for_collapse(seed: int) -> Measured:
    """Random attention with LayerNorm, and two tokens with and without RMSNorm."""
    below, above, layers, unnormed, shown = 0.72, 0.80, 150, 20, 96
    shape = {"depth": 8, "width": 16, "heads": 2, "connection": "none"}
    model = attention_network(seed, **shape, norm="layernorm", placement="pre")
    random = follow_model(model, stream(seed, tokens=8, width=16)[0])
    kept = _two_features(below, depth=layers, norm=True).log10_relative
    bare = _two_features(below, depth=unnormed, norm=False).log10_relative
    falling = _two_features(above, depth=layers, norm=True).log10_relative
    return Measured(
        layers=layers,
        unnormed=unnormed,
        below=below,
        above_gain=above,
        border=math.tanh(1.0),
        ratio=random.log_ratio[-1],
        kept=10.0 ** float(kept[-1]),
        bare=bare[-1],
        above=falling[-1],
        picture=Picture(
            "layer",
            RELATIVE_RESIDUAL,
            {
                "norm, 0.72": kept[:shown],
                "norm, 0.80": falling[: min(shown, int((falling > -6.0).sum()))],
                "no norm, 0.72": bare[:4],
            },
            over=0,
        ),
    )


@measures("figure-network-is-pure-attention")
def figure_network_is_pure_attention(seed: int) -> Measured:
    """Ask the theorem's conditions of the network with and without the norm."""
    from leadline.theory.rank_collapse import COLLAPSE_BOUNDS

    depth, width = 4, 128
    bound = COLLAPSE_BOUNDS.get("collapse-published")()
    shape = {"depth": depth, "width": width, "heads": 1, "connection": "none"}
    x = stream(seed, tokens=10, width=width)[0]
    normed, bare = (
        facts_of(follow_model(attention_network(seed, **shape, **norm), x, facts=True))
        for norm in ({"norm": "layernorm", "placement": "pre"}, {})
    )
    broken, left = (
        sum(not one.holds for one in bound.conditions(facts)) for facts in (normed, bare)
    )
    return Measured(
        depth=depth,
        broken=broken,
        left=left,
        condition=log10_factor(bare) + 2.0 * bare.log10_composite[0],
        bound=predicted("collapse-published", bare)[-1],
    )


@measures("figure-start", needs=(NOTE_FIGURE,))
def figure_start(seed: int, trials: Results) -> Measured:
    """Read the first points of the curves as drawn."""
    starts = [curve[0] for curve in note_curves(trials, "drawn").values()]
    return Measured(least=min(starts), most=max(starts), expected=(9 * 128) ** 0.5)


@measures("figure-attention-only", needs=(NOTE_FIGURE,))
def figure_attention_only(seed: int, trials: Results) -> Measured:
    """Read the curve of attention alone as drawn."""
    drawn = note_curves(trials, "drawn")[ATTENTION]
    return Measured(
        first=drawn[1],
        second=drawn[2],
        factor=drawn[0] / drawn[1],
        share=drawn[1] / drawn[0],
        rest=max(drawn[4:]),
        picture=Picture("layer", "residual", {"attention only": drawn}, over=0),
    )


@measures("figure-floor-is-the-residual", needs=(NOTE_FIGURE,))
def figure_floor_is_the_residual(seed: int, trials: Results) -> Measured:
    """Divide the drawn values by the true ones, and the floor by eps times the stream."""
    drawn, true, relative = (
        note_curves(trials, panel)[ATTENTION] for panel in ("drawn", "true", "relative")
    )
    size = 10.0 ** (true[4] - relative[4])
    logs = [math.log10(value) for value in drawn]
    return Measured(
        floor=drawn[4],
        fourth=true[4],
        off=logs[4] - true[4],
        early=drawn[3] / 10.0 ** true[3],
        units=drawn[4] / (float(np.finfo(np.float32).eps) * size),
        picture=Picture("layer", RESIDUAL, {"as drawn": logs[:8], "true": true[:8]}, over=0),
    )


@measures("figure-shows-double-exponential", needs=(NOTE_FIGURE,))
def figure_shows_double_exponential(seed: int, trials: Results) -> Measured:
    """Set the drawn logarithms of attention alone beside the true ones."""
    drawn = [math.log10(value) for value in note_curves(trials, "drawn")[ATTENTION]]
    true = note_curves(trials, "true")[ATTENTION]
    late = drawn[4:]
    return Measured(
        drawn=(late[-1] / late[0]) ** (1.0 / (len(late) - 1)),
        end=10.0 ** drawn[-1],
        true=true[-1] / true[-2],
        last=true[-1],
        picture=Picture("layer", RESIDUAL, {"as drawn": drawn[:8], "true": true[:8]}, over=0),
    )


@measures("figure-skip-only", needs=(NOTE_FIGURE,))
def figure_skip_only(seed: int, trials: Results) -> Measured:
    """Read the curve with skips alone as drawn."""
    drawn = note_curves(trials, "drawn")[SKIP]
    return Measured(
        start=drawn[0],
        end=drawn[-1],
        swing=max(abs(value / drawn[0] - 1.0) for value in drawn),
        falls=sum(after < before for before, after in pairwise(drawn)),
        end_share=drawn[-1] / drawn[0],
        picture=Picture("layer", "residual", {SKIP: drawn}, over=0),
    )


@measures("figure-skip-and-mlp", needs=(NOTE_FIGURE,))
def figure_skip_and_mlp(seed: int, trials: Results) -> Measured:
    """Read the curve with skips and MLPs as drawn, and the share of the stream."""
    drawn, relative = (note_curves(trials, panel)[SKIP_AND_MLP] for panel in ("drawn", "relative"))
    return Measured(
        start=drawn[0],
        end=drawn[-1],
        least=min(drawn[1:]) / drawn[0],
        rise=drawn[-1] / drawn[0],
        first_share=10.0 ** relative[0],
        last_share=10.0 ** relative[-1],
        picture=Picture("layer", "residual", {SKIP_AND_MLP: drawn}, over=0),
    )


@measures("figure-lines-coincide", needs=(NOTE_FIGURE,))
def figure_lines_coincide(seed: int, trials: Results) -> Measured:
    """Compare the two curves with skips as drawn."""
    drawn = note_curves(trials, "drawn")
    pairs = zip(drawn[SKIP], drawn[SKIP_AND_MLP], strict=True)
    apart, axis = max(abs(a - b) for a, b in pairs), max(drawn[SKIP_AND_MLP])
    return Measured(
        apart=apart,
        axis=axis,
        share=apart / axis,
        picture=Picture(
            "layer", "residual", {name: drawn[name] for name in (SKIP, SKIP_AND_MLP)}, over=0
        ),
    )


@measures("figure-lower-bound-at-every-layer")
def figure_lower_bound_at_every_layer(seed: int) -> Measured:
    """The note's forward pass with skips alone, sample by sample."""
    samples = sample_curves(seed)[SKIP].double()
    mean = samples.mean(1)
    return Measured(
        mean=mean[1:].min() / mean[0],
        single=(samples / samples[0]).min(),
        falling=(samples[1:] < samples[:-1]).double().mean(),
    )
