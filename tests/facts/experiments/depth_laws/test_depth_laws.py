"""Every law of depth beside its measurement: by hand, by dense Jacobians, by brute force."""

from __future__ import annotations

import itertools
import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from leadline.anatomy.stretch.stretch import Stretches
from leadline.cli.main import run
from leadline.errors import InputError, ProbeError
from leadline.experiments import EXPERIMENTS
from leadline.experiments.depth_laws import DepthLawsOptions
from leadline.experiments.depth_laws import cases as _law_cases
from leadline.experiments.depth_laws import experiment as depth_laws
from leadline.experiments.depth_laws.cases import (
    CASES,
    LawCase,
    Seen,
    bands_of,
    checked,
    law_of,
    look,
)
from leadline.experiments.depth_laws.experiment import _told_along, _told_power
from leadline.experiments.depth_laws.verdicts import Beside, Power, _beside, _powers, allowed
from leadline.experiments.gradient_flow.starts import batch_of
from leadline.experiments.outcome.exponent import Exponent, fit_exponent
from leadline.instruments.passes.measurement import anatomy_of
from leadline.theory.depth import LAWS

SMALL = DepthLawsOptions(depths=(4, 2), seeds=2, product_to=4, width=16, length=8, examples=2)
NAMED = {case.name: case for case in CASES}


def seen(case: LawCase, depth: int = 2, *, width: int = 16, seed: int = 0) -> Seen:
    return look(case, depth, width=width, length=8, examples=2, seed=seed, facts=True)


def model_and_batch(case: LawCase, depth: int = 2, *, width: int = 16) -> tuple[Any, Any]:
    model = _law_cases.model_of(case, depth, width=width, length=8, seed=0)
    return model, batch_of(8, examples=2, seed=0)


@pytest.fixture(scope="module")
def outcome() -> tuple[Any, list[Any]]:
    told: list[Any] = []
    found = depth_laws.depth_laws(replace(SMALL, seed=3), progress=lambda *what: told.append(what))
    return found, told


def table(found: Any, title: str) -> list[dict[str, Any]]:
    (one,) = [one for one in found.tables if one.title.startswith(title)]
    return one.to_json()["rows"]


def line(found: Any, panel: str, name: str) -> np.ndarray:
    (one,) = [one for one in found.lines if one.panel.startswith(panel) and one.name == name]
    return np.array(one.values)


# --- the designs ---------------------------------------------------------------------------------


def test_the_experiment_is_known_by_its_name() -> None:
    assert EXPERIMENTS.get("depth-laws").function() is depth_laws.depth_laws


def test_every_law_has_a_design_and_none_has_a_law_that_is_not_there() -> None:
    assert {case.law for case in CASES} == set(LAWS)
    assert len(NAMED) == len(CASES)


@pytest.mark.parametrize("depth", [1, 3])
@pytest.mark.parametrize("name", NAMED)
def test_every_design_meets_every_assumption_of_its_law(name: str, depth: int) -> None:
    one = seen(NAMED[name], depth)
    assert one.facts is not None
    assert all(condition.holds for condition in law_of(one.case).conditions(one.facts))
    assert checked(one.case, one.facts) is one.facts
    assert (one.facts.depth, one.facts.width, one.facts.hidden_ratio) == (depth, 16, 1.0)


@pytest.mark.parametrize(
    ("name", "change", "asked"),
    [
        ("pre", {"placement": "post"}, "the placement is post"),
        ("pre", {"initial": None}, "the weights are as they were drawn: that is not known"),
        ("no norm, writes / √(2L)", {"gain": 1.0}, "adds 1 of the update"),
        ("deepnorm", {"keep": 1.0}, "a write keeps 1 times the stream"),
        ("no norm", {"mean_square": ()}, "has no prediction at 2 layers"),
        ("pre", {"norm_eps": 1.0}, "eps is small"),
        ("pre, product", {"branch_norms": ()}, "of every block was measured"),
    ],
)
def test_a_design_that_does_not_meet_its_law_is_an_error(
    name: str, change: dict[str, Any], asked: str
) -> None:
    facts = seen(NAMED[name]).facts
    assert facts is not None
    with pytest.raises(ProbeError, match="Change the design") as refused:
        checked(NAMED[name], replace(facts, **change))
    assert asked in str(refused.value)


def test_writes_are_divided_by_sqrt_of_two_depths_or_by_two_depths() -> None:
    for name, wanted in (
        ("no norm, writes / √(2L)", 6**-0.5),
        ("pre, writes / 2L, product", 1 / 6),
    ):
        facts = seen(NAMED[name], 3).facts
        assert facts is not None
        assert facts.gain == pytest.approx(wanted, rel=1e-12)


# --- what is measured ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["pre", "norms / √l", "no norm"])
def test_the_mean_square_is_that_of_the_stream_at_every_site(name: str) -> None:
    model, batch = model_and_batch(NAMED[name])
    (stack,) = anatomy_of(model, batch.ids).stacks
    stretches = Stretches(model, stack, lambda: model(batch.ids))
    wanted = [float(stretches.function(site, 2)[1].square().mean()) for site in (0, 1)]
    last, x = stretches.function(0, 2)
    wanted.append(float(last(x).detach().square().mean()))
    assert seen(NAMED[name]).values == pytest.approx(wanted, rel=1e-10)


def test_all_tokens_enter_with_mean_square_one() -> None:
    model, batch = model_and_batch(NAMED["gpt2 init"])
    tokens = model.embedding.tokens(batch.ids).square().mean(-1)
    assert torch.allclose(tokens, torch.ones_like(tokens), rtol=1e-12)
    assert seen(NAMED["gpt2 init"]).values[0] == pytest.approx(1.0, rel=1e-12)


def test_the_gradient_is_that_of_the_last_output_matrix() -> None:
    case = NAMED["post, last gradient"]
    model, batch = model_and_batch(case)
    model.loss(batch.ids, batch.targets).backward()
    matrix = dict(list(model.sublayers())[-1].branch.weights())["down"]
    assert seen(case).values == pytest.approx([float(matrix.grad.norm())], rel=1e-8)


def test_the_ratio_is_that_of_all_mlps_and_of_no_attention() -> None:
    model, batch = model_and_batch(NAMED["deepnorm"])
    written = before = 0.0
    kept: list[torch.Tensor] = []
    hooks = [
        one.register_forward_pre_hook(lambda _, given: kept.append(given[0]))
        for one in model.sublayers()
    ]
    with torch.no_grad():
        model(batch.ids)
        for hook in hooks:
            hook.remove()
        for sublayer, x in list(zip(model.sublayers(), kept, strict=True))[1::2]:
            roles = dict(sublayer.branch.weights())
            written += float((torch.relu(x @ roles["up"].T) @ roles["down"].T).square().mean())
            before += float(x.square().mean())
    assert seen(NAMED["deepnorm"]).values == pytest.approx([math.sqrt(written / before)], rel=1e-9)


def test_products_and_their_band_are_those_of_dense_jacobians() -> None:
    case = NAMED["pre, writes / 2L, product"]
    model, batch = model_and_batch(case)
    ids = batch.ids[:1]
    (stack,) = anatomy_of(model, ids).stacks
    stretches = Stretches(model, stack, lambda: model(ids))
    dense = []
    for start in (0, 1):
        block, x = stretches.function(start, start + 1)
        size = x.numel()
        found = torch.autograd.functional.jacobian(block, x.detach()).reshape(size, size)
        dense.append(found.numpy())
    one = seen(case)
    norms = [np.linalg.norm(j, 2) for j in (dense[0], dense[1] @ dense[0])]
    assert one.values == pytest.approx([0.0, *np.log10(norms)], abs=1e-5)
    assert one.facts is not None
    branch = np.array([np.linalg.norm(j - np.eye(len(j)), 2) for j in dense])
    low, high = np.array(bands_of(case, one.facts))[1:].T
    assert high == pytest.approx(np.log10(np.cumprod(1 + branch)), abs=1e-4)
    assert low == pytest.approx(np.log10(np.cumprod(1 - branch)), abs=1e-3)


def test_a_stream_that_leaves_float64_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(_law_cases._MEASURES, "stream.variance", lambda *_: (1.0, math.inf))
    with pytest.raises(InputError, match=r"leaves float64 at 2 layers .*smaller depths"):
        seen(NAMED["no norm"])


# --- where a law holds ---------------------------------------------------------------------------


def drawn(lines: list[tuple[float, ...]]) -> list[Seen]:
    case = NAMED["pre"]
    facts = seen(case).facts
    return [Seen(case, 2, number, line, facts) for number, line in enumerate(lines)]


def test_a_site_may_leave_the_band_by_two_standard_errors_and_no_more() -> None:
    """The band at two layers is 1, 1.5 to 2.5, 2 to 4; means over two seeds have error |a - b|/2."""
    for far, near in ((0.199, 2), (0.201, 1)):
        mean = 4.0 + far
        one = _beside(NAMED["pre"], 2, drawn([(1.0, 2.0, mean - 0.1), (1.0, 2.0, mean + 0.1)]))
        assert one.bands == ((1.0, 1.0), (1.5, 2.5), (2.0, 4.0))
        assert one.errors[-1] == pytest.approx(0.1)
        assert (one.sites, one.inside, one.near, one.holds) == (2, 1, near, near == 2)
    low = _beside(NAMED["pre"], 2, drawn([(1.0, 1.0, 3.0), (1.0, 1.0, 3.0)]))
    assert (low.inside, low.near, low.holds) == (1, 1, False)
    said = _told_along(NAMED["pre"], [one, low], 2)
    assert said.startswith("xiong-stream (pre) holds at 0 of 2 depths (not at 2, 2 layers): ")
    assert "at 2 of 4 sites, with a slack of 2 standard errors; at 2 without" in said


def test_the_exponents_that_a_band_allows_are_those_of_its_corners() -> None:
    depths, bands = (3, 5, 9, 20), [(1.0, 2.0), (2.0, 2.5), (1.5, 7.0), (4.0, 5.0)]
    slopes = [fit_exponent(depths, {0: list(line)}).slope for line in itertools.product(*bands)]
    assert allowed(depths, bands) == pytest.approx((min(slopes), max(slopes)), rel=1e-12)


def test_an_exponent_over_depth_may_be_off_by_a_tenth() -> None:
    case = NAMED["pre, last gradient"]
    for slope, holds in ((-0.401, True), (-0.399, False), (-0.599, True), (-0.601, False)):
        power = Power(case, "g", Exponent(slope, 5.0, 3, 1.0), -0.5, -0.5, (-0.5, -0.5))
        assert power.holds is holds
        found = depth_laws.LawVerdicts({}, (), (power,))
        said = _told_power(power, found)
        assert ("NOT within 0.1 of the law's L^-0.5" in said) is not holds


def test_an_exponent_along_layers_may_leave_its_room_by_two_standard_errors() -> None:
    for slope, holds in ((1.19, True), (1.21, False), (0.31, True), (0.29, False)):
        fit = Exponent(slope, 0.1, 3, 1.0)
        power = Power(NAMED["pre"], "m", fit, 0.5, 1.0, (0.8, 0.9))
        assert power.holds is holds
        said = _told_power(power, depth_laws.LawVerdicts({}, (), (power,)))
        assert "go as L^0.80 and L^0.90" in said
        assert ("OUTSIDE of 0.50 to 1.00" in said) is not holds


def test_exponents_of_known_numbers_are_found() -> None:
    """m_L - m_0 = 0.9 L, log(m_L / m_0) = 0.7 L, gradients L^-0.4, all at two seeds."""
    numbers = {
        "pre": lambda depth: (1.0, 1.0 + 0.9 * depth),
        "no norm": lambda depth: (2.0, 2.0 * math.exp(0.7 * depth)),
        "pre, last gradient": lambda depth: (depth**-0.4,),
    }
    several: dict[str, list[Seen]] = {}
    besides: list[Beside] = []
    for case in CASES:
        known = numbers.get(case.name, numbers["pre"])
        known = numbers["pre, last gradient"] if law_of(case).along == "depth" else known
        ones = [
            replace(seen(case, depth), seed=seed, values=known(depth))
            for depth in (1, 3)
            for seed in (0, 1)
        ]
        several[case.title] = ones
        if law_of(case).along == "layers" and not law_of(case).strict:
            for one in ones[::2]:
                assert one.facts is not None
                bands = bands_of(case, replace(one.facts, mean_square=one.values[:1]))
                besides.append(Beside(case, one.depth, one.values, (0.0, 0.0), bands, 1, 1, 1))
    powers = {power.case.name: power for power in _powers(several, besides)}
    assert powers["pre"].fit.slope == pytest.approx(1.0)
    assert powers["pre"].ends == pytest.approx((1.0, 1.0))
    assert powers["gpt2 init"].ends == (0.0, 0.0)
    assert powers["no norm"].fit.slope == pytest.approx(1.0)
    assert powers["no norm"].ends == pytest.approx((1.0, 1.0))
    assert powers["pre, last gradient"].fit.slope == pytest.approx(-0.4)
    assert powers["pre, last gradient"].least == powers["pre, last gradient"].most == -0.5
    assert powers["post, last gradient"].least == powers["post, last gradient"].most == 0.0
    assert powers["deepnorm"].least == -0.5
    harmonic = math.log(1 + 1 / 2 + 1 / 3) / math.log(3)
    assert powers["norms / √l"].ends == pytest.approx((harmonic, harmonic))
    assert not {"pre, product", "pre, writes / 2L, product"} & set(powers)


# --- what comes out ------------------------------------------------------------------------------


def test_bands_are_those_of_the_papers(outcome: Any) -> None:
    """An MLP as wide as the stream: c = 1/2 and a = 1; four layers."""
    sites = np.arange(5)
    harmonic = np.array([sum(1 / k for k in range(1, site + 1)) for site in sites])
    wanted = {
        "xiong-stream": (1 + sites / 2, 1 + 3 * sites / 2),
        "gpt2-scaling": (1 + sites / 16, 1 + 3 * sites / 16),
        "layernorm-scaling": (1 + harmonic / 2, 1 + 3 * harmonic / 2),
        "noci": ((1 + 1 / 16) ** sites, ((1 + 1 / 8) * (1 + 1 / 16)) ** sites),
        "unnormed-stream": (sites * math.log10(1.5), sites * math.log10(3)),
    }
    for law, (low, high) in wanted.items():
        assert line(outcome[0], law, "law: at least") == pytest.approx(low, rel=1e-9)
        assert line(outcome[0], law, "law: at most") == pytest.approx(high, rel=1e-9)


def test_the_line_is_the_mean_over_seeds_with_its_standard_error(outcome: Any) -> None:
    ones = np.array([seen(NAMED["pre"], 4, seed=seed).values for seed in (3, 4)])
    (found,) = [one for one in outcome[0].lines if one.name == "pre"]
    assert found.values == pytest.approx(ones.mean(0), rel=1e-12)
    assert found.errors == pytest.approx(np.abs(ones[0] - ones[1]) / 2, rel=1e-9, abs=1e-12)
    logs = np.log10([seen(NAMED["no norm"], 4, seed=seed).values for seed in (3, 4)])
    (found,) = [one for one in outcome[0].lines if one.name == "no norm"]
    assert found.values == pytest.approx(logs.mean(0), rel=1e-12, abs=1e-12)
    assert found.errors == pytest.approx(np.abs(logs[0] - logs[1]) / 2, rel=1e-9, abs=1e-12)


def test_deepnorm_is_drawn_with_the_size_that_its_law_gives(outcome: Any) -> None:
    law = line(outcome[0], "deepnorm", "deepnorm: the law's own value")
    assert law == pytest.approx([0.5 * math.log10(0.5 / (8 * depth)) for depth in (2, 4)])
    power = line(outcome[0], "xiong-last-gradient", "pre, last gradient: L^-0.5 (law)")
    assert power[1] - power[0] == pytest.approx(-0.5 * math.log10(2))
    values = line(outcome[0], "xiong-last-gradient", "pre, last gradient")
    assert power.mean() == pytest.approx(values.mean())


def test_there_is_a_panel_a_table_and_a_remark_for_every_law(outcome: Any) -> None:
    found = outcome[0]
    for name in LAWS:
        assert any(panel.startswith(name) for panel in found.panels)
        assert any(remark.startswith(name) for remark in found.remarks)
    rows = table(found, "xiong-stream (pre)")
    assert [row["layers"] for row in rows] == [2.0, 4.0]
    assert [(row["at least"], row["at most"]) for row in rows] == [(2.0, 4.0), (3.0, 7.0)]
    exponents = table(found, "Exponents")
    assert len(exponents) == len(CASES) - 2
    assert [row["least"] for row in exponents[-3:]] == [-0.5, 0.0, -0.5]


def test_a_product_lies_between_its_ends_and_its_left_end_may_say_nothing(outcome: Any) -> None:
    found = outcome[0]
    told = [remark for remark in found.remarks if remark.startswith("residual-product")]
    assert len(told) == 2
    assert all("holds at 2 of 2 depths: 12 of 12 sites of 2 models" in remark for remark in told)
    assert [remark.endswith("it says nothing here.") for remark in told] == [True, False]
    row = table(found, "residual-product (pre, writes")[-1]
    assert row["at least"] < row["measured"] < row["at most"]


def test_a_law_without_a_design_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(depth_laws, "LAWS", [*LAWS, "new-law"])
    found = depth_laws.depth_laws(replace(SMALL, width=8))
    assert found.remarks[-1] == "No design here for: new-law."


def test_progress_counts_layers_to_the_end(outcome: Any) -> None:
    told = outcome[1]
    total = 2 * len(CASES) * (2 + 4)
    assert {what[2] for what in told} == {total}
    assert told[0][1] == 0
    assert told[-1][1] == total - 4


def test_products_are_taken_of_shallow_models_and_few_seeds_alone() -> None:
    product, stream = NAMED["pre, product"], NAMED["pre"]
    assert DepthLawsOptions().depths_of(product) == [6, 12]
    assert DepthLawsOptions().depths_of(stream) == [6, 12, 24, 48, 96]
    assert DepthLawsOptions(depths=(48, 96)).depths_of(product) == [12]
    assert (DepthLawsOptions().seeds_of(product), DepthLawsOptions().seeds_of(stream)) == (3, 8)
    assert (DepthLawsOptions.quick().seeds, DepthLawsOptions.quick().depths_of(product)) == (3, [6])


@pytest.mark.parametrize(
    ("change", "asked"),
    [
        ({"depths": (6,)}, "The depths are 6; an exponent over depth needs two"),
        ({"depths": (0, 6)}, "The depths are 0, 6"),
        ({"seeds": 1}, "seeds is 1; .* at least 2 seeds"),
        ({"width": 10}, "width is 10; the models have 4 heads"),
        ({"length": 1}, "length is 1; give a whole number from 2 on"),
    ],
)
def test_what_cannot_be_measured_is_refused(change: dict[str, Any], asked: str) -> None:
    with pytest.raises(InputError, match=asked):
        depth_laws.depth_laws(replace(SMALL, **change))


@pytest.mark.slow
def test_every_law_holds_on_its_design_at_width_64() -> None:
    found = depth_laws.depth_laws(DepthLawsOptions(depths=(6, 12, 24), seeds=6, product_to=6))
    held = [remark for remark in found.remarks if " holds at " in remark]
    assert len(held) == 7
    assert sum("holds at 3 of 3 depths" in remark for remark in held) == 5
    assert not [remark for remark in found.remarks if "NOT" in remark or "OUTSIDE" in remark]
    rows = {row["name"]: row for row in table(found, "Exponents")}
    (deepnorm,) = (row for name, row in rows.items() if name.startswith("deepnorm"))
    assert deepnorm["fitted"] == pytest.approx(-0.5, abs=0.03)


# --- the command ---------------------------------------------------------------------------------


def leave(arguments: list[str]) -> int:
    with pytest.raises(SystemExit) as left:
        run(arguments)
    return int(left.value.code or 0)


def test_the_command_writes_picture_and_table_and_tells_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["--depths", "1,2", "--seeds", "2", "--quick", "-o", str(tmp_path), "--json"]
    assert leave(["reproduce", "depth-laws", *asked]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["experiment"] == "depth-laws"
    assert len(told["remarks"]) == len(depth_laws.CASES) + 6
    assert "residual-product" in (tmp_path / "picture.svg").read_text(encoding="utf-8")
    assert "xiong-last-gradient" in (tmp_path / "table.csv").read_text(encoding="utf-8")


def test_depths_that_are_no_numbers_and_a_single_seed_are_refused(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert leave(["reproduce", "depth-laws", "--depths", "6,deep"]) == 2
    assert "--depths is '6,deep'" in capsys.readouterr().err
    assert leave(["reproduce", "depth-laws", "--seeds", "1"]) == 2
    assert "seeds is 1" in capsys.readouterr().err
