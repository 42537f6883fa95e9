"""The spectral norm of attention from queries and keys, with the matrix and without."""

from __future__ import annotations

import math
from unittest import mock

import pytest
import torch

from leadline.errors import InputError
from leadline.numerics import reference
from leadline.numerics.spectra import leading
from leadline.numerics.spectra.attention_rows import AttentionRows
from leadline.numerics.spectra.matrix_free import MatrixFree
from leadline.numerics.spectra.spectrum import (
    attention_leading_pair,
    attention_spectral_norm,
    rows_leading_pair,
    rows_spectral_norm,
)

Tensor = torch.Tensor


def _inputs(*leading_shape: int, n: int = 90, std: float = 1.5, seed: int = 0) -> list[Tensor]:
    g = torch.Generator().manual_seed(seed)
    return [std * torch.randn(*leading_shape, n, 8, generator=g) for _ in range(2)]


def _exact(query: Tensor, key: Tensor, *, causal: bool, scaling: float | None = None) -> Tensor:
    """The weights in float64, by torch's softmax."""
    scaling = query.shape[-1] ** -0.5 if scaling is None else scaling
    logits = scaling * query.double() @ key.double().mT
    if causal:
        m, n = logits.shape[-2:]
        logits = logits.masked_fill(torch.ones(m, n).triu(1 + n - m) > 0, -torch.inf)
    return torch.softmax(logits, -1)


@pytest.fixture(params=["formed", "matrix-free"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both ways at sizes where the truth is cheap."""
    if request.param == "matrix-free":
        monkeypatch.setattr(leading, "WHOLE", 0)
    return request.param


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("std", [0.3, 1.5, 4.0])
@pytest.mark.usefixtures("way")
def test_the_true_value_lies_in_the_interval(causal: bool, std: float) -> None:
    query, key = _inputs(3, std=std)
    found = attention_spectral_norm(query, key, causal=causal)
    first, second = attention_leading_pair(query, key, causal=causal)
    assert found.value.shape == (3,)
    for head in range(3):
        truth = reference.singular_values(_exact(query[head], key[head], causal=causal))
        for each in (found, first):
            assert float(each.lower[head]) <= truth[0] <= float(each.upper[head])
            assert float(each.value[head]) == pytest.approx(truth[0], rel=1e-6)
            assert float(each.width[head]) <= 1e-5
        assert float(second.lower[head]) <= truth[1] <= float(second.upper[head])
        assert float(second.value[head]) == pytest.approx(truth[1], rel=5e-3)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
@pytest.mark.usefixtures("way")
def test_the_interval_is_about_the_numbers_that_were_given(dtype: torch.dtype) -> None:
    query, key = (each.to(dtype) for each in _inputs(1, std=2.5))
    found = attention_spectral_norm(query, key, causal=True)
    truth = reference.spectral_norm(_exact(query[0], key[0], causal=True))
    assert float(found.lower) <= truth <= float(found.upper)
    assert float(found.value) == pytest.approx(truth, rel=1e-6)


@pytest.mark.usefixtures("way")
def test_sharp_logits_do_not_loosen_the_interval() -> None:
    # Logits near 200: float32 keeps five digits of a weight, the interval is about all of them.
    query, key = _inputs(1, std=9.0)
    found = attention_spectral_norm(query, key)
    truth = reference.spectral_norm(_exact(query[0], key[0], causal=False))
    assert float(found.lower) <= truth <= float(found.upper)
    assert float(found.width) <= 1e-4


@pytest.mark.usefixtures("way")
def test_leading_shapes_broadcast_and_groups_share_a_key() -> None:
    g = torch.Generator().manual_seed(3)
    query = torch.randn(2, 1, 4, 40, 8, generator=g)
    key = torch.randn(3, 2, 50, 8, generator=g)
    mask = torch.rand(3, 1, 40, 50, generator=g) > 0.2
    found = attention_spectral_norm(query, key, scaling=0.9, mask=mask)
    assert found.value.shape == found.iterations.shape == (2, 3, 4)
    for i, j, head in ((0, 0, 0), (1, 2, 3), (0, 1, 2)):
        weights = reference.attention_weights(
            query[i, 0, head], key[j, head // 2], scaling=0.9, mask=mask[j, 0]
        )
        assert float(found.value[i, j, head]) == pytest.approx(
            reference.spectral_norm(weights), rel=1e-6
        )


@pytest.mark.usefixtures("way")
def test_one_head_may_come_without_a_head_dimension() -> None:
    query, key = _inputs()
    found = attention_spectral_norm(query, key)
    truth = reference.spectral_norm(_exact(query, key, causal=False))
    assert found.value.shape == () and float(found.value) == pytest.approx(truth, rel=1e-6)
    many = attention_spectral_norm(query, key.expand(3, -1, -1))
    assert many.value.tolist() == pytest.approx([truth] * 3, rel=1e-6)


def test_scaling_is_one_over_the_root_of_the_width() -> None:
    query, key = _inputs(1)
    plain = attention_spectral_norm(query, key)
    given = attention_spectral_norm(query, key, scaling=1 / math.sqrt(8))
    other = attention_spectral_norm(query, key, scaling=1.0)
    assert torch.equal(plain.value, given.value) and not torch.equal(plain.value, other.value)


@pytest.mark.usefixtures("way")
def test_sinks_soft_caps_and_padding_go_through_the_rows() -> None:
    query, key = _inputs(2, n=45)
    keep = torch.arange(45) % 5 != 0
    sinks = torch.tensor([1.0, -2.0])
    rows = AttentionRows(
        query, key, scaling=0.6, causal=True, soft_cap=2.0, sinks=sinks, keep_keys=keep
    )
    found, pair = rows_spectral_norm(rows), rows_leading_pair(rows)
    hidden = keep.expand(45, 45)
    for head in range(2):
        weights = reference.attention_weights(
            query[head],
            key[head],
            scaling=0.6,
            causal=True,
            soft_cap=2.0,
            sink=float(sinks[head]),
            mask=hidden,
        )
        truth = reference.singular_values(weights)
        assert float(found.lower[head]) <= truth[0] <= float(found.upper[head])
        assert float(pair[1].value[head]) == pytest.approx(truth[1], rel=5e-3)
    # Rows that sum below one may have a norm below one.
    assert rows_spectral_norm(
        AttentionRows(query, key, scaling=0.1, sinks=torch.full((2,), 9.0))
    ).value.tolist() < [1.0, 1.0]


@pytest.mark.usefixtures("way")
def test_numbers_that_are_not_finite_make_their_head_unknown() -> None:
    query, key = _inputs(3)
    query[1, 4, 2] = math.nan
    found = attention_spectral_norm(query, key, causal=True)
    pair = attention_leading_pair(query, key, causal=True)
    for each in (found, *pair):
        for field in (each.value, each.lower, each.upper):
            assert field.isnan().tolist() == [False, True, False]
    # A logit that overflows: no softmax.
    huge = [torch.full((1, 90, 8), 1e200, dtype=torch.float64)] * 2
    assert bool(attention_spectral_norm(*huge).value.isnan().all())


@pytest.mark.usefixtures("way")
def test_a_query_that_may_look_nowhere_is_a_row_of_zeros() -> None:
    query, key = _inputs(1, n=40)
    mask = torch.ones(40, 40, dtype=torch.bool)
    mask[7] = False
    weights = reference.attention_weights(query[0], key[0], scaling=8**-0.5, mask=mask)
    found = attention_spectral_norm(query, key, mask=mask)
    assert float(found.value) == pytest.approx(reference.spectral_norm(weights), rel=1e-6)
    nothing = attention_spectral_norm(query, key, mask=torch.zeros(40, 40, dtype=torch.bool))
    assert float(nothing.value) == float(nothing.upper) == 0
    pair = attention_leading_pair(query, key, mask=torch.zeros(40, 40, dtype=torch.bool))
    assert [float(each.upper) for each in pair] == [0, 0]


@pytest.mark.parametrize(("m", "n"), [(1, 1), (1, 50), (50, 1), (60, 45), (45, 60)])
@pytest.mark.usefixtures("way")
def test_any_number_of_queries_and_keys(m: int, n: int) -> None:
    g = torch.Generator().manual_seed(m)
    query, key = torch.randn(1, m, 4, generator=g), torch.randn(1, n, 4, generator=g)
    for causal in (True, False):
        weights = reference.attention_weights(query[0], key[0], scaling=0.5, causal=causal)
        found = attention_spectral_norm(query, key, causal=causal)
        truth = reference.spectral_norm(weights)
        assert float(found.lower) <= truth * (1 + 1e-12)
        assert float(found.upper) >= truth * (1 - 1e-12)
        assert float(found.value) == pytest.approx(truth, rel=1e-6)


def test_two_million_weights_are_formed_and_one_more_row_is_not() -> None:
    key = torch.zeros(1, 1 << 15, 1)
    with mock.patch.object(leading, "MatrixFree", wraps=MatrixFree) as free:
        attention_spectral_norm(torch.zeros(1, 64, 1), key)
        assert free.call_count == 0
        found = attention_spectral_norm(torch.zeros(1, 65, 1), key)
        assert free.call_count == 1
    # Uniform over n keys: |1 1' / n| = sqrt(m n) / n.
    assert float(found.value) == pytest.approx(math.sqrt(65 / (1 << 15)), rel=1e-6)


def test_eight_vectors_share_a_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leading, "WHOLE", 0)
    shapes = []
    original = MatrixFree.gram_rows
    monkeypatch.setattr(
        MatrixFree, "gram_rows", lambda self, x: shapes.append(x.shape) or original(self, x)
    )
    found = attention_spectral_norm(*_inputs(1))
    assert shapes and set(shapes) == {(1, 8, 90)}
    assert int(found.iterations) == len(shapes)


def test_the_interval_is_widened_by_the_rounding_of_the_softmax() -> None:
    query, key = _inputs(1, n=20)
    narrow = attention_spectral_norm(query.double(), key.double())
    rounding = torch.tensor([0.01], dtype=torch.float64)
    with mock.patch.object(AttentionRows, "rounding", return_value=rounding):
        wide = attention_spectral_norm(query.double(), key.double())
    assert float(wide.lower) == pytest.approx(0.99 * float(narrow.lower), rel=1e-12)
    assert float(wide.upper) == pytest.approx(1.01 * float(narrow.upper), rel=1e-12)


@pytest.mark.parametrize(
    ("query", "key", "words"),
    [
        (torch.zeros(5), torch.zeros(5, 5), r"\(5,\)"),
        (torch.zeros(4, 5), torch.zeros(4, 6), r"\(4, 6\)"),
        (torch.zeros(0, 5), torch.zeros(4, 5), "0 queries"),
        (torch.zeros(4, 5), torch.zeros(0, 5), "0 keys"),
        (torch.zeros(4, 0), torch.zeros(4, 0), "width 0"),
        (torch.zeros(2, 1, 4, 5), torch.zeros(3, 1, 4, 5), "broadcast"),
        (torch.zeros(3, 4, 5), torch.zeros(2, 4, 5), "3 query heads"),
        (torch.zeros(4, 5).int(), torch.zeros(4, 5).int(), "torch.int32"),
    ],
)
def test_what_is_no_attention_gets_a_sentence(query: Tensor, key: Tensor, words: str) -> None:
    for function in (attention_spectral_norm, attention_leading_pair):
        with pytest.raises(InputError, match=words):
            function(query, key)


def test_a_mask_that_does_not_fit_gets_a_sentence() -> None:
    query, key = _inputs(1)
    with pytest.raises(InputError, match="broadcast"):
        attention_spectral_norm(query, key, mask=torch.zeros(7, 90, 90))
    with pytest.raises(InputError, match="90 queries and 90 keys"):
        attention_spectral_norm(query, key, mask=torch.zeros(3, 90))
    empty = AttentionRows(query, key, scaling=1.0, keep_keys=torch.zeros(90, dtype=torch.bool))
    for function in (rows_spectral_norm, rows_leading_pair):
        with pytest.raises(InputError, match="to 0 keys"):
            function(empty)
