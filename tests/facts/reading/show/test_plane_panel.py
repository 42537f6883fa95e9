"""Points of a plane beside a circle."""

from __future__ import annotations

import json
import math
import re

from leadline.experiments.outcome.outcome import Outcome
from leadline.reading.show.line_chart import line_chart
from leadline.reading.show.panels import Line, Plane
from leadline.reading.show.plane_panel import plane_panel

PLANE = Plane(
    "eigenvalues",
    {"a": ((0.0, 0.0), (1.0, 0.5)), "b": ((-2.0, -0.5),)},
    centre=(-1.0, 0.0),
    radius=1.0,
    region="stable",
    label="real",
)


def _circles(drawn: str) -> list[tuple[float, float, float]]:
    found = re.findall(r'<circle cx="([-\d.]+)" cy="([-\d.]+)" r="([-\d.]+)"', drawn)
    return [(float(x), float(y), float(r)) for x, y, r in found]


def _drawn(size: tuple[float, float] = (400.0, 300.0)) -> str:
    return plane_panel(PLANE, left=70.0, top=64.0, size=size, colour=lambda name: f"#{name * 6}")


def test_points_stand_to_the_circle_as_in_the_plane() -> None:
    disc, first, second, third = _circles(_drawn())
    # The origin is the right end of the disc, -2 - i/2 lies left below, 1 + i/2 right above.
    assert math.isclose(first[0], disc[0] + disc[2], abs_tol=0.2)
    assert math.isclose(first[1], disc[1], abs_tol=0.2)
    assert math.isclose(second[0] - first[0], disc[2], abs_tol=0.2)
    assert math.isclose(second[1] - first[1], -disc[2] / 2, abs_tol=0.2)
    assert math.isclose(third[0], disc[0] - disc[2], abs_tol=0.2)
    assert math.isclose(third[1] - disc[1], disc[2] / 2, abs_tol=0.2)


def test_everything_lies_inside_the_panel() -> None:
    for size in ((400.0, 300.0), (300.0, 400.0), (900.0, 100.0)):
        for x, y, r in _circles(_drawn(size)):
            room = r if r > 3 else 0.0
            assert x - room >= 70.0 and x + room <= 70.0 + size[0]
            assert y - room >= 64.0 and y + room <= 64.0 + size[1]


def test_names_keep_the_colours_of_their_lines() -> None:
    lines = [
        Line("sizes", name, (1.0, end), facts={"model": name}) for name, end in (("a", 0), ("b", 3))
    ]
    drawn = line_chart(lines, title="t", value_label="v", planes=(PLANE,))
    strokes = re.findall(r'stroke="(#\w+)" stroke-width="2"><title>(\w)</title>', drawn)
    fills = re.findall(r'<g fill="(#\w+)" fill-opacity="[.\d]+"><title>(\w)</title>', drawn)
    assert sorted(strokes) == sorted(fills)
    assert ">eigenvalues<" in drawn and ">real<" in drawn


def test_a_plane_stands_in_the_json_of_an_outcome() -> None:
    outcome = Outcome("x", "t", "v", (), (), {}, planes=(PLANE,))
    found = json.loads(json.dumps(outcome.to_json()))["planes"][0]
    assert found["points"]["a"] == [[0.0, 0.0], [1.0, 0.5]]
    assert found["region"] == {"name": "stable", "centre": [-1.0, 0.0], "radius": 1.0}
    assert "planes" not in Outcome("x", "t", "v", (), (), {}).to_json()
