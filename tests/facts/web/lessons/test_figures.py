"""What the captions of the lessons say is true of the designs that the figures draw."""

import pytest

from leadline.web.lessons.reading import lesson_ids, read_lesson
from tests.lesson_designs import number_of, recipe_of

LESSONS = [read_lesson(name, "en") for name in lesson_ids()]
FIGURES = [(lesson, part) for lesson in LESSONS for part in lesson.parts if part.kind == "figure"]
CHECKS = [
    pytest.param(
        part.facts[check.get("side", "base")] | check.get("turned", {}),
        check,
        id=f"{lesson.id}-{at}",
    )
    for lesson, part in FIGURES
    for at, check in enumerate(part.facts["checks"])
]
MEASURED = [
    pytest.param(lesson, number, id=f"{lesson.id}-{number.name}")
    for lesson in LESSONS
    for number in lesson.numbers.values()
    if number.figure
]
SEEDS = (0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2)))
"""A caption must not hang on one draw of the weights."""


def test_every_lesson_has_one_figure():
    assert [lesson.id for lesson, _ in FIGURES] == list(lesson_ids())


@pytest.mark.parametrize("side", ["base", "other"])
@pytest.mark.parametrize(("lesson", "part"), FIGURES, ids=[one.id for one, _ in FIGURES])
def test_every_design_of_a_figure_can_be_built(lesson, part, side):
    if side in part.facts:
        assert recipe_of(part.facts[side]).depth <= 24


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("design", "check"), CHECKS)
def test_a_caption_is_true(design, check, seed):
    found = number_of(design | {"seed": seed}, check["curve"], check["read"])
    assert check.get("at_least", -float("inf")) <= found <= check.get("at_most", float("inf"))


@pytest.mark.parametrize(("lesson", "number"), MEASURED)
def test_a_measured_number_of_a_text_is_measured_again(lesson, number):
    design = lesson.part(number.figure).facts[number.side] | number.turned
    found = number_of(design, number.curve, number.read)
    assert found == pytest.approx(number.value, rel=number.within)
