"""Attention matrices become numbers: every one against a loop in float64."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from leadline.anatomy import SeenAttention
from leadline.numerics.patterns.matrix_group import EMPTY
from leadline.numerics.patterns.patterns import (
    LONG,
    PROOF_LIMIT,
    PatternNumbers,
    Patterns,
    PatternShape,
)


def drawn(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def kernel(
    query: Tensor,
    key: Tensor,
    *,
    causal: bool = False,
    mask: Tensor | None = None,
    scaling: float | None = None,
    value: Tensor | None = None,
) -> SeenAttention:
    value = drawn(*key.shape[:3], 3, seed=9).to(query.dtype) if value is None else value
    heads, groups = query.shape[1], key.shape[1]
    output = F.scaled_dot_product_attention(
        query, key, value, attn_mask=mask, is_causal=causal, scale=scaling,
        enable_gqa=heads != groups,
    )  # fmt: skip
    return SeenAttention(
        module="attention",
        route="kernel",
        value=value,
        output=output,
        query=query,
        key=key,
        mask=mask,
        causal=causal,
        scaling=scaling if scaling is not None else query.shape[-1] ** -0.5,
    )


def eager(logits: Tensor, **given: Any) -> SeenAttention:
    weights = logits.softmax(-1)
    value = drawn(*logits.shape[:2], logits.shape[3], 3, seed=9).to(logits.dtype)
    return SeenAttention(
        module="attention",
        route="weights",
        value=value,
        output=weights @ value,
        logits=logits,
        weights=weights,
        **given,
    )


def by_hand(logits: Tensor, hidden: Tensor) -> dict[str, float]:
    """One matrix, entry by entry; hidden [m, n] is True where a key must not be seen."""
    m, n = logits.shape
    rows = [
        [math.exp(float(logits[i, j])) if not hidden[i, j] else 0.0 for j in range(n)]
        for i in range(m)
    ]
    a = [[x / sum(row) for x in row] for row in rows]
    allowed = [[float(logits[i, j]) for j in range(n) if not hidden[i, j]] for i in range(m)]
    variance = [sum(x * x for x in row) / len(row) - (sum(row) / len(row)) ** 2 for row in allowed]
    singular = torch.linalg.svdvals(torch.tensor(a, dtype=torch.float64)).tolist()
    return {
        "norm": singular[0],
        "second": singular[1] if len(singular) > 1 else math.nan,
        "column_sum": max(sum(a[i][j] for i in range(m)) for j in range(n)),
        "entropy": sum(-x * math.log(x) for row in a for x in row if x > 0) / m,
        "logit_std": math.sqrt(sum(variance) / m),
        "logit_span": max(max(row) - min(row) for row in allowed),
        "sink_share": sum(a[i][0] for i in range(1, m)) / (m - 1) if m > 1 else math.nan,
        "distance": sum(a[i][j] * abs(i - j) for i in range(m) for j in range(n)) / m,
    }


def divergence(matrices: list[list[list[float]]]) -> float:
    """Mean over the rows of the entropy of the mean minus the mean of the entropies."""

    def entropy(row: list[float]) -> float:
        return sum(-x * math.log(x) for x in row if x > 0)

    heads, rows = len(matrices), len(matrices[0])
    total = 0.0
    for i in range(rows):
        mean = [sum(h[i][j] for h in matrices) / heads for j in range(len(matrices[0][i]))]
        total += entropy(mean) - sum(entropy(h[i]) for h in matrices) / heads
    return total / rows


def agree(measured: PatternNumbers, example: int, head: int, expected: dict[str, float]) -> None:
    assert measured.second is not None
    got = {
        "norm": measured.norm.value,
        "second": measured.second.value,
        "column_sum": measured.column_sum,
        "entropy": measured.entropy,
        "logit_std": measured.logit_std,
        "logit_span": measured.logit_span,
        "sink_share": measured.sink_share,
        "distance": measured.distance,
    }
    for name, table in got.items():
        assert float(table[example, head]) == pytest.approx(expected[name], rel=2e-5, abs=2e-5), (
            name
        )


def triangle(n: int) -> Tensor:
    return torch.ones(n, n, dtype=torch.bool).triu(1)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("scale", [0.3, 6.0])
def test_every_number_of_the_kernel_is_that_of_the_matrix(causal: bool, scale: float) -> None:
    query, key = drawn(2, 3, 9, 4) * scale, drawn(2, 3, 9, 4, seed=1)
    seen = kernel(query, key, causal=causal)
    measured = Patterns(seen).measured
    hidden = triangle(9) if causal else torch.zeros(9, 9, dtype=torch.bool)
    logits = query.double() @ key.double().transpose(-1, -2) * 0.5
    for example in range(2):
        for head in range(3):
            agree(measured, example, head, by_hand(logits[example, head], hidden))
        masked = logits[example].masked_fill(hidden, float("-inf")).softmax(-1)
        assert float(measured.divergence[example]) == pytest.approx(
            divergence(masked.tolist()), rel=1e-4, abs=1e-6
        )


@pytest.mark.parametrize("causal", [False, True])
def test_every_number_of_given_weights_is_that_of_the_matrix(causal: bool) -> None:
    logits = drawn(2, 3, 9, 9) * 2
    hidden = triangle(9) if causal else torch.zeros(9, 9, dtype=torch.bool)
    measured = Patterns(eager(logits.masked_fill(hidden, -1e4))).measured
    for example in range(2):
        for head in range(3):
            agree(measured, example, head, by_hand(logits[example, head].double(), hidden))


def test_grouped_queries_share_their_keys() -> None:
    query, key = drawn(2, 4, 7, 4), drawn(2, 2, 7, 4, seed=1)
    measured = Patterns(kernel(query, key, causal=True)).measured
    logits = query.double() @ key.double().repeat_interleave(2, 1).transpose(-1, -2) * 0.5
    for head in range(4):
        agree(measured, 1, head, by_hand(logits[1, head], triangle(7)))


def test_padding_never_enters_on_either_side() -> None:
    query, key = drawn(3, 2, 8, 4), drawn(3, 2, 8, 4, seed=1)
    real = torch.zeros(3, 8, dtype=torch.bool)
    real[0, :5] = real[1, 3:] = real[2, :] = True
    mask = real[:, None, None, :] & ~triangle(8)
    # A query that sees nothing sees itself, as models have it.
    mask = mask | (torch.eye(8, dtype=torch.bool) & ~mask.any(-1, keepdim=True))
    measured = Patterns(kernel(query, key, mask=mask), queries=real, keys=real).measured
    logits = query.double() @ key.double().transpose(-1, -2) * 0.5
    for example in range(3):
        left = real[example].nonzero()[:, 0]
        for head in range(2):
            cut = logits[example, head][left][:, left]
            agree(measured, example, head, by_hand(cut, triangle(len(left))))
    assert measured.shapes == [
        PatternShape(5, 5, 1, "causal", (1, 2, 3, 4, 5)),
        PatternShape(5, 5, 1, "causal", (1, 2, 3, 4, 5)),
        PatternShape(8, 8, 1, "causal", tuple(range(1, 9))),
    ] or measured.shapes == [
        PatternShape(5, 5, 2, "causal", (1, 2, 3, 4, 5)),
        PatternShape(8, 8, 1, "causal", tuple(range(1, 9))),
    ]


def test_padding_of_a_causal_kernel_without_a_mask_is_cut_too() -> None:
    query, key = drawn(1, 2, 8, 4), drawn(1, 2, 8, 4, seed=1)
    real = torch.arange(8)[None] < 6
    measured = Patterns(kernel(query, key, causal=True), queries=real, keys=real).measured
    logits = query.double() @ key.double().transpose(-1, -2) * 0.5
    agree(measured, 0, 1, by_hand(logits[0, 1, :6, :6], triangle(6)))


def test_one_real_token_has_norm_one_however_long_the_padding() -> None:
    """With the padded rows kept it is the square root of the padded length."""
    query, key = drawn(1, 1, 5, 4), drawn(1, 1, 5, 4, seed=1)
    real = torch.arange(5)[None] < 1
    seen = kernel(query, key, mask=real[:, None, None, :] & ~triangle(5))
    alone = Patterns(seen, queries=real, keys=real).measured
    assert float(alone.norm.value) == pytest.approx(1.0, rel=1e-9)
    assert alone.second is None
    kept = Patterns(seen).measured
    assert float(kept.norm.value) == pytest.approx(math.sqrt(5), rel=1e-6)


def test_an_additive_mask_is_a_bias_where_it_does_not_hide() -> None:
    query, key = drawn(1, 2, 6, 4), drawn(1, 2, 6, 4, seed=1)
    bias = drawn(1, 2, 6, 6, seed=2)
    hidden = triangle(6)
    mask = bias.masked_fill(hidden, torch.finfo(torch.float32).min)
    patterns = Patterns(kernel(query, key, mask=mask))
    measured = patterns.measured
    logits = query.double() @ key.double().transpose(-1, -2) * 0.5 + bias.double()
    agree(measured, 0, 1, by_hand(logits[0, 1], hidden))
    ranges = [
        float(bias[0, h, i, : i + 1].max() - bias[0, h, i, : i + 1].min())
        for h in range(2)
        for i in range(6)
    ]
    assert measured.bias_range == pytest.approx(max(ranges), rel=1e-6)
    assert patterns.scores is not None
    assert patterns.scores.bias_range == measured.bias_range
    assert [shape.mask for shape in measured.shapes] == ["causal"]


@pytest.mark.parametrize(
    ("mask", "kind", "allowed"),
    [
        (torch.ones(5, 5, dtype=torch.bool), "none", (5, 5, 5, 5, 5)),
        (torch.ones(5, 5, dtype=torch.bool).tril(), "causal", (1, 2, 3, 4, 5)),
        (torch.ones(5, 5, dtype=torch.bool).tril().triu(-1), "other", (1, 2, 2, 2, 2)),
        (torch.block_diag(torch.ones(2, 2), torch.ones(3, 3)).bool(), "other", (2, 2, 3, 3, 3)),
    ],
)
def test_masks_are_told_by_what_they_allow(mask: Tensor, kind: str, allowed: tuple[int]) -> None:
    query, key = drawn(2, 2, 5, 4), drawn(2, 2, 5, 4, seed=1)
    (shape,) = Patterns(kernel(query, key, mask=mask)).measured.shapes
    assert shape == PatternShape(5, 5, 2, kind, allowed)  # type: ignore[arg-type]


def test_cross_attention_has_as_many_rows_as_queries() -> None:
    query, key = drawn(2, 2, 4, 4), drawn(2, 2, 7, 4, seed=1)
    measured = Patterns(kernel(query, key)).measured
    logits = query.double() @ key.double().transpose(-1, -2) * 0.5
    agree(measured, 0, 0, by_hand(logits[0, 0], torch.zeros(4, 7, dtype=torch.bool)))
    assert measured.shapes[0].queries == 4 and measured.shapes[0].keys == 7


def test_a_causal_kernel_on_more_keys_than_queries_begins_at_the_first_key() -> None:
    query, key = drawn(1, 1, 3, 4), drawn(1, 1, 5, 4, seed=1)
    measured = Patterns(kernel(query, key, causal=True)).measured
    assert measured.proof is not None and measured.proof < PROOF_LIMIT
    assert measured.shapes[0].allowed == (1, 2, 3)


def test_the_right_matrix_is_proved_to_rounding() -> None:
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        seen = kernel(drawn(2, 2, 20, 8, dtype=dtype) * 3, drawn(2, 2, 20, 8, seed=1, dtype=dtype))
        proof = Patterns(seen).measured.proof
        assert proof is not None and proof < PROOF_LIMIT / 4, dtype


@pytest.mark.parametrize("change", ["bias", "scaling", "causal"])
def test_a_matrix_that_was_not_used_is_not_proved(change: str) -> None:
    from dataclasses import replace

    query, key = drawn(2, 2, 20, 8), drawn(2, 2, 20, 8, seed=1)
    bias = drawn(1, 2, 20, 20, seed=2) * 0.1
    seen = kernel(query, key, mask=bias)
    wrong = {
        "bias": replace(seen, mask=None),
        "scaling": replace(seen, scaling=0.34),
        "causal": replace(seen, mask=bias.masked_fill(triangle(20), float("-inf"))),
    }[change]
    proof = Patterns(wrong).measured.proof
    assert proof is not None and proof > 100 * PROOF_LIMIT


def test_scaling_and_bias_are_found_where_only_scores_were_seen() -> None:
    query, key = drawn(1, 2, 12, 4), drawn(1, 2, 12, 4, seed=1)
    logits = query @ key.transpose(-1, -2) * 0.37
    plain = Patterns(eager(logits.masked_fill(triangle(12), -1e4), query=query, key=key)).scores
    assert plain is not None
    assert plain.scaling == pytest.approx(0.37, rel=1e-5)
    assert plain.bias_range == 0.0
    slopes = -0.5 * (torch.arange(12)[:, None] - torch.arange(12)).abs()
    biased = (logits + slopes).masked_fill(triangle(12), -1e4)
    known = Patterns(eager(biased, query=query, key=key, scaling=0.37)).scores
    assert known is not None
    assert known.scaling == 0.37
    assert known.bias_range == pytest.approx(5.5, rel=1e-5)
    # Without the scaling a bias cannot be told from it.
    assert Patterns(eager(biased, query=query, key=key)).scores is None


def test_what_differs_from_example_to_example_is_no_position_bias() -> None:
    query, key = drawn(2, 2, 12, 4), drawn(2, 2, 12, 4, seed=1)
    logits = query @ key.transpose(-1, -2) * 0.37
    added = drawn(1, 2, 12, 12, seed=5)
    same = Patterns(eager(logits + added, query=query, key=key, scaling=0.37)).scores
    assert same is not None and same.bias_range > 1
    other = logits + drawn(2, 2, 12, 12, seed=5)
    assert Patterns(eager(other, query=query, key=key, scaling=0.37)).scores is None


def test_a_soft_cap_is_undone_before_the_fit() -> None:
    query, key = drawn(1, 2, 12, 4), drawn(1, 2, 12, 4, seed=1)
    logits = 5.0 * torch.tanh(query @ key.transpose(-1, -2) * 0.37 / 5.0)
    found = Patterns(eager(logits, query=query, key=key, soft_cap=5.0)).scores
    assert found is not None
    assert found.scaling == pytest.approx(0.37, rel=1e-4)
    assert found.bias_range == 0.0
    assert Patterns(eager(logits, query=query, key=key)).scores is None


def test_scores_of_unknown_queries_are_unknown() -> None:
    assert Patterns(eager(drawn(1, 1, 4, 4))).scores is None


def test_a_broken_logit_breaks_its_own_matrix_and_is_told() -> None:
    query, key = drawn(2, 2, 6, 4), drawn(2, 2, 6, 4, seed=1)
    query[1, 0, 3] = float("nan")
    measured = Patterns(kernel(query, key)).measured
    assert measured.broken
    for table in (measured.norm.value, measured.entropy, measured.logit_std, measured.logit_span):
        assert bool(table[1, 0].isnan())
        assert bool(torch.isfinite(table[0]).all()) and bool(torch.isfinite(table[1, 1]))


def test_a_row_that_sees_nothing_is_counted() -> None:
    logits = drawn(1, 2, 4, 4)
    logits[0, 0, 2] = EMPTY * 2
    assert Patterns(eager(logits)).measured.missing == 1
    mask = torch.ones(4, 4, dtype=torch.bool)
    mask[1] = False
    assert (
        Patterns(kernel(drawn(1, 2, 4, 4), drawn(1, 2, 4, 4, seed=1), mask=mask)).measured.missing
        == 2
    )


def test_a_wrong_output_is_noticed_in_every_precision() -> None:
    from dataclasses import replace

    for dtype in (torch.float32, torch.bfloat16, torch.float16, torch.float64):
        query, key = drawn(2, 4, 20, 8, dtype=dtype) * 6, drawn(2, 4, 20, 8, seed=1, dtype=dtype)
        seen = kernel(query, key)
        right = Patterns(seen).measured.proof
        assert right is not None and right < PROOF_LIMIT / 2, dtype
        for wrong in (torch.zeros_like(seen.output), seen.output.roll(1, 2), -seen.output):
            proof = Patterns(replace(seen, output=wrong)).measured.proof
            assert proof is not None and proof > 2 * PROOF_LIMIT, dtype


def test_a_wrong_head_is_not_hidden_by_a_large_one() -> None:
    from dataclasses import replace

    seen = kernel(drawn(1, 4, 20, 8), drawn(1, 4, 20, 8, seed=1))
    value = seen.value.clone()
    value[:, 0] *= 1e5
    seen = kernel(drawn(1, 4, 20, 8), drawn(1, 4, 20, 8, seed=1), value=value)
    output = seen.output.clone()
    output[:, 3] = output[:, 3].roll(1, 1)
    proof = Patterns(replace(seen, output=output)).measured.proof
    assert proof is not None and proof > 100 * PROOF_LIMIT


def test_a_float64_model_is_measured_in_float64() -> None:
    query, key = (drawn(2, 2, 9, 4, seed=s).double() for s in (0, 1))
    measured = Patterns(kernel(query, key, causal=True)).measured
    exact = (query @ key.transpose(-1, -2) * 0.5).masked_fill(triangle(9), float("-inf"))
    rows = exact.softmax(-1)
    entropy = torch.special.entr(rows).sum(-1).mean(-1)
    assert torch.allclose(measured.entropy, entropy, rtol=1e-12)
    assert measured.proof is not None and measured.proof < PROOF_LIMIT


def test_automatic_half_precision_does_not_reach_the_numbers() -> None:
    query, key = drawn(1, 2, 40, 8), drawn(1, 2, 40, 8, seed=1)
    seen = kernel(query, key, causal=True)
    plain = Patterns(seen).measured
    with torch.autocast("cpu", torch.bfloat16):
        inside = Patterns(seen).measured
    assert torch.equal(plain.norm.value, inside.norm.value)
    assert torch.equal(plain.entropy, inside.entropy)


@pytest.mark.parametrize("hiding", [-1e4, -1e4 / math.sqrt(64), -1e9, -65504.0])
def test_a_mask_that_is_added_to_the_scores_hides(hiding: float) -> None:
    """Scores of hidden keys are not all equal then: score minus 10,000, or an eighth of that."""
    logits = drawn(1, 2, 9, 9) * 3
    seen = eager(logits + hiding * triangle(9))
    measured = Patterns(seen).measured
    agree(measured, 0, 1, by_hand(logits[0, 1].double(), triangle(9)))
    assert [shape.mask for shape in measured.shapes] == ["causal"]


def test_weights_that_were_changed_after_the_softmax_are_told() -> None:
    from dataclasses import replace

    seen = eager(drawn(1, 2, 9, 9))
    assert seen.weights is not None and not Patterns(seen).measured.altered
    smoothed = 0.5 * seen.weights + 0.5 / 9
    changed = Patterns(replace(seen, weights=smoothed, output=smoothed @ seen.value))
    assert changed.measured.altered
    entropy = torch.special.entr(smoothed.double()).sum(-1).mean(-1)
    assert torch.allclose(changed.measured.entropy, entropy, rtol=1e-5)
    assert changed.measured.shapes[0].mask == "other"
    assert changed.scores is None


def test_rounded_weights_are_not_changed_ones() -> None:
    from dataclasses import replace

    seen = eager(drawn(1, 2, 9, 9))
    assert seen.weights is not None
    rounded = seen.weights.bfloat16()
    output = rounded @ seen.value.bfloat16()
    half = replace(seen, weights=rounded, value=seen.value.bfloat16(), output=output)
    assert not Patterns(half).measured.altered


def test_negative_weights_and_row_sums_above_one_are_told() -> None:
    from dataclasses import replace

    seen = eager(drawn(1, 2, 9, 9))
    assert seen.weights is not None
    plain = Patterns(seen).measured
    assert plain.lowest == 0.0 and abs(plain.excess) < 1e-5
    sharp = 2 * seen.weights - 1 / 9
    measured = Patterns(replace(seen, weights=sharp, output=sharp @ seen.value)).measured
    assert measured.lowest == pytest.approx(float(sharp.min()))
    assert abs(measured.excess) < 1e-5
    more = seen.weights * 1.5
    measured = Patterns(replace(seen, weights=more, output=more @ seen.value)).measured
    assert measured.excess == pytest.approx(0.5, rel=1e-5)


def test_a_row_without_keys_in_one_example_is_not_one_in_the_others() -> None:
    mask = torch.ones(2, 1, 4, 4, dtype=torch.bool)
    mask[0, 0, 2] = False
    seen = kernel(drawn(2, 2, 4, 4), drawn(2, 2, 4, 4, seed=1), mask=mask)
    (shape,) = Patterns(seen).measured.shapes
    assert shape.allowed == (4, 4, 4, 4)


def test_rows_that_do_not_sum_to_one_are_told_by_how_much() -> None:
    from dataclasses import replace

    seen = eager(drawn(1, 2, 4, 4))
    assert seen.weights is not None
    assert Patterns(seen).measured.uneven < 1e-6
    scaled = replace(seen, weights=seen.weights * 0.9, output=seen.output * 0.9)
    assert Patterns(scaled).measured.uneven == pytest.approx(0.1, rel=1e-5)


def test_one_token_has_no_second_singular_value() -> None:
    measured = Patterns(kernel(drawn(2, 2, 1, 4), drawn(2, 2, 1, 4, seed=1), causal=True)).measured
    assert measured.second is None
    assert torch.allclose(measured.norm.value, torch.ones(2, 2, dtype=torch.float64))
    assert float(measured.entropy.abs().max()) < 1e-6
    assert measured.logit_span.abs().max() == 0


def test_a_matrix_is_handed_out_as_it_is() -> None:
    query, key = drawn(2, 2, 6, 4), drawn(2, 2, 6, 4, seed=1)
    patterns = Patterns(kernel(query, key, causal=True))
    found = dict(patterns.matrices())
    exact = (query.double() @ key.double().transpose(-1, -2) * 0.5).masked_fill(
        triangle(6), float("-inf")
    )
    for example in range(2):
        assert torch.allclose(found[example].double(), exact[example].softmax(-1), atol=1e-6)


def test_from_the_long_limit_on_no_matrix_is_formed(monkeypatch: pytest.MonkeyPatch) -> None:
    from leadline.numerics.patterns import patterns as module
    from leadline.numerics.spectra import leading
    from leadline.numerics.spectra.attention_rows import AttentionRows

    query, key = drawn(1, 2, 40, 4), drawn(1, 2, 40, 4, seed=1)
    short = Patterns(kernel(query, key, causal=True)).measured
    monkeypatch.setattr(module, "LONG", 40)
    monkeypatch.setattr(leading, "WHOLE", 0)
    monkeypatch.setattr(AttentionRows, "dense", lambda *_, **__: pytest.fail("formed"))
    long = Patterns(kernel(query, key, causal=True)).measured
    assert torch.allclose(long.norm.value, short.norm.value, rtol=1e-6)
    assert torch.allclose(long.entropy, short.entropy)
    assert long.second is not None and short.second is not None
    assert torch.allclose(long.second.value, short.second.value, rtol=1e-4)
    assert LONG == 4096


@pytest.mark.parametrize(("below", "hidden"), [(999.5, False), (1000.5, True)])
def test_a_logit_a_thousand_below_the_largest_of_its_row_is_hidden(
    below: float, hidden: bool
) -> None:
    logits = torch.zeros(1, 1, 3, 3)
    logits[..., 2] = -below
    measured = Patterns(eager(logits)).measured
    assert measured.shapes[0].allowed == ((2, 2, 2) if hidden else (3, 3, 3))
    assert float(measured.logit_span) == pytest.approx(0.0 if hidden else below)


@pytest.mark.parametrize(("largest", "missing"), [(-9998.5, 0), (-9999.5, 3)])
def test_a_row_whose_largest_logit_is_that_low_sees_nothing(largest: float, missing: int) -> None:
    assert Patterns(eager(torch.full((1, 1, 3, 3), largest))).measured.missing == missing


@pytest.mark.parametrize(("off", "altered"), [(0.8e-4, False), (1.2e-4, True)])
def test_weights_may_differ_by_a_ten_thousandth_from_their_softmax(
    off: float, altered: bool
) -> None:
    from dataclasses import replace

    seen = eager(torch.zeros(1, 1, 4, 4))
    assert seen.weights is not None
    weights = seen.weights.clone()
    weights[..., 0] += off
    weights[..., 1] -= off
    changed = replace(seen, weights=weights, output=weights @ seen.value)
    assert Patterns(changed).measured.altered is altered


def test_a_miss_is_counted_in_eps_of_the_output() -> None:
    """All products are exact here: equal weights of four keys, values of ones."""
    from dataclasses import replace

    value = torch.ones(1, 1, 4, 1)
    seen = kernel(torch.zeros(1, 1, 4, 4), torch.zeros(1, 1, 4, 4), value=value)
    for dtype in (torch.float32, torch.bfloat16):
        eps = torch.finfo(dtype).eps
        for count in (0, 1, 8, 9):
            output = (torch.ones(1, 1, 4, 1) * (1 + count * eps)).to(dtype)
            proof = Patterns(replace(seen, output=output)).measured.proof
            assert proof == pytest.approx(count, rel=1e-6)
    assert PROOF_LIMIT == 8.0


def test_large_logits_widen_the_unit_of_the_proof() -> None:
    """One plus the largest logit, in eps of float32, at most a hundredth."""
    from dataclasses import replace

    for size, unit in ((0.0, 1.0), (3.0, 1.0 + 3.0), (1e7, 1e-2 / torch.finfo(torch.float32).eps)):
        query = torch.full((1, 1, 4, 4), size / 2)
        key = torch.ones(1, 1, 4, 4)
        seen = kernel(query, key, value=torch.ones(1, 1, 4, 3))
        output = torch.full((1, 1, 4, 3), 1.25)
        proof = Patterns(replace(seen, output=output)).measured.proof
        assert proof == pytest.approx(0.25 / (unit * torch.finfo(torch.float32).eps), rel=1e-4)


def test_heads_may_hide_different_keys() -> None:
    logits = drawn(1, 2, 9, 9) * 2
    hidden = torch.stack([torch.zeros(9, 9, dtype=torch.bool), triangle(9)])
    measured = Patterns(eager(logits.masked_fill(hidden, -1e4))).measured
    for head in range(2):
        agree(measured, 0, head, by_hand(logits[0, head].double(), hidden[head]))
    # The fewest keys that a head may see: a bound may only grow by it.
    assert measured.shapes[0].allowed == tuple(range(1, 10))
    biases = torch.zeros(1, 2, 9, 9).masked_fill(hidden, float("-inf"))
    query, key = drawn(1, 2, 9, 4), drawn(1, 2, 9, 4, seed=1)
    seen = Patterns(kernel(query, key, mask=biases)).measured
    products = query.double() @ key.double().transpose(-1, -2) * 0.5
    for head in range(2):
        agree(seen, 0, head, by_hand(products[0, head], hidden[head]))


def test_changed_weights_are_told_under_a_mask_too() -> None:
    from dataclasses import replace

    seen = eager(drawn(1, 2, 9, 9).masked_fill(triangle(9), -1e4))
    assert seen.weights is not None and not Patterns(seen).measured.altered
    smoothed = 0.5 * seen.weights + 0.5 / 9
    changed = replace(seen, weights=smoothed, output=smoothed @ seen.value)
    assert Patterns(changed).measured.altered


def test_a_sink_takes_weight_and_the_rest_is_measured_as_it_is() -> None:
    """Rows sum below one: entropy and distance are of what is left."""
    from dataclasses import replace

    logits = drawn(1, 2, 6, 6) * 2
    masked = logits.masked_fill(triangle(6), -1e4)
    full = torch.cat([masked, torch.full((1, 2, 6, 1), 0.7)], -1).softmax(-1)
    weights = full[..., :-1]
    seen = eager(masked)
    sunk = replace(seen, weights=weights, output=weights @ seen.value, sink=True)
    measured = Patterns(sunk).measured
    assert not measured.altered
    w = weights.double()
    entropy = torch.special.entr(w).sum(-1).mean(-1)
    assert torch.allclose(measured.entropy, entropy, rtol=1e-5)
    apart = (torch.arange(6)[:, None] - torch.arange(6)).abs()
    assert torch.allclose(measured.distance, (w * apart).sum(-1).mean(-1), rtol=1e-5)
    assert measured.uneven == pytest.approx(float((1 - w.sum(-1)).max()), rel=1e-5)
    assert measured.excess < 0


@pytest.mark.parametrize("causal", [False, True])
def test_long_matrices_go_block_by_block_into_their_spectrum(causal: bool) -> None:
    """From 384 tokens on every head has blocks of its own; a broken one stays alone."""
    query, key = drawn(1, 3, 400, 8) * 3, drawn(1, 3, 400, 8, seed=1)
    query[0, 1, 7] = float("nan")
    measured = Patterns(kernel(query, key, causal=causal)).measured
    logits = query.double() @ key.double().transpose(-1, -2) / 8**0.5
    if causal:
        logits = logits.masked_fill(triangle(400), float("-inf"))
    assert measured.second is not None
    assert bool(measured.norm.value[0, 1].isnan())
    for head in (0, 2):
        exact = torch.linalg.svdvals(logits[0, head].softmax(-1))
        assert float(measured.norm.value[0, head]) == pytest.approx(float(exact[0]), rel=1e-6)
        assert float(measured.second.value[0, head]) == pytest.approx(float(exact[1]), rel=1e-2)
        # float32 weights are not the exact ones: the interval is about the numbers as stored.
        assert float(measured.norm.lower[0, head]) <= float(exact[0]) * (1 + 1e-5)
        assert float(measured.norm.upper[0, head]) >= float(exact[0]) * (1 - 1e-5)
        assert float(measured.second.lower[0, head]) <= float(exact[1]) * (1 + 1e-5)


def test_blocks_give_the_pair_of_the_whole_matrix() -> None:
    from leadline.numerics.spectra.spectrum import blocks_leading_pair, leading_pair

    for n in (40, 400):
        whole = (drawn(3, n, n) * 2).masked_fill(triangle(n), float("-inf")).softmax(-1)
        whole[2, 0, 0] = -0.5  # a negative entry takes another way
        cut = [whole[:, i : i + 100, : i + 100] for i in range(0, n, 100)]
        for one, other in zip(blocks_leading_pair(cut, n), leading_pair(whole), strict=True):
            assert torch.allclose(one.value, other.value, rtol=1e-3)
        first = blocks_leading_pair(cut, n)[0]
        exact = torch.linalg.svdvals(whole.double())[:, 0]
        assert torch.allclose(first.value, exact, rtol=1e-6)
        assert bool((first.lower <= exact).all() and (exact <= first.upper).all())


def wide(span: float, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Queries and keys of 2 heads and 12 tokens whose products, halved, reach over about `span`."""
    query, key = drawn(1, 2, 12, 4, seed=3), drawn(1, 2, 12, 4, seed=4)
    reach = (0.5 * query @ key.mT).amax(-1) - (0.5 * query @ key.mT).amin(-1)
    return (query * (span / float(reach.max()))).to(dtype), key.to(dtype)


def masks(kind: str) -> tuple[Tensor, Tensor]:
    """What is hidden [12, 12], and the mask that is added to the logits."""
    hidden = triangle(12)
    if kind == "padding":
        hidden = torch.arange(12).expand(12, 12) >= 9
    if kind == "none":
        hidden = torch.zeros(12, 12, dtype=torch.bool)
    lowest = {"added": -1e4, "lowest": torch.finfo(torch.float32).min}.get(kind, -torch.inf)
    return hidden, torch.zeros(12, 12).masked_fill(hidden, lowest)


def spans_by_hand(logits: Tensor, hidden: Tensor) -> list[float]:
    return [
        max(
            max(row[j] for j in range(12) if not hidden[i, j])
            - min(row[j] for j in range(12) if not hidden[i, j])
            for i, row in enumerate(head.tolist())
        )
        for head in logits[0].double()
    ]


SPANS = [
    (kind, span)
    for kind in ("none", "causal", "padding", "lowest", "added")
    for span in (10.0, 1e3, 3e3, 1e5)
    # Minus 10,000 does not hide a logit that is larger than the others by more.
    if (kind, span) != ("added", 1e5)
]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("kind", "span"), SPANS)
def test_the_span_of_a_kernel_is_that_of_the_logits_however_large(
    kind: str, span: float, dtype: torch.dtype
) -> None:
    query, key = wide(span, dtype)
    hidden, mask = masks(kind)
    by_hand = spans_by_hand(0.5 * query.double() @ key.double().mT, hidden)
    forms: list[dict[str, Any]] = [{"mask": mask.to(dtype)}, {"mask": ~hidden}]
    forms += [{"causal": True}] if kind == "causal" else []
    for form in forms:
        measured = Patterns(kernel(query, key, scaling=0.5, **form)).measured
        assert measured.logit_span[0].tolist() == pytest.approx(by_hand, rel=1e-5)
        assert measured.shapes[0].allowed == tuple((~hidden).sum(-1).tolist())
        assert measured.missing == 0
        assert not measured.doubtful


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("kind", "span"), SPANS)
@pytest.mark.parametrize("cap", [None, 5e3])
def test_the_span_of_weights_is_that_of_the_logits_where_the_products_are_known(
    kind: str, span: float, dtype: torch.dtype, cap: float | None
) -> None:
    query, key = wide(span, dtype)
    hidden, mask = masks(kind)
    logits = (query @ key.mT) * 0.5
    if cap is not None:
        logits = cap * (logits / cap).tanh()
    by_hand = spans_by_hand(logits, hidden)
    seen = eager(logits + mask.to(dtype), query=query, key=key, scaling=0.5, soft_cap=cap)
    measured = Patterns(seen).measured
    assert measured.logit_span[0].tolist() == pytest.approx(by_hand, rel=1e-5)
    assert measured.shapes[0].allowed == tuple((~hidden).sum(-1).tolist())
    assert measured.missing == 0
    assert not measured.doubtful


def test_a_span_that_may_be_a_mask_is_said_to_be_doubtful() -> None:
    logits = drawn(1, 2, 12, 12) * 3
    logits[..., 4] -= 3e3
    assert Patterns(eager(logits)).measured.doubtful
    assert float(Patterns(eager(logits)).measured.logit_span.max()) < 1e3
    for certain in (-1e4, -65504.0, torch.finfo(torch.float32).min, -torch.inf):
        masked = (drawn(1, 2, 12, 12) * 3).masked_fill(triangle(12), certain)
        assert not Patterns(eager(masked)).measured.doubtful
    # Minus 10,000 that is added leaves logits that might be real ones.
    assert Patterns(eager(drawn(1, 2, 12, 12) * 3 - 1e4 * triangle(12))).measured.doubtful


def test_a_row_of_very_small_logits_still_sees_its_keys() -> None:
    query, key = torch.full((1, 1, 3, 2), -1e3), torch.full((1, 1, 3, 2), 1e2)
    logits = query @ key.mT
    for seen in (
        kernel(query, key, scaling=1.0),
        eager(logits, query=query, key=key, scaling=1.0),
    ):
        measured = Patterns(seen).measured
        assert measured.missing == 0
        assert measured.shapes[0].allowed == (3, 3, 3)
        assert float(measured.entropy) == pytest.approx(math.log(3), rel=1e-6)


@pytest.mark.parametrize(("units", "visible"), [(3, True), (5, False)])
def test_products_of_queries_and_keys_are_right_to_four_units_of_rounding(
    units: int, visible: bool
) -> None:
    """The second of two equal products is lowered by a thousand and some units of rounding.

    Products of 2**27 have a rounding of 16 in float32, so all numbers here are exact.
    """
    query, key = torch.full((1, 1, 2, 1), 2.0**27), torch.ones(1, 1, 2, 1)
    unit = 2.0**27 * torch.finfo(torch.float32).eps
    assert unit == 16
    logits = query @ key.mT
    logits[..., 1] -= 1000 + units * unit
    assert float(logits[0, 0, 0, 0] - logits[0, 0, 0, 1]) == 1000 + units * unit
    measured = Patterns(eager(logits, query=query, key=key, scaling=1.0)).measured
    assert measured.shapes[0].allowed == ((2, 2) if visible else (1, 1))
