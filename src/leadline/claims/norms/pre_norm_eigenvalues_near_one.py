"""Pre-LN: J = I + eps has eigenvalues near 1, where |F'| is small.

The note assumes small |F'|. "claim": a Pre-LN model whose updates are divided by sqrt(2 L), with 48
layers, since in a deep model these updates are small: all eigenvalues of all blocks within a third
of 1. "reach": a model of 12 layers unscaled. The correction is
exact: |lambda - 1| <= |J - I| for every eigenvalue (an eigenvalue of J - I is bounded by its norm).
Dense Jacobians of all blocks, width 16, 8 tokens, by autograd; eigenvalues by numpy; the norm of
J - I by Leadline's own matrix-free measurement for the first block.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from leadline.claims.catalog import Measured, claim
from leadline.claims.claim import Check, Picture

if TYPE_CHECKING:
    from numpy.typing import NDArray

DEPTHS = {"scaled pre": 48, "pre": 12}
WIDTH, HEADS, LENGTH = 16, 2, 8


@claim(
    "pre-norm-eigenvalues-near-one",
    group="norms",
    notes=("shortcuts",),
    title="In Pre-LN the eigenvalues of a layer's Jacobian are near 1 if the branch is small",
    formula=r"J = I + \epsilon, \quad \lambda(J) \approx 1",
    plain="J = I + ε has eigenvalues ≈ 1",
    says="If the derivative of the branch is small, the Jacobian of a Pre-LN layer is the identity "
    "plus something small, and all its eigenvalues are near 1.",
    correction="$|\\lambda - 1| \\leq \\|J - I\\|$ for every eigenvalue. In unscaled Pre-LN models "
    "the branch is not small: eigenvalues of the first layer lie up to {first:.1f} away. And near "
    "eigenvalues do not bound growth, singular values do.",
    why="With updates divided by $\\sqrt{2L}$ every eigenvalue of every block lies within "
    "{scaled:.2f} of 1. Without the scaling the first block has eigenvalues {first:.2f} away from "
    "1. Its largest singular value is {largest:.1f}, although the note's picture would let one "
    "expect about 1. The assumption that the branch is small is what decides.",
    checks=(
        Check(
            "scaled", "claim", "at most", 1.0 / 3.0,
            label="largest |λ − 1| of any block, updates / √(2L)",
            because="Near 1: within a third of it.",
        ),
        Check(
            "first", "reach", "at most", 1.0 / 3.0,
            label="largest |λ − 1| of the first block, Pre-LN unscaled",
            because="Near 1: within a third of it.",
        ),
        Check(
            "bound", "correction", "at most", 1.0 + 1e-9,
            label="worst ratio of |λ − 1| to ‖J − I‖",
            because="An eigenvalue of J − I is at most its norm; room for rounding.",
        ),
        Check(
            "norm_error", "correction", "at most", 1e-3,
            label="‖J − I‖ of the first block: matrix-free against dense, relative",
            because="The matrix-free measurement is asked for a relative accuracy of 1e-4.",
            log=True,
        ),
    ),
    source="",
    seconds=1.0,
)  # fmt: skip
def measure(seed: int) -> Measured:
    """Dense block Jacobians of Pre-LN with and without scaling."""
    distances: dict[str, list[float]] = {}
    ratios: list[float] = []
    numbers: dict[str, float] = {}
    for design in DEPTHS:
        blocks, branch = _blocks(design, seed)
        shifted = [one - np.eye(len(one)) for one in blocks]
        norms = [float(np.linalg.norm(one, 2)) for one in shifted]
        distances[design] = [float(np.abs(np.linalg.eigvals(one)).max()) for one in shifted]
        ratios += [far / norm for far, norm in zip(distances[design], norms, strict=True)]
        if design == "pre":
            numbers["largest"] = float(np.linalg.norm(blocks[0], 2))
            numbers["norm_error"] = abs(branch - norms[0]) / norms[0]
    return Measured(
        {
            "scaled": max(distances["scaled pre"]),
            "first": distances["pre"][0],
            "bound": max(ratios),
            **numbers,
        },
        Picture(
            "layer",
            "largest |λ − 1|",
            {
                label: (
                    tuple(float(layer) for layer in range(1, DEPTHS[design] + 1)),
                    tuple(distances[design]),
                )
                for label, design in (("Pre-LN", "pre"), ("Pre-LN, updates / √(2L)", "scaled pre"))
            },
        ),
    )


def _blocks(design: str, seed: int) -> tuple[list[NDArray[np.float64]], float]:
    """The dense Jacobian of every block, and sigma_1(J - I) of the first without a dense matrix."""
    import torch

    from leadline.experiments.gradient_flow.starts import (
        batch_of,
        built,
        plain_attention,
        seen_writes,
    )
    from leadline.instruments.jacobian.measure import jacobian

    model = built(
        design, DEPTHS[design], width=WIDTH, heads=HEADS, length=LENGTH, seed=seed
    ).double()
    ids = batch_of(LENGTH, examples=1, seed=seed).ids
    found: list[NDArray[np.float64]] = []
    with plain_attention():
        with torch.no_grad(), seen_writes(model) as seen:
            model.stream(ids)
        writes = len(model.recipe.branches)
        for at, block in enumerate(model.blocks):
            x, run = seen.states[writes * at], seen.runs[writes * at]
            whole = torch.autograd.functional.jacobian(
                lambda v, f=block, r=run: f(v, r), x, vectorize=True
            )
            assert isinstance(whole, torch.Tensor)
            found.append(whole.reshape(x.numel(), x.numel()).numpy())
        own = jacobian(model, ids, layer=1, k=1, probes=2, tolerance=1e-4)
    return found, float(own.branch[0])
