"""Gradient flow: what is measured of a design, the fits, the Jacobians, the trainings, the words."""

from __future__ import annotations

import csv
import json
import math
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import leadline
from leadline.cli.main import run
from leadline.errors import InputError
from leadline.experiments import EXPERIMENTS
from leadline.experiments.gradient_flow import GradientFlowOptions, steps_of, text
from leadline.experiments.gradient_flow.experiment import gradient_flow
from leadline.experiments.gradient_flow.growth import (
    FITTED_FROM,
    FlowGrowth,
    facts_of,
    fitted,
    straight,
)
from leadline.experiments.gradient_flow.jacobians import Blocks, Norms, blocks_of, norms_apart
from leadline.experiments.gradient_flow.lines import across_depth, law_exponent, lines, stream_band
from leadline.experiments.gradient_flow.starts import (
    ADDS,
    DESIGNS,
    Start,
    batch_of,
    built,
    last_matrix,
    measured,
    overflows,
    plain_attention,
    seen_writes,
)
from leadline.experiments.gradient_flow.training import (
    TRAINED,
    TrainedDesigns,
    flow_sweep,
    read_trained,
)
from leadline.lab.cell import run_cell
from leadline.lab.presets.depth_limits import DESIGNS as PRESET
from leadline.lab.sweep import check_cells
from leadline.lab.sweep_record import add_cells, open_record
from leadline.reading.show.line_chart import line_chart
from leadline.reading.show.panels import Line, Places

SVG = "{http://www.w3.org/2000/svg}"
SMALL = GradientFlowOptions(
    depths=(2, 4),
    seeds=2,
    training_seeds=1,
    trained_to=0,
    jacobians_to=2,
    width=16,
    heads=2,
    length=8,
    examples=2,
    jacobian_length=6,
)


def model_of(design: str, depth: int = 3, *, seed: int = 0, width: int = 16) -> Any:
    return built(design, depth, width=width, heads=2, length=8, seed=seed)


def start_of(design: str, depth: int = 3, *, seed: int = 0) -> Start:
    batch = batch_of(8, examples=2, seed=seed)
    return measured(model_of(design, depth, seed=seed), batch, design=design, seed=seed)


# --- the models ------------------------------------------------------------------------------


def test_it_is_an_experiment_with_these_sizes() -> None:
    assert EXPERIMENTS.get("gradient-flow").function() is gradient_flow
    full, quick = GradientFlowOptions(), GradientFlowOptions.quick()
    assert full.depths == (6, 12, 24, 48, 96)
    assert (full.seeds, full.training_seeds, full.trained_to, full.jacobians_to) == (5, 3, 96, 24)
    assert (full.width, full.heads, full.length, full.examples) == (64, 4, 64, 4)
    assert full.trainings == {6: 150, 12: 150, 24: 150, 48: 120, 96: 80}
    assert quick.trainings == {6: 100, 12: 100, 24: 100}
    assert (quick.seeds, quick.training_seeds, quick.jacobians_to) == (3, 1, 12)
    assert replace(full, trained_to=0).trainings == {}
    assert replace(full, training=False).trainings == {}
    assert [steps_of(depth) for depth in (1, 24, 25, 48, 49)] == [150, 150, 120, 120, 80]


def test_the_designs_are_those_of_the_preset_and_two_more() -> None:
    shared = ("pre", "post", "no skip", "gpt2-scaled", "deepnorm")
    assert all(DESIGNS[name] is PRESET[name] for name in shared)
    assert set(DESIGNS) - set(shared) == {"no norm", "scaled pre"}
    assert tuple(TRAINED) == shared
    recipe = model_of("scaled pre", 4).recipe
    assert str(recipe.init) == "xavier"
    sublayer = next(iter(model_of("scaled pre", 4).sublayers()))
    written = sublayer.connection.write(torch.zeros(1, 1, 16), torch.ones(1, 1, 16))
    assert written.flatten()[0].item() == pytest.approx(1 / math.sqrt(8))
    assert str(model_of("gpt2-scaled").recipe.init) == "gpt2(std=0.07)"
    assert str(model_of("deepnorm").recipe.init) == "deepnorm"


# --- one untrained model ---------------------------------------------------------------------


@pytest.mark.parametrize("design", DESIGNS)
def test_gradients_and_stream_are_those_of_an_ordinary_measurement(design: str) -> None:
    found = start_of(design)
    model, batch = model_of(design).double(), batch_of(8, examples=2, seed=0)
    with plain_attention():
        model.loss(batch.ids, batch.targets).backward()
    weight = model.blocks[-1].mlp.branch.down.weight
    assert found.weight == pytest.approx(weight.grad.norm().item(), rel=1e-9)
    # The same loss, as a function of the logits, for the probes.
    record = leadline.measure(
        model,
        batch.ids,
        probes=["stream", "gradient", "tokens"],
        loss=lambda out, _: torch.nn.functional.cross_entropy(
            out.flatten(0, 1), batch.targets.flatten()
        ),
    )
    assert record.by_layer("gradient.stream").values == pytest.approx(found.gradients, rel=1e-6)
    cosine = record.by_layer("tokens.cosine", statistic="mean").values[-1]
    assert cosine == pytest.approx(found.cosine, abs=1e-6)
    variance = record.by_layer("stream.variance", statistic="mean").values
    assert np.all(np.asarray(variance) <= np.asarray(found.squares) * (1 + 1e-6))


def test_the_last_matrix_is_the_output_of_the_last_mlp() -> None:
    model = model_of("pre")
    assert last_matrix(model) is model.blocks[-1].mlp.branch.down.weight


@pytest.mark.parametrize("design", ADDS)
def test_the_mean_square_is_the_sum_of_what_was_written_to_rounding(design: str) -> None:
    found = start_of(design, 6)
    assert found.grown == pytest.approx(
        found.updates + found.crosses, abs=8 * np.finfo(float).eps * found.squares[-1]
    )
    assert found.updates > 0 and found.crosses != 0


def test_with_norms_after_the_additions_the_sum_says_nothing() -> None:
    found = start_of("post", 6)
    assert abs(found.grown - found.updates - found.crosses) > 0.5


def test_the_mean_squares_are_those_of_the_stream_by_hand() -> None:
    model, batch = model_of("pre", 2).double(), batch_of(8, examples=2, seed=0)
    found = start_of("pre", 2)
    with torch.no_grad():
        x = model.embedding(batch.ids, torch.arange(8), None)
        squares = [x.square().mean().item()]
        for block in model.blocks:
            for part in (block.attention, block.mlp):
                x = x + part.branch(part.enter(x), leadline.parts.branches.Run(causal=True))
            squares.append(x.square().mean().item())
    assert found.squares == pytest.approx(squares, rel=1e-9)


def test_measuring_leaves_no_hook_behind() -> None:
    model = model_of("post")
    with pytest.raises(RuntimeError), seen_writes(model):
        raise RuntimeError
    start = [m for m in model.modules() if m._forward_hooks or m._forward_pre_hooks]
    assert start == []


def test_without_norms_float32_overflows_where_the_stream_is_large_enough() -> None:
    model, batch = model_of("no norm"), batch_of(8, examples=2, seed=0)
    assert not overflows(model, batch)
    with torch.no_grad():
        model.embedding.tokens.weight.mul_(1e25)
    assert overflows(model, batch)


def test_a_fused_kernel_is_wrong_by_orders_where_scores_are_large() -> None:
    model = built("no norm", 48, width=64, heads=4, length=64, seed=0)
    batch = batch_of(64, examples=4, seed=0)
    right = measured(model, batch, design="no norm", seed=0)
    assert right.finite and 1e8 < right.ratio < 1e14
    with seen_writes(model) as seen:
        loss = model.loss(batch.ids, batch.targets)
        sites = seen.sites(writes=2)
        first, last = torch.autograd.grad(loss, [sites[0], sites[-1]])
    assert not (first.norm() / last.norm() < 1e10 * right.ratio)


# --- over depth ------------------------------------------------------------------------------


def synthetic(design: str, depth: int, seed: int, **changes: Any) -> Start:
    ratio = changes.pop("ratio", 2.0)
    start = Start(
        design=design,
        depth=depth,
        seed=seed,
        weight=1.0,
        gradients=tuple(np.geomspace(ratio, 1.0, depth + 1)),
        squares=tuple(1.0 + layer for layer in range(depth + 1)),
        updates=float(depth),
        crosses=0.0,
        cosine=0.5,
        loss=5.0,
    )
    return replace(start, **changes)


def found_with(
    weight: Any = lambda depth, seed: 1.0, *, depths: tuple[int, ...] = (6, 12, 24, 48), **more: Any
) -> FlowGrowth:
    starts = tuple(
        synthetic(design, depth, seed, weight=weight(depth, seed))
        for design in DESIGNS
        for depth in depths
        for seed in (0, 1, 2)
    )
    nothing: dict[str, Any] = {"overflowed": {}, "blocks": (), "norms": (), "trained": ()}
    return FlowGrowth(starts, **{**nothing, **more})


def test_exponents_are_fitted_from_twelve_layers_on_as_numpy_fits_them() -> None:
    noise = np.random.default_rng(0).normal(size=(200, 3)) * 0.1
    found = found_with(lambda depth, seed: math.exp(noise[depth, seed]) * depth**-0.5)
    fit = found.exponent("pre", lambda one: one.weight)
    slopes = [
        np.polyfit(
            np.log([12, 24, 48]), [noise[d, seed] - 0.5 * math.log(d) for d in (12, 24, 48)], 1
        )[0]
        for seed in (0, 1, 2)
    ]
    assert fit is not None
    assert fit.slope == pytest.approx(np.mean(slopes), rel=1e-9)
    assert fit.error == pytest.approx(np.std(slopes, ddof=1) / math.sqrt(3), rel=1e-9)
    assert FITTED_FROM == 12
    assert fitted([6, 12, 24]) == [12, 24]
    assert fitted([4, 6, 12]) == [4, 6, 12]


def test_a_depth_that_is_not_finite_is_left_out_of_the_fit() -> None:
    found = found_with(lambda depth, seed: math.nan if depth == 48 else float(depth))
    fit = found.exponent("post", lambda one: one.weight)
    assert fit is not None and fit.slope == pytest.approx(1.0)
    values, _ = across_depth(found, "post", lambda one: one.weight)
    assert values[:3] == pytest.approx(np.log10([6, 12, 24])) and math.isnan(values[3])
    lone = found_with(lambda depth, seed: math.nan if depth > 6 else 1.0)
    assert lone.exponent("post", lambda one: one.weight) is None


def test_a_straight_line_is_that_of_numpy() -> None:
    x, y = [0.0, 1.0, 2.0, 4.0], [1.0, 3.0, 2.0, 7.0]
    fit = straight(x, y)
    slope, level = np.polyfit(x, y, 1)
    left = np.asarray(y) - slope * np.asarray(x) - level
    assert fit.slope == pytest.approx(slope)
    assert fit.r2 == pytest.approx(1 - left @ left / (np.var(y) * 4))
    assert math.isnan(straight([0.0, 1.0], [2.0, 2.0]).r2)


def test_xiongs_law_is_drawn_for_pre_and_post_alone() -> None:
    laws = {design: law_exponent(found_with(), design, width=64) for design in DESIGNS}
    assert laws.pop("pre") == -0.5 and laws.pop("post") == 0.0
    assert set(laws.values()) == {None}
    facts = facts_of("pre", 12, width=64, mean_square=(2.0,))
    assert (facts.init, facts.init_scale, facts.mlp, facts.keep) == (
        "xavier", 1.0, "gelu_tanh", 1.0,
    )  # fmt: skip
    assert (facts.norm, facts.norm_eps, facts.mean_square) == ("layernorm", 1e-5, (2.0,))
    assert facts_of("gpt2-scaled", 12, width=64, mean_square=()).init_scale == 0.07
    assert facts_of("deepnorm", 12, width=64, mean_square=()).keep is None


def with_squares(square: Any, **more: Any) -> FlowGrowth:
    plain = found_with(**more)
    starts = tuple(
        replace(one, squares=tuple(square(layer) for layer in range(one.depth + 1)))
        for one in plain.starts
    )
    return replace(plain, starts=starts)


def test_no_law_is_drawn_where_eps_is_not_small_against_the_stream() -> None:
    tiny = with_squares(lambda layer: 1e-4 * (1 + layer))
    assert {law_exponent(tiny, design, width=64) for design in DESIGNS} == {None}
    assert stream_band(tiny, width=64) is None
    (told,) = text._stream(tiny, width=64)
    assert "side the" not in told and "of the mean over seeds). It is the sum" in told


def test_the_mean_square_of_a_design_is_that_over_the_seeds_of_its_deepest_models() -> None:
    found = found_with()
    starts = tuple(
        replace(one, squares=tuple(v + one.seed for v in one.squares)) for one in found.starts
    )
    squares = replace(found, starts=starts).squares("pre")
    assert squares == pytest.approx([2.0 + layer for layer in range(49)])  # seeds 0, 1, 2


@pytest.mark.slow
def test_the_slopes_of_xiong_hold_over_depth_with_three_seeds() -> None:
    starts = tuple(
        measured(
            built(design, depth, width=64, heads=4, length=64, seed=seed),
            batch_of(64, examples=4, seed=seed),
            design=design,
            seed=seed,
        )
        for design in ("pre", "post")
        for depth in (12, 24, 48, 96)
        for seed in (0, 1, 2)
    )
    found = FlowGrowth(starts, {}, (), (), ())
    for design, law in (("pre", -0.5), ("post", 0.0)):
        fit = found.exponent(design, lambda one: one.weight)
        assert fit is not None and fit.within(law, 0.1)
    slopes = [straight(range(97), one.squares).slope for one in found.at("pre", 96)]
    assert 0.5 < np.mean(slopes) < 1.5


# --- Jacobians -------------------------------------------------------------------------------


def dense(f: Any, x: torch.Tensor) -> np.ndarray:
    size = x.numel()
    return torch.autograd.functional.jacobian(f, x).reshape(size, size).numpy()


def test_block_jacobians_are_the_dense_ones() -> None:
    model, batch = model_of("pre", 2, width=8).double(), batch_of(8, examples=1, seed=0)
    told: list[int] = []
    found = blocks_of(model, batch, design="pre", told=lambda: told.append(1))
    with plain_attention(), torch.no_grad(), seen_writes(model) as seen:
        model.stream(batch.ids)
    matrices = []
    with plain_attention():
        for number, block in enumerate(model.blocks):
            matrices.append(dense(lambda v, b=block: b(v, seen.runs[0]), seen.states[2 * number]))
    for number, matrix in enumerate(matrices):
        size = len(matrix)
        true = np.linalg.norm(matrix - np.eye(size)) / math.sqrt(size)
        assert found.largest[number] == pytest.approx(np.linalg.norm(matrix, 2), rel=2e-3)
        assert found.distance[number] == pytest.approx(true, rel=0.3)  # 16 random probes
    whole = matrices[1] @ matrices[0]
    assert found.whole == pytest.approx(np.linalg.norm(whole, 2), rel=2e-3)
    assert found.product == pytest.approx(sum(math.log10(v) for v in found.largest))
    assert len(told) == 3 and found.refused == ""


def test_a_post_norm_product_without_its_norms_is_that_of_the_sums() -> None:
    model, batch = model_of("post", 2, width=8).double(), batch_of(8, examples=1, seed=0)
    found = norms_apart(model, batch)
    with plain_attention(), torch.no_grad(), seen_writes(model) as seen:
        model.stream(batch.ids)
    with_, without, shrink = np.eye(64), np.eye(64), 0.0
    with plain_attention():
        for part, x in zip(model.sublayers(), seen.states, strict=False):
            added = dense(lambda v, p=part: v + p.branch(v, seen.runs[0]), x)
            y = x + part.branch(x, seen.runs[0]).detach()
            norm = dense(lambda v, p=part: p.settle(v), y)
            with_, without = norm @ added @ with_, added @ without
            shrink += math.log10(np.linalg.norm(norm) / 8)
    assert found.with_largest == pytest.approx(math.log10(np.linalg.norm(with_, 2)), abs=1e-3)
    assert found.without_largest == pytest.approx(math.log10(np.linalg.norm(without, 2)), abs=1e-3)
    assert found.with_size == pytest.approx(math.log10(np.linalg.norm(with_) / 8), abs=0.15)
    assert found.without_size == pytest.approx(math.log10(np.linalg.norm(without) / 8), abs=0.15)
    assert found.shrink == pytest.approx(shrink, abs=0.15)


# --- training --------------------------------------------------------------------------------


def test_the_sweep_trains_without_warm_up_and_reads_first_and_last() -> None:
    what = flow_sweep({2: 3, 4: 2}, seeds=(5, 6), width=16, heads=2, length=8)
    assert what.axes == {"design": list(TRAINED), "depth": [2, 4]}
    assert what.seeds == (5, 6)
    cell = what.cells()[0]
    training = cell.training()
    assert (training.warmup, training.rate, training.batch) == (0, 1e-3, 16)
    assert (training.steps, training.gauges, training.layers) == (3, 3, True)
    assert cell.recipe().width == 16 and str(training.task_choice) == "stdlib(length=8)"


def test_first_and_last_readings_are_read_from_the_record(tmp_path: Path) -> None:
    what = flow_sweep({2: 3}, seeds=(0,), width=16, heads=2, length=8).only("design", ["post"])
    _, tasks = check_cells(what)
    (cell,) = what.cells()
    result = run_cell(cell, folder=None)
    with open_record(tmp_path / "a.leadline", what, tasks) as record:
        add_cells(record, [result])
        (found,) = read_trained(record)
    assert (found.design, found.depth, found.seed) == ("post", 2, 0)
    assert (found.status, found.steps) == ("finished", 3)
    rows = {
        (row.quantity, row.step): row.value
        for row in result.readings
        if row.quantity.startswith("gauge.")
    }
    assert found.ratio == tuple(rows["gauge.gradient_ratio", step] for step in (0, 3))
    assert found.cosine == tuple(rows["gauge.token_cosine", step] for step in (0, 3))
    assert len(found.profile) == 3
    assert found.profile[0] / found.profile[-1] == pytest.approx(found.ratio[1], rel=1e-6)


def trained(depth: int, **changes: Any) -> TrainedDesigns:
    one = TrainedDesigns(
        "post", depth, 0, "finished", "all steps", 150, 3.0, (2.0, 1e-6), (0.9, 1.0), (1.0, 1.0)
    )
    return replace(one, **changes)


def test_a_vanishing_is_acquired_where_gradient_and_tokens_show_it() -> None:
    assert (text.VANISHED, text.EQUAL) == (1e-3, 0.999)
    told = text._acquired([trained(12), trained(6, ratio=(2.0, 1.0))])
    assert told.endswith(
        "the gradient has come to vanish at 12 layers; the tokens have become one at 12 layers"
    )
    assert "12 layers ratio 2 to 1e-06, cosine 0.900 to 1.000" in told
    for kept in ({"ratio": (2.0, 2.1e-3)}, {"cosine": (0.9, 0.998)}):
        assert text._acquired([trained(12, **kept)]).endswith("no vanishing was acquired")
    # One seed of two that did not is enough to say no.
    several = [trained(12), trained(12, seed=1, ratio=(2.0, 1.0))]
    assert text._acquired(several).endswith("no vanishing was acquired")
    assert text._acquired([trained(12, cosine=(0.9, 0.999))]).endswith("become one at 12 layers")
    assert text._typical([0.01, 100.0]) == pytest.approx(1.0)
    assert text._typical([0.0, 1.0]) == 0.0


def test_tokens_that_were_one_before_the_training_have_not_become_so() -> None:
    before = trained(48, cosine=(0.999, 1.0))
    assert text._acquired([before]).endswith(
        "the gradient has come to vanish at 48 layers; the tokens were one before the training "
        "already at 48 layers"
    )
    several = [trained(12), before, trained(96, cosine=(1.0, 1.0)), trained(24),
               trained(24, seed=1, cosine=(0.9991, 1.0))]  # fmt: skip
    assert text._acquired(several).endswith(
        "vanish at 12, 24, 48, 96 layers; the tokens have become one at 12 layers and were one "
        "before the training already at 48, 96 layers and were one before the training in some of "
        "the seeds at 24 layers"
    )


def test_a_training_that_did_not_finish_is_named() -> None:
    broken = trained(12, status="diverged", reason="the loss is not finite", steps=7)
    told = list(text._training(found_with(trained=(broken,))))
    assert told == ["post, 12 layers, seed 0: diverged after 7 steps, the loss is not finite."]


# --- the words -------------------------------------------------------------------------------


def test_agreement_with_a_law_is_computed() -> None:
    assert (text.NEAR, text.LINEAR) == (0.1, 0.98)
    (told,) = text._last_matrix(found_with(lambda depth, _: depth**-0.45), width=16)
    assert "pre L^-0.45 ± 0 (3 seeds), agrees with the law's -0.5" in told.replace("0.00", "0")
    assert "post L^-0.45" in told and "misses the law's 0 (within 0.1)" in told
    assert "over 12 to 48 layers" in told


def test_the_mechanism_is_told_only_where_it_is_all() -> None:
    # rms of the synthetic last site is sqrt(1 + depth): its inverse leaves nothing.
    (told,) = text._mechanism(found_with(lambda depth, _: (1 + depth) ** -0.5))
    assert told.endswith("and that is all of it.")
    (told,) = text._mechanism(found_with(lambda depth, _: 1.0))
    assert told.endswith("does not explain it alone.")


def test_the_stream_is_judged_by_its_slope_and_straightness() -> None:
    (told,) = text._stream(found_with(), width=64)
    assert "grows by 1.000 ± 0.000 per layer, near linear" in told
    steep = with_squares(lambda layer: 1 + 2.0 * layer**2)
    (told,) = text._stream(steep, width=64)
    assert "not linear" in told and "outside the 0.2" in told


@pytest.mark.parametrize(("slope", "where"), [(0.4, "inside"), (0.2, "outside"), (1.4, "outside")])
def test_the_band_that_is_told_is_the_one_that_is_drawn(slope: float, where: str) -> None:
    found = with_squares(lambda layer: 2.0 + slope * layer)
    drawn = [line for line in lines(found, width=64) if "after Xiong" in line.name]
    low, high = ((line.values[-1] - line.values[0]) / 48 for line in drawn)
    (told,) = text._stream(found, width=64)
    assert f", {where} the {low:.3f} to {high:.3f} per layer that the law of Xiong" in told
    # An inner width of four times the width and gelu_tanh: 8 / 5 S(2 / 5) by sampling, and 1 more.
    z = torch.randn(1_000_000, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    wave = torch.nn.functional.gelu(z * math.sqrt(0.4), approximate="tanh")
    written = 1.6 * wave.square().mean().item()
    assert (low, high) == pytest.approx((written, 1 + written), rel=0.01)
    assert (low, high) == pytest.approx((0.233, 1.233), abs=5e-4)


def test_growth_without_norms_is_called_exponential_only_where_it_is() -> None:
    overflowed = {6: False, 48: True}
    first, second = text._without_norms(
        with_squares(lambda layer: 2.0**layer, overflowed=overflowed)
    )
    assert "it grows exponentially: the mean square gets 2.00 times larger per layer" in first
    assert second == "Without norms float32 overflows at 48 layers."
    first, _ = text._without_norms(with_squares(lambda layer: 1.0 + layer, overflowed=overflowed))
    assert "neither" in first
    told = list(text._without_norms(found_with(overflowed={6: False})))[-1]
    assert told == "Without norms float32 does not overflow up to 6 layers."


def test_vanishing_before_training_is_named() -> None:
    plain = found_with()
    assert list(text._towards_the_input(plain))[-1].startswith("In none of these designs")
    starts = tuple(
        replace(one, gradients=(1e-4, *one.gradients[1:])) if one.design == "post" else one
        for one in plain.starts
    )
    last = list(text._towards_the_input(replace(plain, starts=starts)))[-1]
    assert last == "The gradient vanishes towards the input before training: post."


def test_products_and_norms_are_told_with_their_numbers() -> None:
    blocks = Blocks("pre", 2, (10.0, 100.0), (0.6, 0.2), 10.0)
    norms = Norms(2, 1.0, 3.0, 0.1, 2.0, -1.9)
    told = list(text._products(found_with(blocks=(blocks,))))
    assert "2 layers, one example: pre 3.0 against 1.0." in told[0]
    assert told[1].endswith("below 0.5 in every block: no design.")
    refused = replace(blocks, refused="no second derivative.")
    assert "pre, 2 layers, singular values: no second derivative." in list(
        text._products(found_with(blocks=(refused,)))
    )
    (said,) = text._norms(found_with(norms=(norms,)))
    assert "multiplies directions by 0.33 in the root" in said  # 10^(-1.9 / 4)
    assert said.endswith("what the norms take away is what the skips and branches have added.")
    (said,) = text._norms(found_with(norms=(replace(norms, with_size=0.5),)))
    assert said.endswith("the two do not cancel.")


# --- the whole -------------------------------------------------------------------------------


def test_the_outcome_without_training_has_six_panels_that_all_have_places() -> None:
    told: list[Any] = []
    outcome = gradient_flow(SMALL, progress=lambda *what: told.append(what))
    assert len(outcome.panels) == 6 and set(outcome.panels) == set(outcome.places)
    assert set(outcome.scales) == set(outcome.panels)
    for line in outcome.lines:
        assert len(line.values) <= len(outcome.places[line.panel].at)
    assert not any("Trained" in panel for panel in outcome.panels)
    assert outcome.title == "Gradient and stream over depth, before training"
    assert all(0 <= done <= total for _, done, total in told)
    json.dumps(outcome.to_json(), allow_nan=False)


@pytest.mark.slow
def test_with_training_there_are_nine_panels_and_the_record_is_kept(tmp_path: Path) -> None:
    setting = replace(SMALL, jacobians_to=2, trained_to=2, most_steps=2, seeds=1, workers=1)
    outcome = gradient_flow(setting, folder=tmp_path)
    assert outcome.title == "Gradient and stream over depth, before and after a short training"
    assert len(outcome.panels) == 9 and (tmp_path / "training.leadline").exists()
    assert [table.title[:8] for table in outcome.tables][-1] == "Training"
    assert len(outcome.tables[-1].rows) == len(TRAINED)
    assert outcome.records["training"].provenance["sweep"]["cells"] == len(TRAINED)
    outcome.records["training"].close()
    # Asked for again, nothing is trained again.
    again = gradient_flow(setting, folder=tmp_path)
    assert again.tables[-1] == outcome.tables[-1]
    again.records["training"].close()


@pytest.mark.parametrize("field", ["seeds", "training_seeds", "examples", "width"])
def test_numbers_below_one_are_refused(field: str) -> None:
    with pytest.raises(InputError) as caught:
        gradient_flow(replace(SMALL, **{field: 0}))
    assert str(caught.value) == f"{field} is 0; give a whole number from 1 on."


def test_one_depth_is_refused() -> None:
    with pytest.raises(InputError, match="The depths are 12; an exponent over depth needs two"):
        gradient_flow(replace(SMALL, depths=(12,)))


def leave(arguments: list[str]) -> int:
    with pytest.raises(SystemExit) as left:
        run(arguments)
    return int(left.value.code or 0)


def test_the_command_writes_picture_and_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["--depths", "1,2", "--seeds", "1", "--no-training", "-o", str(tmp_path), "--json"]
    assert leave(["reproduce", "gradient-flow", *asked]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["experiment"] == "gradient-flow"
    with (tmp_path / "table.csv").open() as file:
        rows = list(csv.DictReader(file))
    weights = [row for row in rows if "∂L/∂W₂" in row["panel"] and row["name"] == "pre"]
    assert [row["place"] for row in weights] == ["1", "2"]
    assert "<svg" in (tmp_path / "picture.svg").read_text(encoding="utf-8")
    assert not (tmp_path / "training.leadline").exists()


def test_depths_that_are_no_numbers_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert leave(["reproduce", "gradient-flow", "--depths", "6,deep"]) == 2
    assert "--depths is '6,deep'; give whole numbers" in capsys.readouterr().err


# --- the picture -----------------------------------------------------------------------------


def _circles(picture: str) -> list[tuple[float, float]]:
    return [
        (float(c.get("cx", "nan")), float(c.get("cy", "nan")))
        for c in ET.fromstring(picture).iter(f"{SVG}circle")
    ]


def test_depths_stand_at_equal_distances_on_a_logarithmic_axis_and_steps_on_a_plain_one() -> None:
    line = Line("p", "a", (1.0, 2.0, 3.0))
    for places, second in (
        (Places("depth", (6.0, 12.0, 24.0), logarithmic=True), 1 / 2),
        (Places("step", (0.0, 10.0, 40.0)), 1 / 4),
    ):
        picture = line_chart([line], title="t", value_label="v", places={"p": places})
        x = [at for at, _ in _circles(picture)]
        assert (x[1] - x[0]) / (x[2] - x[0]) == pytest.approx(second, abs=1e-3)
        words = [one.text for one in ET.fromstring(picture).iter(f"{SVG}text")]
        assert places.label in words and f"{places.at[-1]:g}" in words


def test_an_error_bar_reaches_one_standard_error_up_and_down() -> None:
    line = Line("p", "a", (1.0, 3.0), errors=(0.5, math.nan))
    picture = line_chart([line], title="t", value_label="v")
    (first, second) = _circles(picture)
    unit = (first[1] - second[1]) / 2.0
    (bar,) = [p for p in ET.fromstring(picture).iter(f"{SVG}path") if p.get("class") == "error"]
    low, high = (float(part) for part in str(bar.get("d")).split(" ")[1].split("V"))
    assert low - first[1] == pytest.approx(0.5 * unit, abs=0.15)
    assert first[1] - high == pytest.approx(0.5 * unit, abs=0.15)


def test_panels_stand_in_rows_when_they_are_told_to() -> None:
    several = [Line(panel, "a", (1.0, 2.0)) for panel in ("p", "q", "r")]
    tall, wide = (
        line_chart(several, title="t", value_label="v", across=across) for across in (2, None)
    )
    rows = [[y for _, y in _circles(picture)][::2] for picture in (tall, wide)]
    assert rows[0][0] == rows[0][1] < rows[0][2]
    assert rows[1][0] == rows[1][1] == rows[1][2]
