"""A sweep is the product of its axes, united over its grids, once per seed."""

import hashlib
import json

import pytest

from leadline.catalog import Choice
from leadline.errors import LabError
from leadline.lab.grid import Axis, Grid, Setting, Sweep, parse_axes, parse_fields, read_values


def sweep(*axes, **fields):
    return Sweep(name="s", grids=(Grid(parse_axes(axes)),), **fields)


def test_axes_are_read_as_they_are_typed():
    depth, connection, clip, rate = parse_axes(
        ["depth=6,12", "connection=identity,hyper(lanes=4)", "clip=none,1.0", "rate=1e-3,0.01"]
    )
    assert depth == Axis("depth", (Setting(6, {"depth": 6}), Setting(12, {"depth": 12})))
    assert connection.labels == ("identity", "hyper(lanes=4)")
    assert connection.settings[1].changes == {"connection": "hyper(lanes=4)"}
    assert clip.labels == ("none", 1.0)
    assert clip.settings[0].changes == {"clip": None}
    assert rate.labels == (0.001, 0.01)


def test_words_with_spaces_between_them_are_one_value():
    assert read_values("design=pre,no skip, post") == ("design", ("pre", "no skip", "post"))
    assert read_values('design="no skip",a') == ("design", ("no skip", "a"))
    assert read_values("norm=rms(eps=1, bias=true),layer") == (
        "norm",
        (Choice("rms", eps=1, bias=True), "layer"),
    )
    for text in ("depth=6 12", "depth=6,no skip(x=1)", "a=b c=d"):
        with pytest.raises(LabError, match="cannot be read"):
            read_values(text)


def test_a_field_that_is_given_twice_is_refused_unless_it_says_the_same():
    assert parse_fields(["steps=5", "steps=5"]) == {"steps": 5}
    with pytest.raises(LabError, match="steps is given twice: 5 and 6; give it once"):
        parse_fields(["steps=5", "steps=6"])


def test_fields_have_one_value_each():
    assert parse_fields(["steps=400", "layers=true", "task=copy(items=8)"]) == {
        "steps": 400,
        "layers": True,
        "task": Choice("copy", items=8),
    }
    with pytest.raises(LabError, match="gives steps 2 values and one was expected"):
        parse_fields(["steps=1,2"])


def test_cells_are_the_product_and_the_seed_changes_fastest():
    cells = sweep("depth=6,12", "placement=pre,post", seeds=(0, 3)).cells()
    assert [cell.run for cell in cells] == [
        f"depth={depth}, placement={placement}, seed={seed}"
        for depth in (6, 12)
        for placement in ("pre", "post")
        for seed in (0, 3)
    ]
    assert cells[3].labels == {"depth": 6, "placement": "post"}
    assert cells[3].fields == {"depth": 6, "placement": "post"}
    assert cells[3].seed == 3
    assert cells[3].recipe().depth == 6
    assert cells[3].training().steps == 200


def test_an_axis_comes_before_its_grid_and_the_grid_before_the_sweep():
    (cell,) = Sweep(
        name="s",
        grids=(Grid(parse_axes(["steps=30"]), {"steps": 20, "batch": 20}),),
        seeds=(0,),
        fixed={"steps": 10, "batch": 10, "width": 10},
    ).cells()
    assert cell.fields == {"steps": 30, "batch": 20, "width": 10}


def test_grids_are_united_and_labels_stand_in_order_of_appearance():
    design = Axis("design", (Setting("post", {"placement": "post", "warmup": 9}),))
    other = Axis("design", (Setting("pre", {"placement": "pre"}),))
    both = Sweep(
        name="s",
        grids=(
            Grid((design, Axis.of("depth", 12, 6))),
            Grid((other, Axis.of("depth", 6, 48))),
        ),
        seeds=(0,),
    )
    assert both.axes == {"design": ["post", "pre"], "depth": [12, 6, 48]}
    assert [cell.run for cell in both.cells()] == [
        "design=post, depth=12, seed=0",
        "design=post, depth=6, seed=0",
        "design=pre, depth=6, seed=0",
        "design=pre, depth=48, seed=0",
    ]
    assert both.cells()[0].fields == {"placement": "post", "warmup": 9, "depth": 12}


def test_the_digest_is_that_of_the_json_and_knows_no_spelling():
    one = sweep("depth=6", fixed={"connection": "hyper(lanes=4)"})
    text = json.dumps(one.to_json(), sort_keys=True, separators=(",", ":"))
    assert one.digest == hashlib.sha256(text.encode()).hexdigest()
    for spelling in (Choice("hyper", lanes=4), {"name": "hyper", "lanes": 4}, "hyper( lanes = 4 )"):
        assert sweep("depth=6", fixed={"connection": spelling}).digest == one.digest
    assert sweep("depth=6", fixed={"connection": "hyper(lanes=2)"}).digest != one.digest
    assert sweep("depth=6", fixed=one.fixed, seeds=(0, 1)).digest != one.digest


def test_a_sweep_comes_back_from_its_json():
    one = sweep("depth=6,12", "clip=none,1.0", seeds=(4,), fixed={"task": "copy(items=8)"})
    again = Sweep.from_json(json.loads(json.dumps(one.to_json())))
    assert again == one
    assert again.digest == one.digest


def test_three_seeds_are_the_default():
    assert sweep("depth=6").seeds == (0, 1, 2)


@pytest.mark.parametrize(
    ("build", "said"),
    [
        (lambda: sweep("dept=6"), "has a field 'dept'. Did you mean 'depth'"),
        (lambda: sweep("depth="), "The axis 'depth' has no values"),
        (lambda: sweep("depth"), "'depth' is not a field with values"),
        (lambda: sweep("depth=6,,"), "The values of 'depth=6,,' cannot be read"),
        (lambda: sweep("depth=6,12,6"), "The axis 'depth' has the value 6 twice"),
        (lambda: sweep("depth=6", "depth=12"), "The axis 'depth' is given twice"),
        (lambda: sweep("depth=6", seeds=()), "needs at least one seed"),
        (lambda: sweep("depth=6", seeds=(1, 1)), "The seed 1 is given twice"),
        (lambda: sweep("depth=6", seeds=(-1,)), "whole number from 0 on, not -1"),
        (lambda: sweep("seed=1,2"), "has a field 'seed'"),
        (lambda: Axis("seed", (Setting("x", {}),)), "An axis cannot be called 'seed'"),
        (lambda: sweep("vocabulary=10"), "The vocabulary of a cell follows from its task"),
        (lambda: sweep("depth=6", fixed={"rate": float("nan")}), "cannot be nan"),
        (lambda: Sweep(name="s", grids=()), "has no grid"),
        (lambda: Grid(()), "A grid needs an axis"),
        (lambda: Sweep.from_json([]), "name, grids, seeds and fixed, not a list."),
        (
            lambda: Sweep.from_json({"name": "s", "grids": [], "fixed": {}}),
            "A sweep in JSON has name, grids, seeds and fixed; this one lacks 'seeds'.",
        ),
        (
            lambda: Grid((Axis("a", (Setting("x", {"steps": 1}),)), Axis.of("steps", 2))),
            "The axes 'a' and 'steps' both set steps",
        ),
        (
            lambda: Sweep(name="s", grids=(Grid(parse_axes(["depth=6"])),) * 2),
            "The cell 'depth=6, seed=0' stands in two grids",
        ),
        (
            lambda: Sweep(
                name="s", grids=(Grid(parse_axes(["depth=6"])), Grid(parse_axes(["steps=6"])))
            ),
            "one has depth and another steps",
        ),
    ],
)
def test_what_makes_no_sweep_is_refused_with_a_sentence(build, said):
    with pytest.raises(LabError) as found:
        build()
    assert said in str(found.value)


def test_a_field_is_fixed_everywhere_unless_an_axis_sets_it():
    one = Sweep(name="s", grids=(Grid(parse_axes(["depth=6"]), {"steps": 9}),), seeds=(0,))
    assert one.but(steps=4).cells()[0].fields == {"depth": 6, "steps": 4}
    with pytest.raises(LabError, match="The axis 'depth' of this sweep sets depth itself"):
        one.but(depth=4)


def test_some_values_of_an_axis_can_be_kept():
    one = sweep("depth=6,12", "placement=pre,post", seeds=(0,))
    kept = one.only("depth", [12])
    assert [cell.run for cell in kept.cells()] == [
        "depth=12, placement=pre, seed=0",
        "depth=12, placement=post, seed=0",
    ]
    two = Sweep(
        name="s",
        grids=(Grid(parse_axes(["depth=6"])), Grid(parse_axes(["depth=12"]))),
        seeds=(0,),
    )
    assert len(two.only("depth", [12]).grids) == 1
    with pytest.raises(LabError, match=r"has no axis 'dept'\. Did you mean 'depth'"):
        one.only("dept", [12])
    with pytest.raises(LabError, match="has no value 7; it has 6, 12"):
        one.only("depth", [7])


def test_none_is_a_name_where_a_part_is_chosen():
    (axis,) = parse_axes(["connection=identity,none"])
    assert [setting.changes["connection"] for setting in axis.settings] == ["identity", "none"]
    assert parse_fields(["clip=none", "norm=none"]) == {"clip": None, "norm": "none"}


def test_a_sweep_over_fields_is_the_product_of_its_axes():
    by_fields = Sweep.over({"depth": [6, 12], "placement": ["pre", "post"]}, seeds=2)
    axes = parse_axes(["depth=6,12", "placement=pre,post"])
    assert by_fields == Sweep(name="sweep", grids=(Grid(axes),), seeds=(0, 1))
