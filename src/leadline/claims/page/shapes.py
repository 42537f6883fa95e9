"""Pictures that a reader can move: the numbers behind them, their sliders, their first drawing.

Attention makes an ellipse of a circle, LayerNorm a circle of space. The page computes the same
again in its script whenever a slider moves.

    powers     L log10(1 + e), L log10(1 - e), L log10(e)
    ellipse    the image of the unit circle under A = softmax of two rows of two logits. With the
               differences s and t of the rows' logits, A = [[a, 1 - a], [b, 1 - b]],
               a = 1 / (1 + exp(-s)), b = 1 / (1 + exp(-t)). Singular values in closed form:
               E = (p + s) / 2, F = (p - s) / 2, G = (r + q) / 2, H = (r - q) / 2 of
               [[p, q], [r, s]] give hypot(E, H) +- hypot(F, G). At most the square root of the
               largest column sum, for ||A||^2 <= ||A||_1 ||A||_inf and rows sum to 1.
    sphere     LayerNorm without epsilon in three dimensions: (x - mean) / deviation has the length
               sqrt(3) and is orthogonal to (1, 1, 1): a circle. Gains g make it an ellipse whose
               semi-axes are sqrt(3) times the singular values of diag(g) B, where the columns of B
               span the plane.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from leadline.claims.page.phrases import BALANCE, ELLIPSE, ELLIPSE_KEYS, SPHERE, SPHERE_KEYS
from leadline.claims.page.pictures import swatch_of
from leadline.reading.show.formulas import mathml

if TYPE_CHECKING:
    from leadline.claims.page.words import Words

__all__ = [
    "AXES",
    "GAINS",
    "LOGITS",
    "TURN",
    "UNIT_2D",
    "UNIT_3D",
    "Ellipse",
    "attention_ellipse",
    "ellipse",
    "gained_axes",
    "key_list",
    "layer_norm",
    "piece",
    "powers",
    "slider",
    "sphere",
    "tokens",
    "view",
]

Array = NDArray[np.float64]

PLANE: Array = np.array(
    [[1 / math.sqrt(2), 1 / math.sqrt(6)], [-1 / math.sqrt(2), 1 / math.sqrt(6)], [0.0, -2 / math.sqrt(6)]]
)  # fmt: skip
"""Columns that are orthonormal and orthogonal to (1, 1, 1)."""
ELEVATION = 0.42
"""How far above the horizon the eye stands, in radians."""


@dataclass(frozen=True)
class Ellipse:
    """What a 2 x 2 attention matrix makes of the unit circle."""

    matrix: Array
    long: float
    short: float
    bound: float
    """The square root of the largest column sum."""
    before: Array
    """The unit vector that becomes the long semi-axis."""
    after: Array
    """That semi-axis."""


def powers(epsilon: float, depth: int) -> tuple[float, float, float]:
    """Logarithms to base 10 of (1 + e)^L, (1 - e)^L and e^L."""
    return (
        depth * math.log10(1 + epsilon),
        depth * math.log10(1 - epsilon),
        depth * math.log10(epsilon),
    )


def attention_ellipse(s: float, t: float) -> Ellipse:
    """The ellipse of the rows softmax(s, 0) and softmax(t, 0)."""
    a, b = 1 / (1 + math.exp(-s)), 1 / (1 + math.exp(-t))
    matrix = np.array([[a, 1 - a], [b, 1 - b]])
    _, values, right = np.linalg.svd(matrix)
    before = right[0] if right[0].sum() >= 0 else -right[0]
    bound = math.sqrt(float(matrix.sum(axis=0).max()))
    return Ellipse(matrix, float(values[0]), float(values[1]), bound, before, matrix @ before)


def layer_norm(token: Sequence[float] | Array) -> Array:
    """LayerNorm without gain, bias and epsilon."""
    centred = np.asarray(token, dtype=np.float64) - np.mean(token)
    return centred / math.sqrt(float(np.mean(centred**2)))


def gained_axes(gains: Sequence[float]) -> tuple[float, float]:
    """The semi-axes of the ellipse that gains make of the circle, the longer first."""
    values = np.linalg.svd(np.diag(np.asarray(gains, dtype=np.float64)) @ PLANE, compute_uv=False)
    return math.sqrt(3) * float(values[0]), math.sqrt(3) * float(values[1])


def tokens(count: int = 10, *, seed: int = 0) -> Array:
    """Vectors for the picture: normal ones around a common offset."""
    drawn = np.random.default_rng(seed).normal(size=(count, 3))
    return np.round(1.3 * drawn + np.array([0.9, 0.6, 0.9]), 3)


def view(points: Array, turn: float) -> Array:
    """Points of space as an eye far away sees them, which stands at the angle `turn`."""
    right = np.array([-math.sin(turn), math.cos(turn), 0.0])
    up = np.array(
        [
            -math.cos(turn) * math.sin(ELEVATION),
            -math.sin(turn) * math.sin(ELEVATION),
            math.cos(ELEVATION),
        ]
    )
    return np.stack([points @ right, points @ up], axis=-1)


def piece(kind: str) -> str:
    """A short piece of a line."""
    return swatch_of(f'<path class="line {kind}" d="M1 6H29"/>')


def key_list(words: Words, names: Sequence[tuple[str, str]]) -> str:
    """What the lines of a picture are, by their kinds."""
    spot = swatch_of('<circle class="dot raw" cx="15" cy="6" r="3.4"/>')
    rows = "".join(
        f"<li>{spot if kind == 'raw' else piece(kind)}{words.page(name)}</li>"
        for kind, name in names
    )
    return f'<ul class="key">{rows}</ul>'


def slider(
    words: Words, key: str, name: str, *, low: float, high: float, step: float, value: float
) -> str:
    """A slider with its name and its value; a name without Latin letters is a symbol."""
    label = words.page(name) if any(sign.isascii() and sign.isalpha() for sign in name) else name
    return (
        f'<label class="slider" for="{key}"><span>{label}</span>'
        f'<output id="{key}-value" for="{key}">{value:g}</output>'
        f'<input type="range" id="{key}" min="{low:g}" max="{high:g}" step="{step:g}" '
        f'value="{value:g}"></label>'
    )


UNIT_2D, UNIT_3D, MIDDLE = 100.0, 45.0, 160.0
"""How long 1 is drawn in both pictures, and where their middle is."""
AXES = 3.1
"""How long the axes of the picture of the sphere are."""
LOGITS = (2.5, 1.0)
GAINS = (1.6, 0.6, 1.0)
TURN = 20
"""Where the sliders stand at first; the turn in degrees."""


def ellipse(words: Words) -> str:
    """The unit circle and its image under the attention of two tokens."""
    s, t = (float(v) for v in LOGITS)
    found = attention_ellipse(s, t)
    around = np.linspace(0, 2 * math.pi, 121)
    circle = np.stack([np.cos(around), np.sin(around)], axis=-1)
    svg = (
        '<svg class="curves flat" id="ellipse" viewBox="0 0 320 320" aria-hidden="true">'
        '<path class="axis" d="M0 160H320M160 0V320"/>'
        f'<circle class="line bound" id="ellipse-bound" cx="160" cy="160" r="{UNIT_2D * found.bound:.2f}"/>'
        '<circle class="line circle" cx="160" cy="160" r="100"/>'
        f'<path class="line image" id="ellipse-image" d="{_flat(circle @ found.matrix.T)}z"/>'
        f'<path class="line before" id="ellipse-before" d="{_flat(np.array([[0, 0], found.before]))}"/>'
        f'<path class="line after" id="ellipse-after" d="{_flat(np.array([[0, 0], found.after]))}"/>'
        '<text class="m" x="272" y="174">1</text><text class="e" x="154" y="56">1</text></svg>'
    )
    cells = "".join(
        f'<output id="ellipse-{row}{column}">{found.matrix[row, column]:.3f}</output>'
        for row in (0, 1)
        for column in (0, 1)
    )
    rows = "".join(
        f'<li>{mathml(latex)} = <output id="ellipse-{key}">{value:.4f}</output></li>'
        for key, latex, value in (
            ("long", r"\sigma_1 = \|A\|", found.long),
            ("short", r"\sigma_2", found.short),
            ("limit", r"\sqrt{c_{\max}}", found.bound),
        )
    )
    return (
        words.page(ELLIPSE, tag="p")
        + f'<div class="board"><figure>{svg}{key_list(words, ELLIPSE_KEYS)}</figure><div class="knobs">'
        + slider(
            words, "ellipse-s", "First row: logit difference", low=-6, high=6, step=0.1, value=s
        )
        + slider(
            words, "ellipse-t", "Second row: logit difference", low=-6, high=6, step=0.1, value=t
        )
        + f'<p class="matrix">{mathml("A")} = <span>{cells}</span></p><ul class="numbers">{rows}</ul>'
        + words.page(BALANCE, tag="p", more='class="soft"')
        + "</div></div>"
    )


def _flat(points: Array) -> str:
    placed = MIDDLE + UNIT_2D * points * np.array([1.0, -1.0])
    return "M" + "L".join(f"{x:.2f} {y:.2f}" for x, y in placed)


# --- sphere to ellipsoid ---------------------------------------------------------------------


def sphere(words: Words) -> str:
    """Tokens of three entries before and after LayerNorm, and with gains."""
    gains, turn = np.array(GAINS), math.radians(TURN)
    drawn = tokens()
    normal = np.array([layer_norm(token) for token in drawn])
    around = np.linspace(0, 2 * math.pi, 121)
    circle = math.sqrt(3) * np.stack([np.cos(around), np.sin(around)], axis=-1) @ PLANE.T
    rays = "".join(
        _space(np.array([token, point]), turn) for token, point in zip(drawn, normal, strict=True)
    )
    axes = np.array(AXES * np.eye(3))
    names = "".join(
        f'<text class="m" id="sphere-x{k + 1}" x="{x:.2f}" y="{y + 4:.2f}">x{"₁₂₃"[k]}</text>'
        for k, (x, y) in enumerate(_placed(1.08 * axes, turn))
    )
    svg = (
        '<svg class="curves flat" id="sphere" viewBox="0 0 320 320" aria-hidden="true">'
        f'<path class="axis" id="sphere-axes" d="{"".join(_space(np.array([[0, 0, 0], end]), turn) for end in axes)}"/>{names}'
        f'<circle class="line note" cx="160" cy="160" r="{UNIT_3D:g}"/>'
        f'<circle class="line outline" cx="160" cy="160" r="{UNIT_3D * math.sqrt(3):.2f}"/>'
        f'<path class="line rays" id="sphere-rays" d="{rays}"/>'
        f'<path class="line plain" id="sphere-circle" d="{_space(circle, turn)}z"/>'
        f'<path class="line gained" id="sphere-ellipse" d="{_space(circle * gains, turn)}z"/>'
        f'<g id="sphere-tokens">{_dots("raw", drawn, turn)}</g>'
        f'<g id="sphere-normal">{_dots("plain", normal, turn)}</g>'
        f'<g id="sphere-gained">{_dots("gained", normal * gains, turn)}</g></svg>'
    )
    long, short = gained_axes([float(v) for v in gains])
    lengths = np.linalg.norm(normal, axis=1)
    sliders = "".join(
        slider(words, f"gain-{k + 1}", f"Gain {k + 1}", low=0.2, high=2, step=0.05, value=float(v))
        for k, v in enumerate(gains)
    )
    turned = slider(words, "sphere-turn", "Turn the picture", low=-180, high=180, step=1, value=TURN)  # fmt: skip
    rows = "".join(
        f'<li>{words.page(name)}: <output id="sphere-{key}">{value}</output></li>'
        for key, name, value in (
            ("lengths", "lengths after LayerNorm", f"{lengths.min():.4f} – {lengths.max():.4f}"),
            ("long", "longer semi-axis", f"{long:.4f}"),
            ("short", "shorter semi-axis", f"{short:.4f}"),
        )
    )
    return (
        words.page(SPHERE, tag="p")
        + f'<div class="board"><figure>{svg}{key_list(words, SPHERE_KEYS)}</figure><div class="knobs">'
        + f'{sliders}{turned}<ul class="numbers">{rows}</ul></div></div>'
    )


def _placed(points: Array, turn: float) -> list[tuple[float, float]]:
    seen = MIDDLE + UNIT_3D * view(points, turn) * np.array([1.0, -1.0])
    return [(float(x), float(y)) for x, y in seen]


def _space(points: Array, turn: float) -> str:
    return "M" + "L".join(f"{x:.2f} {y:.2f}" for x, y in _placed(points, turn))


def _dots(kind: str, points: Array, turn: float) -> str:
    return "".join(
        f'<circle class="dot {kind}" cx="{x:.2f}" cy="{y:.2f}" r="3.4"/>'
        for x, y in _placed(points, turn)
    )
