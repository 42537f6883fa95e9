"""The view of a residual network as an equation: every number by hand or by an independent route."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from scipy.integrate import solve_ivp

from leadline.errors import InputError
from leadline.experiments import EXPERIMENTS
from leadline.experiments.ode_view import OdeViewOptions
from leadline.experiments.ode_view import experiment as ode
from leadline.experiments.ode_view.experiment import (
    DEPTHS,
    ERROR,
    EULER,
    LIMIT,
    NORMED,
    OWN,
    SPECTRUM,
    WHOLE,
    Spectrum,
    _convergence,
    _euler,
    _field,
    _known,
    _network,
    _normed,
    _plane,
    _powers,
    _spectra,
    _step_one,
    _tangent,
    ode_view,
)
from leadline.experiments.ode_view.reference_flow import Reference, apart, runge_kutta
from leadline.theory.norm_jacobian import layer_norm_jacobian

SMALL = OdeViewOptions(width=8, tokens=4, seeds=2)


@pytest.fixture(scope="module")
def outcome() -> tuple[Any, list[Any]]:
    told: list[Any] = []
    return ode_view(SMALL, progress=lambda *what: told.append(what)), told


def table(found: Any, title: str) -> dict[str, dict[str, float]]:
    (one,) = [one for one in found.tables if one.title.startswith(title)]
    return {row.pop("name"): row for row in one.to_json()["rows"]}


def test_halving_the_step_halves_the_error_with_and_without_a_norm(outcome: Any) -> None:
    orders = table(outcome[0], "Order")
    assert orders[EULER]["order"] == pytest.approx(1.0, abs=0.06)
    assert orders[NORMED]["order"] == pytest.approx(1.0, abs=0.06)


def test_it_is_said_how_well_the_flow_is_known(outcome: Any) -> None:
    for name in (EULER, NORMED):
        (told,) = [one for one in outcome[0].remarks if one.startswith(f"{name}: 256 steps of")]
        assert "or better; the smallest error judged by it is" in told


def test_errors_that_the_flow_cannot_judge_are_left_out_and_said() -> None:
    x = torch.ones(2)
    flows = [Reference(x, 4096, 0.01), Reference(x, 512, 0.002)]
    told = _known(EULER, flows, {0: [1.0, math.nan], 1: [1.0, 0.5]})
    assert told == (
        "step T/L: 4096 steps of Runge and Kutta give the flow to 0.01 or better, which has "
        "to be 1/20 of what it judges: 1 of 4 errors are left out, and no order is fitted. More than "
        "4096 steps are not tried; choose a shorter time."
    )
    endless = _known(EULER, [Reference(x, 4096, math.nan), flows[0]], {0: [math.nan]})
    assert endless.startswith("step T/L: 4096 steps of Runge and Kutta do not stay finite, which")
    assert "not known well enough" in _step_one({0: [1.0, math.nan]})


def test_no_order_is_fitted_where_the_flow_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    rough = Reference(torch.ones(1, 2, 4, dtype=torch.float64), 4096, 1e9)
    monkeypatch.setattr(ode, "followed", lambda *_, **__: rough)
    found = ode_view(OdeViewOptions(width=4, tokens=2, seeds=1))
    assert set(table(found, "Order")) == set()
    errors = [line for line in found.lines if line.panel == ERROR]
    assert len(errors) == 3 and all(math.isnan(v) for line in errors for v in line.values)
    assert sum("no order is fitted" in remark for remark in found.remarks) == 2


def test_layers_of_step_one_do_not_converge(outcome: Any) -> None:
    assert table(outcome[0], "Order")[WHOLE]["order"] < 0
    assert any("It does not converge" in remark for remark in outcome[0].remarks)


def test_the_words_for_step_one_follow_the_numbers() -> None:
    assert "It does not converge" in _step_one({0: [1.0, 2.0]})
    assert "The error falls here" in _step_one({0: [2.0, 1.0]})


def test_weights_of_their_own_move_the_stream_less_and_less() -> None:
    found = _convergence(SMALL, 0)[0][OWN]
    slope = np.polyfit(np.log(DEPTHS), np.log(found), 1)[0]
    assert slope == pytest.approx(-0.5, abs=0.15)


def test_the_error_of_euler_on_a_linear_equation_is_that_of_the_exponential() -> None:
    x = torch.ones(1, 1, 4, dtype=torch.float64)
    flow = runge_kutta(lambda at: -at, x, 2.0)
    assert float(flow[0, 0, 0]) == pytest.approx(math.exp(-2.0), rel=1e-9)
    for depth in (10, 100):
        by_hand = abs((1 - 2.0 / depth) ** depth - math.exp(-2.0)) / math.exp(-2.0)
        found = apart(_euler(lambda at: -at, x, 2.0 / depth, depth), flow)
        assert found == pytest.approx(by_hand, rel=1e-6)


def test_the_reference_flow_is_that_of_scipy() -> None:
    field, x = _field(_network(SMALL, 0, {"depth": 1}), 1)
    shape = x.shape
    for start, slope in ((x, field), (_normed(x), lambda at: _tangent(at, field(at)))):
        known = solve_ivp(
            lambda _t, y, f=slope: f(torch.from_numpy(y).view(shape)).flatten().numpy(),
            (0.0, 1.0), start.flatten().numpy(), method="DOP853", rtol=1e-11, atol=1e-12,
        )  # fmt: skip
        found = runge_kutta(slope, start, 1.0)
        assert apart(found, torch.from_numpy(known.y[:, -1]).view(shape)) < 1e-9


def test_the_field_is_the_branch_of_the_block() -> None:
    stretches = _network(SMALL, 0, {"depth": 1})
    field, x = _field(stretches, 1)
    assert x.dtype == torch.float64
    torch.testing.assert_close(x + field(x), stretches.stream(1).double())


def test_the_flow_on_the_sphere_stays_there() -> None:
    field, x = _field(_network(SMALL, 1, {"depth": 1}), 1)
    start = _normed(x)
    np.testing.assert_allclose(start.square().sum(-1).numpy(), 8.0)
    end = runge_kutta(lambda at: _tangent(at, field(at)), start, 1.0)
    np.testing.assert_allclose(end.square().sum(-1).numpy(), 8.0, rtol=1e-9)
    np.testing.assert_allclose(end.mean(-1).numpy(), 0.0, atol=1e-12)


def test_the_tangent_is_the_jacobian_of_layernorm() -> None:
    rng = torch.Generator().manual_seed(0)
    x = _normed(torch.randn(1, 1, 8, dtype=torch.float64, generator=rng))
    u = torch.randn(1, 1, 8, dtype=torch.float64, generator=rng)
    known = layer_norm_jacobian(x[0, 0].numpy(), eps=0.0) @ u[0, 0].numpy()
    np.testing.assert_allclose(_tangent(x, u)[0, 0].numpy(), known, atol=1e-14)
    known = torch.nn.functional.layer_norm(3.0 * u + 1.0, (8,), eps=0.0)
    torch.testing.assert_close(_normed(3.0 * u + 1.0), known)


def test_three_times_minus_x_grows_to_two_to_the_twentieth() -> None:
    assert _powers(-3.0, 1.0, 20) == 2**20
    assert _powers(-3.0, 2 / 3, 20) == pytest.approx(1.0)
    assert _powers(-3.0, 0.5, 20) == 2**-20


def test_the_example_is_told_with_its_numbers(outcome: Any) -> None:
    told = outcome[0].remarks[-1]
    assert "f(x) = -3 x" in told
    assert "after 20 layers" in told
    assert "1.049e+06 for step 1" in told
    assert "1 for step 0.667" in told
    assert "9.537e-07 for step 0.5" in told


def test_the_region_of_stability_is_counted_by_hand() -> None:
    # 1 + lambda: outside and falling, outside and growing, inside, on the edge with lambda = 0.
    values = np.array([-1.5 + 0j, 1.2 + 0j, 0.5 + 0.5j, 1.0 + 0j])
    one = Spectrum("made", values, 2.0)
    assert one.unstable == 0.5
    assert one.growing == 0.5
    assert one.cured == 0.25


@pytest.mark.parametrize(("off", "counted"), [(0.9e-6, 0.0), (1.1e-6, 1.0)])
def test_an_eigenvalue_is_outside_where_it_passes_the_circle_by_a_millionth(
    off: float, counted: float
) -> None:
    falling = Spectrum("falling", np.array([-1.0 - off + 0j]), 2.0)
    assert (falling.unstable, falling.cured, falling.growing) == (counted, counted, 0.0)
    # Re lambda = -off: along the circle, where the flow falls or does not.
    edge = Spectrum("edge", np.array([1.0 - off + 1j]), 2.0)
    assert (edge.unstable, edge.cured, edge.growing) == (1.0, counted, 1.0 - counted)


def test_eigenvalues_are_those_of_finite_differences() -> None:
    first, last = _spectra(SMALL, "plain", {})
    assert (first.name, last.name) == ("plain, block 1", "plain, block 12")
    stretches = _network(SMALL, SMALL.seed, {"depth": 12})
    block, x = stretches.function(0, 1)
    step, columns = 1e-6, []
    with torch.no_grad():
        for at in range(x.numel()):
            moved = torch.zeros_like(x).flatten()
            moved[at] = step
            moved = moved.view_as(x)
            columns.append(((block(x + moved) - block(x - moved)) / (2 * step)).flatten())
    jacobian = torch.stack(columns, 1).numpy()
    known = np.sort(np.abs(np.linalg.eigvals(jacobian)))[::-1]
    np.testing.assert_allclose(first.sizes, known, atol=1e-5)
    assert first.norm == pytest.approx(np.linalg.norm(jacobian, 2), rel=1e-6)


def test_the_largest_eigenvalue_is_never_above_the_norm(outcome: Any) -> None:
    rows = table(outcome[0], "Stability")
    assert len(rows) == 4
    for row in rows.values():
        assert row["largest |1 + λ|"] <= row["|J|₂"]


def test_the_picture_has_the_errors_and_the_eigenvalues_with_their_limit(outcome: Any) -> None:
    found, told = outcome
    assert found.panels == [ERROR, SPECTRUM]
    lines = {line.name: line for line in found.lines}
    assert {EULER, NORMED, WHOLE, LIMIT} < set(lines)
    assert lines[LIMIT].values == (1.0,) * 32
    assert lines[LIMIT].faint
    assert found.places[ERROR].at == DEPTHS
    assert len(found.places[SPECTRUM].at) == 32
    for line in found.lines:
        if line.panel == SPECTRUM:
            assert list(line.values) == sorted(line.values, reverse=True)
    assert [step[1] for step in told] == list(range(4))


def test_a_design_of_ones_own_stands_beside_pre_norm() -> None:
    setting = OdeViewOptions(width=8, tokens=4, seeds=1, connection="deepnorm", placement="post",
                      init="deepnorm")  # fmt: skip
    found = ode_view(setting)
    names = list(table(found, "Stability"))
    assert names[:2] == ["identity, pre, xavier, block 1", "identity, pre, xavier, block 12"]
    assert names[2:] == [f"deepnorm, post, deepnorm, block {layer}" for layer in (1, 12)]


def test_it_is_an_experiment_and_leaves_the_generator_as_it_was() -> None:
    assert EXPERIMENTS.get("ode-view").function() is ode_view
    before = torch.random.get_rng_state()
    _network(SMALL, 3, {"depth": 1})
    ode_view(OdeViewOptions(width=4, tokens=2, seeds=1))
    assert torch.equal(before, torch.random.get_rng_state())


@pytest.mark.parametrize(
    ("fields", "word"),
    [
        ({"width": 2}, "width is 2"),
        ({"tokens": 0}, "tokens is 0"),
        ({"seeds": 0}, "seeds is 0"),
        ({"width": 512, "tokens": 5}, "2048"),
        ({"time": 0.0}, "time is 0"),
        ({"time": math.inf}, "time is inf"),
    ],
)
def test_what_cannot_be_followed_is_refused(fields: dict[str, Any], word: str) -> None:
    with pytest.raises(InputError, match=word):
        OdeViewOptions(**fields).check()


def test_the_plane_shows_the_eigenvalues_of_the_branch_beside_the_disc_of_euler() -> None:
    """1 + lambda on the unit circle about 0 is lambda on the unit circle about -1."""
    found = _plane([Spectrum("one", np.array([1.5 + 0.5j, 0.25 + 0j]), 2.0)])
    assert found.points == {"one": ((0.5, 0.5), (-0.75, 0.0))}
    assert (found.centre, found.radius) == ((-1.0, 0.0), 1.0)
    inside = [abs(complex(x, y) - complex(*found.centre)) <= 1 for x, y in found.points["one"]]
    assert inside == [False, True]
