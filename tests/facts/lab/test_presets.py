"""The sweeps that are ready: which cells they have, and that each can be built."""

import pytest

from leadline.lab.presets import PRESETS
from leadline.lab.presets.depth_limits import DEPTHS, DESIGNS, WARMUP
from leadline.lab.sweep import check_cells


def cells(name, *, quick):
    return PRESETS.get(name)(quick=quick).cells()


@pytest.mark.parametrize("name", PRESETS.names())
@pytest.mark.parametrize("quick", [True, False])
def test_every_cell_can_be_built(name, quick):
    impossible, tasks = check_cells(PRESETS.get(name)(quick=quick))
    assert not impossible
    assert list(tasks) == ["stdlib(length=64)"]


def test_depth_limits_has_ten_designs_at_five_depths_with_and_without_warm_up():
    found = cells("depth-limits", quick=False)
    assert len(found) == 10 * 5 * 2 * 3
    assert {cell.labels["design"] for cell in found} == {
        "plain",
        "no skip",
        "post",
        "pre",
        "gpt2-scaled",
        "deepnorm",
        "rezero",
        "layerscale",
        "weighted",
        "gated",
    }
    assert {cell.labels["depth"] for cell in found} == {6, 12, 24, 48, 96}
    assert {cell.labels["warm-up"] for cell in found} == {"no", "yes"}


def test_half_of_the_steps_warm_up_where_they_do():
    assert WARMUP == 0.5
    for cell in cells("depth-limits", quick=False):
        depth, warm = cell.labels["depth"], cell.labels["warm-up"] == "yes"
        assert cell.fields["steps"] == DEPTHS[depth]
        assert cell.fields["warmup"] == (DEPTHS[depth] // 2 if warm else 0)
        assert cell.fields["plateau"] == (0 if warm else 120)


def test_the_quick_sweep_has_the_places_at_which_the_designs_part():
    found = {
        (cell.labels["design"], cell.labels["depth"], cell.fields["warmup"], cell.fields["steps"])
        for cell in cells("depth-limits", quick=True)
    }
    assert found == {
        ("post", 12, 0, 400),
        ("post", 12, 300, 400),
        ("pre", 12, 0, 200),
        ("pre", 24, 0, 150),
        ("pre", 48, 0, 100),
        ("no skip", 6, 0, 200),
        ("no skip", 12, 0, 200),
    }


@pytest.mark.parametrize(
    ("design", "connection", "placement"),
    [
        ("plain", "none", "none"),
        ("no skip", "none", "pre"),
        ("post", "identity", "post"),
        ("pre", "identity", "pre"),
        ("gpt2-scaled", "identity", "pre"),
        ("deepnorm", "deepnorm", "post"),
        ("rezero", "rezero", "none"),
        ("layerscale", "layerscale", "pre"),
        ("weighted", "weighted", "none"),
        ("gated", "gated", "pre"),
    ],
)
def test_a_design_is_made_of_the_parts_that_its_line_says(design, connection, placement):
    cell = next(
        cell for cell in cells("depth-limits", quick=False) if cell.labels["design"] == design
    )
    recipe = cell.recipe()
    assert recipe.choice("connection").name == connection
    assert recipe.choice("placement").name == placement
    expected = {"gpt2-scaled": "gpt2", "deepnorm": "deepnorm"}.get(design, "xavier")
    assert recipe.choice("init").name == expected
    assert (recipe.width, recipe.heads) == (64, 4)
    assert set(DESIGNS[design]) <= {"connection", "placement", "init"}


def test_all_cells_of_depth_limits_share_the_rest():
    for cell in cells("depth-limits", quick=False) + cells("depth-limits", quick=True):
        training = cell.training()
        assert (training.batch, training.rate, training.clip) == (16, 1e-3, None)
        assert (training.decay, training.schedule, training.examples) == (0.01, "constant", 256)


def test_towers_have_no_attention_and_reach_a_thousand_layers():
    for quick in (True, False):
        found = cells("mlp-towers", quick=quick)
        assert max(cell.labels["depth"] for cell in found) == 1000
        assert {cell.labels["design"] for cell in found} == {
            "plain",
            "residual",
            "weighted",
            "pre",
        }
        for cell in found:
            recipe = cell.recipe()
            assert recipe.branches == ("mlp",)
            assert (recipe.width, recipe.choice("mlp").options["hidden"]) == (32, 32)
