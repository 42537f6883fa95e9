"""What the numbers say about the claims on rank collapse, and that every text finds its numbers."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import pytest

from leadline.claims import CLAIMS
from leadline.claims.claim import placeholders
from leadline.claims.ruling import Ruling, rule
from tests.claims_ruled import ruled

HOLDS, CONDITIONS, FALSE = "holds", "holds under conditions", "false as stated"

FAST = {
    "attention-flattens-differences": CONDITIONS,
    "bound-tells-the-residual": CONDITIONS,
    "causal-attention-collapses-doubly": FALSE,
    "collapse-outruns-stochastic-products": CONDITIONS,
    "composite-is-a-norm": FALSE,
    "composite-makes-products-converge": FALSE,
    "figure-lower-bound-at-every-layer": CONDITIONS,
    "gamma-is-a-constant": FALSE,
    "larger-lipschitz-slows-collapse": CONDITIONS,
    "left-mixes-right-does-not": HOLDS,
    "length-zero-path-keeps-rank": HOLDS,
    "lipschitz-measures-rank-raising": FALSE,
    "many-more-paths-with-skip": CONDITIONS,
    "mean-is-the-argmin": CONDITIONS,
    "mlp-is-lipschitz": CONDITIONS,
    "mlp-raises-rank": CONDITIONS,
    "norms-do-not-matter-for-collapse": CONDITIONS,
    "one-norm-is-the-largest-column-sum": HOLDS,
    "orthogonal-updates-keep-the-residual": FALSE,
    "output-is-a-sum-over-paths": CONDITIONS,
    "path-counts-by-length": HOLDS,
    "paths-are-single-head-networks": CONDITIONS,
    "prefactor-grows-exponentially": FALSE,
    "published-proof-step": FALSE,
    "pure-attention-collapses-doubly": CONDITIONS,
    "query-and-key-norms-suffice": FALSE,
    "residual-below-one-suffices": FALSE,
    "residual-is-a-projection": HOLDS,
    "residual-is-centring": HOLDS,
    "residual-obeys-the-cubic-bound": CONDITIONS,
    "short-paths-avoid-collapse": HOLDS,
    "value-norms-suffice-with-heads": FALSE,
    "zero-values-keep-the-residual": HOLDS,
}
SLOWER = {
    "figure-network-is-pure-attention": FALSE,
    "heads-multiply-the-factor": HOLDS,
    "infinitely-many-weights-keep-the-residual": HOLDS,
    "mlp-exponent-is-linear-in-depth": FALSE,
    "small-factor-suffices-for-collapse": FALSE,
    "wider-heads-curb-attention-errors": CONDITIONS,
}
WITH_TRIALS = {
    "figure-attention-only": HOLDS,
    "figure-floor-is-the-residual": FALSE,
    "figure-lines-coincide": HOLDS,
    "figure-mlp-is-slower": FALSE,
    "figure-mlp-only": HOLDS,
    "figure-shows-double-exponential": FALSE,
    "figure-skip-and-mlp": HOLDS,
    "figure-skip-and-mlp-is-best": FALSE,
    "figure-skip-only": HOLDS,
    "figure-start": HOLDS,
    "large-lipschitz-costs-robustness": CONDITIONS,
    "large-lipschitz-raises-gradient-variance": CONDITIONS,
    "mlp-alone-cannot-stop-collapse": CONDITIONS,
    "skip-does-more-than-mlp": HOLDS,
    "skip-prevents-collapse": CONDITIONS,
}
UNCHECKABLE = {"collapse-shown-in-standard-transformers"}


def complete(ruling: Ruling) -> bool:
    """Whether the correction, if there is one, was checked and holds, and no text lacks a number."""
    claim = ruling.claim
    asked = {
        place.split(":")[0]
        for text in claim.texts()
        for place in placeholders(text)
    }  # fmt: skip
    corrected = ruling.correction == ("holds" if claim.correction else None)
    return corrected and asked <= set(ruling.numbers or {})


def test_every_claim_of_the_group_is_in_one_of_the_tables():
    known = {name for name, entry in CLAIMS.items() if entry.claim.group == "collapse"}
    assert known == {*FAST, *SLOWER, *WITH_TRIALS, *UNCHECKABLE}


@pytest.mark.parametrize(("name", "verdict"), FAST.items())
def test_the_verdict_follows_from_one_seed(name: str, verdict: str):
    ruling = ruled(name, seeds=(5,))
    assert ruling.verdict == verdict
    assert complete(ruling)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "verdict"), SLOWER.items())
def test_the_verdict_follows_from_three_seeds(name: str, verdict: str):
    ruling = ruled(name, seeds=(7, 8, 9))
    assert ruling.verdict == verdict
    assert complete(ruling)


@functools.cache
def tried(seed: int) -> Mapping[str, Any]:
    """The trials of the group, each run once."""
    trials = {trial for name in WITH_TRIALS for trial in CLAIMS.get(name).needs}
    return {trial.name: trial.run(seed) for trial in trials}


@pytest.mark.slow
@pytest.mark.parametrize(("name", "verdict"), WITH_TRIALS.items())
def test_the_verdict_on_the_notes_figure_is_that_of_its_own_draw_and_of_another(
    name: str, verdict: str
):
    entry = CLAIMS.get(name)
    measured = [entry.run(seed, tried(seed)) for seed in (0, 4)]
    numbers = {key: [one.numbers[key] for one in measured] for key in measured[0].numbers}
    ruling = rule(entry.claim, numbers, seeds=(0, 4))
    assert ruling.verdict == verdict
    assert complete(ruling)
