"""The spectral norm is the longest semi-axis of the ellipse that a matrix makes of the unit circle.

A = U S V' maps the unit circle to an ellipse with semi-axes sigma_1 and sigma_2 along u_1 and u_2;
its farthest point is A v_1 = sigma_1 u_1. Measured on attention matrices of two tokens,

    A = [[1/(1+e^-a), 1/(1+e^a)], [1/(1+e^b), 1/(1+e^-b)]],

by walking the circle, beside the product's own singular values and the closed form of a 2 x 2.
"""

from __future__ import annotations

import math

import numpy as np

from leadline.claims.catalog import Measured, claim
from leadline.claims.claim import Check, Picture

STEPS = 100_000
DRAWN = 20


@claim(
    "spectral-norm-ellipse",
    group="attention",
    notes=("deep-dive",),
    title="The spectral norm is the longest semi-axis of the image of the unit circle",
    formula=r"\|A\|_2 = \max_{\|x\|_2 = 1} \|A x\|_2 = \sigma_1(A)",
    plain="‖A‖₂ = max over ‖x‖ = 1 of ‖A x‖ = σ₁(A)",
    says="A matrix maps the unit circle to an ellipse; the distance of its farthest point from the "
    "origin is the spectral norm, and that direction is the principal singular vector.",
    correction="",
    why="The unit circle was walked in small steps and mapped by attention matrices of two tokens. "
    "The farthest point of the image lies at the largest singular value, to {axis_error}, and in the "
    "direction of the left singular vector, to an angle of {angle_error} radians. In the picture the "
    "longest semi-axis is {norm_drawn:.3f}, the shortest {least_drawn:.3f}: most directions become "
    "shorter, one becomes longer.",
    checks=(
        Check(
            "axis_error",
            "claim",
            "at most",
            1e-8,
            label="farthest point against the largest singular value, relative",
            because="Steps of 6e-5 radians miss the top of a cosine by 2e-9 at the most.",
            log=True,
        ),
        Check(
            "angle_error",
            "claim",
            "at most",
            1e-3,
            label="angle between the farthest point and the singular vector",
            because="Half a step on the circle, 3e-5 radians, is turned by less than the ratio of "
            "the semi-axes, which is below 10 here.",
            log=True,
        ),
        Check(
            "closed_form_error",
            "claim",
            "at most",
            1e-12,
            label="singular value against the closed form of a 2 x 2 matrix",
            because="Both are right to a few float64 roundings.",
            log=True,
        ),
    ),
    seconds=0.02,
)
def measure(seed: int) -> Measured:
    """Walk the circle for random matrices; the last one is drawn."""
    import torch

    from leadline.numerics.spectra.spectrum import singular_values

    rng = np.random.default_rng([seed, 4600])
    angle = np.linspace(0, 2 * math.pi, STEPS, endpoint=False)
    circle = np.stack([np.cos(angle), np.sin(angle)])
    axis, turned, closed = [], [], []
    matrix, image, values = np.eye(2), circle, np.ones(2)
    for number in range(DRAWN):
        # The picture's matrix is the same with every seed; the others are drawn.
        a, b = rng.uniform(-3, 3, 2) if number < DRAWN - 1 else (1.2, -2.0)
        matrix = np.array([[_weight(a), _weight(-a)], [_weight(-b), _weight(b)]])
        values = singular_values(torch.from_numpy(matrix)).numpy()
        image = matrix @ circle
        lengths = np.linalg.norm(image, axis=0)
        top = int(lengths.argmax())
        left = np.linalg.svd(matrix)[0][:, 0]
        axis.append(abs(lengths[top] / values[0] - 1))
        turned.append(math.acos(min(1.0, abs(float(left @ image[:, top])) / lengths[top])))
        whole, area = float(np.square(matrix).sum()), float(np.linalg.det(matrix))
        root = math.sqrt((whole + math.sqrt(max(0.0, whole**2 - 4 * area**2))) / 2)
        closed.append(abs(root - values[0]))
    some = np.append(np.arange(0, STEPS, STEPS // 90), 0)
    top = image[:, int(np.linalg.norm(image, axis=0).argmax())]

    def line(points: np.ndarray) -> tuple[tuple[float, ...], tuple[float, ...]]:
        return tuple(points[0].tolist()), tuple(points[1].tolist())

    return Measured(
        {
            "axis_error": float(max(axis)),
            "angle_error": float(max(turned)),
            "closed_form_error": float(max(closed)),
            "norm_drawn": float(values[0]),
            "least_drawn": float(values[1]),
        },
        Picture(
            "first token",
            "second token",
            {
                "unit circle": line(circle[:, some]),
                "its image": line(image[:, some]),
                "longest semi-axis": line(np.stack([np.zeros(2), top], 1)),
            },
            equal=True,
            faint=("unit circle",),
        ),
    )


def _weight(difference: float) -> float:
    return 1 / (1 + math.exp(-difference))
