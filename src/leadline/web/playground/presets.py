"""The stories of the playground: two designs side by side, what they tell, and the curve to look at.

What a story says is measured: a test reads the curves of both designs for every one of them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from leadline.web.playground.design import Design

__all__ = ["STORIES", "Story", "preset_list"]

_PURE: dict[str, Any] = {
    "connection": "none",
    "norm": "none",
    "placement": "none",
    "mlp": "none",
    "mask": "full",
    "heads": 1,
    "init": "xavier",
    "depth": 12,
}
"""Self-attention alone: nothing but averages of averages."""


@dataclass(frozen=True)
class Story:
    """One preset. `a` and `b` are what differs from the default design."""

    id: str
    title: str
    story: str
    watch: str
    a: dict[str, Any] = field(default_factory=dict[str, Any])
    b: dict[str, Any] = field(default_factory=dict[str, Any])

    def designs(self) -> tuple[Design, Design]:
        """Return both sides."""
        return Design.from_json(self.a), Design.from_json(self.b)

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON."""
        fields = {"id": self.id, "title": self.title, "story": self.story}
        return fields | {"a": dict(self.a), "b": dict(self.b), "watch": self.watch}


STORIES: tuple[Story, ...] = (
    Story(
        "no-shortcut",
        "Without a shortcut",
        "In A every branch replaces what came before it, and the gradient has to pass through all 24 "
        "layers: less than a millionth of it reaches the first. In B the same branches are added to a "
        "shortcut, and the gradient is nearly the same at every layer.",
        "gradient.stream",
        {"connection": "none", "norm": "none", "init": "xavier"},
        {"connection": "weighted(alpha=depth)", "norm": "none", "init": "xavier"},
    ),
    Story(
        "nine-tenths",
        "0.9 to the power of 100",
        "The branches are silent here, so only the shortcut carries anything. In A it keeps all of the "
        "stream, in B nine tenths at each of 100 writes. Nine tenths sounds like a lot, "
        "but a product of 100 of them leaves 0.00003: so much of the gradient reaches the input.",
        "gradient.stream",
        {"gain": 0.0, "depth": 50},
        {"connection": "deepscalelm(k=9.5)", "gain": 0.0, "depth": 50},
    ),
    Story(
        "post-against-pre",
        "Norms before or after",
        "The same 48 layers, with the norm before each branch in A and after each addition in B. After "
        "the addition, every norm shrinks the shortcut beside the branch; attention mixes the tokens a "
        "little more each time, and near the top they are all the same vector. "
        "Such a model needs a warm-up, or it does not train.",
        "tokens.relative_residual",
        {"depth": 48, "init": "xavier"},
        {"depth": 48, "init": "xavier", "placement": "post"},
    ),
    Story(
        "one-over-sqrt-n",
        "GPT-2's 1 over the square root of N",
        "Every write adds to the stream, so after 96 writes it is more than four times as large, and "
        "what a late layer adds hardly matters in it. GPT-2 divides what is written by the square "
        "root of the number of writes: in B the stream keeps its size at any depth.",
        "stream.norm",
        {"depth": 48, "init": "xavier"},
        {"depth": 48, "init": "xavier", "connection": "weighted(alpha=depth)"},
    ),
    Story(
        "deepnorm",
        "DeepNorm: post-norm for 96 layers",
        "Both designs have the norm after the addition. In A the tokens become equal long before the "
        "top. In B the shortcut is multiplied by a number above 1 and the branches are drawn smaller, "
        "just enough for the depth: 96 layers keep the tokens apart.",
        "tokens.relative_residual",
        {"depth": 96, "init": "xavier", "placement": "post"},
        {"depth": 96, "connection": "deepnorm", "placement": "post"},
    ),
    Story(
        "rezero",
        "ReZero: begin with nothing",
        "No norms at all. In A the gradient grows in every layer until it is useless. In B every "
        "branch is multiplied by a learned number that starts at zero: at the beginning each block "
        "hands on exactly what it was given, and so does the gradient.",
        "gradient.stream",
        {"norm": "none", "init": "xavier"},
        {"norm": "none", "init": "xavier", "connection": "rezero"},
    ),
    Story(
        "hyper-connections",
        "Hyper-connections: four streams for one",
        "In B the stream has four lanes, and learned numbers say how they mix. Before training every "
        "lane is the plain stream of A: the norm of the four together is exactly twice as large, and "
        "tokens are as far apart. What is won is room to learn; press Train.",
        "stream.norm",
        {},
        {"connection": "hyper(lanes=4)"},
    ),
    Story(
        "rank-collapse",
        "Rank collapse",
        "Attention is an average, and averages of averages become equal. Without a shortcut, in A, the "
        "differences between tokens fall faster than any power: the exponent itself triples from "
        "layer to layer. With a shortcut around the same attention, in B, they stay.",
        "tokens.relative_residual",
        _PURE,
        _PURE | {"connection": "identity"},
    ),
    Story(
        "rank-collapse-mlp",
        "Rank collapse, with an MLP instead",
        "An MLP works on every token by itself. It can pull tokens apart, but as it is drawn it does "
        "not: in B each layer has one, and without a shortcut the tokens become equal all the "
        "same.",
        "tokens.relative_residual",
        _PURE,
        _PURE | {"mlp": "gelu_tanh"},
    ),
    Story(
        "rank-collapse-causal",
        "Rank collapse under a causal mask",
        "When no token sees a later one, as in B, the first token sees itself alone and never moves. "
        "Tokens still become equal, but only by a constant factor from layer to layer: a straight line "
        "on this axis, where without a mask, in A, it falls off a cliff.",
        "tokens.relative_residual",
        _PURE,
        _PURE | {"mask": "causal"},
    ),
)


def preset_list() -> list[dict[str, Any]]:
    """Return every story as JSON."""
    return [story.to_json() for story in STORIES]
