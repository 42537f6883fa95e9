"""Rulings that nothing was measured for: every verdict, every kind of check and of picture."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

import numpy as np

from leadline.claims.claim import FORMULA, PLACE, Check, Claim, Picture
from leadline.claims.page.page import page_words, ruling_words
from leadline.claims.ruling import Ruling, rule

SEEDS = (0, 1, 2)


def claim_of(name: str, **changes: object) -> Claim:
    facts: dict[str, object] = {
        "group": "algebra",
        "notes": ("shortcuts",),
        "title": f"The claim called {name}",
        "formula": r"\frac{\partial x_L}{\partial x_0} = \prod_{l=1}^{L} (I + F_l'(x_l))",
        "plain": "dx_L/dx_0 = prod (I + F')",
        "says": "A hundred layers multiply the gradient by $0.9^{100}$, which is almost nothing.",
        "correction": "",
        "why": "The product is {ratio}; a bound allows {big:.1e}, and rounding is {tiny}. What is "
        "left after $L$ layers is $c^L = e^{L \\log c}$, which only depends on $L \\log c$.",
        "checks": checks(),
        "source": "He et al. 2016, arXiv 1603.05027",
    }
    return Claim(name, **{**facts, **changes})  # type: ignore[arg-type]


def checks() -> tuple[Check, ...]:
    return (
        Check("ratio", "claim", "at most", 1.0, label="largest ratio of norm and bound",
              because="The bound is a theorem, so a ratio above 1e0 breaks it."),
        Check("big", "reach", "at least", 1e3, label="growth over all layers", over="mean",
              because="Exploding is read as a thousandfold.", log=True),
        Check("tiny", "correction", "near", 0.0, within=1e-12, label="distance of both routes",
              because="An identity up to rounding: some hundred eps."),
    )  # fmt: skip


NUMBERS = {
    "ratio": (0.71, 0.73, 0.74),
    "big": (1.1e12, 1.3e12, 1.2e12),
    "tiny": (2e-15, -3e-15, 1e-15),
}


def curves(seed: int, *, equal: bool = False, points: bool = False) -> Picture:
    random = np.random.default_rng(seed)
    x = tuple(float(v) for v in range(1, 25))
    if equal:
        around = np.linspace(0, 2 * math.pi, 61)
        circle = (tuple(np.cos(around)), tuple(np.sin(around)))
        image = (tuple(1.3 * np.cos(around)), tuple(0.6 * np.sin(around + 0.4)))
        return Picture("first coordinate", "second coordinate",
                       {"unit circle": circle, "its image": image},
                       equal=True, faint=("unit circle",))  # fmt: skip
    if points:
        drawn = {
            name: (tuple(random.normal(size=12)), tuple(random.normal(size=12)))
            for name in ("tokens before", "tokens after")
        }
        return Picture("first coordinate", "second coordinate", drawn, points=True)
    return Picture(
        "layer",
        "norm of the gradient",
        {
            f"design number {k}": (x, tuple(float(k + 1) * v ** (k - 1) * math.exp(0.2 * random.normal()) for v in x))
            for k in range(4)
        } | {"theory": (x, tuple(v**1.5 for v in x))},
        y_log=True,
        faint=("theory",),
    )  # fmt: skip


def ruling(name: str, *, pictures: Sequence[Picture] = (), **changes: object) -> Ruling:
    numbers = {**NUMBERS, **changes.pop("numbers", {})}  # type: ignore[dict-item]
    return rule(claim_of(name, **changes), numbers, pictures=pictures, seeds=SEEDS, seconds=4.2)


def rulings() -> list[Ruling]:
    """One of everything."""
    right = "The ratio is at most $\\sqrt{c_{\\max}}$, here {ratio:.2f}."
    return [
        ruling("holds-with-curves", pictures=[curves(seed) for seed in SEEDS], correction=right),
        ruling(
            "zero-easier-than-identity",
            notes=("card",),
            pictures=[curves(seed) for seed in SEEDS],
            correction=right,
            numbers={"big": (2.0, 3.0, 4.0)},
        ),
        ruling("false-as-stated", group="norms", notes=("summary", "textbook"),
               numbers={"ratio": (1.2, 0.9, 3.4)}, correction=right),
        ruling("layernorm-sphere", group="norms", notes=("deep-dive",),
               pictures=[curves(seed, points=True) for seed in SEEDS],
               numbers={"big": (2.0, 3.0, 4.0)}, correction=right),
        ruling("undecided", group="attention", notes=(),
               numbers={"big": (10.0, 4000.0, 90.0)}),
        ruling("spectral-norm-ellipse", group="attention", notes=("deep-dive",),
               pictures=[curves(0, equal=True)]),
        ruling("infinite", group="collapse", notes=("deep-dive",),
               formula=r"x \to \infty \quad \text{or not}",
               pictures=[Picture("step", "loss", {"a line": ((1.0, 2.0, 3.0), (1.0, 0.0, 2.0))},
                                 y_log=True)],
               numbers={"big": (math.inf, math.inf, math.inf), "ratio": (math.nan, 0.1, 0.2)}),
        rule(claim_of("not-checkable", group="training", notes=("shortcuts", "card"), checks=(),
                      formula="", source="", why="Nobody here has these models."), {}),
        rule(claim_of("not-measured", group="training"), {}),
    ]  # fmt: skip


def pseudo(text: str, word: str) -> str:
    """Every word of a text replaced; placeholders, formulas and digits stay."""
    parts = FORMULA.split(text)
    for at, part in enumerate(parts):
        if part.startswith("$"):
            continue
        pieces = re.split(r"(\{[^{}]*\})", part)
        parts[at] = "".join(
            piece if PLACE.fullmatch(piece) else re.sub(r"[A-Za-z][A-Za-z'-]*", word, piece)
            for piece in pieces
        )
    return "".join(parts)


def languages(found: Sequence[Ruling]) -> dict[str, dict[str, str]]:
    """Dictionaries that have a word for every word."""
    texts = page_words() + [text for one in found for text in ruling_words(one)]
    return {
        "zh": {text: pseudo(text, "字词") for text in texts},
        "ru": {text: pseudo(text, "слово") for text in texts},
    }
