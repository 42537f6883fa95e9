"""A layer as a step x + F(x): what it adds, what the skip carries, and Euler's method.

The stream is a sum, x_L = x_0 + u_1 + ... + u_n, so pre-norm carries x_0 without a change (the
claim of skip-carries-the-signal); what x_L still shows of x_0 after 48 untrained blocks, and what
the norms of post-norm leave of it, the product of 1/s over all of them, is its reach. The gradient
is one too,

    g_0 = g_L + sum over writes of F_i'^T g_{i+1}

and that the skip brings half of it, <g_L, g_0> / |g_0|^2, is the reach of
gradient-flows-through-skip. A layer hands on its input where its branch is zero, exactly
(zero-branch-is-identity), and the gradient as it comes, which is 1 only where the loss's own is
(the reach of gradient-is-one). An untrained branch is not zero (the reach of
shortcut-is-a-fallback), and LN(x) is not x, but LN(LN(x)) = LN(x) up to eps with gains of 1 and no
shift. Adjustments are |u| / |x| in the two small trained models, the same for every seed; only the
text differs. Additions per block are counted in anatomies that their balance proves; a branch
beside another one (GPT-J) is added together with it.

Euler's method x + h f(x) has order 1: with one field f and h = T/L its error falls like 1/L (the
claim of residual-is-ode); with the step 1 that the note writes L layers are the time L, and 8 of
them are set beside the flow at time 8 (its reach). It is stable along an eigenvalue lambda of f'
where |1 + h lambda| <= 1, which a small enough step meets for every Re lambda < 0 (the claim of
euler-is-easily-stable, f(x) = -3x with h = 0.5); with the step 1 of a network (its reach) the same
f gives 2^20 after 20 layers. With a norm after every step, gains g that differ make the stream leap
by |g N(x) - x| at any h, even where x = g N(y) comes out of such a norm (the claim of
post-norm-breaks-continuity); with gains of 1 and no shift (its reach) N(x + h f) = x + h P f +
O(h^2), P the norm's Jacobian on its sphere, is a projected Euler method of order 1. Chen et al.
2018, arXiv 1806.07366; Sander et al. 2022, arXiv 2205.14612.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from leadline.claims.catalog import Measured, Results, Trial, measures
from leadline.claims.claim import Picture
from leadline.claims.measure.architecture import farthest_from_one
from leadline.claims.measure.block_jacobians import Network, build_network, jacobian_of

if TYPE_CHECKING:
    from torch import Tensor

    from leadline.experiments.gradient_flow.starts import Writes


WRITES_SCALED = {"connection": "weighted(alpha=depth)"}
"""Writes divided by sqrt(2L)."""


def _probed_shares(model: Any, tokens: Any) -> list[float]:
    """Return the length of every write over that of the stream before it, by the probe."""
    from leadline.instruments.passes.measurement import measure

    record = measure(model, tokens, probes="update")
    return [one.value for one in record.select("update.ratio", statistic="mean")]


def _shares(writes: Writes) -> list[float]:
    """Return the same from the writes themselves."""
    pairs = zip(writes.states, writes.updates, strict=False)
    return [float((u.norm(dim=-1) / x.norm(dim=-1)).mean()) for x, u in pairs]


@measures("two-residuals-per-block")
def two_residuals_per_block(seed: int) -> Measured:
    """Count the additions in the anatomies of five families."""
    from leadline.instruments.passes.measurement import anatomy_of
    from leadline.testing.zoo import ZOO

    counts: dict[str, float] = {}
    misses: list[float] = []
    writes: list[float] = []
    for name in ("gpt2", "bert", "llama", "gptj", "t5"):
        specimen = ZOO[name]
        model = specimen.build(seed)
        anatomy = anatomy_of(model, specimen.inputs(model, seed))
        assert anatomy.balance is not None
        misses.append(anatomy.balance.eps)
        several = [block.sublayers for block in anatomy.stacks[-1].blocks]
        # A parallel branch reads what the one before it read: both are added together.
        additions = [sum(not one.parallel for one in block) for block in several]
        counts[name] = sum(additions) / len(additions)
        writes += [len(block) / len({(one.role, one.module) for one in block}) for block in several]
    return Measured(counts, balance=max(misses), one_each=max(writes))


@measures("zero-branch-is-identity")
def zero_branch_is_identity(seed: int) -> Measured:
    """Follow a stream through blocks whose branches are zero."""
    from leadline.instruments.jacobian.measure import compute_jacobian

    depth = 12
    network = build_network(depth, 16, length=8, seed=seed).empty()
    states = network.writes().states
    whole = compute_jacobian(network.model, network.batch, layer=(0, depth), k=1, probes=8)
    moved = float((states[-1] - states[0]).abs().max())
    return Measured(moved=moved, bent=whole.distance[0])


@measures("gradient-is-one")
def gradient_is_one(seed: int) -> Measured:
    """Send a gradient of ones and a random one back through blocks whose branches are zero."""
    import torch

    from leadline.numerics.linear.linearised import Linearised

    depth, shape = 12, (1, 1, 4, 8)
    network = build_network(depth, shape[-1], length=shape[-2], seed=seed).empty()
    stack = Linearised(*network.stretches().function(0, depth))
    random = torch.from_numpy(np.random.default_rng([seed, 109]).normal(size=shape))
    arrived = stack.adjoint(random)
    ones = stack.adjoint(torch.ones(shape, dtype=torch.float64))
    return Measured(
        one=farthest_from_one(ones.flatten().tolist()),
        other=(arrived - 1.0).abs().mean(),
        same=(arrived - random).abs().max(),
    )


@measures("shortcut-is-a-fallback")
def shortcut_is_a_fallback(seed: int) -> Measured:
    """Take the change of the stream by zero branches, by untrained ones, and under post-norm."""
    depth = 4

    def network_of(**fields: str) -> Network:
        return build_network(depth, 64, heads=4, length=16, seed=seed, **fields)

    def moved(states: list[Tensor], start: int, end: int) -> float:
        return float((states[end] - states[start]).norm() / states[start].norm())

    fresh = network_of()
    shares, by_hand = _probed_shares(fresh.model, fresh.batch), _shares(fresh.writes())
    post = network_of(placement="post").empty().writes().states
    return Measured(
        zero=moved(fresh.empty().writes().states, 0, -1),
        untrained=sum(shares) / len(shares),
        post=moved(post, 0, 2),
        rezero=moved(network_of(connection="rezero").writes().states, 0, -1),
        by_hand=sum(shares) / sum(by_hand),
        settled=max(moved(post, at, at + 2) for at in range(2, 2 * depth, 2)),
    )


@measures("layers-learn-small-adjustments")
def layers_learn_small_adjustments(seed: int) -> Measured:
    """Take the share of every write in two trained models, by the probe and by hand."""
    import torch

    from leadline.experiments.gradient_flow.starts import seen_writes
    from leadline.lab import pair
    from leadline.lab.tasks import build_task

    ids = build_task("stdlib(length=128)").train(0, 8, seed=seed).ids
    shares: list[list[float]] = []
    twice: list[float] = []
    for load in (pair.pre, pair.post):
        model = load()[0]
        shares.append(_probed_shares(model, ids))
        with torch.no_grad(), seen_writes(model) as writes:
            model.stream(ids)
        twice += [a / b for a, b in zip(shares[-1], _shares(writes), strict=True)]
    pre, post = shares
    lines = {"pre-norm": pre, "post-norm": post, "as large as the stream": [1.0] * len(pre)}
    return Measured(
        largest=max(pre),
        smallest=min(pre),
        middle=sum(pre) / len(pre),
        post=max(post),
        by_hand=farthest_from_one(twice),
        picture=Picture(
            "write",
            "length of the write over that of the stream",
            lines,
            over=1,
            faint=("as large as the stream",),
        ),
    )


@measures("skip-carries-the-signal")
def skip_carries_the_signal(seed: int) -> Measured:
    """Add up all writes, take the cosine with what entered, and what norms leave of it."""
    from torch.nn.functional import cosine_similarity

    from leadline.instruments.passes.measurement import measure

    depth = 48
    networks = [
        build_network(depth, 64, heads=4, length=16, seed=seed, **fields)
        for fields in ({}, WRITES_SCALED, {"placement": "post"})
    ]
    pre, scaled, post = (network.writes() for network in networks)
    total = pre.states[0]
    for update in pre.updates:
        total = total + update
    cosines = [
        np.asarray(measure(one.model, one.batch, probes="memory")["memory.cosine"]).tolist()
        for one in networks[:2]
    ]
    twice = [
        cosine[-1] / float(cosine_similarity(one.states[-1], one.states[0], dim=-1).mean())
        for cosine, one in zip(cosines, (pre, scaled), strict=True)
    ]
    added = scaled.states[1] - scaled.states[0]
    left = 1.0
    for x, update in zip(post.states, post.updates, strict=False):
        # The geometric mean over the tokens of what one norm divides by.
        left /= float((x + update).std(-1, correction=0).log().mean().exp())
    lines = {"pre-norm": cosines[0], "pre-norm, writes / √(2L)": cosines[1]}
    return Measured(
        missed=(total - pre.states[-1]).norm() / pre.states[-1].norm(),
        cosine=cosines[0][-1],
        scaled=cosines[1][-1],
        post=left,
        by_hand=farthest_from_one(twice),
        divided=float(added.norm() / scaled.updates[0].norm()) * (2.0 * depth) ** 0.5,
        picture=Picture("layer", "cosine with what entered", lines, over=0),
    )


@measures("gradient-flows-through-skip")
def gradient_flows_through_skip(seed: int) -> Measured:
    """Add up the terms of the gradient, and take how much of it came down the skip."""
    import torch
    from torch.nn.functional import cross_entropy

    from leadline.experiments.gradient_flow.starts import plain_attention, seen_writes
    from leadline.instruments.passes.measurement import measure

    networks = [
        build_network(24, 64, heads=4, length=16, seed=seed, **fields)
        for fields in ({}, WRITES_SCALED)
    ]
    shares: list[list[float]] = []
    twice: list[float] = []
    for one in networks:
        record = measure(one.model, one.batch, probes="identity_share")
        shares.append(np.asarray(record["gradient.identity_share"]).tolist())
        tokens = one.batch.main
        with plain_attention(), seen_writes(one.model) as writes:
            loss = cross_entropy(one.model(tokens)[:, :-1].flatten(0, 1), tokens[0, 1:])
            first, last = torch.autograd.grad(loss, (writes.states[0], writes.states[-1]))
        twice.append(shares[-1][0] / float((first * last).sum() / first.square().sum()))
    model = networks[0].model
    with plain_attention():
        with seen_writes(model) as writes:
            model.stream(networks[0].batch.main)
        states = writes.states
        drawn = np.random.default_rng([seed, 113]).normal(size=tuple(states[-1].shape))
        gradients = torch.autograd.grad((torch.from_numpy(drawn) * states[-1]).sum(), states)
        total = gradients[-1].clone()
        for number, sublayer in enumerate(model.sublayers()):
            x = states[number].detach().requires_grad_()
            assert sublayer.enter is not None
            update = sublayer.branch(sublayer.enter(x), writes.runs[number])
            total += torch.autograd.grad(update, x, gradients[number + 1])[0]
    lines = {"Xavier's init": shares[0], "writes / √(2L)": shares[1]}
    return Measured(
        missed=(total - gradients[0]).norm() / gradients[0].norm(),
        share=shares[0][0],
        scaled=shares[1][0],
        by_hand=farthest_from_one(twice),
        picture=Picture("layer", "share of the gradient that came down the skip", lines, over=0),
    )


def _run_ode_view(seed: int) -> Mapping[str, Any]:
    from leadline.experiments.ode_view.experiment import DEPTHS, ERROR, OdeViewOptions, ode_view

    outcome = ode_view(OdeViewOptions(seeds=1, seed=seed))
    orders, stability = outcome.tables
    return {
        "depths": list(DEPTHS),
        "errors": {one.name: list(one.values) for one in outcome.lines if one.panel == ERROR},
        "orders": {name: row[0] for name, row in zip(orders.names, orders.rows, strict=True)},
        "spectra": {
            name: dict(zip(stability.columns, row, strict=True))
            for name, row in zip(stability.names, stability.rows, strict=True)
        },
    }


ODE = Trial("ode-view", _run_ode_view, seconds=2.0)
"""Errors of the three kinds of steps over depth, their orders, and the eigenvalues of blocks."""
SCALED, NORMED = "step T/L", "step T/L, normed"


def _order_of(results: Results, name: str) -> float:
    """Return the order of convergence of one kind of step; NaN where none was fitted."""
    return float(results[ODE.name]["orders"].get(name, float("nan")))


def _errors_of(results: Results, name: str) -> tuple[list[int], list[float]]:
    """Return the errors against the flow over depth."""
    depths, errors = results[ODE.name]["depths"], results[ODE.name]["errors"][name]
    return depths, [10.0 ** float(value) for value in errors]


def _field_network(depth: int, seed: int) -> Network:
    """Build a network such as ode-view's: its block is the field of an equation."""
    return build_network(
        depth, 16, length=8, seed=seed, context=8, positions="none", mlp="gelu_tanh"
    )


@measures("residual-is-ode", needs=(ODE,))
def residual_is_ode(seed: int, results: Results) -> Measured:
    """Read the order of steps T/L with T = 1, and follow such a field for the time 8."""
    import torch

    from leadline.experiments.ode_view.reference_flow import followed

    depths, time = (8, 16, 32, 64, 128), 8
    block, start = _field_network(1, seed).stretches().function(0, 1)

    def field(x: Tensor) -> Tensor:
        with torch.no_grad():
            return block(x) - x

    ends: list[Tensor] = []
    for depth in depths:
        x = start.detach()
        for _ in range(depth):
            x = x + time / depth * field(x)
        ends.append(x)
    flow = followed(field, start.detach(), float(time), judging=ends)
    later = tuple(flow.judged(end) for end in ends)
    scaled = _errors_of(results, SCALED)
    return Measured(
        order=_order_of(results, SCALED),
        same_time=later[depths.index(time)],
        closer=scaled[1][-1] / scaled[1][0],
        picture=Picture(
            "depth L",
            "error against the flow at the same time",
            {"time 1, step 1/L": scaled, "time 8, step 8/L": (depths, later)},
            x_log=True,
            y_log=True,
        ),
    )


@measures("euler-is-easily-stable", needs=(ODE,))
def euler_is_easily_stable(seed: int, results: Results) -> Measured:
    """Follow Euler's method on numbers, and take the eigenvalues of an untrained block."""
    draws, known = 500, 1e-6

    def sizes(rate: complex, h: float, layers: int) -> list[float]:
        """Return |x| after 0, 1, ... steps of x <- x + h rate x from 1."""
        x, several = complex(1.0), [1.0]
        for _ in range(layers):
            x += h * rate * x
            several.append(abs(x))
        return several

    values = np.linalg.eigvals(jacobian_of(*_field_network(12, seed).stretches().function(0, 1)))
    rates = values - 1.0
    falling = rates[rates.real < -known]
    steps = -falling.real / np.abs(falling) ** 2
    rng = np.random.default_rng([seed, 111])
    wrong = 0
    for real, imaginary, h in rng.uniform([-4.0, -2.0, 0.0], [0.5, 2.0, 1.0], size=(draws, 3)):
        rate = complex(float(real), float(imaginary))
        stable = abs(1.0 + float(h) * rate) <= 1.0
        wrong += stable != (sizes(rate, float(h), 400)[-1] <= 1.0)
    lines = {f"step {h:.3g}": sizes(-3.0, h, 20) for h in (0.25, 0.5, 1.0)}
    by_ode_view = results[ODE.name]["spectra"]["identity, pre, xavier, block 1"]
    return Measured(
        small_step=lines["step 0.5"][-1],
        layer_step=lines["step 1"][-1],
        block=np.max(np.abs(1.0 + falling)),
        cured=np.max(np.abs(1.0 + steps * falling)),
        same=float(by_ode_view["largest |1 + λ|"]) / np.max(np.abs(values)),
        wrong=wrong,
        draws=draws,
        picture=Picture("layers", "|x|", lines, over=0, y_log=True),
    )


@measures("post-norm-breaks-continuity", needs=(ODE,))
def post_norm_breaks_continuity(seed: int, results: Results) -> Measured:
    """Read the order of convergence with a norm after every step; take one step with gains."""
    import torch
    from torch.nn.functional import layer_norm

    block, x = _field_network(1, seed).stretches().function(0, 1)
    drawn = torch.from_numpy(np.random.default_rng([seed, 115]).uniform(0.5, 1.5, size=16))

    def shortened(gains: Tensor) -> float:
        """Return |x_1 - x_0| in steps of 1/128 over that in steps of 1/8, x_0 behind the norm."""

        def norm(v: Tensor) -> Tensor:
            return layer_norm(v, gains.shape, weight=gains, eps=0.0)

        with torch.no_grad():
            start = norm(x)
            f = block(start) - start
            few, many = ((norm(start + f / layers) - start).norm() for layers in (8, 128))
        return float(many / few)

    normed = _errors_of(results, NORMED)
    return Measured(
        fades=normed[1][-1] / normed[1][0],
        leap=shortened(drawn),
        short=shortened(torch.ones_like(drawn)),
        order=_order_of(results, NORMED),
        plain=_order_of(results, SCALED),
        picture=Picture(
            "depth L",
            "error against the flow",
            {"norm after every step": normed, "without norm": _errors_of(results, SCALED)},
            x_log=True,
            y_log=True,
            faint=("without norm",),
        ),
    )
