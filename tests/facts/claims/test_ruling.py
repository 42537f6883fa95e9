"""How a verdict follows from numbers."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from scipy import stats

from leadline.claims.catalog import Measured
from leadline.claims.claim import Check, Claim, Picture, placeholders
from leadline.claims.ruling import filled, judge, rule, student, verdict_of
from leadline.errors import CatalogError


def check(part="claim", relation="at most", limit=1.0, *, number="", **others):
    fields = {"label": "a number", "because": "The bound is a theorem.", **others}
    return Check(number or part, part, relation, limit, **fields)


def claim(*checks):
    return Claim("a-claim", "algebra", ("card",), "T", "", "", "says", "", "why", checks)


# --- one check -------------------------------------------------------------------------------


def test_a_check_over_every_seed_fails_with_the_first_number_outside():
    assert judge(check(), [0.5, 1.0]).outcome == "holds"
    assert judge(check(), [0.5, 1.0 + 1e-12]).outcome == "fails"


@pytest.mark.parametrize(
    ("relation", "within", "inside", "outside"),
    [
        ("at most", 0.0, [1.0, -5.0], [1.1]),
        ("at least", 0.0, [1.0, 5.0], [0.9]),
        ("near", 0.25, [0.75, 1.25], [0.74, 1.26]),
    ],
)
def test_a_relation_allows_its_side_and_the_limit_itself(relation, within, inside, outside):
    one = check(relation=relation, within=within)
    assert all(one.allows(value) for value in inside)
    assert not any(one.allows(value) for value in outside)


def test_the_mean_is_judged_by_its_t_interval():
    # mean 0.5, s = 0.1, three seeds: 0.5 +- 4.303 * 0.1 / sqrt 3 = 0.5 +- 0.2484
    values = [0.4, 0.5, 0.6]
    assert judge(check(over="mean", limit=0.7485), values).outcome == "holds"
    assert judge(check(over="mean", limit=0.7483), values).outcome == "undecided"
    assert judge(check(over="mean", limit=0.2517), values).outcome == "undecided"
    assert judge(check(over="mean", limit=0.2515), values).outcome == "fails"


def test_the_interval_of_a_mean_may_not_reach_over_either_end():
    near = {"relation": "near", "limit": 0.5, "over": "mean"}
    assert judge(check(within=0.2485, **near), [0.4, 0.5, 0.6]).outcome == "holds"
    assert judge(check(within=0.2483, **near), [0.4, 0.5, 0.6]).outcome == "undecided"
    assert judge(check(within=0.01, **near), [0.9, 0.91, 0.92]).outcome == "fails"


def test_one_seed_cannot_decide_about_a_mean():
    assert judge(check(over="mean"), [0.0]).outcome == "undecided"


@pytest.mark.parametrize("over", ["every", "mean"])
def test_what_is_not_a_number_fails(over):
    assert judge(check(over=over), [0.5, math.nan]).outcome == "fails"
    assert judge(check(over=over), [0.5, math.inf]).outcome == "fails"
    assert judge(check(over=over, relation="at least"), [5.0, math.inf]).outcome == "holds"


@pytest.mark.parametrize("freedom", [1, 2, 3, 4, 9, 20, 21, 40, 100])
def test_students_points_are_those_of_the_distribution(freedom):
    assert student(freedom) == pytest.approx(stats.t.ppf(0.975, freedom), abs=5.1e-4)


# --- the verdict -----------------------------------------------------------------------------

HOLDS, FAILS, OPEN = [0.5, 0.5], [2.0, 2.0], [0.0, 2.0]


@pytest.mark.parametrize(
    ("said", "reach", "verdict"),
    [
        (HOLDS, HOLDS, "holds"),
        (HOLDS, None, "holds"),
        (HOLDS, FAILS, "holds under conditions"),
        (HOLDS, OPEN, "undecided"),
        (OPEN, HOLDS, "undecided"),
        (OPEN, FAILS, "undecided"),
        (FAILS, HOLDS, "false as stated"),
        (FAILS, FAILS, "false as stated"),
    ],
)
def test_the_verdict_follows_from_claim_and_reach(said, reach, verdict):
    checks = [check("claim", over="mean")] + ([check("reach", over="mean")] if reach else [])
    numbers = {"claim": said, "reach": reach} if reach else {"claim": said}
    assert rule(claim(*checks), numbers).verdict == verdict


def test_one_failing_check_of_many_makes_a_claim_false():
    checks = (check("claim", number="a"), check("claim", number="b"))
    found = [judge(one, values) for one, values in zip(checks, ([0.0], [2.0]), strict=True)]
    assert verdict_of(found) == "false as stated"


@pytest.mark.parametrize(("values", "outcome"), [([0.5], "holds"), ([2.0], "fails")])
def test_the_correction_is_judged_beside_the_claim_and_does_not_change_its_verdict(values, outcome):
    one = claim(check("claim"), check("correction"))
    found = rule(one, {"claim": [0.5], "correction": values})
    assert (found.verdict, found.correction) == ("holds", outcome)


def test_without_numbers_nothing_is_ruled():
    assert rule(claim(check()), {}).verdict == "not measured"
    assert rule(claim(), {}).verdict == "not checkable here"
    assert rule(claim(check()), {"claim": [0.5]}).correction is None


# --- texts -----------------------------------------------------------------------------------


def test_a_text_gets_the_means_of_its_numbers_and_its_formulas_stay():
    text = "From {low} to {high:.1f}, as $x^{2}$ and $\\frac{a}{b}$."
    assert placeholders(text) == ["low", "high:.1f"]
    told = filled(text, {"low": [1.0, 2.0], "high": [1e-7, 3e-7]})
    assert told == "From 1.5 to 0.0, as $x^{2}$ and $\\frac{a}{b}$."
    assert filled("{tiny}", {"tiny": [2e-7]}) == "2.00e-7"
    assert filled("{missing}", {}) == "…"


def test_a_ruling_tells_all_that_decided_it():
    found = rule(claim(check(over="mean")), {"claim": [0.4, 0.6], "more": [1.0, 3.0]}, seeds=(3, 4))
    told = found.to_json()
    assert told["id"] == "a-claim"
    assert told["notes"] == ["card"]
    assert told["verdict"] == "undecided"
    assert told["numbers"] == {"claim": [0.4, 0.6], "more": [1.0, 3.0]}
    (one,) = told["checks"]
    assert one["mean"] == pytest.approx(0.5)
    # 0.5 +- 12.706 * 0.1414 / sqrt 2
    assert one["upper"] == pytest.approx(0.5 + 12.706 * 0.1)
    assert one["outcome"] == "undecided"


# --- what cannot be a claim ------------------------------------------------------------------


def test_what_cannot_be_checked_is_refused():
    with pytest.raises(CatalogError, match="has no part 'hope'"):
        check("hope")
    with pytest.raises(CatalogError, match="has no relation 'above'"):
        check(relation="above")
    with pytest.raises(CatalogError, match="a distance above 0 belongs to 'near'"):
        check(relation="near")
    with pytest.raises(CatalogError, match="a distance above 0 belongs to 'near'"):
        check(within=0.1)
    with pytest.raises(CatalogError, match="has the limit inf"):
        check(limit=math.inf)
    with pytest.raises(CatalogError, match="does not say why"):
        check(because="so")
    with pytest.raises(CatalogError, match="checks a number twice"):
        claim(check(), check())
    with pytest.raises(CatalogError, match="no check of what the note says"):
        claim(check("reach"))
    with pytest.raises(CatalogError, match="in no group 'x'"):
        Claim("c", "x", (), "", "", "", "", "", "")
    with pytest.raises(CatalogError, match="from no note 'x'"):
        Claim("c", "norms", ("x",), "", "", "", "", "", "")


def test_a_picture_survives_json():
    one = Picture("x", "y", {"a": ((1.0, 2.0), (3.0, math.inf))}, y_log=True, faint=("a",))
    assert Picture.from_json(one.to_json()) == one


def test_a_gap_of_a_curve_survives_json():
    one = Picture("x", "y", {"a": ((1.0, 2.0), (3.0, math.nan))})
    (x, y) = Picture.from_json(json.loads(json.dumps(one.to_json()))).lines["a"]
    assert x == (1.0, 2.0)
    assert y[0] == 3.0
    assert math.isnan(y[1])


def test_lines_over_shared_places():
    lines = {"long": np.array([1, 2, 4], dtype=np.float32), "short": [0.5, 0.25], "level": 3}
    counted = Picture("x", "y", lines, over=1)
    assert counted.lines == {
        "long": ((1.0, 2.0, 3.0), (1.0, 2.0, 4.0)),
        "short": ((1.0, 2.0), (0.5, 0.25)),
        "level": ((1.0, 2.0, 3.0), (3.0, 3.0, 3.0)),
    }
    placed = Picture("x", "y", lines, over=(10, 20, 40))
    assert placed.lines["short"] == ((10.0, 20.0), (0.5, 0.25))
    assert placed.lines["level"] == ((10.0, 20.0, 40.0), (3.0, 3.0, 3.0))
    assert all(type(one) is float for x, y in placed.lines.values() for one in (*x, *y))


def test_numbers_of_any_kind_are_kept_as_floats():
    measured = Measured({"first": np.float32(0.5)}, second=np.array(2), third=True)
    assert measured.numbers == {"first": 0.5, "second": 2.0, "third": 1.0}
    assert {type(one) for one in measured.numbers.values()} == {float}
    assert measured.picture is None
