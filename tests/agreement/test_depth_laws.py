"""Laws of depth against random networks before training, several seeds each.

Bands are about the mean over weights: the mean over the seeds must lie inside. Where attention looks
at one token, or there is none, a law predicts a number, and the number is compared.
"""

from __future__ import annotations

import functools
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

import leadline
from leadline.experiments.outcome.exponent import fit_exponent
from leadline.numerics.linear.linear_maps import dense
from leadline.numerics.linear.linearised import Linearised
from leadline.reading.bounds.depth.facts import depth_stacks
from leadline.theory import LAWS, DepthFacts
from leadline.theory.depth._stream_law import grown
from leadline.theory.depth.deepnorm import DeepNormLaw, deepnorm_alpha, deepnorm_beta
from leadline.theory.norm_jacobian import norm_jacobian_of_stream
from leadline.theory.residual_products import product_bands

SEEDS = range(3)
DEPTH, WIDTH, TOKENS = 16, 64, 16
DEPTHS = (6, 12, 24, 48)
SCALED = {"connection": "weighted(alpha=depth)"}


def network(seed: int, *, depth: int = DEPTH, width: int = WIDTH, **fields: Any) -> Any:
    plain = {"positions": "none", "init": "xavier", "mlp": f"relu(hidden={width})", "heads": 4}
    small = {"depth": depth, "width": width, "vocabulary": 64, "context": 32, "seed": seed}
    return leadline.Transformer(**(plain | small | fields))


@functools.cache
def measured(seed: int, depth: int = DEPTH, **fields: Any) -> tuple[DepthFacts, dict[str, Any]]:
    """The facts of a network, and its gradients and writes by layer."""
    model = network(seed, depth=depth, **fields)
    inputs = leadline.random_tokens(model, examples=4, length=TOKENS, seed=seed)
    record = leadline.measure(model, inputs, probes="stream,update,gradient")
    (stack,) = depth_stacks(record, initial=True)
    ratios = [o for o in record.select("update.ratio", statistic="mean") if o.site.point == "mlp"]
    gradient = np.asarray(record["gradient.stream"])
    ratio = float(np.mean([o.value for o in ratios]))
    return stack.facts, {"ratio": ratio, "gradient": gradient[0] / gradient[-1]}


DESIGNS: list[tuple[str, dict[str, Any]]] = [
    ("xiong-stream", {}),
    ("xiong-stream", {"mlp": "relu"}),
    ("xiong-stream", {"mlp": "gelu_tanh", "norm": "rmsnorm"}),
    ("xiong-stream", {"attention": "multihead(causal=false)"}),
    ("gpt2-scaling", SCALED),
    ("gpt2-scaling", {"init": "gpt2", "mlp": "gelu_tanh"}),
    ("layernorm-scaling", {"placement": "layernorm_scaling"}),
    ("unnormed-stream", {"placement": "none"}),
    ("noci", {"placement": "none", **SCALED}),
]


@pytest.mark.parametrize(("name", "fields"), DESIGNS)
def test_the_mean_over_seeds_lies_in_the_band(name: str, fields: dict[str, Any]) -> None:
    law = LAWS.get(name)()
    inside: list[np.ndarray] = []
    for seed in SEEDS:
        facts, _ = measured(seed, **fields)
        assert law.applies(facts)
        bands, found = np.array(law.predicted(facts)), np.array(facts.mean_square)
        if name == "unnormed-stream":
            # Factors multiply: a few seeds know the mean of the logarithm, not that of the square.
            bands, found = np.log(bands), np.log(found)
        inside.append((found - bands[:, 0])[1:] / np.ptp(bands, 1)[1:])
    shares = np.mean(inside, axis=0)
    assert (shares > 0).all()
    # Without norms tokens become equal, and then the upper end is reached.
    assert (shares < (1.03 if name == "unnormed-stream" else 1.0)).all()


@pytest.mark.parametrize(("name", "fields"), DESIGNS)
def test_one_token_attends_to_itself_and_reaches_the_upper_end(
    name: str, fields: dict[str, Any]
) -> None:
    # With one token attention writes all it can: the upper end is then the mean itself.
    law = LAWS.get(name)()
    shares = []
    for seed in range(6):
        model = network(seed, depth=4, width=128, **_widened(fields))
        inputs = leadline.random_tokens(model, examples=16, length=1, seed=seed)
        record = leadline.measure(model, inputs, probes="stream", loss="random")
        (stack,) = depth_stacks(record, initial=True)
        bands = law.predicted(stack.facts)
        assert bands is not None
        start = stack.facts.mean_square[0]
        shares.append((stack.facts.mean_square[-1] - start) / (bands[-1][1] - start))
    assert np.mean(shares) == pytest.approx(1.0, abs=0.12)


@pytest.mark.parametrize(("name", "fields"), DESIGNS)
def test_an_mlp_alone_reaches_the_lower_end(name: str, fields: dict[str, Any]) -> None:
    law = LAWS.get(name)()
    shares = []
    for seed in range(4):
        model = network(seed, depth=8, width=128, **_widened(fields))
        for block in model.blocks:
            block.attention.branch.output.weight.data.zero_()
        inputs = leadline.random_tokens(model, examples=8, length=8, seed=seed)
        record = leadline.measure(model, inputs, probes="stream")
        (stack,) = depth_stacks(record, initial=True)
        bands = law.predicted(stack.facts)
        assert bands is not None
        start = stack.facts.mean_square[0]
        shares.append((stack.facts.mean_square[-1] - start) / (bands[-1][0] - start))
    assert np.mean(shares) == pytest.approx(1.0, abs=0.08)


def _widened(fields: dict[str, Any]) -> dict[str, Any]:
    return {"mlp": "relu(hidden=128)"} | fields


def test_the_growth_is_the_sum_of_update_mean_squares_and_cross_terms() -> None:
    # An identity: every write of a network in float64, recomputed from x and u.
    model = network(0, depth=6).double()
    ids = torch.randint(64, (4, TOKENS), generator=torch.Generator().manual_seed(0))
    before: dict[str, torch.Tensor] = {}
    squares: list[float] = []

    def enter(name: str):
        return lambda _module, args: before.update({name: args[0].detach()})

    def leave(name: str):
        def hook(_module: Any, _args: Any, output: torch.Tensor) -> None:
            x, u = before[name], output.detach()
            parts = (float(t.square().mean()) for t in (x, u))
            squares.append(grown(*parts, float((x * u).mean())) - float(x.square().mean()))

        return hook

    handles = []
    for at, block in enumerate(model.blocks):
        for kind in ("attention", "mlp"):
            sublayer, name = getattr(block, kind), f"{at} {kind}"
            # What the norm reads is the stream before the write.
            handles.append(sublayer.enter.register_forward_pre_hook(enter(name)))
            handles.append(sublayer.branch.register_forward_hook(leave(name)))
    start: list[float] = []
    handles.append(
        model.blocks[0].attention.enter.register_forward_pre_hook(
            lambda _m, args: start.append(float(args[0].detach().square().mean()))
        )
    )
    end: list[float] = []
    handles.append(
        model.norm.register_forward_pre_hook(
            lambda _m, args: end.append(float(args[0].detach().square().mean()))
        )
    )
    with torch.no_grad():
        model(ids)
    for handle in handles:
        handle.remove()
    assert len(squares) == 12
    assert end[0] - start[0] == pytest.approx(math.fsum(squares), rel=1e-12)


@pytest.mark.parametrize("placement", ["pre", "post"])
def test_the_gradient_of_the_last_mlp_output_weight_follows_xiong(placement: str) -> None:
    values: dict[int, list[float]] = {seed: [] for seed in SEEDS}
    for seed in SEEDS:
        for depth in DEPTHS:
            model = network(seed, depth=depth, placement=placement)
            ids = torch.randint(64, (4, TOKENS), generator=torch.Generator().manual_seed(seed))
            logits = model(ids)
            loss = torch.nn.functional.cross_entropy(
                logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten()
            )
            weight = model.blocks[-1].mlp.branch.down.weight
            (gradient,) = torch.autograd.grad(loss, weight)
            values[seed].append(float(gradient.double().norm()))
    facts, _ = measured(0, placement=placement)
    law = LAWS.get("xiong-last-gradient")()
    assert law.applies(facts)
    expected = law.exponent(facts)
    assert expected is not None
    assert fit_exponent(DEPTHS, values).within(expected, 0.1)


def test_deepnorm_writes_as_predicted_and_keeps_the_gradient() -> None:
    fields = {"connection": "deepnorm", "placement": "post"}
    law = DeepNormLaw()
    ratios: dict[int, list[float]] = {}
    for seed in SEEDS:
        ratios[seed] = []
        for depth in DEPTHS:
            facts, found = measured(seed, depth, init="deepnorm", **fields)
            assert law.applies(facts)
            assert found["ratio"] == pytest.approx(law.mlp_ratio(facts), rel=0.05)
            assert found["gradient"] == pytest.approx(1.0, abs=0.03)
            ratios[seed].append(found["ratio"])
    assert fit_exponent(DEPTHS, ratios).within(-0.5, 0.03)


def _blocks(model: Any, *, tokens: int, seed: int) -> list[tuple[Any, torch.Tensor]]:
    """Every block as a function of its stream, and the stream that enters it."""
    ids = torch.randint(64, (1, tokens), generator=torch.Generator().manual_seed(seed))
    found: list[tuple[Any, torch.Tensor]] = []
    handles = [
        block.register_forward_pre_hook(
            lambda module, args, kwargs: found.append((module, args, kwargs)), with_kwargs=True
        )
        for block in model.blocks
    ]
    with torch.no_grad():
        model(ids)
    for handle in handles:
        handle.remove()
    return [
        ((lambda x, m=module, a=args, k=kwargs: m(x, *a[1:], **k)), args[0].detach())
        for module, args, kwargs in found
    ]


def _jacobians(model: Any, *, tokens: int, seed: int = 0) -> list[np.ndarray]:
    found = []
    for function, x in _blocks(model, tokens=tokens, seed=seed):
        found.append(dense(Linearised(function, x))[0].double().numpy())
    return found


@pytest.mark.parametrize("placement", ["pre", "post", "none"])
def test_dense_products_lie_between_the_ends(placement: str) -> None:
    model = network(1, depth=5, width=16, placement=placement).double()
    found = _jacobians(model, tokens=4)
    norms = [float(np.linalg.norm(j - np.eye(len(j)), 2)) for j in found]
    law = LAWS.get("residual-product")()
    bands = law.predicted(DepthFacts(depth=5, branch_norms=tuple(norms)))
    assert bands is not None
    product = np.eye(len(found[0]))
    for layer, jacobian in enumerate(found, start=1):
        product = jacobian @ product
        values = np.linalg.svd(product, compute_uv=False)
        low, high = bands[layer]
        assert values[0] <= 10.0**high
        assert values[-1] >= math.exp(product_bands(norms)[layer].log_lower) * (1 - 1e-9)
        assert low <= math.log10(values[0])


def _post_norm_factors(model: Any) -> list[tuple[np.ndarray, np.ndarray]]:
    """(J of the norm in closed form, I + F' of the branch) of every sublayer, in order."""
    ids = torch.randint(64, (1, 4), generator=torch.Generator().manual_seed(0))
    calls: list[tuple[Any, Any, Any]] = []
    sums: list[torch.Tensor] = []
    handles = []
    for block in model.blocks:
        for sublayer in (block.attention, block.mlp):
            handles.append(
                sublayer.branch.register_forward_pre_hook(
                    lambda m, args, kwargs: calls.append((m, args, kwargs)), with_kwargs=True
                )
            )
            norm = next(m for m in sublayer.modules() if type(m).__name__ == "LayerNorm")
            handles.append(norm.register_forward_pre_hook(lambda _m, args: sums.append(args[0])))
    with torch.no_grad():
        model(ids)
    for handle in handles:
        handle.remove()
    found = []
    for (branch, args, kwargs), after in zip(calls, sums, strict=True):
        x = args[0].detach()
        linear = Linearised(lambda v, m=branch, a=args, k=kwargs: m(v, *a[1:], **k), x)
        skip = np.eye(x[0].numel()) + dense(linear)[0].numpy()
        found.append((norm_jacobian_of_stream(after[0].numpy(), norm="layernorm"), skip))
    return found


def test_a_post_norm_block_is_the_closed_form_of_its_norms_times_i_plus_f() -> None:
    model = network(1, depth=6, width=16, placement="post").double()
    factors = _post_norm_factors(model)
    blocks = _jacobians(model, tokens=4)
    with_norms = without = np.eye(64)
    for layer, jacobian in enumerate(blocks):
        (n1, f1), (n2, f2) = factors[2 * layer : 2 * layer + 2]
        np.testing.assert_allclose(n2 @ f2 @ n1 @ f1, jacobian, atol=1e-10)
        with_norms, without = jacobian @ with_norms, f2 @ f1 @ without
    # What the norms divide by is above 1 here: they are what keeps the product from exploding.
    assert np.linalg.norm(without, 2) > 20 * np.linalg.norm(with_norms, 2)
    assert np.linalg.norm(with_norms) > 1.0


def test_scaled_writes_leave_a_lower_end_above_zero() -> None:
    # GPT-2's scaling makes |J - I| small enough for the lower end to say something.
    model = network(1, depth=24, width=16, **SCALED).double()
    norms = [float(np.linalg.norm(j - np.eye(len(j)), 2)) for j in _jacobians(model, tokens=4)]
    assert max(norms) < 1.0


def test_a_norm_after_the_addition_keeps_a_deepnorm_block_from_the_identity() -> None:
    # Outside of what the norms take out the block is nearly the identity, inside it is nearly 0.
    width, tokens, distances = 16, 4, []
    for depth in (4, 64):
        model = network(
            0,
            depth=depth,
            width=width,
            connection="deepnorm",
            placement="post",
            init="deepnorm",
        ).double()
        jacobian = _jacobians(model, tokens=tokens)[-1]
        apart = jacobian - np.eye(len(jacobian))
        assert np.linalg.norm(apart, 2) > 0.99
        assert np.linalg.norm(apart) / math.sqrt(len(apart)) > math.sqrt(2 / width) * 0.99
        # The part of J - I outside of the two directions of every token: 2 n of n d are taken out.
        values = np.linalg.svd(apart, compute_uv=False)
        distances.append(float(np.linalg.norm(values[2 * tokens :])) / math.sqrt(len(apart)))
    # L^(-3/4) over 16 times the depth: a factor of 8.
    assert distances[0] / distances[1] == pytest.approx(16**0.75, rel=0.3)


def test_the_parts_use_the_constants_of_the_law() -> None:
    facts, _ = measured(0, 12, init="deepnorm", connection="deepnorm", placement="post")
    assert facts.keep == pytest.approx(deepnorm_alpha(12))
    model = network(0, depth=12, init="deepnorm", connection="deepnorm", placement="post")
    plain = network(0, depth=12)
    ratio = model.blocks[0].mlp.branch.down.weight / plain.blocks[0].mlp.branch.down.weight
    assert float(ratio.detach().mean()) == pytest.approx(deepnorm_beta(12), rel=1e-5)


def test_what_the_law_says_of_finite_depths() -> None:
    # With m_L = m_0 + b L the slope of m_L^(-1/2) is -(1/2) b L / (m_0 + b L).
    m_0, b = 1.0, 1.2
    between = fit_exponent([48, 49], {0: [(m_0 + b * depth) ** -0.5 for depth in (48, 49)]})
    at = math.sqrt(48 * 49)
    assert between.slope == pytest.approx(-0.5 * b * at / (m_0 + b * at), abs=1e-4)
    assert between.slope > -0.5


def test_without_norms_growth_is_exponential_and_scaled_branches_stay_of_order_one() -> None:
    bare, _ = measured(0, placement="none")
    steps = np.diff(np.log(bare.mean_square))
    assert steps.min() > math.log(1.2)
    assert bare.mean_square[-1] / bare.mean_square[0] > 1.5**DEPTH
    scaled, _ = measured(0, placement="none", **SCALED)
    assert scaled.mean_square[-1] / scaled.mean_square[0] < math.exp(0.75)


def test_facts_of_another_depth_do_not_fit_the_scaling() -> None:
    facts, _ = measured(0, **SCALED)
    law = LAWS.get("gpt2-scaling")()
    assert law.applies(facts)
    assert not law.applies(replace(facts, depth=2 * DEPTH))
