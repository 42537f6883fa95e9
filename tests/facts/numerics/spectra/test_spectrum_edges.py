"""What the spectral norm does with numbers that are not weights, and how it chooses its way."""

from __future__ import annotations

import math
from unittest import mock

import pytest
import torch

from leadline.errors import InputError
from leadline.numerics import denormals, reference
from leadline.numerics.spectra import eigenvalues, leading, squaring, stored
from leadline.numerics.spectra.spectrum import (
    SpectralNorm,
    attention_spectral_norm,
    leading_pair,
    second_singular_value,
    singular_values,
    spectral_norm,
)

SIDES = (7, 50, 400)
"""One for each way: powers, Krylov together, Krylov alone."""


def _attention(count: int, n: int, *, seed: int = 0) -> torch.Tensor:
    g = torch.Generator().manual_seed(seed)
    return torch.softmax(3 * torch.randn(count, n, n, generator=g), -1)


@pytest.mark.parametrize("n", SIDES)
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_one_entry_that_is_not_finite_makes_its_matrix_unknown_and_no_other(
    n: int, bad: float
) -> None:
    matrices = _attention(3, n)
    known = spectral_norm(matrices)
    matrices[1, n // 2, 0] = bad
    found = spectral_norm(matrices)
    for field in (found.value, found.lower, found.upper, found.width):
        assert math.isnan(field[1])
    assert found.value[[0, 2]].tolist() == pytest.approx(known.value[[0, 2]].tolist(), rel=1e-6)
    assert not bool(found.loose[1])
    first, second = leading_pair(matrices)
    assert math.isnan(first.value[1]) and math.isnan(second.upper[1])
    values = singular_values(matrices)
    assert bool(values[1].isnan().all()) and bool(values[0].isfinite().all())


@pytest.mark.parametrize("n", SIDES)
def test_negative_entries_are_solved_by_eigenvalues(n: int) -> None:
    g = torch.Generator().manual_seed(n)
    matrices = torch.randn(2, n, n, generator=g)
    found = spectral_norm(matrices)
    for i in range(2):
        truth = reference.spectral_norm(matrices[i])
        assert float(found.lower[i]) <= truth <= float(found.upper[i])
        assert float(found.value[i]) == pytest.approx(truth, rel=1e-12)
    assert found.iterations.tolist() == [0, 0]
    assert float(found.width.max()) < 1e-9
    # A single entry below zero is enough.
    weights = _attention(1, n)
    weights[0, 0, 0] = -1e-3
    assert int(spectral_norm(weights).iterations) == 0
    assert float(spectral_norm(weights).value) == pytest.approx(
        reference.spectral_norm(weights[0]), rel=1e-12
    )


@pytest.mark.parametrize("n", SIDES)
@pytest.mark.parametrize(
    ("dtype", "scale"),
    [
        (torch.float32, 1e-40),
        (torch.float32, 1e-30),
        (torch.float32, 1e-12),
        (torch.float32, 1e12),
        (torch.float32, 1e30),
        (torch.float64, 1e-200),
        (torch.float64, 1e200),
    ],
)
def test_any_scale_is_right(n: int, dtype: torch.dtype, scale: float) -> None:
    matrix = (_attention(1, n)[0].double() * scale).to(dtype)
    found = spectral_norm(matrix)
    # The truth without a square that over- or underflows.
    truth = reference.spectral_norm(matrix.double() / scale) * scale
    assert float(found.value) == pytest.approx(truth, rel=1e-6)
    assert float(found.lower) <= truth * (1 + 1e-12)
    assert float(found.upper) >= truth * (1 - 1e-12)


@pytest.mark.parametrize("n", [1, *SIDES])
def test_zero_has_the_norm_zero_exactly(n: int) -> None:
    found = spectral_norm(torch.zeros(2, n, n))
    for field in (found.value, found.lower, found.upper, found.width):
        assert field.tolist() == [0.0, 0.0]
    assert found.loose.tolist() == [False, False]


@pytest.mark.parametrize("n", SIDES)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_every_floating_point_format_is_taken_as_it_is_stored(n: int, dtype: torch.dtype) -> None:
    matrix = _attention(1, n)[0].to(dtype)
    found = spectral_norm(matrix)
    truth = reference.spectral_norm(matrix)
    assert float(found.lower) <= truth <= float(found.upper)
    assert float(found.value) == pytest.approx(truth, rel=1e-6)


@pytest.mark.parametrize("n", SIDES)
def test_float64_stays_float64(n: int) -> None:
    # Two parts in 1e10 are lost in float32.
    matrix = _attention(1, n)[0].double()
    matrix[0] *= 1 + 2e-10
    assert float(spectral_norm(matrix).value) == pytest.approx(
        reference.spectral_norm(matrix), rel=1e-11
    )


@pytest.mark.parametrize("n", SIDES)
def test_the_interval_holds_where_torch_may_multiply_in_a_shorter_format(n: int) -> None:
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    try:
        matrices = _attention(2, n, seed=3)
        found = spectral_norm(matrices)
    finally:
        torch.set_float32_matmul_precision(before)
    for i in range(2):
        truth = reference.spectral_norm(matrices[i])
        assert float(found.lower[i]) <= truth <= float(found.upper[i])
        assert float(found.value[i]) == pytest.approx(truth, rel=1e-6)


@pytest.mark.parametrize("n", SIDES)
def test_views_and_gradients_do_not_matter(n: int) -> None:
    matrices = _attention(2, n)
    plain = spectral_norm(matrices)
    turned = spectral_norm(matrices.mT)
    wide = torch.zeros(2, n, 2 * n)
    wide[:, :, ::2] = matrices
    strided = spectral_norm(wide[:, :, ::2].requires_grad_())
    for other in (turned, strided):
        assert other.value.tolist() == pytest.approx(plain.value.tolist(), rel=1e-6)
        assert not other.value.requires_grad
    assert torch.equal(spectral_norm(matrices).value, plain.value)


@pytest.mark.parametrize(
    ("matrices", "words"),
    [
        (torch.zeros(5), r"\(5,\)"),
        (torch.zeros(5, 5, dtype=torch.int64), "torch.int64"),
        (torch.zeros(5, 5, dtype=torch.bool), "torch.bool"),
        (torch.zeros(2, 0, 5), r"\(0, 5\)"),
        (torch.zeros(2, 5, 0), r"\(5, 0\)"),
    ],
)
def test_what_has_no_singular_values_gets_a_sentence(matrices: torch.Tensor, words: str) -> None:
    for function in (spectral_norm, leading_pair, second_singular_value, singular_values):
        with pytest.raises(InputError, match=words):
            function(matrices)


def test_loose_begins_at_one_percent() -> None:
    def of(width: float) -> SpectralNorm:
        lower, upper = torch.tensor(2.0), torch.tensor(2.0 * (1 + width))
        return SpectralNorm(lower, lower, upper, torch.tensor(1))

    assert not bool(of(0.0099).loose) and bool(of(0.0101).loose)
    assert float(of(0.5).width) == pytest.approx(0.5)


def test_up_to_32_matrices_are_squared_and_from_33_on_they_are_iterated() -> None:
    assert int(spectral_norm(_attention(1, 32)).iterations) == 0
    assert int(spectral_norm(_attention(1, 33)).iterations) > 0
    assert int(spectral_norm(torch.rand(1, 500, 32)).iterations) == 0
    # A pair: eigenvalues up to 64.
    assert int(leading_pair(_attention(1, 64))[0].iterations) == 0
    assert int(leading_pair(_attention(1, 65))[0].iterations) > 0


def test_from_384_on_matrices_are_taken_alone() -> None:
    with mock.patch.object(leading, "lanczos", wraps=leading.lanczos) as alone:
        spectral_norm(_attention(1, 383))
        assert alone.call_count == 0
        spectral_norm(_attention(2, 384))
        assert alone.call_count == 2
        # The geometric mean of the sides counts.
        spectral_norm(torch.rand(192, 768))
        assert alone.call_count == 3


def test_the_sizes_of_what_is_held_at_a_time() -> None:
    with mock.patch.object(leading, "squared_norm", wraps=leading.squared_norm) as together:
        spectral_norm(torch.ones(9, 1, 1 << 20))
    assert [len(call.args[0]) for call in together.call_args_list] == [4, 4, 1]
    chunks = stored.Chunked(torch.ones(600, 1024)).chunks
    assert [len(chunk) for chunk, _, _ in chunks] == [256, 256, 88]
    assert stored.MatrixBatch(torch.ones(1, 3, 192)).gram is not None
    assert stored.MatrixBatch(torch.ones(1, 3, 193)).gram is None
    assert stored.RAISED * 8 == 1 << 20


def test_largest_entries_between_1e_6_and_1e6_are_ordinary() -> None:
    weights = _attention(1, 40)[0]
    weights /= weights.max()
    for scale, ordinary in ((0.99e-6, False), (1.01e-6, True), (0.99e6, True), (1.01e6, False)):
        assert (int(spectral_norm(weights * scale).iterations) > 0) is ordinary


def test_columns_that_a_chunk_does_not_use_are_not_multiplied() -> None:
    causal = torch.tril(torch.ones(1024, 1024))
    operator = stored.Chunked(causal)
    assert [columns for _, _, columns in operator.chunks] == [
        slice(0, 256),
        slice(0, 512),
        slice(0, 768),
        slice(0, 1024),
    ]
    # The column sums weighted by row sums, by hand: sum over i >= j of (i + 1).
    expected = torch.tensor([sum(range(j + 1, 1025)) for j in range(1024)], dtype=torch.float32)
    assert torch.equal(operator.first_image, expected)
    assert torch.equal(operator.gram(torch.ones(1024)), expected)
    assert operator.lowest == 0 and operator.reach == float(expected.max())


def test_the_power_bound_is_the_root_of_a_trace() -> None:
    # The identity is the worst case: tr I = n, so the bound is n^(1 / 2p), p = 2^20, and rounding.
    _, lower, upper = squaring.squared_norm(torch.eye(32)[None])
    expected = math.log(32) / 2**21 + (32 + 4) * 2.0**-24
    assert float(upper) - 1 == pytest.approx(expected, rel=1e-3)
    assert 1 - float(lower) == pytest.approx((32 + 32 + 8) * 2.0**-52, rel=0.05)
    # n^(1/p) - 1 on sigma^2, as the docstring says.
    excess = 32 ** (1 / 2**squaring.SQUARINGS) - 1
    assert excess == pytest.approx(3e-6, rel=0.2)
    assert squaring.SQUARINGS == 20


def test_traces_between_two_scalings_stay_within_what_float32_holds() -> None:
    # The identity has the smallest trace: tr (I / n)^(2^s) = n^(1 - 2^s).
    assert squaring.SQUARINGS % squaring.SCALED == 0
    tiny = torch.finfo(torch.float32).tiny
    assert 1e15 * tiny < 32.0 ** (1 - 2**squaring.SCALED)
    assert tiny > 32.0 ** (1 - 2 ** (squaring.SCALED + 1))
    # A matrix far from it, and weights that vanish in the first squares, by a full SVD.
    g = torch.Generator().manual_seed(0)
    for std in (0.1, 4.0, 30.0):
        matrices = torch.softmax(std * torch.randn(20, 32, 32, generator=g), -1)
        value, lower, upper = squaring.squared_norm(matrices)
        truth = torch.linalg.svdvals(matrices.double())[:, 0]
        assert bool(((lower <= truth) & (truth <= upper)).all())
        assert value.tolist() == pytest.approx(truth.tolist(), rel=1e-6)


def test_powers_in_float64_are_rounded_in_float64() -> None:
    _, _, upper = squaring.squared_norm(torch.eye(32, dtype=torch.float64)[None])
    assert float(upper) - 1 == pytest.approx(math.log(32) / 2**21, rel=1e-6)


def test_the_backward_error_of_the_eigensolver_is_counted_by_hand() -> None:
    # 3 x 2: |A|_F^2 = 2, (m + 10 n) eps = 23 eps.
    matrix = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]])[None]
    value, lower, upper = eigenvalues.by_eigenvalues(matrix, count=2)
    assert value.tolist() == [[1.0, 1.0]]
    error = 2 * 23 * 2.0**-52
    assert float(upper[0, 0] ** 2 - 1) == pytest.approx(error, rel=0.05)
    assert float(1 - lower[0, 1] ** 2) == pytest.approx(error, rel=0.05)


@pytest.mark.parametrize("n", [3, 20, 60])
def test_the_backward_error_covers_what_the_eigensolver_does(n: int) -> None:
    g = torch.Generator().manual_seed(n)
    # Rank one plus noise at every size, so that small values stand beside large ones.
    base = torch.rand(40, n, 1, generator=g) @ torch.rand(40, 1, n, generator=g)
    noise = torch.logspace(-9, 0, 40)[:, None, None] * torch.randn(40, n, n, generator=g)
    matrices = (base + noise).double()
    value, lower, upper = eigenvalues.by_eigenvalues(matrices, count=2)
    truth = torch.linalg.svdvals(matrices)[:, :2]
    assert bool(((lower <= truth) & (truth <= upper)).all())
    assert value[:, 0].tolist() == pytest.approx(truth[:, 0].tolist(), rel=1e-12)


def test_denormal_numbers_are_flushed_inside_and_only_inside() -> None:
    before = denormals.is_flushing()
    tiny = torch.tensor([1e-30])
    with denormals.flushed():
        if denormals.is_flushing():  # not every processor can
            assert float(tiny * 1e-10) == 0
        with denormals.flushed():
            pass
        inside = denormals.is_flushing()
    assert denormals.is_flushing() is before
    with pytest.raises(ZeroDivisionError), denormals.flushed():
        raise ZeroDivisionError
    assert denormals.is_flushing() is before
    assert inside or not torch.set_flush_denormal(before)
    spectral_norm(_attention(1, 400))
    assert denormals.is_flushing() is before


@pytest.mark.parametrize(("m", "n"), [(1, 6), (6, 1), (9, 5), (5, 9), (70, 90)])
def test_the_whole_spectrum_is_that_of_the_svd(m: int, n: int) -> None:
    g = torch.Generator().manual_seed(m)
    matrices = torch.randn(2, 3, m, n, generator=g)
    values = singular_values(matrices)
    assert values.shape == (2, 3, min(m, n)) and values.dtype == torch.float64
    assert values[1, 2].tolist() == pytest.approx(reference.singular_values(matrices[1, 2]))
    assert torch.equal(singular_values(matrices, count=1), values[..., :1])


@pytest.mark.parametrize("count", [0, -1, 6])
def test_more_values_than_there_are_get_a_sentence(count: int) -> None:
    with pytest.raises(InputError, match="has 5"):
        singular_values(torch.ones(5, 7), count=count)


@pytest.mark.parametrize("n", [16, 40, 200, 400])
@pytest.mark.parametrize("power", [-30, -12, -9, -8, -7, -6, -5, -3, 3, 5, 6, 7, 8, 12, 30])
def test_no_scale_makes_a_value_wrong(n: int, power: int) -> None:
    logits = torch.randn(2, n, n, generator=torch.Generator().manual_seed(n)) * 2
    matrices = logits.softmax(-1) * 10.0**power
    exact = torch.linalg.svdvals(matrices.double())[:, 0]
    found = spectral_norm(matrices)
    assert torch.allclose(found.value, exact, rtol=1e-6, atol=0)
    assert bool((found.lower <= exact).all() and (exact <= found.upper).all())


def test_automatic_half_precision_does_not_reach_the_value() -> None:
    for n in (8, 20, 50, 400):
        matrices = torch.randn(3, n, n, generator=torch.Generator().manual_seed(n)).softmax(-1)
        plain = spectral_norm(matrices)
        with torch.autocast("cpu", torch.bfloat16):
            inside = spectral_norm(matrices)
        assert torch.equal(plain.value, inside.value)
        assert torch.equal(plain.upper, inside.upper)


def test_what_is_no_dense_tensor_gets_a_sentence() -> None:
    for wrong, words in (([[1.0]], "need a torch tensor"), (torch.eye(3).to_sparse(), "to_dense")):
        with pytest.raises(InputError, match=words):
            spectral_norm(wrong)  # type: ignore[arg-type]


def test_a_mask_of_keys_alone_broadcasts() -> None:
    g = torch.Generator().manual_seed(0)
    query, key = (torch.randn(2, 9, 4, generator=g) for _ in range(2))
    keys = torch.arange(9) < 6
    found = attention_spectral_norm(query, key, mask=keys)
    logits = (query.double() @ key.double().mT / 2).masked_fill(~keys, -torch.inf)
    exact = torch.linalg.matrix_norm(logits.softmax(-1), ord=2)
    assert torch.allclose(found.value, exact, rtol=1e-6)


def test_queries_beyond_all_measure_keep_the_interval_within_what_a_softmax_can_be() -> None:
    g = torch.Generator().manual_seed(0)
    query, key = (torch.randn(2, 9, 4, generator=g) * 1e30 for _ in range(2))
    found = attention_spectral_norm(query, key)
    known = ~found.value.isnan()
    assert bool((found.lower[known] >= 0).all()) and bool((found.upper[known] <= 3.0).all())


def test_the_scaling_is_a_number() -> None:
    with pytest.raises(InputError, match="give a number"):
        attention_spectral_norm(torch.ones(2, 2), torch.ones(2, 2), scaling="x")  # type: ignore[arg-type]
