"""Lanczos for many matrices: the true norm (float64 SVD) is inside, whoever leaves the batch when."""

from __future__ import annotations

from collections.abc import Iterator
from unittest import mock

import pytest
import torch

from leadline.numerics.spectra import batch_lanczos as module
from leadline.numerics.spectra.batch_lanczos import batch_lanczos
from leadline.numerics.spectra.lanczos import lanczos
from leadline.numerics.spectra.spectrum import spectral_norm
from leadline.numerics.spectra.stored import Chunked

Tensor = torch.Tensor


def _patterns(n: int) -> Iterator[Tensor]:
    """Attention [n, n] that takes from one step to all of them, and what was made to be hard."""
    g = torch.Generator().manual_seed(n)
    position = torch.arange(n)
    back = (position[:, None] - position).float()
    noise = torch.randn(n, n, generator=g)
    for hidden in (torch.zeros(n, n, dtype=torch.bool), back < 0):

        def softmax(logits: Tensor, hidden: Tensor = hidden) -> Tensor:
            return logits.masked_fill(hidden, -torch.inf).softmax(-1)

        for std in (1e-6, 1e-3, 0.3, 1.0, 4.0, 16.0, 60.0):
            yield softmax(std * noise)
        yield softmax(-0.3 * back.abs())
        yield softmax(-8 * (back - 1).abs())
        yield softmax(torch.where(back.abs() < 3, 0.0, -torch.inf))
        sink = noise.clone()
        sink[:, 0] += 9
        yield softmax(sink)
        for lengths in ((n // 2, n - n // 2), (n // 3, n // 3 + 1, n - 2 * (n // 3) - 1)):
            document = torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths))
            apart = torch.where(document[:, None] == document, 0.0, -torch.inf)
            yield softmax(apart)
            yield softmax(apart - 0.3 * back.abs())
            yield softmax(apart + 3 * noise)
    yield torch.eye(n)
    yield torch.eye(n).roll(1, 0)
    yield (1 - 1e-4) * torch.eye(n) + 1e-4 / n
    # Two parts whose norms differ by 1e-6, and one that nobody looks at.
    half = n // 2
    yield torch.block_diag(torch.full((half, half), 1 / half), torch.full((n - half, n - half), 1))
    yield torch.block_diag(noise[:half, :half].softmax(-1), torch.zeros(n - half, n - half))
    yield torch.block_diag(torch.eye(half), (1 + 1e-6) * torch.eye(n - half))


def _holds(matrices: Tensor) -> None:
    found = spectral_norm(matrices)
    truth = torch.linalg.svdvals(matrices.double())[:, 0]
    # A full SVD is itself right to some eps.
    assert bool((found.lower <= truth * (1 + 1e-13)).all())
    assert bool((truth * (1 - 1e-13) <= found.upper).all())
    assert found.value.tolist() == pytest.approx(truth.tolist(), rel=1e-6)
    assert float(found.width.max()) <= 1e-5


@pytest.mark.parametrize("n", [33, 50, 128, 129, 256])
def test_the_true_value_lies_in_the_interval_of_every_pattern(n: int) -> None:
    _holds(torch.stack(list(_patterns(n))))


@pytest.mark.parametrize("abreast", [1, 3, 7, 1000])
def test_how_many_take_their_steps_together_does_not_matter(
    abreast: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    matrices = torch.stack(list(_patterns(65)))
    monkeypatch.setattr(module, "ABREAST", abreast * 65 * 65)
    _holds(matrices)
    _holds(matrices[:1])


@pytest.mark.parametrize(("m", "n"), [(40, 200), (200, 40), (33, 34)])
def test_queries_and_keys_need_not_be_equally_many(m: int, n: int) -> None:
    g = torch.Generator().manual_seed(m)
    _holds(torch.softmax(6 * torch.randn(9, m, n, generator=g), -1))


def test_matrices_leave_one_by_one_and_keep_their_places() -> None:
    matrices = torch.stack(list(_patterns(96)))
    together = spectral_norm(matrices)
    assert len(set(together.iterations.tolist())) >= 5
    order = torch.randperm(len(matrices), generator=torch.Generator().manual_seed(1))
    shuffled = spectral_norm(matrices[order])
    assert shuffled.value.tolist() == pytest.approx(together.value[order].tolist(), rel=1e-6)
    for number in (0, 17, len(matrices) - 1):
        alone = float(spectral_norm(matrices[number]).value)
        assert alone == pytest.approx(float(together.value[number]), rel=1e-6)


def test_the_looks_are_these() -> None:
    assert list(module._looks(96)) == [4, 6, 9, 13, 19, 27, 38, 54, 76, 96]
    assert list(module._looks(5)) == [4, 5]
    assert list(module._looks(2)) == [2]
    assert module.ABREAST * 4 == 2 << 20


def test_the_numbers_are_fetched_twice_a_look_for_all_matrices() -> None:
    matrices = torch.stack(list(_patterns(64)))
    with mock.patch.object(module, "_numbers", wraps=module._numbers) as numbers:
        iterations = batch_lanczos(matrices).iterations
    looks = [step for step in module._looks(64) if step <= int(iterations.max())]
    assert numbers.call_count <= 2 * len(looks) < len(matrices)


def test_it_finds_what_one_matrix_alone_finds() -> None:
    g = torch.Generator().manual_seed(3)
    matrices = torch.softmax(3 * torch.randn(3, 100, 100, generator=g), -1)
    batch = batch_lanczos(matrices)
    for number, matrix in enumerate(matrices):
        ritz, positive, steps = lanczos(Chunked(matrix))
        cosine = torch.cosine_similarity(ritz.abs(), batch.ritz[number, 0].abs(), dim=0)
        assert float(cosine) == pytest.approx(1, abs=1e-6)
        assert bool((positive > 0).all()) and bool((batch.positive[number] > 0).all())
        assert abs(steps - int(batch.iterations[number])) <= 8


def test_a_space_that_ends_is_not_filled_with_noise() -> None:
    # M 1 = 1: one step, and zeros from there on; a random head beside it goes on.
    g = torch.Generator().manual_seed(0)
    matrices = torch.stack(
        [torch.eye(40), torch.full((40, 40), 1 / 40), torch.rand(40, 40, generator=g)]
    )
    run = module._Recurrence(matrices, room=4)
    run.advance(slice(0, 3), matrices, 4)
    run.steps = 4
    space = run.space(torch.arange(3))
    assert space.outside[:2].tolist() == [[[0.0]], [[0.0]]] and float(space.outside[2]) > 0
    assert not bool(space.rows[:2, 1:].any())
    assert space.values[:2].tolist() == [
        pytest.approx([0, 0, 0, 1], abs=1e-6),
        pytest.approx([0, 0, 0, 1], abs=1e-6),
    ]


def test_the_relation_on_which_the_certificate_rests_holds_to_rounding() -> None:
    # M V' = V' T + F' B, also where the rows are no longer orthogonal, as in the first of these.
    g = torch.Generator().manual_seed(0)
    matrices = torch.stack(
        [
            torch.rand(60, 60, generator=g),
            *torch.softmax(4 * torch.randn(3, 60, 60, generator=g), -1),
        ]
    )
    run = module._Recurrence(matrices, room=4)
    for steps in (5, 11):
        run.advance(slice(0, 2), matrices[:2], steps)
        run.advance(slice(2, 4), matrices[2:], steps)
        run.steps = steps
    space = run.space(torch.arange(4))
    rows, vectors = space.rows.double(), space.vectors
    projected = vectors @ torch.diag_embed(space.values) @ vectors.mT
    right = projected @ rows[:, :-1]
    right[:, -1] += space.outside[:, 0] * rows[:, -1]
    gram = matrices.double().mT @ matrices.double()
    missed = (rows[:, :-1] @ gram - right).abs().amax((1, 2))
    # Some roundings of a product, relative to |M|.
    assert bool((missed <= 8 * 2.0**-23 * torch.linalg.matrix_norm(gram, ord=2)).all())
    loss = (rows[0, :-1] @ rows[0, :-1].mT - torch.eye(11)).abs().max()
    assert float(loss) > 1e-2
