"""Colours for numbers: in order of lightness, and near what a terminal has."""

from __future__ import annotations

import itertools
import re

import pytest

from leadline.reading.show.ramp import as_terminal_colours, ramp, two_sided_ramp


def grey(colour: str) -> float:
    """How bright a colour is on a grey printout (Rec. 709, of light)."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    light = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * light[0] + 0.7152 * light[1] + 0.0722 * light[2]


def test_on_a_light_page_the_larger_is_the_darker():
    brightness = [grey(colour) for colour in ramp(9)]
    assert brightness == sorted(brightness, reverse=True)
    assert len(set(ramp(9))) == 9


def test_on_a_dark_page_the_larger_is_the_brighter():
    brightness = [grey(colour) for colour in ramp(9, "dark")]
    assert brightness == sorted(brightness)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_ends_of_a_ramp_are_colours_of_the_page(theme):
    ends = {"light": ("#e8eff4", "#18202a"), "dark": ("#1d2834", "#e7ebef")}
    assert (ramp(5, theme)[0], ramp(5, theme)[-1]) == ends[theme]
    assert re.fullmatch(r"#[0-9a-f]{6}", ramp(5, theme)[2])


def test_a_stop_of_the_palette_is_met_exactly():
    assert ramp(4) == ("#e8eff4", "#56b4e9", "#0072b2", "#18202a")


def test_a_ramp_of_one_colour_is_the_strongest():
    assert ramp(1) == ("#18202a",)


def test_two_sides_are_as_bright_as_each_other_and_the_middle_is_the_page():
    colours = two_sided_ramp(5)
    assert colours[2] == "#eef1f3"
    assert abs(grey(colours[1]) - grey(colours[3])) < 0.1
    assert abs(grey(colours[0]) - grey(colours[4])) < 0.1


def test_a_colour_of_the_terminal_is_itself_and_a_dark_blue_stays_blue():
    assert as_terminal_colours(("#005f87", "#ffffff", "#080808")) == (
        "color(24)",
        "color(231)",
        "color(232)",
    )
    assert as_terminal_colours(("#00005a",)) == ("color(17)",)


def test_the_ramp_of_a_terminal_is_in_order_too():
    def brightness(name: str) -> float:
        number = int(name[6:-1]) - 16
        if number >= 216:
            value = 8 + 10 * (number - 216)
            return grey(f"#{value:02x}{value:02x}{value:02x}")
        steps = (0, 95, 135, 175, 215, 255)
        parts = (steps[number // 36], steps[number // 6 % 6], steps[number % 6])
        return grey("#" + "".join(f"{part:02x}" for part in parts))

    found = [brightness(name) for name in as_terminal_colours(ramp(16, "dark"))]
    assert all(later > earlier - 0.01 for earlier, later in itertools.pairwise(found))
