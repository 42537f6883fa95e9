"""What larger MLP weights cost: each number against an independent route."""

from __future__ import annotations

import inspect
import math
import sys

import numpy as np
import pytest
import torch

from leadline.experiments import EXPERIMENTS
from leadline.experiments.lipschitz_cost.experiment import (
    BATCH,
    EXAMPLES,
    LENGTH,
    NETWORKS,
    SCALES,
    MlpCost,
    _bytes,
    _cost,
    _gradient_variance,
    _lipschitz,
    _model,
    _residuals,
    _sensitivity,
    lipschitz_cost,
)
from leadline.experiments.lipschitz_cost.text import CLAIMS, remarks, rising_draws
from leadline.reading.show.panels import Line

lipschitz_module = sys.modules[lipschitz_cost.__module__]
SIZE = {"depth": 2, "width": 8, "heads": 2}


@pytest.fixture(scope="module")
def outcome():
    told = []
    found = lipschitz_cost(
        **SIZE, scales=(1.0, 2.0), draws=1, batches=3, progress=lambda *what: told.append(what)
    )
    return found, told


@pytest.fixture(scope="module")
def model():
    return _model(2.0, 2, 8, 2, seed=1)


def test_it_is_an_experiment_with_the_scales_of_the_task() -> None:
    assert EXPERIMENTS.get("lipschitz-cost").function() is lipschitz_cost
    assert SCALES == (0.5, 1.0, 2.0, 4.0)
    assert list(NETWORKS) == ["pre-norm", "without skip", "without skip and norm"]


def test_networks_share_their_weights_and_differ_in_what_they_leave_out() -> None:
    pre, bare, plain = (_model(1.0, 2, 8, 2, seed=3, **fields) for fields in NETWORKS.values())
    mine = pre.state_dict()
    for other in (bare, plain):
        for name, weight in other.state_dict().items():
            assert torch.equal(weight, mine[name]), name
    assert bare.recipe.choice("connection").name == "none"
    assert any("enter" in name for name, _ in bare.named_parameters())
    assert not any("enter" in name for name, _ in plain.named_parameters())
    assert all(weight.dtype == torch.float64 for weight in mine.values())


def test_a_scale_multiplies_the_mlp_and_nothing_else() -> None:
    one, two = (_model(scale, 2, 8, 2, seed=3).state_dict() for scale in (1.0, 2.0))
    for name, weight in one.items():
        times = 2.0 if "mlp" in name and name.endswith("weight") and weight.dim() == 2 else 1.0
        assert torch.equal(two[name], times * weight), name
    assert sum("mlp" in name and weight.dim() == 2 for name, weight in one.items()) == 4


def test_lambda_is_the_product_of_the_composite_norms(model) -> None:
    slope = 0.5 * (1 + math.erf(1)) + math.exp(-1) / math.sqrt(math.pi)
    logs = []
    for block in model.blocks:
        up = block.mlp.branch.up.weight.detach().numpy().T
        down = block.mlp.branch.down.weight.detach().numpy().T
        norms = [np.linalg.norm(w, p) for w in (up, down) for p in (1, np.inf)]
        logs.append(math.log(slope * math.sqrt(np.prod(norms))))
    assert _lipschitz(model) == pytest.approx(math.exp(np.mean(logs)), rel=1e-12)
    assert _lipschitz(_model(1.0, 2, 8, 2, seed=1)) == pytest.approx(_lipschitz(model) / 4)


def test_the_largest_change_is_the_norm_of_the_jacobian(model) -> None:
    ids = _bytes(2, seed=0)[:, :3]

    def after(x):
        hook = model.embedding.register_forward_hook(lambda _m, _i, _x: x)
        try:
            return model(ids)
        finally:
            hook.remove()

    x = model.embedding(ids, torch.arange(3), None).detach()
    jacobian = torch.autograd.functional.jacobian(after, x)
    norms = [
        float(torch.linalg.matrix_norm(jacobian[i, :, :, i].reshape(3 * 256, 3 * 8), ord=2))
        for i in range(2)
    ]
    squares = [float(jacobian[i, :, :, i].square().sum()) / 24 for i in range(2)]
    change, largest = _sensitivity(model, ids, seed=0)
    assert 0.9 * max(norms) < largest <= max(norms) * (1 + 1e-9)
    # A random direction is changed by the root mean square of the singular values, on average.
    assert change == pytest.approx(math.sqrt(np.mean(squares)), rel=0.25)
    assert change < largest
    assert not model.embedding._forward_hooks


def test_the_variance_is_that_of_the_gradients_over_batches(model) -> None:
    tokens = _bytes(3 * BATCH, seed=2)
    rows = []
    for ids in tokens.split(BATCH):
        model.zero_grad()
        logits = model(ids)[:, :-1].flatten(0, 1)
        torch.nn.functional.cross_entropy(logits, ids[:, 1:].flatten()).backward()
        rows.append(
            np.concatenate(
                [p.grad.numpy().ravel() for p in model.parameters() if p.grad is not None]
            )
        )
    model.zero_grad()
    covariance = np.var(np.array(rows), axis=0, ddof=1).sum()
    variance, relative = _gradient_variance(model, tokens)
    assert variance == pytest.approx(covariance, rel=1e-9)
    mean = np.mean(rows, axis=0)
    assert relative == pytest.approx(covariance / (mean @ mean), rel=1e-9)


def test_residuals_are_those_of_the_stream_after_every_layer(model) -> None:
    ids = _bytes(2, seed=4)
    absolute, relative = _residuals(model, ids)
    with torch.no_grad():
        x = model.embedding(ids, torch.arange(LENGTH), None)
        from leadline.parts.branches import Run

        found = []
        for block in model.blocks:
            x = block(x, Run(cache=None, rotate=None, mask=None, causal=True))
            rest = [float(torch.linalg.norm(one - one.mean(0))) for one in x]
            found.append(
                [r / float(torch.linalg.norm(one)) for r, one in zip(rest, x, strict=True)]
            )
    assert relative == pytest.approx([math.sqrt(a * b) for a, b in found], rel=1e-12)
    assert absolute == pytest.approx(math.sqrt(rest[0] * rest[1]), rel=1e-12)
    assert not any(block._forward_hooks for block in model.blocks)


def test_bytes_are_english_and_repeat_by_seed() -> None:
    windows = _bytes(5, seed=1)
    assert windows.shape == (5, LENGTH)
    assert torch.equal(windows, _bytes(5, seed=1))
    assert not torch.equal(windows, _bytes(5, seed=2))
    assert set(bytes(windows.flatten().tolist()).decode()) <= set("abcdefghijklmnopqrstuvwxyz. ")


def test_the_outcome_has_a_line_per_network_and_scale(outcome) -> None:
    found, told = outcome
    assert found.experiment == "lipschitz-cost"
    assert found.panels == list(NETWORKS)
    assert [line.facts["scale"] for line in found.lines] == [1.0, 2.0] * 3
    assert all(len(line.values) == 2 for line in found.lines)
    assert all(0 < value <= 1 for line in found.lines for value in line.values)
    assert [done for _, done, _ in told] == list(range(6))
    assert {total for *_, total in told} == {6}
    first = found.lines[0].facts
    tokens = _bytes(3 * BATCH + EXAMPLES, seed=0)
    cost = _cost(_model(1.0, 2, 8, 2, seed=0), tokens, 0)
    assert first["lipschitz"] == pytest.approx(cost.lipschitz, rel=1e-12)
    assert first["output_change"] == pytest.approx(cost.change, rel=1e-9)
    assert first["gradient_variance"] == pytest.approx(cost.variance, rel=1e-9)
    for panel in found.panels:
        small, large = (line.facts["lipschitz"] for line in found.lines if line.panel == panel)
        assert large / small == pytest.approx(4.0, rel=1e-9)
    assert found.to_json()["lines"][0]["gradient_variance"] == first["gradient_variance"]


def test_without_norms_a_larger_lambda_costs_what_the_note_says(outcome) -> None:
    small, large = (line for line in outcome[0].lines if line.panel == "without skip and norm")
    for key in ("output_change", "largest_output_change", "absolute_residual"):
        assert large.facts[key] > 2 * small.facts[key], key


def line(panel: str, scale: float, residual: float, number: float) -> Line:
    keys = ("output_change", "largest_output_change", "gradient_variance")
    keys += ("relative_gradient_variance", "absolute_residual")
    facts = {"scale": scale, "lipschitz": scale**2, "draws": 4, **dict.fromkeys(keys, number)}
    return Line(panel=panel, name=f"times {scale:g}", values=(1.0, residual), facts=facts)


def test_remarks_say_what_the_numbers_say() -> None:
    rising = [line("a", 1.0, 0.1, 1.0), line("a", 4.0, 0.2, 3.0)]
    falling = [line("b", 1.0, 0.2, 3.0), line("b", 4.0, 0.1, 1.0)]
    every, none = (dict.fromkeys(CLAIMS, draws) for draws in (4, 0))
    text = list(remarks([*rising, *falling], {"a": every, "b": none}))
    assert "lambda is 16 times as large" in text[0]
    assert (
        "the relative residual after the last layer rises steadily to 2 times (up in 4 of 4 draws)"
        in text[0]
    )
    assert "the output change falls steadily to 0.333 times (up in 0 of 4 draws)" in text[1]
    assert "of these 2 networks" in text[2]
    assert text[2].count(": 1") == 5 and len(text) == 3
    more = [*rising, line("c", 1.0, 0.1, 1.0), line("c", 2.0, 0.3, 2.0)]
    assert list(remarks(more, {"a": every, "c": every}))[2].count(": 2") == 5
    # The mean rises in both networks, and one draw of the second falls: true of one network.
    mixed = list(remarks(more, {"a": every, "c": dict.fromkeys(CLAIMS, 3)}))
    assert "(up in 3 of 4 draws)" in mixed[1]
    assert mixed[2].count(": 1") == 5 and "in every draw" in mixed[2]


def cost(**numbers: float) -> MlpCost:
    names = ("lipschitz", "change", "largest", "variance", "relative_variance", "absolute_residual")
    last = numbers.pop("residual", 1.0)
    return MlpCost(**{**dict.fromkeys(names, 1.0), **numbers}, residuals=(5.0, last))


def test_draws_in_which_a_quantity_rises_are_counted_one_by_one() -> None:
    small = [cost(), cost(), cost()]
    large = [
        cost(change=2.0, variance=0.5, residual=2.0),
        cost(change=2.0, variance=2.0, absolute_residual=3.0),
        cost(change=2.0, relative_variance=4.0, residual=0.5),
    ]
    assert list(rising_draws([small, [], large]).values()) == [1, 1, 3, 1, 1]
    assert list(CLAIMS) == [
        "the relative residual after the last layer",
        "the residual itself",
        "the output change",
        "the gradient variance",
        "the gradient variance over the squared mean",
    ]


def test_four_networks_are_drawn_and_no_two_seeds_share_one() -> None:
    assert inspect.signature(lipschitz_cost).parameters["draws"].default == 4
    seeds = []

    def model(*_sizes: float, seed: int, **_fields: str) -> None:
        seeds.append(seed)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lipschitz_module, "_model", model)
        patch.setattr(lipschitz_module, "_cost", lambda *_: cost())
        for seed in (0, 1):
            lipschitz_cost(scales=(1.0, 2.0), seed=seed)
    assert set(seeds) == {0, 1, 2, 3, 1000, 1001, 1002, 1003}


def test_a_table_per_network_has_a_row_per_scale(outcome) -> None:
    found, _ = outcome
    assert [table.title for table in found.tables] == list(NETWORKS)
    first, line_ = found.tables[0], found.lines[0]
    assert len(first.columns) == len(first.rows[0]) and len(first.rows) == 2
    told = dict(zip(first.columns, first.rows[0], strict=True))
    assert told["lambda"] == line_.facts["lipschitz"] and told["relative"] == line_.values[-1]
    assert told["gradient variance"] == line_.facts["gradient_variance"]
    assert found.to_json()["tables"][0]["rows"][0]["lambda"] == line_.facts["lipschitz"]
