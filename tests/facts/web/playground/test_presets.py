"""What every story says is what its curves show."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from functools import cache

import pytest

from leadline.web.playground.curves import DesignCurves, curves_of, quantities
from leadline.web.playground.presets import STORIES, Story
from leadline.web.playground.verdict import verdict_on

Check = Callable[[DesignCurves, DesignCurves], None]


@cache
def sides(story_id: str) -> tuple[DesignCurves, DesignCurves]:
    story = next(one for one in STORIES if one.id == story_id)
    a, b = story.designs()
    return curves_of(a), curves_of(b)


def codes(side: DesignCurves) -> set[str]:
    return {one.name for one in verdict_on(side).findings}


def share(side: DesignCurves, layer: int = 1) -> float:
    """The gradient at a layer over that at the top."""
    return side.gauges.gradient[layer] / side.gauges.gradient[-1]


def no_shortcut(a: DesignCurves, b: DesignCurves) -> None:
    assert share(a) < 1e-6 and "gradient-vanishing" in codes(a)
    assert max(b.gauges.gradient) < 2 * min(b.gauges.gradient)


def nine_tenths(a: DesignCurves, b: DesignCurves) -> None:
    for side in (a, b):
        assert all(value == 0 for one in side.gauges.update_ratio for value in one.values)
    assert share(a, 0) == pytest.approx(1.0, rel=1e-6)
    assert share(b, 0) == pytest.approx(0.9**100, rel=1e-4)
    assert round(0.9**100, 5) == 0.00003
    writes = [s for one in b.provenance["anatomy"]["layers"] for s in one["sublayers"]]
    assert len(writes) == 100 and writes[0]["keep"] == pytest.approx(0.9)


def post_against_pre(a: DesignCurves, b: DesignCurves) -> None:
    assert a.gauges.residual.log10[-1] > math.log10(0.4)
    assert b.gauges.residual.log10[-1] < -3
    assert "tokens-equal" in codes(b) and not codes(a)
    assert "warm-up" in verdict_on(b).sentence


def one_over_sqrt_n(a: DesignCurves, b: DesignCurves) -> None:
    assert a.gauges.stream_norm[-1] > 4 * a.gauges.stream_norm[0]
    assert b.gauges.stream_norm[-1] == pytest.approx(b.gauges.stream_norm[0], rel=0.1)
    assert a.design.depth * 2 == 96
    late, early = a.gauges.update_ratio[0].values[-1], a.gauges.update_ratio[0].values[0]
    assert late < 0.6 * early


def deepnorm(a: DesignCurves, b: DesignCurves) -> None:
    log = a.gauges.residual.log10
    assert next(at for at, value in enumerate(log) if value < -1) < 96 / 2
    assert b.gauges.residual.log10[-1] > math.log10(0.9)
    assert "tokens-equal" in codes(a) and not codes(b)


def rezero(a: DesignCurves, b: DesignCurves) -> None:
    assert share(a) > 1e9 and "gradient-exploding" in codes(a)
    assert set(b.gauges.jacobian_distance) == {0.0}
    assert share(b, 0) == pytest.approx(1.0, rel=1e-6)


def hyper_connections(a: DesignCurves, b: DesignCurves) -> None:
    doubled = [2 * value for value in a.gauges.stream_norm]
    assert b.gauges.stream_norm == pytest.approx(doubled, rel=1e-5)
    assert b.gauges.residual.log10 == pytest.approx(a.gauges.residual.log10, abs=1e-5)
    assert b.gauges.loss == pytest.approx(a.gauges.loss, rel=1e-5)


def rank_collapse(a: DesignCurves, b: DesignCurves) -> None:
    log = a.gauges.residual.log10
    ratios = [after / before for before, after in itertools.pairwise(log[4:])]
    assert ratios == pytest.approx([3.0] * len(ratios), rel=0.1)
    assert b.gauges.residual.log10[-1] > math.log10(0.4)


def rank_collapse_mlp(a: DesignCurves, b: DesignCurves) -> None:
    assert a.gauges.residual.log10[-1] < -1000
    assert b.gauges.residual.log10[-1] < -1000


def rank_collapse_causal(a: DesignCurves, b: DesignCurves) -> None:
    log = b.gauges.residual.log10
    steps = [after - before for before, after in itertools.pairwise(log[3:])]
    assert all(-0.5 < step < -0.15 for step in steps)
    assert a.gauges.residual.log10[-1] < -1000 < log[-1] < -3


CHECKS: dict[str, Check] = {
    "no-shortcut": no_shortcut,
    "nine-tenths": nine_tenths,
    "post-against-pre": post_against_pre,
    "one-over-sqrt-n": one_over_sqrt_n,
    "deepnorm": deepnorm,
    "rezero": rezero,
    "hyper-connections": hyper_connections,
    "rank-collapse": rank_collapse,
    "rank-collapse-mlp": rank_collapse_mlp,
    "rank-collapse-causal": rank_collapse_causal,
}


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.id)
def test_the_curves_show_what_the_story_says(story: Story) -> None:
    CHECKS[story.id](*sides(story.id))


def test_every_story_is_complete() -> None:
    assert len({story.id for story in STORIES}) == len(STORIES)
    names = {one.name for one in quantities()}
    for story in STORIES:
        assert story.watch in names
        assert story.title and 2 <= story.story.count(". ") + 1 <= 4
        assert story.designs()[0] != story.designs()[1]
