"""The long note's experiment on rank collapse: its numbers, and what stands behind them."""

from __future__ import annotations

import csv
import io
import json
import math
import xml.etree.ElementTree as ET

import numpy as np
import pytest
import torch
from rich.console import Console

import leadline as ll
from leadline.cli.main import run
from leadline.experiments.outcome.outcome import Outcome
from leadline.experiments.outcome.picture import outcome_screen
from leadline.experiments.rank_collapse import RankCollapseOptions
from leadline.experiments.rank_collapse.experiment import (
    DRAWN,
    RELATIVE,
    TRUE,
    VARIANTS,
    Variant,
    _rates,
    _with_skip,
    _without_skip,
    rank_collapse,
)
from leadline.experiments.rank_collapse.note_block import note_blocks
from leadline.experiments.rank_collapse.switched_off import SWITCHES, switched_off
from leadline.instruments.collapse.split.split import Rounding, split_tokens
from leadline.models.loading import LoadedModel
from leadline.reading.show.line_chart import line_chart
from leadline.reading.show.panels import Line

SMALL = RankCollapseOptions(depth=4, width=16, samples=3, tokens=5)


@pytest.fixture(scope="module")
def small():
    return rank_collapse(SMALL)


def line(outcome, panel: str, name: str) -> Line:
    return next(one for one in outcome.lines if (one.panel, one.name) == (panel, name))


def test_the_note_has_ten_tokens_of_width_128_in_12_layers_of_one_head_and_32_samples():
    note = RankCollapseOptions()
    assert (note.tokens, note.width, note.depth, note.heads, note.samples) == (10, 128, 12, 1, 32)
    assert (note.norm, note.causal, note.seed) == ("layernorm", False, 0)
    assert list(VARIANTS) == ["SAN only", "skip only", "MLP only", "skip + MLP"]
    assert list(VARIANTS.values()) == [(False, False), (True, False), (False, True), (True, True)]


@pytest.mark.slow
def test_the_notes_figure_comes_out_and_the_truth_beyond_its_floor():
    outcome = rank_collapse()
    drawn = {name: line(outcome, DRAWN, name).values for name in VARIANTS}
    for values in drawn.values():
        assert values[0] == pytest.approx(math.sqrt(9 * 128), rel=0.005)
    assert drawn["SAN only"][1:4] == pytest.approx([2.15, 0.27, 1.1e-4], rel=0.03)
    assert drawn["MLP only"][1:4] == pytest.approx([3.27, 0.14, 8.3e-5], rel=0.03)
    assert drawn["skip only"][-1] == pytest.approx(34.5, rel=0.005)
    assert drawn["skip + MLP"][-1] == pytest.approx(34.5, rel=0.005)
    assert all(1e-6 < value < 3e-6 for value in drawn["SAN only"][4:])
    true = line(outcome, TRUE, "SAN only").values
    assert true[3] == pytest.approx(math.log10(drawn["SAN only"][3]), abs=0.01)
    assert true[4] < -13 and true[5] < -40 and true[12] < -80000
    assert true[-1] / true[-2] == pytest.approx(3.0, abs=1e-3)
    relative = line(outcome, RELATIVE, "skip only").values
    assert 10 ** relative[0] == pytest.approx(0.95, abs=0.005)
    assert 10 ** relative[-1] == pytest.approx(0.80, abs=0.005)
    assert 10 ** line(outcome, RELATIVE, "skip + MLP").values[-1] == pytest.approx(0.74, abs=0.005)
    assert "from layer 4 on float32 shows rounding" in " ".join(outcome.remarks)


def test_weights_are_drawn_as_the_notes_script_draws_them():
    """The same modules, one after the other, from torch's seed."""
    torch.manual_seed(0)
    attention = torch.nn.MultiheadAttention(8, 1, bias=False, batch_first=True)
    up, down = torch.nn.Linear(8, 8), torch.nn.Linear(8, 8)
    torch.manual_seed(0)
    block = note_blocks(1, 8, 1, mlp=True, skip=False, norm="layernorm", causal=False)[0]
    assert torch.equal(block.attention.in_proj_weight, attention.in_proj_weight)
    assert torch.equal(block.attention.out_proj.weight, attention.out_proj.weight)
    assert torch.equal(block.up.weight, up.weight) and torch.equal(block.down.bias, down.bias)


@pytest.mark.parametrize("norm", ["layernorm", "rmsnorm", "none"])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("mlp", [False, True])
def test_a_block_does_the_same_on_tensors_and_on_split_tokens(norm, causal, mlp):
    torch.manual_seed(0)
    block = note_blocks(1, 8, 2, mlp=mlp, skip=True, norm=norm, causal=causal)[0].double()
    x = torch.randn(5, 8).double()
    with torch.no_grad():
        plain = block(x.unsqueeze(0))[0]
        split = block(split_tokens(x, first=causal, rounding=Rounding()))
    whole = split.base.at(0)[0] + split.rest.at(0)[0]
    assert whole == pytest.approx(plain, abs=1e-13)


def test_one_skip_spans_attention_and_mlp():
    torch.manual_seed(0)
    block = note_blocks(1, 8, 1, mlp=True, skip=True, norm="layernorm", causal=False)[0].double()
    x = torch.randn(1, 5, 8).double()
    y = block.attention(block.norm(x), block.norm(x), block.norm(x))[0]
    u = block.down(torch.relu(block.up(block.mlp_norm(y))))
    assert block(x).detach().numpy() == pytest.approx((x + u).detach().numpy())


def test_the_curves_are_means_over_the_samples(small):
    torch.manual_seed(0)
    blocks = note_blocks(4, 16, 1, mlp=False, skip=False, norm="layernorm", causal=False)
    x = torch.randn(3, 5, 16)
    with torch.no_grad():
        y = blocks[0](x)
    sizes = (y - y.mean(1, keepdim=True)).flatten(1).norm(dim=1)
    assert line(small, DRAWN, "SAN only").values[1] == pytest.approx(float(sizes.mean()), rel=1e-5)
    assert line(small, TRUE, "SAN only").values[1] == pytest.approx(
        math.log10(float(sizes.double().mean())), abs=1e-5
    )


def test_float32_is_drawn_only_where_it_differs(small):
    names = {one.name for one in small.lines}
    assert "SAN only, in float32" in names
    assert "skip only, in float32" not in names
    assert all(one.faint for one in small.lines if one.name.endswith("float32"))


def test_the_global_random_numbers_are_left_as_they_were():
    torch.manual_seed(5)
    before = torch.random.get_rng_state()
    rank_collapse(RankCollapseOptions(depth=1, width=4, samples=1, tokens=3))
    assert torch.equal(before, torch.random.get_rng_state())


def test_a_causal_mask_makes_the_collapse_exponential():
    outcome = rank_collapse(
        RankCollapseOptions(depth=8, width=16, samples=2, tokens=5, causal=True, norm="none")
    )
    remark = next(text for text in outcome.remarks if "causal" in text)
    assert "only exponential" in remark
    assert line(outcome, TRUE, "SAN only").values[-1] > -20


def test_few_layers_are_not_called_exponential():
    outcome = rank_collapse(
        RankCollapseOptions(depth=3, width=16, samples=2, tokens=5, causal=True)
    )
    true = line(outcome, TRUE, "SAN only").values
    told = f"the last layer changes the residual by a factor of {10 ** (true[3] - true[2]):.3f}."
    assert f"With a causal mask {told}" in outcome.remarks


def variant(name="v", *, true, relative=None, median=0.0):
    curve, over = np.array(true, float), np.array(true if relative is None else relative, float)
    return Variant(name, curve, over, curve, over, median, 0.0)


def test_the_growth_of_a_logarithm_is_told_only_where_the_residual_is_small():
    told = list(_rates(variant(true=(1.0, -1.5, -4.5)), RankCollapseOptions()))
    assert told == [
        "The logarithm of the residual grows 3.0000 times in the last layer (cubic: 3)."
    ]
    assert list(_rates(variant(true=(1.0, -0.99, -9.0)), RankCollapseOptions())) == []
    assert list(_rates(variant(true=(1.0, -9.0)), RankCollapseOptions())) == []


def test_an_exponential_fall_has_four_steady_factors():
    causal = RankCollapseOptions(causal=True)

    def exponential(*logs: float) -> bool:
        return "exponential" in " ".join(_rates(variant(true=logs), causal))

    assert exponential(0.0, -0.3, -0.6, -0.9, -1.2)
    assert exponential(0.0, -0.3, -0.6, -0.9, -1.49)  # 10^0.29 < 2
    assert not exponential(0.0, -0.3, -0.6, -0.9, -1.51)
    assert not exponential(0.0, -0.3, -0.6, -0.9)
    assert not exponential(0.0, 0.01, 0.02, 0.03, 0.04)


def test_a_collapse_is_one_only_where_both_relative_residuals_show_it():
    small = variant(true=(0.0, -5.0), relative=(0.0, -3.1), median=-6.0)
    large = variant(true=(0.0, 0.2), relative=(0.0, -2.9))
    assert _without_skip(small, small) == (
        "Without a skip the MLP does not stop the collapse: after the last layer the residual, as "
        "the mean over the samples, is 1e-05 with the MLP and 1e-05 without it, in the median "
        "sample 1e-06 and 1e-06. Its Lipschitz constant enters an upper bound only."
    )
    for pair in ((small, large), (large, small), (large, large)):
        told = _without_skip(*pair)
        assert told.startswith("Without a skip: after the last layer the residual")
        assert "collapse" not in told
    assert "is 1.6 with the MLP and 1e-05 without it" in _without_skip(small, large)


def test_what_is_kept_is_told_only_where_it_is():
    kept = variant(true=(1.0, 0.96), relative=(0.0, -0.05))
    assert _with_skip(kept, kept).endswith("to 0.891: what is kept is the absolute one.")
    for other in (
        variant(true=(1.0, 0.95), relative=(0.0, -0.05)),
        variant(true=(1.0, 1.0), relative=(0.0, -0.04)),
    ):
        assert "what is kept" not in _with_skip(kept, other)
    assert "from 10 to 9.12, with skip and MLP from 10 to 8.913;" in _with_skip(
        kept, variant(true=(1.0, 0.95))
    )


def test_one_layer_is_told_without_a_verdict():
    remarks = " ".join(
        rank_collapse(RankCollapseOptions(depth=1, width=8, samples=2, tokens=4)).remarks
    )
    assert "collapse" not in remarks and "cubic" not in remarks


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"tokens": 1}, "tokens is 1; give a whole number from 2 on"),
        ({"depth": 0}, "depth is 0; give a whole number from 1 on"),
        ({"heads": 3}, "cannot be divided among 3 heads"),
        ({"norm": "batch"}, "norm is 'batch'; choose layernorm, rmsnorm, none"),
    ],
)
def test_networks_that_cannot_be_built_are_refused(wrong, sentence):
    with pytest.raises(ll.InputError, match=sentence):
        rank_collapse(RankCollapseOptions(**{"width": 16, **wrong}))


# --- models with parts switched off ------------------------------------------------------------


def tiny(causal: bool = False) -> LoadedModel:
    model = ll.Transformer(
        depth=3, width=16, heads=2, vocabulary=40, mlp="gelu", init="xavier",
        attention=f"multihead(causal={str(causal).lower()})",
    )  # fmt: skip
    return LoadedModel(model=model, name="tiny", source="given")


def test_each_switch_takes_away_what_it_says():
    assert list(SWITCHES) == ["as trained", "MLP off", "skip off", "skip and MLP off"]
    outcome = switched_off({"tiny": tiny}, tokens=6)
    exact = [one for one in outcome.lines if not one.faint]
    assert [one.name for one in exact] == list(SWITCHES)
    assert all(len(one.values) == 4 for one in outcome.lines)
    model = tiny().model
    ids = torch.tensor([[int(t) for t in row] for row in _random_rows()])
    for one in exact:
        other = model.with_(**SWITCHES[one.name])
        found = ll.collapse(other, ids).collapse
        assert one.values == pytest.approx(found.log10_relative, rel=1e-12)


def _random_rows():
    from leadline.experiments.materials.sentences import random_rows

    return random_rows([6], vocabulary=40, seed=0)


def test_a_model_without_skip_collapses_and_with_it_does_not():
    outcome = switched_off({"tiny": tiny}, tokens=6)
    last = {one.name: one.values[-1] for one in outcome.lines if not one.faint}
    assert last["skip off"] < -5 < -1 < last["as trained"]
    assert "no mask" in outcome.remarks[0]


def test_a_model_that_cannot_be_followed_is_told_of_and_the_others_go_on():
    def broken() -> LoadedModel:
        raise ll.LoadingError("There is no such model.")

    outcome = switched_off({"broken": broken, "tiny": tiny}, tokens=4)
    assert outcome.failures == {"broken": "There is no such model."}
    assert outcome.panels == ["tiny"]
    with pytest.raises(ll.LoadingError, match="no such model"):
        switched_off({"broken": broken}, tokens=4)


# --- the command -----------------------------------------------------------------------------------


def leave(arguments: list[str]) -> int:
    with pytest.raises(SystemExit) as left:
        run(arguments)
    return int(left.value.code or 0)


def test_the_command_writes_picture_and_table(tmp_path, capsys):
    small = ["--depth", "3", "--width", "8", "--samples", "2", "--tokens", "4"]
    assert leave(["reproduce", "rank-collapse", *small, "-o", str(tmp_path), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["experiment"] == "rank-collapse" and told["first_layer"] == 0
    assert len(told["lines"][0]["values"]) == 4
    with (tmp_path / "table.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert {row["layer"] for row in rows} == {"0", "1", "2", "3"}
    picture = ET.parse(tmp_path / "picture.svg").getroot()
    words = " ".join(picture.itertext())
    assert "float32 shows rounding" in words or "not the pure self-attention network" in words


def test_network_options_and_models_exclude_each_other(capsys):
    assert leave(["reproduce", "rank-collapse", "recipe:gpt2", "--depth", "3"]) == 2
    assert "--depth describe the random networks" in capsys.readouterr().err


def test_the_command_follows_models_of_recipes(capsys, tmp_path):
    recipe = {"depth": 2, "width": 16, "heads": 2, "vocabulary": 30, "context": 16}
    file = tmp_path / "small.json"
    file.write_text(json.dumps(recipe))
    assert leave(["reproduce", "rank-collapse", f"recipe:{file}", "--tokens", "4"]) == 0
    shown = capsys.readouterr().out
    assert "skip and MLP off" in shown and "causal" in shown


@pytest.mark.parametrize("width", [60, 80, 120])
def test_every_line_has_its_name_at_any_width(width):
    lines = tuple(
        Line("panel", name, tuple(-1.23456e-7 * k for k in range(1, 32)))
        for name in ("skip and MLP off", "skip and MLP off, in float32")
    )
    outcome = Outcome(
        experiment="e", title="t", value_label="v", lines=lines, remarks=(), records={}, start=0
    )
    console = Console(width=width, record=True, file=io.StringIO())
    outcome_screen(outcome).show(console)
    shown = " ".join(console.export_text().split())
    assert "skip and MLP" in shown and "float32" in shown and "layer 0" in shown
    assert "30" in shown and "…" not in shown


# --- the picture -------------------------------------------------------------------------------


def test_an_axis_of_exponents_is_linear_near_zero_and_logarithmic_beyond():
    values = (1.0, -1.0, -10.0, -100.0, -1000.0, -10000.0)
    picture = line_chart(
        [Line("p", "a", values)], title="t", value_label="v", start=0, scales={"p": "exponent"}
    )
    root = ET.fromstring(picture)
    tag = "{http://www.w3.org/2000/svg}"
    heights = [float(c.get("cy")) for c in root.iter(f"{tag}circle")]
    steps = np.diff(heights)
    assert steps[2:] == pytest.approx(steps[-1], rel=0.02)  # equal steps per power of ten
    expected = np.diff([-math.asinh(v / 2) for v in values])
    assert steps / steps[-1] == pytest.approx(expected / expected[-1], rel=0.01)
    texts = [t.text for t in root.iter(f"{tag}text")]
    assert "−1,000" in texts and "0" in texts


def test_a_covered_line_is_drawn_wider():
    same = (1.0, 2.0, 3.0)
    lines = [
        Line("p", "below", same),
        Line("p", "above", same),
        Line("p", "apart", (3.0, 2.0, 9.0)),
    ]
    root = ET.fromstring(line_chart(lines, title="t", value_label="v"))
    paths = root.iter("{http://www.w3.org/2000/svg}path")
    widths = [p.get("stroke-width") for p in paths if "H" not in p.attrib["d"]]  # not the grid
    assert widths == ["6", "2", "2"]
