"""Signal and gradient of designs before training, over the depth: one trial that most claims read.

Designs and measurements are those of the experiment `gradient-flow` (bytes of Python's own library,
width 64, 4 heads, 64 tokens, 4 examples, float64, attention as plain products), and one more: a
stack without skip and without norm. Each is drawn once per seed and depth; Pre-LN and Post-LN are
drawn twice more for the gradient of the last output matrix, the geometric mean of all draws.

Gradients are read as |dL/dx_0| / |dL/dx_L| ("entry over end") and as the least of any site over the
last. Vanished is a thousandfold loss, tiny a tenth, kept within a factor of a hundred, order one
the exponent 0 over the depth. "claim" is the setting that a note derives or plainly means:

    last gradient       |dL/dW2| ~ L^0 in Post-LN, L^(-1/2) in Pre-LN: Xiong et al. 2020, arXiv
                        2002.04745, theorem 1, with the exponents of Leadline's law of that name
    plain stacks        no skip and no norm, from Xavier's start; "reach": with the norms of a
                        Transformer. A product goes with the size of its factors, so the correction
                        names the start: weights half as large again explode.
    no skip, norms      the summary's setting, which blames the norms, from 24 layers on; what is
                        lost there is the difference between tokens
    Post-LN, tiny       derived from Jacobians alone, so it must hold before training; what training
                        without warm-up makes of it is another claim
    Pre-LN, order one   small F', so updates / sqrt(2 L); "reach": Xavier's start unscaled
    norms keep          norms in either place against none, 96 layers; that scaled updates also
                        keep a gradient is no contradiction

Streams are read by their mean square m. m' = m + mean(u²) + 2 mean(x u) is an identity, so a
variance stays only where updates are small or point against the stream.

    variance kept       a Transformer with skips, norms where modern models have them (pre); it
                        grows inside the band of the law of Xiong et al. for these sizes
    no norm             "claim": the plain sum. "reach": x + u / sqrt(2 L), a sum that the same note
                        lists. There attention multiplies m by 1 + a/(2L) at most and the MLP by
                        1 + c/(2L), in the mean over weights, so L layers by exp((a + c)/2): Xavier
                        has a = 1, c <= 4 r / (1 + r)² = 0.64 for r = 4 and |f(x)| <= |x|. The
                        law's band needs ReLU, so four more models are drawn with it.
    mean shifts         the mean over the features of a token, in the root mean square; "reach":
                        beside the size of the stream, which is what the next layer notices
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from leadline.claims.catalog import Measured, Results, Trial, measures
from leadline.claims.claim import Picture
from leadline.experiments.outcome import exponent
from leadline.theory.depth import LAWS

DEPTHS = (12, 24, 48, 96)
DEEP = (24, 48, 96)
SHOWN = 48
"""The depth whose layers are drawn one by one."""
DESIGNS = ("pre", "post", "no skip", "plain", "no norm", "scaled pre", "gpt2-scaled")
WIDTH, HEADS, LENGTH, EXAMPLES = 64, 4, 64, 4
ENTRY_OVER_END = "gradient at entry / at the end"
MORE_DRAWS = {"pre": 2, "post": 2}


def seed_of_draw(seed: int, draw: int) -> int:
    """Return the seed of one of several draws, another for every seed and draw."""
    return 1000 * (seed + 1) + draw


def build_model(depth: int, seed: int, *, length: int = LENGTH, **fields: Any) -> Any:
    """Build an untrained model from the fields of a recipe: Xavier's init where they name none."""
    from leadline.lab.presets.depth_limits import FIXED
    from leadline.lab.tasks import build_task
    from leadline.lab.trainer import model_for
    from leadline.parts import Recipe

    usual = {"width": WIDTH, "heads": HEADS, "init": FIXED["init"], "head": FIXED["head"]}
    recipe = Recipe(depth=depth, **{**usual, **fields})
    return model_for(recipe, build_task(f"stdlib(length={length})"), seed=seed).eval()


def draw_model(design: str, depth: int, seed: int, **sizes: int) -> Any:
    """Build the untrained model of a design, with the weights of a seed."""
    from leadline.experiments.gradient_flow.starts import DESIGNS as FLOW
    from leadline.lab.presets.depth_limits import DESIGNS as PRESET

    return build_model(depth, seed, **sizes, **{**PRESET, **FLOW}[design])


def pass_through(model: Any, seed: int, *, design: str) -> Any:
    """Measure one forward and one backward pass of a model."""
    from leadline.experiments.gradient_flow.starts import batch_of, measured

    batch = batch_of(LENGTH, examples=EXAMPLES, seed=seed)
    return measured(model, batch, design=design, seed=seed)


def watch_writes(model: Any, seed: int, *, length: int = LENGTH, examples: int = EXAMPLES) -> Any:
    """Keep the states and updates of all sublayers in one forward pass, in float64."""
    import torch

    from leadline.experiments.gradient_flow.starts import batch_of, plain_attention, seen_writes

    model = model.double()
    with plain_attention(), torch.no_grad(), seen_writes(model) as writes:
        model.stream(batch_of(length, examples=examples, seed=seed).ids)
    return writes


def measure_starts(seed: int) -> dict[str, Any]:
    """Pass once forward and once back through every design at every depth."""
    results: dict[str, Any] = {}
    for design in DESIGNS:
        for depth in DEPTHS:
            start = pass_through(draw_model(design, depth, seed), seed, design=design)
            weights = [start.weight]
            for draw in range(MORE_DRAWS.get(design, 0)):
                other = seed_of_draw(seed, draw)
                model = draw_model(design, depth, other)
                weights.append(pass_through(model, other, design=design).weight)
            positive = min(weights) > 0.0
            results.setdefault(design, {})[str(depth)] = {
                "weight": math.exp(sum(map(math.log, weights)) / len(weights)) if positive else 0.0,
                "gradients": list(start.gradients),
                "squares": list(start.squares),
                "updates": start.updates,
                "crosses": start.crosses,
                "cosine": start.cosine,
            }
    return results


AT_START = Trial("norms-at-start", measure_starts, seconds=16.0)


class Flow:
    """What the trial measured of one design, by depth."""

    def __init__(self, results: Results) -> None:
        self._results = results
        depths = sorted(map(int, results))
        gradients = {
            depth: [float(one) for one in results[str(depth)]["gradients"]] for depth in depths
        }
        self.relative = {d: [one / each[-1] for one in each] for d, each in gradients.items()}
        """|dL/dx_l| / |dL/dx_L| at the sites 0 ... L."""
        self.ratio = {depth: each[0] for depth, each in self.relative.items()}
        """|dL/dx_0| / |dL/dx_L|."""
        self.least = {depth: min(each) for depth, each in self.relative.items()}
        """The smallest |dL/dx_l| of any site over that of the last."""
        self.squares = {
            depth: [float(one) for one in results[str(depth)]["squares"]] for depth in depths
        }
        """The mean square of the stream at the sites 0 ... L."""
        self.growth = {depth: each[-1] / each[0] for depth, each in self.squares.items()}
        """Mean square at the last site over that at the first."""

    def number(self, name: str, depth: int) -> float:
        """One of `updates`, `crosses`, `cosine`, and `weight`: |dL/dW2| of the last block."""
        return float(self._results[str(depth)][name])


def read_flow(trials: Results, design: str) -> Flow:
    """Read one design from the results of the trials."""
    return Flow(trials[AT_START.name][design])


def fit_power(values: Mapping[int, float]) -> float:
    """Fit the power of the depth with which a number grows."""
    return exponent.fit_exponent(list(values), {0: list(values.values())}).slope


def plot_over_depth(
    y_label: str, lines: Mapping[str, Mapping[int, float]], *, faint: tuple[str, ...] = ()
) -> Picture:
    """Make the picture of numbers by depth."""
    several = {label: (values, values.values()) for label, values in lines.items()}
    return Picture("depth", y_label, several, x_log=True, y_log=True, faint=faint)


@measures("last-gradient-over-depth", needs=(AT_START,))
def last_gradient_over_depth(seed: int, trials: Results) -> Measured:
    """Fit the exponents of the last output matrix's gradient and set them beside the law."""
    from leadline.experiments.gradient_flow.growth import facts_of

    law = LAWS.get("xiong-last-gradient")()
    numbers: dict[str, float] = {}
    lines: dict[str, dict[int, float]] = {}
    for design, label in (("pre", "Pre-LN"), ("post", "Post-LN")):
        flow = read_flow(trials, design)
        weights = {depth: flow.number("weight", depth) for depth in DEPTHS}
        expected = law.exponent(facts_of(design, DEPTHS[-1], width=WIDTH, mean_square=()))
        assert expected is not None
        numbers[design] = fit_power(weights)
        numbers[f"{design}_off"] = numbers[design] - expected
        lines[label] = weights
        first = weights[DEPTHS[0]]
        lines[f"{label}, theorem"] = {d: first * (d / DEPTHS[0]) ** expected for d in DEPTHS}
        if design == "pre":
            sized = {d: weights[d] * flow.squares[d][-1] ** 0.5 for d in DEPTHS}
            numbers["pre_times_size"] = fit_power(sized)
    theorems = ("Pre-LN, theorem", "Post-LN, theorem")
    return Measured(
        numbers, plot_over_depth("gradient of the last output matrix", lines, faint=theorems)
    )


@measures("layernorm-keeps-gradients", needs=(AT_START,))
def layernorm_keeps_gradients(seed: int, trials: Results) -> Measured:
    """Compare gradients at entry and end, with norms and without."""
    lines = {
        label: read_flow(trials, design).ratio
        for label, design in (("Pre-LN", "pre"), ("Post-LN", "post"), ("no norm", "no norm"))
    }
    deepest = dict(zip(("pre", "post", "bare"), (each[96] for each in lines.values()), strict=True))
    orders = {f"{name}_orders": abs(math.log10(ratio)) for name, ratio in deepest.items()}
    return Measured(deepest | orders, plot_over_depth(ENTRY_OVER_END, lines))


@measures("plain-gradients-vanish", needs=(AT_START,))
def plain_gradients_vanish(seed: int, trials: Results) -> Measured:
    """Read gradients without skip, without and with norms, and once with larger weights."""
    import torch

    plain, normed = read_flow(trials, "plain"), read_flow(trials, "no skip")
    larger = draw_model("plain", 24, seed)
    with torch.no_grad():
        for sublayer in larger.sublayers():
            for weight in sublayer.branch.parameters():
                if weight.ndim == 2:
                    weight.mul_(1.5)
    lines = {
        "no skip, no norm": plain.ratio,
        "no skip, norms": normed.ratio,
        "skip and norms (Pre-LN)": read_flow(trials, "pre").ratio,
    }
    return Measured(
        plain_24=plain.ratio[24],
        plain_96=plain.ratio[96],
        least=min(normed.ratio.values()),
        most=max(normed.ratio.values()),
        kept=min(normed.least.values()),
        cosine=normed.number("cosine", 24),
        larger=pass_through(larger, seed, design="plain").ratio,
        picture=plot_over_depth(ENTRY_OVER_END, lines),
    )


@measures("no-skip-with-norm-vanishes", needs=(AT_START,))
def no_skip_with_norm_vanishes(seed: int, trials: Results) -> Measured:
    """Read gradients and token cosines of the design without skip."""
    flow = read_flow(trials, "no skip")
    lines = {
        # At least what float64 resolves.
        f"1 − token cosine, {label}": {
            depth: max(1.0 - one.number("cosine", depth), 2.2e-16) for depth in DEPTHS
        }
        for label, one in (("no skip", flow), ("Pre-LN", read_flow(trials, "pre")))
    }
    return Measured(
        least=min(flow.ratio[depth] for depth in DEEP),
        most=max(flow.ratio[depth] for depth in DEEP),
        kept=min(flow.least[depth] for depth in DEEP),
        cosine=flow.number("cosine", 24),
        picture=plot_over_depth("difference between tokens", lines),
    )


@measures("post-norm-early-gradients-tiny", needs=(AT_START,))
def post_norm_early_gradients_tiny(seed: int, trials: Results) -> Measured:
    """Read gradients of Post-LN at all layers of all depths."""
    post = read_flow(trials, "post")
    designs = {"Post-LN": "post", "Pre-LN": "pre", "no skip, norms": "no skip"}
    lines = {label: read_flow(trials, one).relative[SHOWN] for label, one in designs.items()}
    return Measured(
        least_entry=min(post.ratio.values()),
        ratio_deep=post.ratio[96],
        least_any=min(post.least.values()),
        most_any=max(map(max, post.relative.values())),
        picture=Picture("layer", "gradient at the layer / at the last", lines, over=0, y_log=True),
    )


@measures("pre-norm-gradient-order-one", needs=(AT_START,))
def pre_norm_gradient_order_one(seed: int, trials: Results) -> Measured:
    """Read gradients of Pre-LN with and without scaling over the depth."""
    pre, scaled = read_flow(trials, "pre"), read_flow(trials, "scaled pre")
    lines = {
        "Pre-LN": pre.ratio,
        "Pre-LN, updates / √(2L)": scaled.ratio,
        "GPT-2's init": read_flow(trials, "gpt2-scaled").ratio,
        "Post-LN": read_flow(trials, "post").ratio,
    }
    return Measured(
        scaled=scaled.ratio[96],
        scaled_12=scaled.ratio[12],
        least=min(pre.least.values()),
        ratio_deep=pre.ratio[96],
        exponent=fit_power(pre.ratio),
        scaled_exponent=fit_power(scaled.ratio),
        picture=plot_over_depth(ENTRY_OVER_END, lines),
    )


@measures("skip-preserves-variance", needs=(AT_START,))
def skip_preserves_variance(seed: int, trials: Results) -> Measured:
    """Follow mean squares of the stream over the layers, and what they are made of."""
    from leadline.experiments.gradient_flow.growth import facts_of

    pre, scaled = read_flow(trials, "pre"), read_flow(trials, "scaled pre")
    grown = pre.squares[SHOWN][-1] - pre.squares[SHOWN][0]
    written = pre.number("updates", SHOWN) + pre.number("crosses", SHOWN)
    places: list[float] = []
    lines = {"Pre-LN": pre.squares[SHOWN], "Pre-LN, updates / √(2L)": scaled.squares[SHOWN]}
    ends = ("law, lower end", "law, upper end")
    for depth, stream in pre.squares.items():
        facts = facts_of("pre", depth, width=WIDTH, mean_square=stream)
        band = LAWS.get("xiong-stream")().predicted(facts)
        assert band is not None
        low, high = band[-1]
        places.append((stream[-1] - low) / (high - low))
        if depth == SHOWN:
            lines |= dict(zip(ends, zip(*band, strict=True), strict=True))
    return Measured(
        growth=pre.growth[SHOWN],
        slope=grown / SHOWN,
        split_error=abs(grown - written) / grown,
        in_band=sum(places) / len(places),
        scaled_growth=max(scaled.growth.values()),
        picture=Picture(
            "layer", "mean square of the stream", lines, over=0, y_log=True, faint=ends
        ),
    )


@measures("unnormed-variance-grows", needs=(AT_START,))
def unnormed_variance_grows(seed: int, trials: Results) -> Measured:
    """Measure mean squares without norms: plain sum, scaled sum, and models for the law."""
    bare, draws = read_flow(trials, "no norm"), 4
    growth = bare.growth[SHOWN]
    weighted = {
        depth: pass_through(draw_model("weighted", depth, seed), seed, design="weighted").squares
        for depth in (12, SHOWN, 96)
    }
    growths = {depth: squares[-1] / squares[0] for depth, squares in weighted.items()}
    places = [_place_in_band(seed_of_draw(seed, draw)) for draw in range(draws)]
    lines = {
        "no norm": bare.squares[SHOWN],
        "Pre-LN": read_flow(trials, "pre").squares[SHOWN],
        "no norm, updates / √(2L)": weighted[SHOWN],
    }
    return Measured(
        factor=growth ** (1.0 / SHOWN),
        explosion=growth,
        weighted=growths[SHOWN],
        weighted_any=max(growths.values()),
        step=_measure_step(seed),
        in_band=sum(places) / draws,
        picture=Picture("layer", "mean square of the stream", lines, over=0, y_log=True),
    )


def _measure_step(seed: int) -> float:
    """Measure how much longer x' - x is than u / sqrt(2 L), in the mean over the writes."""
    depth = 12
    writes = watch_writes(draw_model("weighted", depth, seed), seed, examples=1)
    steps = zip(writes.states, writes.states[1:], writes.updates, strict=False)
    ratios = [float((after - x).norm() / u.norm()) for x, after, u in steps]
    return math.sqrt(2 * depth) * sum(ratios) / len(ratios)


def _place_in_band(seed: int) -> float:
    """Measure where the growth of a model with ReLU lies in the law's band, logarithmically."""
    from dataclasses import replace

    from leadline.experiments.gradient_flow.growth import facts_of

    depth = 24
    model = build_model(depth, seed, mlp="relu", connection="identity", placement="none")
    squares = pass_through(model, seed, design="no norm").squares
    facts = facts_of("no norm", depth, width=WIDTH, mean_square=squares)
    band = LAWS.get("unnormed-stream")().predicted(replace(facts, mlp="relu", norm="none"))
    assert band is not None
    low, high = (math.log(end) for end in band[-1])
    return (math.log(squares[-1]) - low) / (high - low)


@measures("unnormed-mean-shifts")
def unnormed_mean_shifts(seed: int) -> Measured:
    """Follow the mean over the features, without and with an offset in every update."""
    draws = 8
    means, shares = np.sqrt(_follow_mean(seed, draws, offset=0.0))
    _, moved = np.sqrt(_follow_mean(seed, draws, offset=0.5))
    lines = {"no norm": shares, "no norm, unbalanced updates": moved}
    return Measured(
        draws=draws,
        grown=means[-1] / means[0],
        more=moved[-1] / shares[-1],
        share_grown=shares[-1] / shares[0],
        first=shares[0],
        last=shares[-1],
        unbalanced=moved[-1],
        picture=Picture("layer", "mean over features / size of the stream", lines, over=0),
    )


def _follow_mean(seed: int, draws: int, *, offset: float) -> Any:
    """Return the squared mean over features at every site, and its share, as means over draws.

    The offset is added to all features of every update, in units of the update's size.
    """

    def unbalance(_: Any, _arguments: Any, update: Any) -> Any:
        return update + offset * update.square().mean(-1, keepdim=True).sqrt()

    several: list[list[tuple[float, float]]] = []
    for draw in range(draws):
        other = seed_of_draw(seed, draw)
        model = draw_model("no norm", 24, other)
        if offset:
            for sublayer in model.sublayers():
                sublayer.branch.register_forward_hook(unbalance)
        sites = watch_writes(model, other).sites(writes=len(model.recipe.branches))
        squares = [float(x.mean(-1).square().mean()) for x in sites]
        sizes = [float(x.square().mean()) for x in sites]
        several.append([(one, one / size) for one, size in zip(squares, sizes, strict=True)])
    return np.asarray(several).mean(axis=0).T
