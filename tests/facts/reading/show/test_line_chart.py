"""Lines that coincide: the one below and the dashed one above can both be seen."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest

from leadline.reading.show.line_chart import line_chart
from leadline.reading.show.palette import record_colour
from leadline.reading.show.panels import Line

SVG = "{http://www.w3.org/2000/svg}"


def drawn(*lines: Line) -> dict[str, ET.Element]:
    """The path of every line by its name."""
    picture = ET.fromstring(line_chart(lines, title="t", value_label="v"))
    paths = [one for one in picture.iter(f"{SVG}path") if one.find(f"{SVG}title") is not None]
    return {str(one.findtext(f"{SVG}title")): one for one in paths}


def luminance(colour: str) -> float:
    """The relative luminance of WCAG 2."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def over_white(colour: str, opacity: float) -> str:
    parts = (int(colour[at : at + 2], 16) for at in (1, 3, 5))
    return "#" + "".join(f"{round(opacity * v + (1 - opacity) * 255):02X}" for v in parts)


MEASURED = Line("p", "measured", (1.0, 2.0, 3.0), facts={"model": "m"})
LAW = Line("p", "law", (1.0, 2.001, 3.0), faint=True, facts={"model": "m"})


def test_a_line_that_a_law_covers_is_broad_and_light_and_the_law_is_dark() -> None:
    paths = drawn(MEASURED, LAW)
    below, above = paths["measured"], paths["law"]
    assert (below.get("stroke-width"), below.get("opacity")) == ("6", "0.5")
    assert (above.get("stroke-width"), above.get("opacity")) == ("2", None)
    assert above.get("stroke-dasharray") == "5 4"
    assert below.get("stroke") == record_colour(0) == "#0072B2"
    assert above.get("stroke") == "#00446B"  # 0.6 of it


@pytest.mark.parametrize("place", range(7))
def test_the_dashes_stand_out_from_what_they_cover_in_every_colour(place: int) -> None:
    several = [Line("p", f"{k}", (10.0 * k, 0.0), facts={"model": str(k)}) for k in range(place)]
    own = Line("p", "own", (1.0, 2.0), facts={"model": "own"})
    law = Line("p", "law", (1.0, 2.0), faint=True, facts={"model": "own"})
    paths = drawn(*several, own, law)
    dark = luminance(str(paths["law"].get("stroke")))
    light = luminance(over_white(str(paths["own"].get("stroke")), 0.5))
    assert (light + 0.05) / (dark + 0.05) > 3.0


def test_a_line_that_nothing_covers_is_as_it_is() -> None:
    apart = Line("p", "law", (3.0, 2.0, 1.0), faint=True, facts={"model": "m"})
    below = drawn(MEASURED, apart)["measured"]
    assert (below.get("stroke-width"), below.get("opacity")) == ("2", None)
    elsewhere = Line("q", "law", LAW.values, faint=True)
    assert drawn(MEASURED, elsewhere)["measured"].get("stroke-width") == "2"


def test_the_key_has_the_colours_of_the_lines() -> None:
    picture = ET.fromstring(line_chart([MEASURED, LAW], title="t", value_label="v"))
    keys = [one for one in picture.iter(f"{SVG}line") if one.get("stroke-width") == "2"]
    assert [one.get("stroke") for one in keys] == ["#0072B2", "#00446B"]


@pytest.mark.parametrize("depth", [3, 12, 13, 30, 96])
def test_only_whole_layers_are_written_below_a_panel(depth: int) -> None:
    line = Line("p", "one", tuple(float(at % 4) for at in range(depth)))
    picture = ET.fromstring(line_chart([line], title="t", value_label="v"))
    texts = [one for one in picture.iter(f"{SVG}text") if one.get("text-anchor") == "middle"]
    written = [str(one.text) for one in texts if one.text not in ("layer", "v")]
    assert 2 <= len(written) <= 14
    assert all(text.isdigit() and 1 <= int(text) <= depth for text in written)
