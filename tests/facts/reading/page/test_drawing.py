"""The drawing of an anatomy shows what the record says, and small lines show gaps."""

from __future__ import annotations

import math
from typing import Any
from xml.etree import ElementTree

import pytest

from leadline.reading.page.drawing import anatomy_drawing, sparkline
from leadline.reading.show.blocks import read_blocks
from tests.synthetic import gpt2_record

COLOURS = {"attention": "#D55E00", "mlp": "#00875F", "branch": "#6B7782"}


def blocks_of(*, depth: int = 4, **changes: Any) -> list[Any]:
    anatomy = gpt2_record(depth=depth).provenance["anatomy"]
    for block in anatomy["layers"]:
        block.update({key: value for key, value in changes.items() if key != "write"})
        for write in block["sublayers"]:
            write.update(changes.get("write", {}))
    return read_blocks(anatomy)


def draw(blocks: list[Any], *, lanes: int = 1) -> ElementTree.Element:
    return ElementTree.fromstring(anatomy_drawing(blocks, lanes=lanes, colours=COLOURS))


def kinds(svg: ElementTree.Element) -> list[str]:
    return [element.get("class", "") for element in svg.iter()]


def words(svg: ElementTree.Element) -> list[str]:
    return [text.text or "" for text in svg.iter("text")]


def test_equal_blocks_are_drawn_once() -> None:
    svg = draw(blocks_of(depth=12))
    assert "× 12, layers 1 to 12" in words(svg)
    assert "transformer.h.0 … 11" in words(svg)
    assert kinds(svg).count("branch") == kinds(svg).count("plus") == 2


def test_parallel_writes_return_at_one_plus() -> None:
    svg = draw(blocks_of(write={"parallel": True}))
    assert kinds(svg).count("plus") == 1
    assert kinds(svg).count("branch") == 2


@pytest.mark.parametrize(
    ("placement", "norms", "on_the_stream"),
    [("pre", 2, 0), ("output", 2, 0), ("sandwich", 4, 0), ("post", 2, 2), ("none", 0, 0)],
)
def test_norms_stand_where_the_placement_puts_them(
    placement: str, norms: int, on_the_stream: int
) -> None:
    svg = draw(blocks_of(write={"placement": placement}))
    boxes = [element for element in svg.iter("rect") if element.get("class") == "norm"]
    assert len(boxes) == norms
    plus = next(element for element in svg.iter("rect") if element.get("class") == "plus")
    stream = float(plus.get("x", "0")) + float(plus.get("width", "0")) / 2
    centred = [
        b for b in boxes if float(b.get("x", "0")) + float(b.get("width", "0")) / 2 == stream
    ]
    assert len(centred) == on_the_stream


def test_the_norm_of_a_pre_norm_block_stands_before_its_branch() -> None:
    places = {}
    for placement in ("pre", "output"):
        svg = draw(blocks_of(write={"placement": placement}))
        norm = next(e for e in svg.iter("rect") if e.get("class") == "norm")
        branch = next(e for e in svg.iter("rect") if e.get("class") == "branch")
        places[placement] = float(norm.get("x", "0")) < float(branch.get("x", "0"))
    assert places == {"pre": True, "output": False}


@pytest.mark.parametrize("lanes", [1, 2, 4])
def test_every_lane_is_a_line(lanes: int) -> None:
    svg = draw(blocks_of(), lanes=lanes)
    assert kinds(svg).count("stream" if lanes == 1 else "lane") == lanes
    assert any(f"{lanes} lanes" in text for text in words(svg)) == (lanes > 1)


def test_gains_are_printed_unless_they_are_one() -> None:
    assert not [
        text for text in words(draw(blocks_of())) if text.startswith("×") and "layers" not in text
    ]
    assert words(draw(blocks_of(write={"gain": 0.22}))).count("× 0.22") == 2
    assert words(draw(blocks_of(write={"keep": 2.45}))).count("× 2.45") == 2
    learned = words(draw(blocks_of(write={"gain": "blocks.0.ls1.gamma"})))
    assert learned.count("× gamma (learned)") == 2


def test_a_gain_that_varies_is_printed_as_a_range() -> None:
    anatomy = gpt2_record(depth=3).provenance["anatomy"]
    for block in anatomy["layers"]:
        block["sublayers"][0]["gain"] = block["layer"] / 10
    assert "× 0.1–0.3" in words(draw(read_blocks(anatomy)))


def test_a_stream_that_opens_with_a_norm_shows_it() -> None:
    assert kinds(draw(blocks_of(opening="norm"))).count("norm") == 3


def test_many_different_blocks_are_counted_not_dropped() -> None:
    anatomy = gpt2_record(depth=40).provenance["anatomy"]
    for block in anatomy["layers"]:
        block["sublayers"][0]["role"] = f"mixer {block['layer']}"
    assert "… and 28 more layers" in words(draw(read_blocks(anatomy)))


def test_names_of_modules_are_escaped() -> None:
    svg = draw(blocks_of(depth=1, module="<b>&\"'"))
    assert "<b>&\"'" in words(svg)


def test_the_drawing_says_itself_to_a_screen_reader() -> None:
    svg = draw(blocks_of(depth=12))
    assert svg.get("role") == "img"
    label = "12 layers on one stream. layers 1 to 12: attention, mlp (pre norm)"
    assert svg.get("aria-label") == label


def lines(values: list[float], **options: Any) -> list[list[tuple[float, float]]]:
    svg = ElementTree.fromstring(sparkline(values, **options))
    return [
        [tuple(map(float, point.split(","))) for point in line.get("points", "").split()]
        for line in svg.iter("polyline")
    ]


def test_a_sparkline_spans_its_box_from_low_to_high() -> None:
    ((first, middle, last),) = lines([0.0, 1.0, 2.0])
    assert first == (2.0, 25.0)
    assert last == (118.0, 3.0)
    assert middle == (60.0, 14.0)


def test_a_value_that_is_not_finite_breaks_a_sparkline() -> None:
    assert [len(line) for line in lines([1.0, 2.0, math.nan, 3.0, 4.0, math.inf])] == [2, 2]
    alone = ElementTree.fromstring(sparkline([math.nan, 5.0, math.nan]))
    assert len(list(alone.iter("circle"))) == 1
    assert not lines([math.nan, math.nan])


def test_a_line_that_hardly_moves_looks_flat() -> None:
    (points,) = lines([1.00, 1.01, 1.00])
    assert max(y for _, y in points) - min(y for _, y in points) < 2


def test_a_power_law_is_straight_on_a_logarithmic_sparkline() -> None:
    ((_, top), (_, middle), (_, bottom)) = lines([100.0, 10.0, 1.0], log=True)[0]
    assert middle - top == pytest.approx(bottom - middle, abs=0.2)
