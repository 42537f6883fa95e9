"""What becomes of every claim about attention, with key numbers by an independent route."""

from __future__ import annotations

import math

import numpy as np
import pytest

from leadline.claims import CLAIMS
from leadline.claims.ruling import Ruling
from tests.claims_ruled import ruled

HOLDS, CONDITIONS, FALSE = "holds", "holds under conditions", "false as stated"
NOT_HERE = "not checkable here"

FAST = {
    "bert-needs-no-mask": CONDITIONS,
    "causal-bound": CONDITIONS,
    "ffn-mixes-features": HOLDS,
    "ffn-position-wise": HOLDS,
    "ffn-raises-dimension": CONDITIONS,
    "generation-needs-mask": CONDITIONS,
    "gpt1-decoder-without-cross-attention": CONDITIONS,
    "gpt2-norms-moved": HOLDS,
    "gpt2-residual-scaling": CONDITIONS,
    "gpt2-vocabulary-and-context": HOLDS,
    "head-width-much-smaller": HOLDS,
    "heads-are-a-sum": CONDITIONS,
    "jensen-step": HOLDS,
    "key-bias-cancels": CONDITIONS,
    "larger-dot-product-better-aligned": FALSE,
    "largest-weight-bound": CONDITIONS,
    "layernorm-output-bound": CONDITIONS,
    "lipschitz-product": FALSE,
    "mask-hides-the-future": HOLDS,
    "never-shortens-every-vector": HOLDS,
    "norm-one-iff-doubly-stochastic": HOLDS,
    "pre-norm-bound-by-head-width": FALSE,
    "pre-norm-bound-causal": FALSE,
    "repeated-attention-explodes": FALSE,
    "scaled-by-head-width": FALSE,
    "scaling-keeps-logits-level": CONDITIONS,
    "smallest-amplification": FALSE,
    "spectral-norm-ellipse": HOLDS,
}
ATTACKED = {
    "any-mask-bound": HOLDS,
    "attention-norm-bounds": HOLDS,
    "attention-rows-sum-to-one": HOLDS,
    "bidirectional-bound": HOLDS,
    "logit-bound": CONDITIONS,
    "pre-norm-bound": CONDITIONS,
    "query-key-norm-bound": CONDITIONS,
}
AVERAGED = {
    "backward-chain-non-expansive": FALSE,
    "column-sum-near-one": FALSE,
    "gains-do-not-grow-with-depth": CONDITIONS,
    "heads-beyond-one-average": HOLDS,
    "heads-learn-different-ranges": CONDITIONS,
    "mostly-expansive": CONDITIONS,
    "noise-amplified": FALSE,
    "norm-grows-with-length": CONDITIONS,
    "norms-of-short-sentences": FALSE,
    "post-norm-gradients-explode": FALSE,
    "post-norm-lacks-control": FALSE,
    "pre-norm-bound-with-beta": FALSE,
    "pre-norm-presses-the-bound": FALSE,
    "without-norm-attention-saturates": CONDITIONS,
}
UNCHECKABLE = {
    "gpt1-above-gpt2",
    "gpt2-batch-size",
    "gpt2-large-plateau",
    "pre-norm-made-depth-possible",
}


def _stands(found: Ruling, verdict: str) -> None:
    assert found.verdict == verdict, [(one.check.number, one.outcome) for one in found.checked]
    assert found.correction in (None, "holds")
    assert (found.correction is None) or found.claim.correction


@pytest.mark.parametrize(("name", "verdict"), FAST.items())
def test_a_claim_of_one_second(name: str, verdict: str) -> None:
    _stands(ruled(name), verdict)


@pytest.mark.parametrize(("name", "verdict"), ATTACKED.items())
def test_a_bound_under_attack(name: str, verdict: str) -> None:
    _stands(ruled(name, seeds=(3,)), verdict)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "verdict"), AVERAGED.items())
def test_a_claim_about_means(name: str, verdict: str) -> None:
    _stands(ruled(name, seeds=(0, 1, 2)), verdict)


def test_every_claim_of_the_group_is_here() -> None:
    here = {name for name, entry in CLAIMS.items() if entry.claim.group == "attention"}
    assert here == {*FAST, *ATTACKED, *AVERAGED, *UNCHECKABLE}
    for name in UNCHECKABLE:
        entry = CLAIMS.get(name)
        assert entry.measure is None
        assert not entry.claim.checkable


def _number(found: Ruling, name: str) -> float:
    assert found.numbers is not None
    return found.numbers[name][0]


def test_two_causal_tokens_with_equal_logits() -> None:
    """[[1, 0], [1/2, 1/2]]: sigma^2 = (3 + sqrt 5) / 4."""
    found = ruled("pre-norm-bound-causal", seeds=(0,))
    assert _number(found, "norm_two_tokens") == pytest.approx(math.sqrt((3 + math.sqrt(5)) / 4))
    rows = np.tril(np.ones((256, 256))) / np.arange(1, 257)[:, None]
    assert _number(found, "norm_many_tokens") == pytest.approx(np.linalg.norm(rows, 2))


def test_a_window_and_the_first_key() -> None:
    seen = np.eye(256) + np.eye(256, k=-1)
    seen[:, 0] = 1
    window = seen / seen.sum(1, keepdims=True)
    found = ruled("causal-bound", seeds=(0,))
    assert _number(found, "window_norm") == pytest.approx(np.linalg.norm(window, 2))


def test_the_sharp_bound_at_eight_tokens_and_a_span_of_three() -> None:
    """The best number of top logits by trying all of them."""
    e = math.exp(3)
    best = max(8 * (k * e * e + 8 - k) / (k * e + 8 - k) ** 2 for k in range(1, 9))
    found = ruled("bidirectional-bound", seeds=(0,))
    assert _number(found, "bound_at_three") == pytest.approx(math.sqrt(best))
    assert _number(found, "note_at_three") == pytest.approx(math.sqrt(8 / (1 + 7 / e)))


def test_the_drawn_ellipse_is_that_of_its_matrix() -> None:
    """Logit differences 1.2 and -2: the closed form through trace and determinant."""
    a, b = 1 / (1 + math.exp(-1.2)), 1 / (1 + math.exp(2.0))
    matrix = np.array([[a, 1 - a], [1 - b, b]])
    found = ruled("spectral-norm-ellipse", seeds=(0,))
    values = np.linalg.svd(matrix, compute_uv=False)
    assert _number(found, "norm_drawn") == pytest.approx(values[0])
    assert _number(found, "least_drawn") == pytest.approx(values[1])
    (picture,) = found.pictures
    x, y = picture.lines["longest semi-axis"]
    assert math.hypot(x[1], y[1]) == pytest.approx(values[0], rel=1e-8)
    assert picture.equal
    assert all(len(line[0]) <= 100 for line in picture.lines.values())


def test_the_reach_of_gpt2_is_that_of_random_matrices() -> None:
    """The norm of a 768 x 64 matrix of spread 0.02 is near 0.02 (sqrt 768 + sqrt 64)."""
    from leadline.claims.measure.architecture import gpt2_start

    facts = gpt2_start(0, tokens=1024)
    expected = 0.02 * (math.sqrt(768) + math.sqrt(64))
    assert facts.query_weight == pytest.approx(expected, rel=0.05)
    assert facts.key_weight == pytest.approx(expected, rel=0.05)
    assert (facts.gain, facts.width) == (pytest.approx(1.0, rel=1e-5), 768)


def test_what_all_tokens_share_is_kept_and_one_token_can_grow() -> None:
    """A column of ones: an error on the token that all look at grows by the root of n."""
    column = np.zeros((32, 32))
    column[:, 0] = 1
    assert np.linalg.norm(column @ np.eye(32)[0]) == pytest.approx(math.sqrt(32))
    assert np.allclose(column @ np.ones(32), 1)
    found = ruled("noise-amplified", seeds=(0,))
    assert _number(found, "shared_factor") == pytest.approx(1, abs=1e-13)
    assert _number(found, "norm") > 1.2


def test_a_text_computed_anew_without_a_mask_is_another() -> None:
    found = ruled("generation-needs-mask", seeds=(0,))
    assert (
        _number(found, "recomputed_difference") > 0.1 > 1e-12 > _number(found, "one_by_one_error")
    )


def test_the_product_of_causal_matrices_copies_the_first_token() -> None:
    """Its norm tends to the root of n, and the gradient of sum zero to nothing."""
    found = ruled("backward-chain-non-expansive", seeds=(0,))
    assert _number(found, "product_norm") == pytest.approx(4, rel=1e-6)
    assert _number(found, "trained_product") > _number(found, "trained_norm")


def test_padding_one_token_to_five() -> None:
    from leadline.claims.measure.attention_in_models import PADDED

    lines = PADDED.run(0)
    kept, removed = (
        lines[f"gpt2{name}; 1 to 5 tokens"]["values"] for name in (", padding kept", "")
    )
    assert all(a > b for a, b in zip(kept, removed, strict=True))
    assert max(kept) <= math.sqrt(5)
