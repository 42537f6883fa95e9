"""gamma, the cubic law, diagonals and cosines, against their definitions with weights and loops."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from leadline.anatomy.tap.output_projection import OutputProjection
from leadline.anatomy.tap.seen_attention import SeenAttention
from leadline.numerics.patterns import token_differences
from leadline.numerics.patterns.patterns import Patterns
from leadline.numerics.patterns.token_differences import (
    AttentionHeads,
    cubic_law,
    diagonals,
    gammas,
    residual_cosines,
)
from leadline.numerics.tokens import Tokens

EXAMPLES, TOKENS, HEADS, GROUPS, SIZE, WIDTH = 2, 6, 4, 2, 3, 5
SCALING = 0.7


def drawn(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


Z = drawn(EXAMPLES, TOKENS, WIDTH)
W_Q, B_Q = drawn(HEADS, WIDTH, SIZE, seed=1), drawn(HEADS, 1, SIZE, seed=2)
W_K, B_K = drawn(GROUPS, WIDTH, SIZE, seed=3), drawn(GROUPS, 1, SIZE, seed=4)
W_V, B_V = drawn(GROUPS, WIDTH, SIZE, seed=5), drawn(GROUPS, 1, SIZE, seed=6)
W_O = drawn(HEADS, SIZE, WIDTH, seed=7)


def heads(
    z: Tensor = Z, tokens: Tensor | None = None, causal: bool = False, biased: float = 1.0
) -> AttentionHeads:
    query, key, value = (
        z.unsqueeze(1) @ weight + biased * bias
        for weight, bias in ((W_Q, B_Q), (W_K, B_K), (W_V, B_V))
    )
    spread = [one.repeat_interleave(HEADS // GROUPS, 1) for one in (key, value)]
    output = torch.nn.functional.scaled_dot_product_attention(
        query, *spread, scale=SCALING, is_causal=causal
    )
    seen = SeenAttention(
        "attention", "kernel", value, output, query, key, causal=causal, scaling=SCALING
    )
    patterns = Patterns(seen, queries=tokens, keys=tokens)
    return AttentionHeads(patterns, tokens, OutputProjection(W_O, None))


def forms(z: Tensor) -> list[np.ndarray]:
    """E_h = scaling R W_QK,h R' of one example."""
    r = (z - z.mean(0)).numpy()
    group = HEADS // GROUPS
    return [SCALING * r @ W_Q[h].numpy() @ W_K[h // group].numpy().T @ r.T for h in range(HEADS)]


def expected_gammas(z: Tensor) -> tuple[list[float], float]:
    each, sums, tops, sizes = [], 0.0, 0.0, 0.0
    for form in forms(z):
        osc = [max(row) - min(row) for row in form]
        size = max(sum(abs(row[j]) for row in form) for j in range(len(form)))
        each.append(math.sqrt(sum(osc) * max(osc)) / (2 * size))
        sums, tops, sizes = sums + sum(osc), tops + max(osc), sizes + size
    return each, math.sqrt(sums * tops) / (2 * sizes)


def expected_law(z: Tensor) -> float:
    r = (z - z.mean(0)).numpy()
    group = HEADS // GROUPS
    total = sum(
        form @ r @ W_V[h // group].numpy() @ W_O[h].numpy() for h, form in enumerate(forms(z))
    )
    return math.log10(float(np.linalg.norm(total)) / len(z))


def test_gamma_is_that_of_the_weights_and_biases_cancel() -> None:
    found = gammas(heads())
    for example in range(EXAMPLES):
        each, joint = expected_gammas(Z[example])
        assert found.each[example].tolist() == pytest.approx(each, rel=1e-10)
        assert float(found.joint[example]) == pytest.approx(joint, rel=1e-10)
        assert max(each) <= math.sqrt(TOKENS)


def test_gamma_of_one_head_is_the_joint_one() -> None:
    whole = heads().patterns.attention
    assert whole.query is not None and whole.key is not None
    seen = SeenAttention(
        "", "kernel", whole.value[:, :1], whole.output[:, :1], whole.query[:, :1], whole.key[:, :1],
        scaling=SCALING,
    )  # fmt: skip
    found = gammas(AttentionHeads(Patterns(seen), None, "none"))
    assert torch.equal(found.each[:, 0], found.joint)


def test_gamma_does_not_depend_on_the_size_of_the_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = gammas(heads())
    tiny = gammas(heads(Z * 1e-120, biased=0.0))
    assert torch.allclose(tiny.each, plain.each, rtol=1e-9)
    monkeypatch.setattr(token_differences, "_AT_ONCE", 1)
    assert torch.allclose(gammas(heads()).each, plain.each, rtol=1e-13)
    assert torch.allclose(gammas(heads()).joint, plain.joint, rtol=1e-13)


def test_equal_tokens_have_gamma_zero_and_no_law() -> None:
    same = heads(torch.ones(1, TOKENS, WIDTH, dtype=torch.float64))
    assert gammas(same).each.abs().max() == 0 and gammas(same).joint.abs().max() == 0
    assert cubic_law(same, scaling=SCALING) == [-math.inf]


def test_the_law_is_that_of_the_weights() -> None:
    expected = [expected_law(z) for z in Z]
    assert cubic_law(heads(), scaling=SCALING) == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("power", [-120, 90])
def test_the_law_is_cubic_far_beyond_the_range_of_numbers(power: int) -> None:
    z = Z - Z.mean(1, keepdim=True)
    found = cubic_law(heads(z * 10.0**power, biased=0.0), scaling=SCALING)
    assert found == pytest.approx([expected_law(one) + 3 * power for one in z], rel=1e-9)


def test_the_law_is_what_a_layer_leaves_of_small_differences() -> None:
    """R' = (1/n) R W_QK R' R W_h without biases of the queries: no first order is left then."""
    z = (Z - Z.mean(1, keepdim=True)) * 1e-3
    query, key, value = (z.unsqueeze(1) @ weight for weight in (W_Q, W_K, W_V))
    spread = [one.repeat_interleave(HEADS // GROUPS, 1) for one in (key, value)]
    weights = (SCALING * query @ spread[0].mT).softmax(-1)
    written = torch.einsum("ehij,ehjf,hfd->eid", weights, spread[1], W_O)
    left = torch.linalg.matrix_norm(written - written.mean(1, keepdim=True)).log10().tolist()
    assert left == pytest.approx(cubic_law(heads(z), scaling=SCALING), abs=1e-4)


def test_padding_does_not_enter() -> None:
    mask = torch.ones(EXAMPLES, TOKENS, dtype=torch.bool)
    mask[1, :2] = False
    found = gammas(heads(tokens=mask))
    each, joint = expected_gammas(Z[1, 2:])
    assert found.each[1].tolist() == pytest.approx(each, rel=1e-10)
    assert float(found.joint[1]) == pytest.approx(joint, rel=1e-10)
    law = cubic_law(heads(tokens=mask), scaling=SCALING)
    assert law == pytest.approx([expected_law(Z[0]), expected_law(Z[1, 2:])], rel=1e-10)


def test_examples_of_one_token_are_left_out() -> None:
    mask = torch.ones(EXAMPLES, TOKENS, dtype=torch.bool)
    mask[0, 1:] = False
    assert gammas(heads(tokens=mask)).each.shape == (1, HEADS)
    assert len(cubic_law(heads(tokens=mask), scaling=SCALING)) == 1
    found = diagonals(heads(tokens=mask).patterns)
    assert found is not None and found.shape == (1, HEADS)


@pytest.mark.parametrize("causal", [True, False])
def test_the_diagonal_leaves_the_first_token_out(causal: bool) -> None:
    whole = heads(causal=causal)
    seen = whole.patterns.attention
    assert seen.query is not None and seen.key is not None
    logits = SCALING * seen.query @ seen.key.repeat_interleave(HEADS // GROUPS, 1).mT
    if causal:
        hidden = torch.ones(TOKENS, TOKENS, dtype=torch.bool).triu(1)
        logits = logits.masked_fill(hidden, float("-inf"))
    exact = logits.softmax(-1).diagonal(dim1=-2, dim2=-1)[..., 1:].amax(-1)
    found = diagonals(whole.patterns)
    assert found is not None and torch.allclose(found, exact, rtol=1e-10)


def test_long_matrices_are_not_formed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_differences, "LONG", TOKENS)
    assert diagonals(heads().patterns) is None


def test_alignment_and_overlap_are_cosines_of_whole_matrices() -> None:
    x, u = drawn(2, 5, 3), drawn(2, 5, 3, seed=1)
    mask = torch.ones(2, 5, dtype=torch.bool)
    mask[0, 3:] = False
    aligned, overlapping = residual_cosines(Tokens(x, mask), Tokens(u, mask))
    for example, keep in enumerate(mask):
        a, b = x[example, keep], u[example, keep]
        ra, rb = a - a.mean(0), b - b.mean(0)
        assert float(aligned[example]) == pytest.approx(
            float((ra * rb).sum() / ra.norm() / rb.norm())
        )
        overlap = float((a * b).sum().abs() / a.norm() / b.norm())
        assert float(overlapping[example]) == pytest.approx(overlap)


def test_an_update_of_the_common_part_alone_has_no_alignment() -> None:
    x, u = drawn(1, 5, 3), torch.ones(1, 5, 3, dtype=torch.float64)
    aligned, overlapping = residual_cosines(Tokens(x), Tokens(u))
    assert aligned.numel() == 0 and overlapping.numel() == 1
    aligned, overlapping = residual_cosines(Tokens(x), Tokens(0 * u))
    assert aligned.numel() == overlapping.numel() == 0
