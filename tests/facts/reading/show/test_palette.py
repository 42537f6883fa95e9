"""The colours can be told from the page and from each other, by colour-blind readers too."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from leadline.reading.show.palette import (
    DARK,
    DASHES,
    THEMES,
    css_colour,
    dash_of,
    point_colour,
    record_colour,
    symbol_of,
)

POINTS = ("stream", "attention", "mlp", "cross-attention", "mixer", "branch")
STATISTICS = ("total", "mean", "median", "mean_without_first", "median_without_first")
# Machado, Oliveira, Fernandes 2009, severity 1, on linear RGB
BLINDNESS = {
    "none": np.eye(3),
    "protanopia": np.array(
        [
            [0.152286, 1.052583, -0.204868],
            [0.114503, 0.786281, 0.099216],
            [-0.003882, -0.048116, 1.051998],
        ]
    ),
    "deuteranopia": np.array(
        [
            [0.367322, 0.860646, -0.227968],
            [0.280085, 0.672501, 0.047413],
            [-0.011820, 0.042940, 0.968881],
        ]
    ),
}


def linear(colour: str) -> np.ndarray:
    channels = np.array([int(colour[at : at + 2], 16) for at in (1, 3, 5)]) / 255
    return np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)


def luminance(colour: str) -> float:
    return float(linear(colour) @ [0.2126, 0.7152, 0.0722])


def contrast(first: str, second: str) -> float:
    low, high = sorted([luminance(first), luminance(second)])
    return (high + 0.05) / (low + 0.05)


def lab(rgb: np.ndarray) -> np.ndarray:
    to_xyz = np.array(
        [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]
    )
    ratio = to_xyz @ np.clip(rgb, 0, 1) / np.array([0.9505, 1.0, 1.089])
    f = np.where(ratio > 0.008856, np.cbrt(ratio), 7.787 * ratio + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


@pytest.mark.parametrize("point", POINTS)
def test_every_colour_stands_out_from_both_pages(point: str) -> None:
    colour = point_colour(point)
    assert contrast(colour, THEMES["light"]["card"]) >= 3
    assert contrast(DARK[colour], THEMES["dark"]["card"]) >= 3


@pytest.mark.parametrize("index", range(7))
def test_every_colour_of_a_record_stands_out_from_both_pages(index: int) -> None:
    colour = record_colour(index)
    assert contrast(colour, THEMES["light"]["card"]) >= 3
    assert contrast(DARK[colour], THEMES["dark"]["card"]) >= 3


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_text_is_easy_to_read(theme: str) -> None:
    assert contrast(THEMES[theme]["ink"], THEMES[theme]["card"]) >= 7


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("kind", BLINDNESS)
def test_the_colours_of_the_roles_stay_apart(kind: str, dark: bool) -> None:
    colours = [point_colour(point) for point in ("stream", "attention", "mlp", "cross-attention")]
    seen = [lab(BLINDNESS[kind] @ linear(DARK[c] if dark else c)) for c in colours]
    for first, second in itertools.combinations(seen, 2):
        assert np.linalg.norm(first - second) > 15


def test_points_differ_in_their_markers_too() -> None:
    roles = POINTS[1:]
    assert len({symbol_of(role) for role in roles}) == len(roles)
    assert len({symbol_of("stream", lane=lane) for lane in (1, 2, 3, 4)}) == 4


@pytest.mark.parametrize("headline", STATISTICS)
def test_statistics_differ_in_their_dashes(headline: str) -> None:
    shown = [one for one in STATISTICS if one in ("mean", headline) or "median" in one]
    dashes = [dash_of(one, headline=headline) for one in shown]
    assert len(set(dashes)) == len(shown)
    assert dash_of(headline, headline=headline) == "solid"
    assert set(dashes) <= set(DASHES)


def test_a_record_beyond_the_palette_gets_a_colour_again() -> None:
    assert record_colour(7) == record_colour(0)


def test_css_names_both_partners() -> None:
    assert css_colour("#0072B2") == "light-dark(#0072B2, #56B4E9)"
