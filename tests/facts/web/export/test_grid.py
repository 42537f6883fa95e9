"""Which designs an export holds."""

from __future__ import annotations

import pytest

from leadline.parts.connections import CONNECTIONS
from leadline.parts.placements import PLACEMENTS
from leadline.web.export.grid import DEPTHS, GridFamily, figure_designs, preset_designs, site_grid
from leadline.web.lessons.reading import lesson_ids
from leadline.web.playground.design import Design, DesignError
from leadline.web.playground.presets import STORIES


@pytest.fixture(scope="module")
def grid() -> list[GridFamily]:
    return site_grid()


@pytest.fixture(scope="module")
def known(grid: list[GridFamily]) -> set[Design]:
    return {family.design(depth) for family in grid for depth in family.depths}


def test_both_sides_of_every_preset_are_there_at_their_depth_and_others(
    grid: list[GridFamily], known: set[Design]
):
    designs = preset_designs()
    assert len(designs) == 2 * len(STORIES)
    assert set(designs) <= known
    for design in designs:
        family = next(one for one in grid if one.design(design.depth) == design)
        assert set(DEPTHS) <= set(family.depths)


def test_what_figures_of_lessons_show_and_speak_of_is_there(known: set[Design]):
    designs = figure_designs()
    assert len(designs) > len(lesson_ids())  # a figure each, most of them with two sides
    assert set(designs) <= known


@pytest.mark.parametrize("placement", ["pre", "post"])
def test_every_connection_is_there_that_the_recipe_allows(known: set[Design], placement: str):
    for name in CONNECTIONS.names():
        try:
            design = Design(connection=name, placement=placement)
        except DesignError:
            continue
        assert design in known, name


def test_every_placement_and_choice_around_the_default_is_there(known: set[Design]):
    assert {Design(placement=name) for name in PLACEMENTS.names()} <= known
    assert {Design(mask="full"), Design(mlp="none"), Design(norm="rmsnorm")} <= known
    assert {Design(gain=0.5), Design(init="xavier"), Design(depth=2), Design(depth=96)} <= known


def test_no_family_occurs_twice(grid: list[GridFamily]):
    assert len({frozenset(family.knobs) for family in grid}) == len(grid)
    assert all(sorted(set(family.depths)) == list(family.depths) for family in grid)
