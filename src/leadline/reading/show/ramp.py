"""Colours for numbers: ramps between colours of the palette, equally spaced to the eye.

A ramp goes from the page's own shade to its ink: on the light page the larger the darker, on the
dark page the larger the brighter. So lightness alone tells the order, on a grey printout too, and
cells of the lowest values nearly disappear. A ramp with two sides goes from blue over the page's
shade to vermilion, the two colours of the palette that stay apart for colour-blind readers.
Colours between two of the palette are mixed in OKLab (Ottosson 2020), where equal steps look equal.
"""

from __future__ import annotations

import functools
import math
from typing import Literal

__all__ = ["Theme", "as_terminal_colours", "ramp", "two_sided_ramp"]

Theme = Literal["light", "dark"]
Triple = tuple[float, float, float]

_RAMPS: dict[Theme, tuple[str, ...]] = {
    "light": ("#E8EFF4", "#56B4E9", "#0072B2", "#18202A"),
    "dark": ("#1D2834", "#0072B2", "#56B4E9", "#E7EBEF"),
}
_TWO_SIDED: dict[Theme, tuple[str, ...]] = {
    "light": ("#004C78", "#56B4E9", "#EEF1F3", "#F58B4C", "#9A3F00"),
    "dark": ("#9AD4F5", "#0072B2", "#1D2834", "#D55E00", "#FFC29A"),
}


@functools.cache
def ramp(count: int, theme: Theme = "light") -> tuple[str, ...]:
    """Return `count` colours from the lowest to the highest number."""
    return _mixed(_RAMPS[theme], count)


@functools.cache
def two_sided_ramp(count: int, theme: Theme = "light") -> tuple[str, ...]:
    """Return `count` colours from far below over the middle to far above."""
    return _mixed(_TWO_SIDED[theme], count)


def as_terminal_colours(colours: tuple[str, ...]) -> tuple[str, ...]:
    """Return the nearest of the 240 fixed colours that terminals with 256 of them have.

    Nearest to the eye: rounding red, green and blue one by one makes greens of dark blues.
    """
    return tuple(_nearest_terminal_colour(colour) for colour in colours)


@functools.cache
def _nearest_terminal_colour(colour: str) -> str:
    wanted = _oklab(_linear(colour))
    return min(_terminal_colours(), key=lambda one: math.dist(_terminal_colours()[one], wanted))


@functools.cache
def _terminal_colours() -> dict[str, Triple]:
    """The cube of 6 x 6 x 6 colours and the 24 greys of xterm, in OKLab, by their names in rich."""
    steps = (0, 95, 135, 175, 215, 255)
    cube = [(red, green, blue) for red in steps for green in steps for blue in steps]
    greys = [(value, value, value) for value in range(8, 239, 10)]
    return {
        f"color({16 + at})": _oklab(_linear("#" + "".join(f"{one:02x}" for one in colour)))
        for at, colour in enumerate([*cube, *greys])
    }


def _mixed(stops: tuple[str, ...], count: int) -> tuple[str, ...]:
    """Mix colours at equal distances along stops that are equally far apart."""
    labs = [_oklab(_linear(stop)) for stop in stops]
    colours: list[str] = []
    for at in range(count):
        place = (len(stops) - 1) * (at / (count - 1) if count > 1 else 1.0)
        before = min(int(place), len(stops) - 2)
        share = place - before
        first, second = labs[before], labs[before + 1]
        mixed = tuple(a + share * (b - a) for a, b in zip(first, second, strict=True))
        colours.append(_hex((mixed[0], mixed[1], mixed[2])))
    return tuple(colours)


def _linear(colour: str) -> Triple:
    """Return red, green and blue as amounts of light."""
    red, green, blue = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
    return _light(red), _light(green), _light(blue)


def _light(value: float) -> float:
    return value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4


def _oklab(light: Triple) -> Triple:
    red, green, blue = light
    l = (0.4122214708 * red + 0.5363325363 * green + 0.0514459929 * blue) ** (1 / 3)
    m = (0.2119034982 * red + 0.6806995451 * green + 0.1073969566 * blue) ** (1 / 3)
    s = (0.0883024619 * red + 0.2817188376 * green + 0.6299787005 * blue) ** (1 / 3)
    return (
        0.2104542553 * l + 0.7936177850 * m - 0.0040720468 * s,
        1.9779984951 * l - 2.4285922050 * m + 0.4505937099 * s,
        0.0259040371 * l + 0.7827717662 * m - 0.8086757660 * s,
    )


def _hex(lab: Triple) -> str:
    lightness, a, b = lab
    l = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3
    m = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3
    s = (lightness - 0.0894841775 * a - 1.2914855480 * b) ** 3
    light = (
        4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s,
        -1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s,
        -0.0041960863 * l - 0.7034186147 * m + 1.7076147010 * s,
    )
    return "#" + "".join(f"{round(255 * _shown(one)):02x}" for one in light)


def _shown(light: float) -> float:
    value = min(max(light, 0.0), 1.0)
    return 12.92 * value if value <= 0.0031308 else 1.055 * value ** (1 / 2.4) - 0.055
