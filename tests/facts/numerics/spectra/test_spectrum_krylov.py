"""The Krylov run, the vector that certifies, and the second singular value."""

from __future__ import annotations

import math

import pytest
import torch

from leadline.numerics import reference
from leadline.numerics.spectra import batch_lanczos, certificate, krylov, stored
from leadline.numerics.spectra import lanczos as alone
from leadline.numerics.spectra.krylov import Space, leading_vectors, start_block
from leadline.numerics.spectra.lanczos import lanczos
from leadline.numerics.spectra.spectrum import leading_pair, second_singular_value, spectral_norm

CPU = torch.device("cpu")
EXACT = torch.float64


def _attention(n: int, *, std: float = 3.0, seed: int = 0, causal: bool = False) -> torch.Tensor:
    g = torch.Generator().manual_seed(seed)
    logits = std * torch.randn(n, n, generator=g)
    if causal:
        logits = logits.masked_fill(torch.ones(n, n).triu(1) > 0, -torch.inf)
    return torch.softmax(logits, -1)


@pytest.mark.parametrize("rows", [1, 2, 8])
def test_the_start_block_is_orthonormal_and_begins_with_one(rows: int) -> None:
    block = start_block(50, rows, dtype=EXACT, device=CPU)
    assert torch.allclose(block @ block.mT, torch.eye(rows, dtype=EXACT), atol=1e-14)
    assert torch.allclose(block[0], torch.full((50,), 50**-0.5, dtype=EXACT))
    assert torch.equal(block, start_block(50, rows, dtype=EXACT, device=CPU))


@pytest.mark.parametrize("block", [1, 2, 8])
def test_the_run_finds_the_leading_vector_and_counts_its_products(block: int) -> None:
    matrices = torch.stack([_attention(60, seed=seed) for seed in range(3)])
    start = start_block(60, block, dtype=torch.float32, device=CPU).expand(3, -1, -1)
    found = leading_vectors(stored.MatrixBatch(matrices), start)
    for i in range(3):
        exact = torch.linalg.svd(matrices[i].double()).Vh[0]
        vector = found.ritz[i, 0].double()
        assert abs(float(vector @ exact) / float(vector.norm())) == pytest.approx(1, abs=1e-7)
        assert 1 <= int(found.iterations[i]) <= 60
        assert bool((found.positive[i] > 0).all())


def test_a_block_needs_fewer_passes() -> None:
    matrix = _attention(300, std=4)[None]
    steps = [
        int(
            leading_vectors(
                stored.MatrixBatch(matrix),
                start_block(300, rows, dtype=torch.float32, device=CPU)[None],
                spacing=1.0,
            ).iterations
        )
        for rows in (1, 8)
    ]
    assert steps[1] < steps[0]


@pytest.mark.parametrize("n", [400, 500])
@pytest.mark.parametrize("causal", [True, False])
def test_one_matrix_alone_takes_the_way_of_the_batch(n: int, causal: bool) -> None:
    matrix = _attention(n, causal=causal, seed=n)
    ritz, positive, steps = lanczos(stored.Chunked(matrix))
    start = start_block(n, 1, dtype=torch.float32, device=CPU)[None]
    batch = leading_vectors(stored.Several([stored.Chunked(matrix)]), start, spacing=1.0)
    assert abs(steps - int(batch.iterations)) <= 3
    cosine = torch.nn.functional.cosine_similarity(ritz.abs(), batch.ritz[0, 0].abs(), dim=0)
    assert float(cosine) == pytest.approx(1, abs=1e-6)
    assert bool((positive > 0).all())


def test_a_run_ends_after_96_steps_with_what_it_has() -> None:
    # Local attention in three documents: several values lie close to the largest.
    blocks = []
    for length in (300, 310, 320):
        position = torch.arange(length)
        blocks.append(torch.softmax((position[:, None] - position).abs() / -3.0, -1))
    matrix = torch.block_diag(*blocks)
    n = len(matrix)
    found = spectral_norm(matrix)
    assert int(found.iterations) == krylov.MOST == 96
    truth = reference.spectral_norm(matrix)
    assert float(found.lower) <= truth <= float(found.upper)
    start = start_block(n, 1, dtype=torch.float32, device=CPU)[None]
    few = leading_vectors(stored.Several([stored.Chunked(matrix)]), start, most=4)
    assert int(few.iterations) == 4 and bool((few.positive > 0).all())


@pytest.mark.parametrize("n", [100, 400])
def test_what_only_rounding_keeps_from_a_bound_ends_the_run(
    n: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A tightness that float32 cannot reach.
    for module in (krylov, alone, batch_lanczos):
        monkeypatch.setattr(module, "TIGHT", 1e-10)
    found = spectral_norm(_attention(n, std=1.0, causal=True))
    assert 8 <= int(found.iterations) < 60
    assert float(found.width) < 1e-5


def test_a_first_vector_that_has_converged_does_not_end_the_run_of_other_documents() -> None:
    # The large document is uniform and done at once, the other one is not.
    matrix = torch.block_diag(3 * torch.ones(200, 200) / 200, 2.9 * _attention(250, std=2))
    found = spectral_norm(matrix)
    assert float(found.width) < 1e-5 and int(found.iterations) > 5


def test_an_invariant_space_is_frozen_and_not_filled_with_noise() -> None:
    # M = I: the first product is the start itself.
    eye = torch.eye(40)[None]
    start = start_block(40, 2, dtype=torch.float32, device=CPU)[None]
    fresh, products, outside = krylov._new_rows(start, stored.MatrixBatch(eye).gram_rows(start))
    assert not bool(fresh.any()) and not bool(outside.any())
    assert torch.allclose(products[0], torch.eye(2), atol=1e-6)
    one = start[:, :1]
    nearly = one + 1e-6 * start[:, 1:]
    assert bool(krylov._new_rows(one, nearly)[2].all())
    hidden = one + 7e-7 * start[:, 1:]
    assert not bool(krylov._new_rows(one, hidden)[2].any())
    assert krylov.FREEZE * torch.finfo(torch.float32).eps == pytest.approx(9.5e-7, rel=0.01)


def _space(matrix: torch.Tensor, steps: int) -> Space:
    """A Krylov space in float64, from the definition."""
    gram = matrix.double().mT @ matrix.double()
    n = len(gram)
    columns = [torch.ones(n, dtype=EXACT)]
    for _ in range(steps):
        columns.append(gram @ (columns[-1] / columns[-1].norm()))
    rows = torch.linalg.qr(torch.stack(columns, 1)).Q.mT.contiguous()
    rows[0] = n**-0.5
    values, vectors = torch.linalg.eigh(rows[:-1] @ gram @ rows[:-1].mT)
    outside = (rows[-2:-1] @ gram @ rows[-1:].mT)[None]
    return Space(rows[None], values[None], vectors[None], outside)


def test_the_residual_of_a_ritz_vector_is_what_it_says() -> None:
    matrix = _attention(30)
    gram = matrix.double().mT @ matrix.double()
    space = _space(matrix, 5)
    for which in (1, 2):
        vector = space.vectors[0, :, -which] @ space.rows[0, :-1]
        residual = gram @ vector - space.values[0, -which] * vector
        assert float(space.residuals(which)) == pytest.approx(float(residual.norm()), rel=1e-6)
    ahead = space.leading(2)[0]
    for which in (1, 2):
        vector = space.vectors[0, :, -which] @ space.rows[0, :-1]
        assert torch.allclose(ahead[which - 1], gram @ vector, atol=1e-10)
    assert not bool(_space(matrix, 1).leading(2)[0, 1].any())


@pytest.mark.parametrize("every", [True, False])
@pytest.mark.parametrize("steps", [4, 8, 14])
def test_the_predicted_slack_is_that_of_a_resolvent_vector(steps: int, every: bool) -> None:
    matrix = _attention(30, std=2)
    gram = matrix.double().mT @ matrix.double()
    space = _space(matrix, steps)
    top = float(space.values[0, -1])
    vector, slack = certificate.positive_vector(space, every=every)
    residual = float(space.residuals(1)) / top
    grid = certificate.ETAS if every else [max(residual, 3e-7) * near for near in (0.3, 1, 3, 10)]
    # The same by a linear solve with T, for each eta.
    projected = space.vectors[0] @ space.values[0].diag() @ space.vectors[0].mT
    best = math.inf
    for eta in grid:
        shifted = top * (1 + eta) * torch.eye(steps, dtype=EXACT) - projected
        right = torch.zeros(steps, dtype=EXACT)
        right[0] = top
        z = torch.linalg.solve(shifted, right) @ space.rows[0, :-1]
        if bool((z > 0).all()):
            best = min(best, float((gram @ z / z).max()) / top - 1)
    assert float(slack) == pytest.approx(best, rel=1e-5, abs=1e-12)
    # What is returned is one product further, and positive.
    assert bool((vector > 0).all())
    assert float((gram @ vector[0] / vector[0]).max()) / top - 1 <= best * (1 + 1e-6)


def test_the_exact_resolvent_proves_its_pole_for_any_graph() -> None:
    # M z = lambda z - 1 < lambda z, connected or not, with a column that nobody looks at.
    matrix = torch.block_diag(_attention(5), _attention(7), torch.zeros(1, 1)).double()
    gram = matrix.mT @ matrix
    pole = float(torch.linalg.eigvalsh(gram)[-1]) * (1 + 1e-7)
    ones = torch.ones(13, dtype=EXACT)
    z = torch.linalg.solve(pole * torch.eye(13, dtype=EXACT) - gram, ones)
    assert bool((z > 0).all())
    assert float(certificate.quotient(gram @ z, z)) < pole


def test_where_no_candidate_is_positive_the_vector_one_is_taken() -> None:
    rows = torch.tensor([[[0.5, 0.5, 0.5, 0.5], [0.5, -0.5, 0.5, -0.5]]])
    space = Space(
        torch.nan_to_num(rows) * torch.tensor([-1.0, 1.0])[:, None],
        torch.ones(1, 1, dtype=EXACT),
        torch.ones(1, 1, 1, dtype=EXACT),
        torch.zeros(1, 1, 1, dtype=EXACT),
    )
    vector, slack = certificate.positive_vector(space)
    assert vector.tolist() == [[0.5] * 4] and math.isinf(float(slack))


def test_rounding_moves_both_ends_by_m_plus_n_plus_8_units() -> None:
    assert certificate.margin(3, 5) == 16 * 2.0**-52
    lower, upper = certificate.ends(2.0, 4.41, 0.01)
    assert lower == pytest.approx(1.98) and upper == pytest.approx(2.1 * 1.01)
    # A bound below the Rayleigh quotient can only be rounding.
    assert certificate.ends(2.0, 3.9, 0.0) == (2.0, 2.0)
    many = certificate.batched_ends(
        torch.tensor([2.0, 2.0, math.nan]), torch.tensor([4.41, 3.9, 1.0]), 0.01
    )
    assert many[0][:2].tolist() == pytest.approx([1.98, 1.98])
    assert many[1][:2].tolist() == pytest.approx([2.1 * 1.01, 2.02])
    assert bool(many[0][2].isnan()) and bool(many[1][2].isnan())


def test_the_measured_choices_are_these() -> None:
    # Half of TIGHT bounds the width on sigma; a cluster must be proved closer.
    assert (krylov.TIGHT, krylov.CLUSTER, krylov.CLOSER) == (1e-5, 1e-2, 2.5)
    assert (krylov.PROMISING, krylov.RESIDUAL) == (1e-4, 3e-3)
    assert certificate.NOISE == 2 and certificate.NEAR == (0.3, 1.0, 3.0, 10.0)
    assert certificate.ETAS[0] == 3e-7 and certificate.ETAS[-1] == 1e3


@pytest.mark.parametrize("n", [2, 9, 33, 64, 65, 120, 400])
def test_the_second_value_lies_in_its_interval_too(n: int) -> None:
    matrices = torch.stack(
        [_attention(n, std=std, seed=n, causal=c) for std in (0.3, 1, 4, 16) for c in (True, False)]
    )
    first, second = leading_pair(matrices)
    truth = torch.linalg.svdvals(matrices.double())
    for k, found in enumerate((first, second)):
        assert bool(((found.lower <= truth[:, k]) & (truth[:, k] <= found.upper)).all())
    assert first.value.tolist() == pytest.approx(truth[:, 0].tolist(), rel=1e-6)
    assert second.value.tolist() == pytest.approx(truth[:, 1].tolist(), rel=5e-3)
    assert float(first.width.max()) <= 1e-5
    assert torch.equal(second_singular_value(matrices).value, second.value)


@pytest.mark.parametrize("n", [10, 100, 400])
def test_a_value_that_occurs_twice_is_seen_twice(n: int) -> None:
    g = torch.Generator().manual_seed(n)
    shuffled = torch.eye(n)[torch.randperm(n, generator=g)]
    half = _attention(n // 2, seed=2)
    for matrix in (shuffled, torch.block_diag(half, half)):
        first, second = leading_pair(matrix)
        assert float(second.value) == pytest.approx(float(first.value), rel=1e-5)


@pytest.mark.parametrize("n", [1, 10, 100, 400])
def test_a_matrix_of_rank_one_has_no_second_value(n: int) -> None:
    first, second = leading_pair(torch.full((n, n), 1 / n))
    assert float(first.value) == pytest.approx(1, rel=1e-6)
    assert float(second.value) < 1e-3 and float(second.lower) == 0
    column = leading_pair(torch.rand(n, 1))[1]
    assert float(column.value) == float(column.upper) == 0


def test_the_upper_end_of_the_second_is_what_the_frobenius_norm_leaves() -> None:
    matrix = torch.block_diag(3 * torch.ones(40, 40) / 40, torch.ones(40, 40) / 40)
    first, second = leading_pair(matrix)
    # Singular values 3 and 1, |A|_F^2 = 10.
    assert float(first.value) == pytest.approx(3, rel=1e-6)
    assert float(second.value) == pytest.approx(1, rel=1e-4)
    assert float(second.upper) == pytest.approx(1, rel=1e-4)
    half = torch.eye(100)
    assert float(leading_pair(half)[1].upper) == pytest.approx(1, rel=1e-5)


def test_the_second_value_of_documents_is_that_of_the_second_document() -> None:
    large, small = _attention(200, std=6, seed=1), _attention(200, std=6, seed=4)
    pair = sorted((reference.spectral_norm(each) for each in (large, small)), reverse=True)
    seconds = max(reference.second_singular_value(each) for each in (large, small))
    found = second_singular_value(torch.block_diag(large, small))
    assert float(found.value) == pytest.approx(max(pair[1], seconds), rel=1e-4)


def _patterns(n: int) -> dict[str, torch.Tensor]:
    """Attention as it is met: random, sharp, sinks, previous tokens, local, packed, degenerate."""
    g = torch.Generator().manual_seed(n)
    back = (torch.arange(n)[:, None] - torch.arange(n)).float()
    causal = back >= 0

    def softmax(logits: torch.Tensor) -> torch.Tensor:
        return logits.masked_fill(~causal, -torch.inf).softmax(-1)

    noise = torch.randn(n, n, generator=g)
    shuffled = torch.eye(n)[torch.randperm(n, generator=g)]
    document = torch.bucketize(torch.arange(n), torch.tensor([n // 5, n // 2, n - 9]))
    near = [torch.full((n // 4, n // 4), 4 / n) * (1 - 1e-4 * k) for k in range(4)]
    sink = torch.zeros(n, n)
    sink[:, 0] = 5
    window = (causal & (back < 3)).float()
    return {
        "random": softmax(noise),
        "sharp": softmax(4 * noise),
        "bidirectional": noise.softmax(-1),
        "previous token": softmax(-8 * (back - 1).abs()),
        "sink": softmax(sink + noise),
        "local": softmax(-0.5 * back),
        "window": window / window.sum(-1, keepdim=True),
        "packed": softmax(noise.masked_fill(document[:, None] != document, -torch.inf)),
        "near-degenerate": torch.block_diag(*near),
        # Its singular values fill an interval, where one residual is not enough.
        "nearly a permutation": 0.9 * shuffled + 0.1 * noise.softmax(-1),
    }


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("n", [68, 120, 256, 500, 800])
def test_the_interval_of_the_second_value_is_narrow_and_contains_it(
    n: int, dtype: torch.dtype
) -> None:
    patterns = _patterns(n)
    for name, pattern in patterns.items():
        matrix = pattern.to(dtype)
        second = second_singular_value(matrix)
        truth = float(torch.linalg.svdvals(matrix.double())[1])
        assert float(second.lower) <= truth * (1 + 1e-12), name
        assert truth * (1 - 1e-12) <= float(second.upper), name
        # Frobenius norms alone leave 10 to 600 % here.
        assert float(second.width) <= 7e-3, name


def test_a_value_just_above_others_may_be_missed_by_more_than_two_residuals() -> None:
    """Of 1000 eigenvalues 999 fill an interval: after three steps the one above them is not seen."""
    exact = torch.linspace(0.5, 1.0, 1000, dtype=EXACT)
    exact[-1] = 1.2
    matrix = exact.sqrt().diag()
    space = _space(matrix, 3)
    missed, residual = 1.2 - float(space.values[0, -1]), float(space.residuals(1))
    assert missed > 2 * residual
    start = start_block(1000, 1, dtype=EXACT, device=CPU)[None]
    assert missed <= float(leading_vectors(stored.MatrixBatch(matrix[None]), start, most=3).error)


def test_an_interval_beyond_the_proof_is_cut_to_it() -> None:
    # All but nothing is left for the second value: what is proved is closer than any residual.
    matrix = torch.full((100, 100), 0.01)
    matrix[0, 0] += 1e-3
    second = second_singular_value(matrix)
    left = float(matrix.double().square().sum()) - float(spectral_norm(matrix).lower) ** 2
    assert float(second.upper) <= left**0.5 * (1 + 1e-6)
