"""The pieces of the page that a reader can move or answer; without a script they stand still."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from leadline.claims.page.phrases import BEYOND, CHAIN, CHOICES, PLAYED, QUESTION
from leadline.claims.page.shapes import ellipse, piece, powers, slider, sphere
from leadline.reading.show.formulas import mathml

if TYPE_CHECKING:
    from leadline.claims.page.words import Words

__all__ = ["EXERCISE", "play"]

EXERCISE = "zero-easier-than-identity"
"""The claim whose trained curves stand behind the exercise."""
EPSILON, DEPTH = 0.1, 50
"""Where the sliders of the powers stand at first."""
DECADES = 20
"""The picture of powers goes from minus so many powers of ten to plus so many."""
DEEPEST = 200
POWERS = (44.0, 352.0, 10.0, 230.0)
"""Left, right, top and bottom of the picture of powers."""


def play(words: Words, key: str, *, measured: str = "") -> str:
    """One piece. `measured` is what training says about the exercise."""
    title = next(named[key] for named in PLAYED.values() if key in named)
    made = {
        "play-exercise": lambda: _exercise(words, measured),
        "play-powers": lambda: _powers(words),
        "play-sphere": lambda: sphere(words),
        "play-ellipse": lambda: ellipse(words),
    }[key]()
    return (
        f'<section class="play" id="{key}" aria-labelledby="{key}-title">'
        f"{words.page(title, tag='h3', more=f'id={key}-title')}{made}</section>"
    )


# --- the exercise ----------------------------------------------------------------------------


def _exercise(words: Words, measured: str) -> str:
    options: list[str] = []
    answers: list[str] = []
    for key, choice, answer in CHOICES:
        label = words.page(choice)
        options.append(f'<label><input type="radio" name="exercise" value="{key}"> {label}</label>')
        kind = "right" if key == "zero" else "wrong"
        answers.append(
            f'<div class="answer {kind}" data-answer="{key}"><p class="without">{label}</p>'
            f"{words.page(answer, tag='p')}</div>"
        )
    question = words.page(QUESTION, tag="legend")
    button = words.page("Answer", tag="button", more='type="button" id="answer" disabled')
    return (
        f'<form class="exercise" id="exercise"><fieldset>{question}{"".join(options)}</fieldset>'
        f'<p class="with">{button}</p></form>'
        f'<div id="answers" aria-live="polite">{"".join(answers)}</div>'
        f'<div id="exercise-measured">{measured}</div>'
    )


# --- powers ----------------------------------------------------------------------------------


def _powers(words: Words) -> str:
    epsilon, depth = EPSILON, DEPTH
    left, right, top, bottom = POWERS
    middle = (top + bottom) / 2
    lines: list[str] = []
    for power in range(-DECADES, DECADES + 1, 5):
        y = _high(power)
        lines.append(
            f'<path class="grid" d="M{left:g} {y:.1f}H{right:g}"/>'
            f'<text class="e" x="{left - 6:g}" y="{y + 4:.1f}">{_ten(power)}</text>'
        )
    for layers in range(0, DEEPEST + 1, 50):
        x = _far(layers)
        lines.append(f'<text class="m" x="{x:.1f}" y="{bottom + 18:g}">{layers}</text>')
    found = powers(epsilon, depth)
    curves: list[str] = []
    for kind, slope, value in zip(("more", "less", "only"), powers(epsilon, 1), found, strict=True):
        curves.append(
            f'<path class="line thin {kind}" id="power-{kind}-far" d="M{left:g} {middle:g}L{right:g} {_high(DEEPEST * slope):.2f}"/>'
            f'<path class="line {kind}" id="power-{kind}" d="M{left:g} {middle:g}L{_far(depth):.2f} {_high(value):.2f}"/>'
            f'<circle class="dot {kind}" id="power-{kind}-end" cx="{_far(depth):.2f}" cy="{_high(value):.2f}" r="4"/>'
        )
    svg = (
        '<svg class="curves" id="powers" viewBox="0 0 360 254" aria-hidden="true">'
        f'<clipPath id="powers-clip"><rect x="{left:g}" y="{top - 5:g}" width="{right - left + 5:g}" '
        f'height="{bottom - top + 10:g}"/></clipPath>{"".join(lines)}'
        f'<path class="axis" d="M{left:g} {bottom:g}H{right:g}"/>'
        f'<path class="axis" id="power-depth" d="M{_far(depth):.2f} {top:.2f}L{_far(depth):.2f} {bottom:.2f}"/>'
        f'<g clip-path="url(#powers-clip)">{"".join(curves)}</g></svg>'
    )
    rows = "".join(
        f'<li class="{kind}">{piece(kind)}{mathml(latex)} = <output id="number-{kind}">'
        f"{ten(value)}</output></li>"
        for kind, latex, value in zip(
            ("more", "less", "only"),
            (r"(1 + \varepsilon)^L", r"(1 - \varepsilon)^L", r"\varepsilon^L"),
            found,
            strict=True,
        )
    )
    return (
        words.page(CHAIN, tag="p")
        + '<div class="board"><figure>'
        + f'<p class="label">↑ {words.page("product")}</p>{svg}'
        + f'<p class="label x">{words.page("layers")} →</p></figure><div class="knobs">'
        + slider(words, "power-l", "Depth L", low=1, high=DEEPEST, step=1, value=depth)
        + slider(words, "power-e", "ε", low=0.01, high=0.5, step=0.01, value=epsilon)
        + f'<ul class="numbers">{rows}</ul>'
        + words.page(BEYOND, tag="p", more='class="soft"')
        + "</div></div>"
    )


def _far(layers: float) -> float:
    return POWERS[0] + (POWERS[1] - POWERS[0]) * layers / DEEPEST


def _high(power: float) -> float:
    middle = (POWERS[2] + POWERS[3]) / 2
    return middle - (POWERS[3] - POWERS[2]) / 2 * power / DECADES


def _ten(power: int) -> str:
    small = str(power).translate(str.maketrans("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻"))
    return "1" if power == 0 else f"10{small}"


def ten(logarithm: float) -> str:
    """The number with this logarithm to base 10, as HTML; it may be far below the least float."""
    if -3 <= logarithm < 5:
        value = 10.0**logarithm
        return f"{value:.3g}" if value < 1000 else f"{value:.0f}"
    power = math.floor(logarithm)
    mantissa = f"{10 ** (logarithm - power):.2f}"
    if mantissa == "10.00":
        mantissa, power = "1.00", power + 1
    return f"{mantissa}\u202f×\u202f10<sup>{str(power).replace('-', '−')}</sup>"
