"""Equal blocks are folded, and nothing is lost in folding."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from leadline.reading.show.blocks import Fold, fold_blocks, read_blocks


def anatomy(roles_by_layer: list[str], **more: Any) -> dict[str, Any]:
    """A stack of blocks with one sublayer each, of the given roles."""
    return {
        "layers": [
            {
                "stack": "decoder",
                "layer": layer,
                "module": f"layers.{layer - 1}",
                "placement": "pre",
                "sublayers": [{"role": role, "module": f"layers.{layer - 1}.mixer", **more}],
            }
            for layer, role in enumerate(roles_by_layer, start=1)
        ]
    }


def shape(folds: list[Fold]) -> list[tuple[int, int]]:
    """How often each fold comes and how many blocks its pattern has."""
    return [(len(fold.turns), len(fold.turns[0])) for fold in folds]


def test_equal_blocks_are_one_fold() -> None:
    assert shape(fold_blocks(read_blocks(anatomy(["mlp"] * 12)))) == [(12, 1)]


def test_blocks_in_turn_are_one_fold_of_their_pattern() -> None:
    roles = ["mixer", "mixer", "attention"] * 4
    assert shape(fold_blocks(read_blocks(anatomy(roles)))) == [(4, 3)]


def test_a_different_beginning_and_end_stand_apart() -> None:
    roles = ["attention"] * 3 + ["mixer", "attention"] * 5 + ["mlp"]
    assert shape(fold_blocks(read_blocks(anatomy(roles)))) == [(3, 1), (5, 2), (1, 1)]


def test_gains_do_not_keep_blocks_apart_but_laws_do() -> None:
    found = anatomy(["mlp", "mlp"])
    found["layers"][0]["sublayers"][0]["gain"] = 0.5
    assert shape(fold_blocks(read_blocks(found))) == [(2, 1)]
    found["layers"][0]["sublayers"][0]["law"] = "r x + u"
    assert shape(fold_blocks(read_blocks(found))) == [(1, 1), (1, 1)]


@given(st.lists(st.sampled_from(["attention", "mlp", "mixer"]), max_size=40))
def test_unfolding_gives_back_every_block_in_order(roles: list[str]) -> None:
    blocks = read_blocks(anatomy(roles))
    folds = fold_blocks(blocks)
    assert [block for fold in folds for turn in fold.turns for block in turn] == blocks
    for fold in folds:
        assert len({tuple(block.shape for block in turn) for turn in fold.turns}) == 1


def test_no_blocks_give_no_folds() -> None:
    assert fold_blocks(read_blocks({})) == []
    assert read_blocks({"layers": None}) == []


def test_a_parallel_block_marks_all_writes_but_the_first() -> None:
    block = {"layer": 1, "parallel": True, "sublayers": [{"role": "attention"}, {"role": "mlp"}]}
    (found,) = read_blocks({"layers": [block]})
    assert [write.parallel for write in found.writes] == [False, True]
    assert found.parallel


def test_the_placement_of_a_write_goes_before_that_of_its_block() -> None:
    block = {
        "layer": 1,
        "placement": "pre/post",
        "sublayers": [{"placement": "pre"}, {"placement": "post"}, {}],
    }
    (found,) = read_blocks({"layers": [block]})
    assert [write.placement for write in found.writes] == ["pre", "post", "pre/post"]


def test_a_learned_gain_is_kept_as_its_path() -> None:
    (block,) = read_blocks(anatomy(["mlp"], gain="layers.0.scale.gamma", keep=2))
    assert block.writes[0].gain == "layers.0.scale.gamma"
    assert block.writes[0].keep == 2.0
