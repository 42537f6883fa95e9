"""What a user says a model is meant to be: "pre-norm, causal, 12 layers", or the name of a family.

    parse_intended("pre-norm, causal, gpt2")

A phrase that is not understood is refused with those that are.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from leadline.errors import InputError
from leadline.reading.diagnosis.designs import DESIGNS, FamilyDesign, design_of

__all__ = ["PHRASES", "Intention", "parse_intended"]


@dataclass(frozen=True)
class Expectation:
    """One thing that is meant to hold, and the phrase that said so."""

    aspect: str
    value: object
    phrase: str


@dataclass(frozen=True)
class Intention:
    """Everything that is meant to hold, one expectation per aspect; the later phrase wins."""

    expectations: tuple[Expectation, ...]


PHRASES: dict[str, tuple[str, object]] = {
    "pre-norm": ("placement", "pre"),
    "post-norm": ("placement", "post"),
    "sandwich-norm": ("placement", "sandwich"),
    "output-norm": ("placement", "output"),
    "no norm": ("placement", "none"),
    "causal": ("causal", True),
    "bidirectional": ("causal", False),
    "not causal": ("causal", False),
    "parallel": ("parallel", True),
    "sequential": ("parallel", False),
    "tied": ("tied", True),
    "untied": ("tied", False),
    "layernorm": ("norm", "layernorm"),
    "rmsnorm": ("norm", "rmsnorm"),
    "final norm": ("final_norm", True),
    "no final norm": ("final_norm", False),
    "deepnorm": ("deepnorm", True),
}
"""What can be said, beside `N layers`, `width N`, `window N`, `residual multiplier X` and families."""

_SPELLINGS = {
    "prenorm": "pre-norm", "pre norm": "pre-norm", "pre-ln": "pre-norm", "pre ln": "pre-norm",
    "postnorm": "post-norm", "post norm": "post-norm", "post-ln": "post-norm", "post ln": "post-norm",
    "sandwich": "sandwich-norm", "sandwich norm": "sandwich-norm", "peri-ln": "sandwich-norm",
    "norm on the output": "output-norm", "output norm": "output-norm", "no norms": "no norm",
    "autoregressive": "causal", "decoder": "causal", "decoder-only": "causal",
    "encoder": "bidirectional", "encoder-only": "bidirectional", "non-causal": "not causal",
    "noncausal": "not causal", "parallel blocks": "parallel", "parallel residual": "parallel",
    "tied embeddings": "tied", "tied weights": "tied", "untied embeddings": "untied",
    "layer norm": "layernorm", "rms norm": "rmsnorm", "rms-norm": "rmsnorm", "deepnet": "deepnorm",
}  # fmt: skip
_NUMBERS = (
    (re.compile(r"(\d+) (?:layers?|blocks?)"), "depth", int),
    (re.compile(r"(?:depth|layers) (\d+)"), "depth", int),
    (re.compile(r"width (\d+)"), "width", int),
    (re.compile(r"(?:sliding )?window (?:of )?(\d+)"), "window", int),
    (re.compile(r"residual multiplier ([\d.]+(?:e-?\d+)?)"), "gain", float),
)


def parse_intended(text: str) -> Intention:
    """Understand a text of phrases between commas; InputError for one that means nothing here."""
    phrases = [part.strip() for part in re.split(r"[,;+]|\band\b", text.lower()) if part.strip()]
    if not phrases:
        raise InputError(f"The intention is empty; say for example 'pre-norm, causal'. {_known()}")
    expectations: dict[str, Expectation] = {}
    for phrase in phrases:
        for one in _expectations(phrase):
            expectations[one.aspect] = one
    return Intention(tuple(expectations.values()))


def _expectations(phrase: str) -> list[Expectation]:
    usual = _SPELLINGS.get(phrase, phrase)
    if usual in PHRASES:
        aspect, value = PHRASES[usual]
        return [Expectation(aspect, value, phrase)]
    for pattern, aspect, kind in _NUMBERS:
        match = pattern.fullmatch(phrase)
        if match is not None:
            return [Expectation(aspect, kind(match[1]), phrase)]
    if phrase == "default":
        return []
    design = design_of(phrase)
    if design is None:
        raise InputError(f"The intention '{phrase}' is not understood. {_known()}")
    return _of_family(phrase, design)


def _of_family(name: str, design: FamilyDesign) -> list[Expectation]:
    aspects = {
        "placement": design.placement,
        "norm": design.norm,
        "causal": design.causal,
        "parallel": design.parallel,
        "final_norm": design.final_norm,
        "tied": design.tied,
    }
    return [
        Expectation(aspect, value, name) for aspect, value in aspects.items() if value is not None
    ]


def _known() -> str:
    return (
        f"Phrases: {', '.join(PHRASES)}, N layers, width N, window N, residual multiplier X. "
        f"Families: {', '.join(sorted(DESIGNS))}."
    )
