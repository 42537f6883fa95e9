"""The phrases of the verdict: few enough that a page can say each of them in its own language.

A sentence is what it is about, and what is said: "Post-norm, 48 layers: tokens become equal by layer
20; train with a warm-up, or place the norms before the branches." Both are phrases with numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

__all__ = ["PHRASES", "PLACES", "Phrase", "sentence_of"]

PLACES = {
    "pre": "Pre-norm",
    "post": "Post-norm",
    "none": "No norms around the branches",
    "parallel": "Attention and MLP side by side",
    "output": "Norms on the branches' outputs",
    "sandwich": "Norms before and after the branches",
    "layernorm_scaling": "Pre-norm, scaled by 1/sqrt(layer)",
    "hybrid": "Hybrid norms",
    "keel": "Keel's norms",
    "mix": "Post-norm below, pre-norm above",
    "normformer": "NormFormer's norms",
    "subln": "Sub-LN",
}
PHRASES = {
    **{f"place.{name}": words for name, words in PLACES.items()},
    "place": "Placement {name}",
    "no-norms": "No norms",
    "no-shortcut": "no shortcut",
    "connection": "connection {name}",
    "layers": "{n} layers",
    # what was found
    "equal": "tokens become equal by layer {layer}",
    "equal-starved": "tokens become equal by layer {layer}, and the gradient does not reach the first "
    "layers",
    "vanishes": "the gradient vanishes on its way down: layer {layer} gets {share} of the last "
    "layer's, size for size",
    "vanishes-in-weights": "the gradient vanishes on its way down: layer {layer} gets {share} of the "
    "last layer's, in its weights",
    "explodes": "the gradient explodes on its way down: layer 1 gets {share} times the last layer's, "
    "size for size",
    "stream-grows": "the stream grows {times}-fold",
    "post-deep": "the last layers' gradient does not fall with depth",
    "stream-overflows": "the stream leaves the range of float32 in layer {layer}",
    "gradient-overflows": "the gradient leaves the range of float32 at layer {layer}",
    "healthy": "healthy",
    "passes": "layer 1 gets {share} times the last layer's gradient, and tokens still differ by {left} "
    "of their size at the top",
    "silent": "every branch is silent at the start, so each block is the shortcut alone",
    "silent-passes": "every branch is silent at the start, so each block is the shortcut alone and the "
    "gradient passes as it is",
    "silent-leaves": "it leaves layer 1 with {share} of the last layer's gradient",
    # what to do
    "add-shortcut": "add a shortcut around every branch",
    "warm-up-or-before": "train with a warm-up, or place the norms before the branches",
    "smaller-branches": "make the branches smaller, or keep more of the stream",
    "before-or-deepnorm": "place the norms before the branches, or use the connection deepnorm",
    "keep-stream": "let the shortcut keep the whole stream",
    "start-again": "start again with a smaller learning rate and a warm-up",
    "norm-or-gain": "place a norm before every branch, or turn the gain down",
}


@dataclass(frozen=True)
class Phrase:
    """One phrase with its numbers."""

    key: str
    values: dict[str, str | int] = field(default_factory=dict[str, str | int])

    def __str__(self) -> str:
        return PHRASES[self.key].format(**self.values)

    def to_json(self) -> dict[str, Any]:
        """Return it for a page that says it in another language."""
        return {"key": self.key, "values": self.values}


def sentence_of(about: Sequence[Phrase], said: Sequence[Phrase]) -> str:
    """Return the sentence in English."""
    return f"{', '.join(map(str, about))}: {'; '.join(map(str, said))}."
