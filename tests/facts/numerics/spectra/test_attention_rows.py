"""The rows of attention, block by block, are those of the definition, number by number."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from leadline.errors import InputError
from leadline.numerics import reference
from leadline.numerics.spectra.attention_rows import BLOCK, AttentionRows

HEADS, GROUPS, M, N, WIDTH = 4, 2, 7, 9, 5
SCALING = 0.7


def _inputs(m: int = M, n: int = N, *, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    g = torch.Generator().manual_seed(seed)
    query = 2 * torch.randn(HEADS, m, WIDTH, generator=g)
    return query, torch.randn(GROUPS, n, WIDTH, generator=g)


def _mask(kind: str) -> torch.Tensor | None:
    g = torch.Generator().manual_seed(9)
    if kind == "none":
        return None
    if kind == "boolean":
        mask = torch.rand(HEADS, M, N, generator=g) > 0.4
        mask[:, 2] = False  # a query that may look nowhere
        return mask
    if kind == "added":
        return torch.randn(HEADS, M, N, generator=g)
    mask = torch.zeros(HEADS, M, N)
    mask[torch.rand(HEADS, M, N, generator=g) > 0.6] = -torch.inf
    return mask


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("mask", ["none", "boolean", "added", "hidden by -inf"])
@pytest.mark.parametrize("extra", ["nothing", "soft cap", "sinks", "both"])
def test_weights_are_those_of_the_definition(causal: bool, mask: str, extra: str) -> None:
    query, key = _inputs()
    given = _mask(mask)
    soft_cap = 1.5 if extra in {"soft cap", "both"} else None
    sinks = torch.tensor([0.5, -1.0, 2.0, 0.0]) if extra in {"sinks", "both"} else None
    rows = AttentionRows(
        query, key, scaling=SCALING, causal=causal, mask=given, soft_cap=soft_cap, sinks=sinks
    )
    dense = rows.dense()
    assert rows.shape == dense.shape == (HEADS, M, N)
    assert rows.stochastic is (sinks is None)
    for head in range(HEADS):
        expected = reference.attention_weights(
            query[head],
            key[head // 2],
            scaling=SCALING,
            causal=causal,
            mask=None if given is None else given[head],
            soft_cap=soft_cap,
            sink=None if sinks is None else float(sinks[head]),
        )
        assert torch.allclose(dense[head].double(), expected, atol=1e-6)
    if mask == "boolean":
        assert not bool(dense[:, 2].any())
    if sinks is None:
        sums = dense.sum(-1)
        assert bool(((sums - 1).abs() < 1e-5).logical_or(sums == 0).all())
    else:
        assert bool((dense.sum(-1) < 1).all())


@pytest.mark.parametrize("rows", [1, 2, 3, 7, 100, None])
@pytest.mark.parametrize("causal", [True, False])
def test_blocks_are_the_matrix_cut_into_rows(rows: int | None, causal: bool) -> None:
    query, key = _inputs(9, 9)
    operator = AttentionRows(query, key, scaling=SCALING, causal=causal)
    dense = operator.dense()
    scores = torch.einsum("hid,hjd->hij", query, key.repeat_interleave(2, 0)) * SCALING
    seen = 0
    for first, top, shifted, total, weights in operator.softmaxes(rows):
        logits = shifted + top
        assert first == seen and logits.shape == weights.shape
        assert torch.allclose(shifted.exp() / total, weights)
        count, width = weights.shape[1:]
        assert width == (min(9, first + count) if causal else 9)
        assert torch.allclose(weights, dense[:, first : first + count, :width], atol=1e-6)
        assert not bool(dense[:, first : first + count, width:].any())
        for i in range(count):
            shown = first + i + 1 if causal else 9
            assert torch.allclose(logits[:, i, :shown], scores[:, first + i, :shown], atol=1e-5)
            assert bool((logits[:, i, shown:] == -torch.inf).all())
        seen += count
    assert seen == 9


def test_later_passes_give_the_weights_of_the_first_to_the_bit() -> None:
    query, key = _inputs(40, 40)
    rows = AttentionRows(30 * query, key, scaling=1.0, causal=True)
    first = [weights.clone() for _, weights in rows.weights(7)]
    again = [weights for _, weights in rows.weights(7)]
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))


@pytest.mark.parametrize("sinks", [None, torch.tensor([0.5, -1.0, 2.0, 0.0])])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_products_are_those_of_the_matrix(dtype: torch.dtype, sinks: torch.Tensor | None) -> None:
    query, key = _inputs()
    rows = AttentionRows(query, key, scaling=SCALING, causal=True, sinks=sinks)
    dense = rows.dense(dtype=torch.float64)
    x = torch.randn(HEADS, N, 3, generator=torch.Generator().manual_seed(1)).to(dtype)
    accuracy = 1e-5 if dtype == torch.float32 else 1e-12
    product = dense @ x.double()
    for _ in range(2):
        assert rows.gram(x).dtype == dtype
        assert torch.allclose(rows.gram(x).double(), dense.mT @ product, atol=accuracy)
    parts = [block.weights for block in rows.softmaxes(N, dtype=dtype)]
    assert torch.allclose(parts[0].double(), dense[:, : parts[0].shape[1]], atol=accuracy)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_raised_before_it_is_multiplied(dtype: torch.dtype) -> None:
    query, key = (each.to(dtype) for each in _inputs())
    rows = AttentionRows(query, key, scaling=SCALING)
    exact = AttentionRows(query.double(), key.double(), scaling=SCALING).dense(dtype=torch.float64)
    assert rows.dense().dtype == torch.float32
    assert torch.allclose(rows.dense().double(), exact, atol=1e-6)


@pytest.mark.parametrize("as_positions", [True, False])
def test_what_is_left_out_vanishes_and_the_order_stays(as_positions: bool) -> None:
    query, key = _inputs(6, 6)
    queries = torch.tensor([False, False, True, True, False, True])
    keys = torch.tensor([False, True, True, False, True, True])
    keep: dict[str, Any] = {"keep_queries": queries, "keep_keys": keys}
    if as_positions:
        keep = {name: each.nonzero().flatten() for name, each in keep.items()}
    added = torch.randn(HEADS, 6, 6, generator=torch.Generator().manual_seed(2))
    rows = AttentionRows(query, key, scaling=SCALING, causal=True, mask=added, **keep)
    assert rows.shape == (HEADS, 3, 4)
    hidden = added.masked_fill(~keys, -torch.inf)
    for head in range(HEADS):
        whole = reference.attention_weights(
            query[head], key[head // 2], scaling=SCALING, causal=True, mask=hidden[head]
        )
        expected = whole[queries][:, keys]
        assert torch.allclose(rows.dense()[head].double(), expected, atol=1e-6)


@pytest.mark.parametrize("m", [1, 4, 9, 12])
def test_the_last_query_sees_the_last_key(m: int) -> None:
    query, key = _inputs(m, 9)
    weights = AttentionRows(query, key, scaling=SCALING, causal=True).dense()
    seen = [int(row.nonzero().max()) + 1 if bool(row.any()) else 0 for row in weights[0]]
    assert seen == [max(0, i + 1 + 9 - m) for i in range(m)]


@pytest.mark.parametrize("shape", [(1, 1, N), (1, M, N), (HEADS, 1, N), (N,), (M, N), (M, 1)])
def test_masks_broadcast(shape: tuple[int, ...]) -> None:
    query, key = _inputs()
    mask = torch.rand(shape, generator=torch.Generator().manual_seed(3)) > 0.3
    rows = AttentionRows(query, key, scaling=SCALING, mask=mask)
    full = AttentionRows(query, key, scaling=SCALING, mask=mask.expand(HEADS, M, N))
    assert torch.equal(rows.dense(), full.dense())
    part = rows.head(3)
    assert part.shape == (1, M, N)
    assert torch.allclose(part.dense()[0], full.dense()[3], atol=1e-6)


def test_one_head_alone_is_that_head() -> None:
    query, key = _inputs()
    sinks = torch.tensor([0.5, -1.0, 2.0, 0.0])
    mask = torch.randn(HEADS, M, N, generator=torch.Generator().manual_seed(4))
    rows = AttentionRows(query, key, scaling=SCALING, causal=True, mask=mask, sinks=sinks)
    dense = rows.dense()
    for head in range(HEADS):
        assert torch.allclose(rows.head(head).dense()[0], dense[head], atol=1e-6)


def test_nan_stays_where_it_is() -> None:
    query, key = _inputs()
    query[1, 3] = math.nan
    dense = AttentionRows(query, key, scaling=SCALING).dense()
    assert bool(dense[1, 3].isnan().all())
    dense[1, 3] = 0
    assert bool(dense.isfinite().all())


def test_a_block_holds_half_a_million_weights() -> None:
    query, key = torch.zeros(2, 20, 1), torch.zeros(1, 1 << 15, 1)
    sizes = [weights.shape for _, weights in AttentionRows(query, key, scaling=1.0).weights()]
    assert sizes == [(2, 8, 1 << 15), (2, 8, 1 << 15), (2, 4, 1 << 15)]
    assert BLOCK == 8 * 2 * (1 << 15)
    # A row longer than a block is a block of its own.
    long = AttentionRows(torch.zeros(1, 2, 1), torch.zeros(1, BLOCK + 1, 1), scaling=1.0)
    assert [weights.shape[1] for _, weights in long.weights()] == [1, 1]


def test_the_rounding_of_a_weight_is_counted_by_hand() -> None:
    # |q| = 5, |k| = 2, scaling 1/2: logits up to 5; d = 2, n = 3.
    query = torch.tensor([[[3.0, 4.0], [0.0, 1.0]]])
    key = torch.tensor([[[2.0, 0.0], [0.0, 1.0], [0.0, 0.0]]])
    eps = 2.0**-52
    rows = AttentionRows(query, key, scaling=0.5)
    assert float(rows.rounding()) == pytest.approx((2 * 6 * 5 + 3 + 8) * eps)
    # An added mask counts with its largest number that does not hide a key.
    mask = torch.tensor([[7.0, -torch.inf, -2e4]])
    rows = AttentionRows(query, key, scaling=0.5, mask=mask)
    assert float(rows.rounding()) == pytest.approx((2 * 6 * 12 + 3 + 8) * eps)
    mask = torch.tensor([[9999.0, 0.0, 10_001.0]])
    rows = AttentionRows(query, key, scaling=0.5, mask=mask)
    assert float(rows.rounding()) == pytest.approx((2 * 6 * (5 + 9999) + 3 + 8) * eps)


@pytest.mark.parametrize("std", [1.0, 30.0])
def test_a_float64_weight_is_within_its_rounding(std: float) -> None:
    import mpmath

    g = torch.Generator().manual_seed(6)
    query, key = (std * torch.randn(1, 3, 8, generator=g) for _ in range(2))
    rows = AttentionRows(query, key, scaling=0.3)
    weights, allowed = rows.dense(dtype=torch.float64)[0], float(rows.rounding())
    with mpmath.workdps(40):
        for i in range(3):
            logits = [
                mpmath.mpf(0.3)
                * mpmath.fdot(map(mpmath.mpf, query[0, i].tolist()), key[0, j].tolist())
                for j in range(3)
            ]
            total = mpmath.fsum(mpmath.exp(logit) for logit in logits)
            for j in range(3):
                exact = mpmath.exp(logits[j]) / total
                if exact < 1e-300:
                    assert float(weights[i, j]) < 1e-300
                    continue
                assert abs(mpmath.mpf(float(weights[i, j])) / exact - 1) <= allowed


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"query": torch.zeros(2, 3)}, r"\(2, 3\)"),
        ({"key": torch.zeros(2, 9, 4)}, r"\(2, 9, 4\)"),
        ({"key": torch.zeros(3, 9, 5)}, "4 query heads do not divide into 3"),
        ({"key": torch.zeros(0, 9, 5)}, "into 0"),
        ({"query": torch.zeros(4, 7, 5, dtype=torch.int32)}, "torch.int32"),
        ({"mask": torch.zeros(7, 9, dtype=torch.int64)}, "torch.int64"),
        ({"mask": torch.zeros(8, 9)}, "7 queries and 9 keys"),
    ],
)
def test_what_does_not_fit_gets_a_sentence(change: dict[str, torch.Tensor], words: str) -> None:
    query, key = _inputs()
    given: dict[str, Any] = {"query": query, "key": key, "scaling": 1.0} | change
    with pytest.raises(InputError, match=words):
        AttentionRows(**given)


@pytest.mark.parametrize("causal", [True, False])
def test_lent_blocks_are_the_same_and_stand_in_one_memory(causal: bool) -> None:
    query, key = _inputs(9, 9)
    operator = AttentionRows(query, key, scaling=SCALING, causal=causal)
    places = set()
    for lent, kept in zip(operator.softmaxes(2, lent=True), operator.softmaxes(2), strict=True):
        assert lent.first == kept.first and torch.equal(lent.shifted, kept.shifted)
        assert torch.equal(lent.weights, kept.weights) and torch.equal(lent.total, kept.total)
        places.add(lent.shifted.data_ptr())
    assert len(places) == 1
