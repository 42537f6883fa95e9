"""What MLPs do against the collapse: rank, Lipschitz constants, and what larger ones cost.

The rank that an MLP adds comes from its kinks, not from the size that lambda measures. One whose
units are all on is affine, x A + c, and adds at most one, that of 1c'; small weights with the same
kinks raise as much as large ones, since s (x W_1 + b_1) through ReLU and s W_2 is s^2 times what it
was.

In |.|_{1,inf} an MLP is Lipschitz with lambda = Lip(act) |W_1| |W_2|: the part "claim", for ReLU of
the note's script and GELU of GPT-2. The note's reason, bounded maps and activations, is carried to
others: ReLU is not bounded, a step is bounded and not Lipschitz, and a gated MLP (SwiGLU) is a
product whose slope grows with its input. What is needed is a bounded slope.

lambda enters an upper bound only. With one and the same MLP made larger, in the theorem's setting
(no skip, norm, mask), the last residual is larger: the part "claim". It does not carry over to any
larger lambda: with LayerNorm, as in the note's experiment, the size of the weights cancels; and an
MLP may stretch a direction in which the tokens do not differ. The collapse stays cubic. That MLPs
alone cannot stop it holds in the note's experiment and fails elsewhere: after a -> a tanh(a^2) the
MLP z -> clip(g z, -1, 1), two ReLU units, has a stable pair +-1 for g = 2; there c r^2 < 1 fails,
as it must. The theorem with MLPs is printed with the exponent (3L - 1)/2: 1, 2.5, 4, 5.5 in place
of 1, 4, 13, 40. It is read as printed and refuted inside its hypotheses by two layers with a large
W_QK and the identity relu(z) - relu(-z) as MLP, lambda = 2: the residual is near c^4 r^9, far above
c^2.5 r^9, since c is large and c r^2 small.

What a large lambda costs (robustness, the variance tr Cov(g) of gradients over batches) is read in
that setting with MLP weights 8 times as large, lambda 64 times, and carried to pre-norm with skips,
where norms take the size of the weights out again, and larger weights get smaller gradients.

In the note's figure MLPs alone are said to fall more slowly than attention alone: read as a larger
residual at every layer before rounding. That skips with MLPs do best is read as a residual that
ends above that of skips alone; the note's draw, seed 0, is always run, so that the verdict does not
hang on the seeds, and other seeds judge the correction.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from leadline.claims.catalog import Measured, Results, Trial, measures
from leadline.claims.claim import Picture
from leadline.claims.measure.collapse_speed import (
    ATTENTION,
    MLP,
    NOTE_FIGURE,
    SKIP,
    SKIP_AND_MLP,
    note_curves,
    sample_curves,
)
from leadline.claims.measure.cubic_bound import PUBLISHED, search, used_share
from leadline.claims.measure.token_residuals import (
    RELATIVE_RESIDUAL,
    RESIDUAL,
    Matrix,
    attend,
    facts_of,
    log10_factor,
    log10_growth,
    rank_of,
    two_tokens,
)

if TYPE_CHECKING:
    import torch

    from leadline.instruments.collapse.result import Collapse


@measures("lipschitz-measures-rank-raising")
def lipschitz_measures_rank_raising(seed: int) -> Measured:
    """Two MLPs on tokens of rank one, and the first one made larger."""
    from leadline.theory.rank_collapse.lipschitz import composite_lipschitz

    tokens, width, hidden = 8, 8, 32
    small, large, shift = 0.1, 10.0, 1e4
    rng = np.random.default_rng([seed, 25])
    x = np.outer(np.linspace(-1.0, 1.0, tokens), rng.normal(size=width))
    up, down = rng.normal(size=(width, hidden)), rng.normal(size=(hidden, width))
    biases = rng.normal(size=hidden)

    def lipschitz(size: float) -> float:
        sums = [float(np.abs(size * w).sum(at).max()) for w in (up, down) for at in (0, 1)]
        return composite_lipschitz("relu", *sums)

    def rank(size: float, bias: Matrix) -> float:
        units = np.maximum(size * (x @ up) + bias, 0.0)
        # The image of the zero token is taken away, so that a linear network has rank one.
        return rank_of((units - np.maximum(bias, 0.0)) @ (size * down))

    kinked = rank(small, small * biases)
    straight = rank(large, np.full(hidden, shift))
    grown = rank(large, large * biases)
    affine = np.maximum(large * (x @ up) + shift, 0.0) @ (large * down) + rng.normal(size=width)
    return Measured(
        small_lipschitz=lipschitz(small),
        large_lipschitz=lipschitz(large),
        small_rank=kinked,
        large_rank=straight,
        grown_rank=grown,
        larger=lipschitz(large) / lipschitz(small),
        gained=straight - kinked,
        unchanged=grown - kinked,
        added=rank_of(affine) - rank_of(x),
    )


@measures("mlp-is-lipschitz")
def mlp_is_lipschitz(seed: int) -> Measured:
    """Quotients over drawn pairs, near and far, and the slope of GELU."""
    import torch
    from torch.nn import functional as F

    from leadline.instruments.collapse.composite_residual import composite
    from leadline.theory.rank_collapse.lipschitz import composite_lipschitz, lip

    tokens, width, hidden, draws, tiny = 6, 5, 12, 200, 1e-7
    generator = torch.Generator().manual_seed(1000 * seed + 28)
    normal = partial(torch.randn, generator=generator, dtype=torch.float64)
    up, down, gate = normal(width, hidden), normal(hidden, width), normal(width, hidden)
    norms = [float(w.abs().sum(at).max()) for w in (up, down) for at in (0, 1)]
    near = normal(draws, tokens, width)
    sizes = 10.0 ** (4.0 * torch.rand(draws, 1, 1, generator=generator, dtype=torch.float64) - 3.0)
    moves = sizes * normal(draws, tokens, width)

    def quotient(act: str) -> float:
        run = {"relu": F.relu, "gelu": F.gelu}[act]
        change = run((near + moves) @ up) @ down - run(near @ up) @ down
        steepest = float((composite(change) / composite(moves)).max())
        return steepest / composite_lipschitz(act, *norms)

    # Inputs at which unit 1 stands at zero, where a step jumps.
    edge = near - near @ up[:, :1] @ torch.linalg.pinv(up[:, :1])
    push = tiny * up[:, 0].expand(edge.shape)
    jump = (((edge + push) @ up > 0).double() - ((edge - push) @ up > 0).double()) @ down
    stepped = float((composite(jump) / composite(2.0 * push)).max())

    def gated(size: float) -> float:
        move = tiny * normal(draws, tokens, width)
        after, before = (
            (F.silu(z @ gate) * (z @ up)) @ down for z in (size * near + move, size * near)
        )
        change = after - before
        return float((composite(change) / composite(move)).mean())

    steepest = torch.tensor(2.0, dtype=torch.float64).sqrt()
    single = float(F.gelu(steepest + tiny) - F.gelu(steepest)) / tiny
    grid = torch.arange(-6.0, 6.0, 1e-4, dtype=torch.float64, requires_grad=True)
    (slopes,) = torch.autograd.grad(F.gelu(grid).sum(), grid)
    return Measured(
        relu=quotient("relu"),
        gelu=quotient("gelu"),
        step=stepped / composite_lipschitz("relu", *norms),
        gated=gated(10.0) / gated(1.0),
        attained=single / composite_lipschitz("gelu", 1.0, 1.0, 1.0, 1.0),
        slope=abs(float(slopes.max()) - lip("gelu")),
    )


def _follow_note_blocks(seed: int, *, norm: str, factor: float) -> Collapse:
    """Follow the note's blocks with MLPs and no skip; MLP weights times `factor`, no biases."""
    import torch

    from leadline.experiments.rank_collapse.note_block import note_blocks
    from leadline.instruments.collapse.measure import follow

    depth, width = 6, 16
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.default_generator.manual_seed(seed)
        blocks = note_blocks(depth, width, 1, mlp=True, skip=False, norm=norm, causal=False)
        # Tokens of half the usual size are near enough for a collapse without norms.
        x = 0.5 * torch.randn(8, width, dtype=torch.float64)
        for name, parameter in blocks.double().named_parameters():
            if ".up." in name or ".down." in name:
                parameter.mul_(0.0 if name.endswith("bias") else factor)
        return follow(list(blocks), x, seed=seed)


def _follow_stretched(seed: int, *, gain: float) -> Collapse:
    """Follow tokens that share their first feature; the MLP multiplies it by `gain`, keeps others.

    The MLP is relu(z A) A' diag(gain, 1, ..., 1) with A = (I, -I), which is linear; queries and
    keys do not see the first feature.
    """
    import torch

    width, depth = 4, 4
    generator = torch.Generator().manual_seed(seed)
    normal = partial(torch.randn, generator=generator, dtype=torch.float64)
    x = normal(5, width)
    x[:, 0] = 1.0
    one = torch.eye(width, dtype=torch.float64)
    up = torch.cat([one, -one])
    down = up.mT.clone()
    down[0] *= gain
    queries_and_keys: list[tuple[torch.Tensor, torch.Tensor]] = []
    for _ in range(depth):
        query, key = normal(width, width), normal(width, width)
        query[:, 0], key[:, 0] = 0.0, 0.0
        queries_and_keys.append((query, key))
    return _follow_attention_and_mlp(queries_and_keys, up, down, x, seed=seed)


def _follow_clipping(*, gain: float, depth: int) -> Collapse:
    """Follow two tokens of width one; relu(g z + 1) - relu(g z - 1) - 1 cuts g z off at +-1."""
    import torch

    one = torch.ones(1, 1, dtype=torch.float64)
    up, down = gain * one.expand(2, 1), torch.tensor([[1.0, -1.0]], dtype=torch.float64)
    edges, shift = torch.tensor([1.0, -1.0], dtype=torch.float64), -one[0]
    x = torch.stack([0.9 * one[0], -0.9 * one[0]])
    return _follow_attention_and_mlp([(one, one)] * depth, up, down, x, biases=(edges, shift))


def _follow_attention_and_mlp(
    queries_and_keys: list[tuple[torch.Tensor, torch.Tensor]],
    up: torch.Tensor,
    down: torch.Tensor,
    x: torch.Tensor,
    *,
    biases: tuple[torch.Tensor | None, torch.Tensor | None] = (None, None),
    seed: int = 0,
) -> Collapse:
    """Layers of one head with values as they are, and a ReLU MLP."""
    import torch
    from torch.nn import functional as F

    from leadline.instruments.collapse.measure import follow

    one = torch.eye(x.shape[-1], dtype=torch.float64)

    def layer(query: torch.Tensor, key: torch.Tensor) -> Callable[[Any], Any]:
        def step(state: Any) -> Any:
            units = F.relu(F.linear(attend(state, query, key, one), up, biases[0]))
            return F.linear(units, down, biases[1])

        return step

    with torch.no_grad():
        return follow([layer(query, key) for query, key in queries_and_keys], x, seed=seed)


@measures("larger-lipschitz-slows-collapse")
def larger_lipschitz_slows_collapse(seed: int) -> Measured:
    """Follow blocks with MLPs of two sizes, without and with norms, and a stretched direction."""
    factor, stretch = 4.0, 100.0
    usual, larger = (_follow_note_blocks(seed, norm="none", factor=size) for size in (1.0, factor))
    usual_normed, larger_normed = (
        _follow_note_blocks(seed, norm="layernorm", factor=size) for size in (1.0, factor)
    )
    plain, stretched = (_follow_stretched(seed, gain=gain) for gain in (1.0, stretch))
    worst = search("one-head-mlp", (PUBLISHED,), seed=seed, climbed=0)[PUBLISHED]
    return Measured(
        depth=usual.depth,
        factor=factor,
        stretched=stretch,
        higher=larger.log10_residual[-1] - usual.log10_residual[-1],
        ratio=larger.log_ratio[-1],
        normed=larger_normed.log10_relative[-1] / usual_normed.log10_relative[-1],
        shared=stretched.log10_residual[-1] - plain.log10_residual[-1],
        bounded=worst.within.ratio,
    )


@measures("mlp-alone-cannot-stop-collapse", needs=(NOTE_FIGURE,))
def mlp_alone_cannot_stop_collapse(seed: int, trials: Results) -> Measured:
    """The note's curve, and two tokens with a clipping MLP of two gains."""
    from leadline.theory.rank_collapse.lipschitz import composite_lipschitz

    depth, gain = 30, 2.0
    logs = note_curves(trials, "true")[MLP]
    strong, weak = (_follow_clipping(gain=size, depth=depth) for size in (gain, 1.0))
    facts = facts_of(two_tokens(0.9, query_key=1.0, value=1.0, depth=1))
    # up = (g, g): column sums g, row sum 2 g; down = (1, -1)': column sum 2, row sums 1.
    lipschitz = composite_lipschitz("relu", gain, 2.0 * gain, 2.0, 1.0)
    facts = replace(facts, layers=(replace(facts.layers[0], lipschitz=lipschitz),))
    return Measured(
        depth=depth,
        ratio=logs[-1] / logs[-2],
        kept=10.0 ** log10_growth(strong),
        weak=log10_growth(weak),
        condition=10.0 ** (log10_factor(facts) + 2.0 * facts.log10_composite[0]),
        picture=Picture(
            "layer",
            RESIDUAL,
            {
                "note, MLP only": logs[:5],
                "two tokens, gain 1": weak.log10_residual[:5],
                "two tokens, gain 2": strong.log10_residual,
            },
            over=0,
        ),
    )


@measures("mlp-exponent-is-linear-in-depth")
def mlp_exponent_is_linear_in_depth(seed: int) -> Measured:
    """Two tokens with the identity as an MLP, and a search among networks with MLPs."""
    from leadline.theory.rank_collapse.lipschitz import composite_lipschitz

    depth = 2
    facts = facts_of(two_tokens(1e-4, query_key=1e6, value=1.0, depth=depth))
    # up = (1, -1): column sums 1, row sum 2; down is its transpose.
    lipschitz = composite_lipschitz("relu", 1.0, 2.0, 2.0, 1.0)
    facts = replace(
        facts, layers=tuple(replace(layer, lipschitz=lipschitz) for layer in facts.layers)
    )
    start, end = facts.log10_composite[0], facts.log10_composite[-1]
    printed = 0.5 * (3 * depth - 1) * log10_factor(facts) + 3**depth * start
    return Measured(
        depth=depth,
        lipschitz=lipschitz,
        written=end - printed,
        right=used_share(PUBLISHED, facts),
        searched=search("one-head-mlp", (PUBLISHED,), seed=seed)[PUBLISHED].within.ratio,
    )


@measures("skip-does-more-than-mlp", needs=(NOTE_FIGURE,))
def skip_does_more_than_mlp(seed: int, trials: Results) -> Measured:
    """Read the ends of the note's curves with skips alone and with MLPs alone."""
    logs = note_curves(trials, "true")
    skip, mlp = logs[SKIP], logs[MLP]
    return Measured(
        skip=10.0 ** skip[-1],
        kept=10.0 ** (skip[-1] - skip[0]),
        mlp=mlp[-1],
        picture=Picture("layer", RESIDUAL, {SKIP: skip[:6], MLP: mlp[:6]}, over=0),
    )


@measures("figure-mlp-only", needs=(NOTE_FIGURE,))
def figure_mlp_only(seed: int, trials: Results) -> Measured:
    """Read the curve with MLPs alone as drawn."""
    drawn = note_curves(trials, "drawn")[MLP]
    return Measured(
        first=drawn[1],
        second=drawn[2],
        third=drawn[3],
        share=drawn[1] / drawn[0],
        late=drawn[3] / drawn[0],
        picture=Picture("layer", "residual", {MLP: drawn}, over=0),
    )


@measures("figure-mlp-is-slower", needs=(NOTE_FIGURE,))
def figure_mlp_is_slower(seed: int, trials: Results) -> Measured:
    """Compare attention alone and with MLPs, as drawn and below rounding."""
    drawn, true = note_curves(trials, "drawn"), note_curves(trials, "true")
    mlp, attention = drawn[MLP], drawn[ATTENTION]
    return Measured(
        first=mlp[1] / attention[1],
        second=mlp[2] / attention[2],
        mlp_factor=mlp[1] / mlp[2],
        san_factor=attention[1] / attention[2],
        mlp_last=true[MLP][-1],
        san_last=true[ATTENTION][-1],
        cubic=true[MLP][-1] / true[MLP][-2],
        picture=Picture(
            "layer", RESIDUAL, {name: true[name][:6] for name in (ATTENTION, MLP)}, over=0
        ),
    )


@measures("figure-skip-and-mlp-is-best", needs=(NOTE_FIGURE,))
def figure_skip_and_mlp_is_best(seed: int, trials: Results) -> Measured:
    """The ends of the note's draw in float32, and the curves of this seed."""
    note = sample_curves(0)
    note_skip, note_both = (float(note[name][-1].mean()) for name in (SKIP, SKIP_AND_MLP))
    drawn, relative = note_curves(trials, "drawn"), note_curves(trials, "relative")
    skip, both = drawn[SKIP], drawn[SKIP_AND_MLP]
    skip_share, both_share = (10.0 ** relative[name][-1] for name in (SKIP, SKIP_AND_MLP))
    return Measured(
        own_skip=note_skip,
        own_both=note_both,
        margin=note_both - note_skip,
        growth=both[-1] / both[0] - skip[-1] / skip[0],
        skip_share=skip_share,
        both_share=both_share,
        share=both_share / skip_share,
        picture=Picture(
            "layer",
            RELATIVE_RESIDUAL,
            {name: relative[name] for name in (SKIP, SKIP_AND_MLP)},
            over=0,
        ),
    )


def _run_lipschitz_cost(seed: int) -> Mapping[str, Any]:
    """The preset `lipschitz-cost`, made small: MLP weights of two sizes, eight times apart."""
    from leadline.experiments.lipschitz_cost.experiment import lipschitz_cost

    facts: dict[str, dict[str, list[float]]] = {}
    for line in lipschitz_cost(scales=(0.5, 4.0), draws=1, batches=8, seed=seed).lines:
        network = facts.setdefault(line.panel, {})
        for fact in ("lipschitz", "output_change", "gradient_variance"):
            network.setdefault(fact, []).append(float(line.facts[fact]))
    return facts


LIPSCHITZ_COST = Trial("lipschitz-cost", _run_lipschitz_cost, seconds=2.3)
BARE, NORMED, SKIPLESS = "without skip and norm", "pre-norm", "without skip"


def _growth(trials: Results, network: str, fact: str) -> float:
    """How many times as large a number is with the largest MLP weights as with the smallest."""
    first, last = trials[LIPSCHITZ_COST.name][network][fact]
    return last / first


@measures("large-lipschitz-costs-robustness", needs=(LIPSCHITZ_COST,))
def large_lipschitz_costs_robustness(seed: int, trials: Results) -> Measured:
    """Read how lambda and the change of the output per change of the input grow."""
    return Measured(
        lipschitz=_growth(trials, BARE, "lipschitz"),
        bare=_growth(trials, BARE, "output_change"),
        normed=_growth(trials, NORMED, "output_change"),
    )


@measures("large-lipschitz-raises-gradient-variance", needs=(LIPSCHITZ_COST,))
def large_lipschitz_raises_gradient_variance(seed: int, trials: Results) -> Measured:
    """Read how the variance of gradients over batches grows in three networks."""
    bare, normed, normless = (
        _growth(trials, network, "gradient_variance") for network in (BARE, NORMED, SKIPLESS)
    )
    return Measured(bare=bare, normed=normed, normless=normless)
