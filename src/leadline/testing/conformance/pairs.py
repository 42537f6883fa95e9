"""A connection with every placement, a placement with every connection: refused, or it balances."""

from __future__ import annotations

from leadline.errors import RecipeError, words_of
from leadline.instruments.passes.measurement import anatomy_of
from leadline.parts import Transformer
from leadline.testing.conformance._case import PartCase, companions, gradients, stir
from leadline.testing.conformance._check import Failed, Question, require
from leadline.testing.conformance.running import require_gradients

__all__ = ["questions"]


def questions(case: PartCase) -> list[Question]:
    """The check of all pairs."""
    return [("pairs", lambda: _pairs(case))]


def _pairs(case: PartCase) -> str:
    accepted, refused = 0, 0
    for companion in companions(case.kind):
        (kind, name), *_ = companion.items()
        try:
            recipe = case.recipe_with(companion)
        except RecipeError:
            refused += 1
            continue
        try:
            _balances(case, Transformer(recipe).eval())
        except Exception as error:
            text = words_of(error, first_line=True)
            raise Failed(f"with the {kind} {name}: {type(error).__name__}: {text}") from error
        accepted += 1
    return f"{accepted} balance, {refused} refused"


def _balances(case: PartCase, model: Transformer) -> None:
    stir(model)
    inputs = case.inputs(2, 5)
    out = model(inputs)
    require(bool(out.isfinite().all()), "values are not finite")
    require_gradients(gradients(model, out), "with stirred weights")
    anatomy_of(model, {"input_ids": inputs})
