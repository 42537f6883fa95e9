"""Checks of a norm: any width, any leading axes, zeros and large values."""

from __future__ import annotations

import torch
from torch import nn

from leadline.parts.norms import NORMS
from leadline.testing.conformance._case import PartCase
from leadline.testing.conformance._check import Question, require

__all__ = ["questions"]

SHAPES = ((1, 1, 1), (2, 3, 8), (2, 3, 4, 5), (7,))
LARGE = 1e4


def questions(case: PartCase) -> list[Question]:
    """The checks of a norm on its own."""
    return [("any vector", lambda: _any_vector(case))]


def _any_vector(case: PartCase) -> str:
    for shape in SHAPES:
        norm: nn.Module | None = NORMS.build(case.choice, width=shape[-1])
        if norm is None:
            return "no norm stands"
        for name, x in (
            ("random values", torch.randn(shape)),
            ("zeros", torch.zeros(shape)),
            ("values of size 10,000", LARGE * torch.randn(shape)),
        ):
            x.requires_grad_()
            out = norm(x)
            require(
                out.shape == x.shape,
                f"{list(shape)} in, {list(out.shape)} out: a norm keeps the shape",
            )
            require(bool(out.isfinite().all()), f"{name} give values that are not finite")
            out.sum().backward()
            leaves = [x, *norm.parameters()]
            require(
                all(t.grad is not None and bool(t.grad.isfinite().all()) for t in leaves),
                f"{name} give gradients that are not finite, or none",
            )
    return f"{len(SHAPES)} shapes, zeros and large values among them"
