"""Claims in the terminal and as a picture file."""

from __future__ import annotations

import io
import math
import xml.etree.ElementTree as ET

import pytest
from rich.console import Console

from leadline.claims.claim import Check, Claim, Picture
from leadline.claims.page.svg import claim_svg
from leadline.claims.page.terminal import (
    claims_screen,
    counted,
    plain_formula,
    readable,
    show_claim,
    strip,
)
from leadline.claims.ruling import judge, rule

BECAUSE = "The bound is a theorem [1]."


def check(part, limit=1.0, **others):
    fields = {"label": f"the {part} [a]", "because": BECAUSE, **others}
    return Check(part, part, "at most", limit, **fields)


def ruling(said=0.5, right=0.5, **others):
    claim = Claim(
        "a-claim", "norms", ("card",), "The norm is $\\sigma_1$ [sic]", "x", "‖J‖ ≤ 1",
        "It says $\\frac{a}{b}$.", "It is {claim}.", "Because {claim:.1f}.",
        (check("claim"), check("correction")), source="A paper",
    )  # fmt: skip
    picture = Picture("x", "y", {"a [0]": ((1.0, 2.0, 3.0), (1.0, 10.0, math.inf))}, y_log=True)
    numbers = {"claim": [said, said], "correction": [right, right]}
    return rule(claim, numbers, pictures=[picture, picture], seeds=(0, 1), **others)


def printed(draw, *arguments, width=120, **others):
    console = Console(file=io.StringIO(), width=width, force_terminal=True, color_system=None)
    draw(*arguments, console, **others)
    return console.file.getvalue()


def show_claims(rulings, console, *, everything=False):
    claims_screen(rulings, everything=everything).show(console)


@pytest.mark.parametrize("width", [60, 80, 120])
def test_one_claim_is_told_at_any_width(width):
    told = printed(show_claim, ruling(), width=width, code="def f():\n    pass\n", place="here")
    for text in ("The norm is σ_1 [sic]", "‖J‖ ≤ 1", "It says a/b.", "✓ holds", "It is 0.5."):
        assert text in told
    assert "Because 0.5." in told
    assert "Source: A paper" in told
    assert "def f():" in told
    assert max(map(len, told.splitlines())) <= width


def test_a_reason_that_several_checks_share_is_told_once():
    assert printed(show_claim, ruling()).count("The bound is a theorem [1].") == 1


def test_a_correction_that_fails_is_marked():
    assert "the correction fails" in printed(show_claims, [ruling(right=2.0)])
    assert "the correction" not in printed(show_claims, [ruling()])


def test_the_list_counts_the_verdicts():
    rulings = [ruling(), ruling(said=2.0), ruling(said=2.0)]
    assert counted(rulings) == {"holds": 1, "false as stated": 2}
    told = printed(show_claims, rulings, everything=True)
    assert "✓ holds: 1   ✗ false as stated: 2" in told
    assert "Norms (3)" in told


def test_the_first_screen_counts_in_a_sentence_and_shows_what_is_false_first():
    lines = printed(show_claims, [ruling(), ruling(said=2.0), ruling(said=2.0)]).splitlines()
    assert lines[0] == "Of 3 claims 1 holds and 2 are false as stated."
    assert [line[0] for line in lines[2:]] == ["✗", "✗", "✓"]


def test_the_first_screen_has_twelve_claims_and_says_how_to_see_all():
    lines = printed(show_claims, [ruling()] * 20).splitlines()
    assert sum(line.startswith("✓") for line in lines) == 12
    assert any("12 of 20 claims" in line and "--all" in line for line in lines)


@pytest.mark.parametrize(
    ("latex", "plain"),
    [
        (r"\|A\|_2 \le \sqrt{n}", "‖A‖_2 ≤ √(n)"),
        (r"\frac{\partial L}{\partial x}", "(∂ L)/(∂ x)"),
        (r"\sqrt{\frac{n}{1+M}}", "√(n/(1+M))"),
        (r"\mathrm{LN}(x)", "LN(x)"),
    ],
)
def test_formulas_become_plain_characters(latex, plain):
    assert plain_formula(latex) == plain
    assert readable(f"So ${latex}$ holds.") == f"So {plain} holds."


def test_a_strip_shows_limit_numbers_and_what_is_allowed():
    inside = strip(judge(check("claim"), [0.2, 0.8]))
    assert len(inside) == 25
    assert inside.index("●") < inside.index("│")
    assert "═" in inside[: inside.index("│")]
    assert "═" not in inside[inside.index("│") :]
    outside = strip(judge(check("claim"), [5.0]))
    assert outside.index("│") < outside.index("●")


def test_the_picture_is_a_file_that_any_program_reads():
    drawn = claim_svg(ruling())
    tree = ET.fromstring(drawn)
    assert tree.tag == "{http://www.w3.org/2000/svg}svg"
    words = " ".join(tree.itertext())
    assert "a-claim: holds" in words
    assert "a [0]" in words
    assert "Median of 2 seeds" in words
    assert "asked ≤ 1.00: holds" in words
    assert float(tree.get("height")) > 300
