"""Manifold-constrained hyper-connections: by hand, against transformers, and doubly stochastic."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from leadline.errors import RecipeError
from leadline.parts.connections.manifold import doubly_stochastic, sinkhorn
from tests.facts.parts.connections.trial import (
    EXAMPLES,
    TOKENS,
    WIDTH,
    Array,
    array,
    built,
    lanes,
    model,
    place,
    same,
    sigmoid,
    stirred,
    streams,
)


def coefficients(connection: Any, h: Array) -> tuple[Array, Array, Array]:
    """H_pre, H_post and the logarithms of what Sinkhorn starts from, for one token's lanes."""
    n = len(h)
    flat = h.reshape(-1)
    flat = flat / np.sqrt((flat**2).mean() + 1e-6)
    p = {name: array(parameter) for name, parameter in connection.named_parameters()}
    found = p["phi.weight"] @ flat
    s_pre, s_post, s_res = p["scale"]
    return (
        sigmoid(s_pre * found[:n] + p["bias_pre"]),
        2 * sigmoid(s_post * found[n : 2 * n] + p["bias_post"]),
        s_res * found[2 * n :].reshape(n, n) + p["bias_res"],
    )


def normed_in_turn(matrix: Array, times: int) -> Array:
    """Columns, then rows, divided by their sums."""
    for _ in range(times):
        matrix = matrix / matrix.sum(0, keepdims=True)
        matrix = matrix / matrix.sum(1, keepdims=True)
    return matrix


@pytest.mark.parametrize(
    ("choice", "times"),
    [
        ("manifold_hyper(exact=false)", 20),
        ("manifold_hyper(exact=false, lanes=3)", 20),
        ("manifold_hyper(exact=false, iterations=2)", 2),
    ],
)
@pytest.mark.parametrize("size", [1.0, 1e-3])
def test_lanes_are_read_mixed_and_written_as_in_the_paper(
    choice: str, times: int, size: float
) -> None:
    connection = stirred(built(choice))
    (u,) = streams(1)
    state = size * lanes(connection.lanes)
    read, after = np.zeros(u.shape), np.zeros(state.shape)
    mixing = np.zeros((*state.shape[:3], connection.lanes))
    for e, t in np.ndindex(EXAMPLES, TOKENS):
        h = array(state)[e, t]
        pre, post, logits = coefficients(connection, h)
        mixing[e, t] = normed_in_turn(np.exp(logits), times)
        read[e, t] = sum(share * lane for share, lane in zip(pre, h, strict=True))
        for i in range(connection.lanes):
            after[e, t, i] = post[i] * array(u)[e, t]
            for j in range(connection.lanes):
                after[e, t, i] += mixing[e, t, i, j] * h[j]
    assert same(connection.read(state), read)
    assert same(connection.mixing(state), mixing, tolerance=1e-11)
    assert same(connection.write(state, u), after, tolerance=1e-11)
    kept, written = connection.split(state, u)
    assert same(kept + written, after, tolerance=1e-11)
    assert same(kept, mixing @ array(state), tolerance=1e-11)


def test_where_every_number_starts() -> None:
    connection = built("manifold_hyper")
    assert connection.lanes == 4
    assert connection.iterations == 20
    assert connection.exact is True
    start = {name: array(p) for name, p in connection.named_parameters()}
    assert start["scale"] == pytest.approx([0.01, 0.01, 0.01], rel=1e-7)
    assert start["bias_pre"].tolist() == start["bias_post"].tolist() == [0.0] * 4
    assert np.array_equal(start["bias_res"], np.zeros((4, 4)))
    assert start["phi.weight"].shape == (2 * 4 + 4**2, 4 * WIDTH)
    assert sum(p.numel() for p in connection.parameters()) == (2 * 4 + 4**2) * (4 * WIDTH + 1) + 3
    leaning = built("manifold_hyper(diagonal=8)")
    assert np.array_equal(array(leaning.bias_res), 8 * np.eye(4))
    assert dict(connection.weights()) == {"coefficients": connection.phi.weight}


def test_at_the_start_half_of_every_lane_is_read_and_every_lane_gets_the_update() -> None:
    connection = built("manifold_hyper")
    with torch.no_grad():
        connection.phi.weight.zero_()
    state, (u,) = lanes(4), streams(1)
    assert same(connection.read(state), 0.5 * array(state).sum(2))
    mean = array(state).mean(2, keepdims=True)
    assert same(connection.write(state, u), np.repeat(mean, 4, 2) + array(u)[:, :, None])


def test_without_a_diagonal_the_lanes_start_as_one_and_with_a_large_one_they_do_not() -> None:
    for diagonal, largest, smallest in ((0, 0.26, 0.24), (8, 1.0, 0.99)):
        small = model(f"manifold_hyper(diagonal={diagonal})")
        stream = torch.randn(2, 3, 16, generator=torch.Generator().manual_seed(0))
        found = small.first.mixing(small.first.open(stream))  # type: ignore[operator]
        own = found.detach().diagonal(dim1=-2, dim2=-1)
        assert smallest < float(own.min()) <= float(own.max()) < largest


def test_lanes_open_as_copies_and_close_as_their_mean() -> None:
    connection = built("manifold_hyper")
    (x,) = streams(1)
    state = connection.open(x)
    assert state.shape == (EXAMPLES, TOKENS, 4, WIDTH)
    assert all(torch.equal(state[:, :, lane], x) for lane in range(4))
    assert same(connection.close(lanes(4)), array(lanes(4)).mean(2))


# --- doubly stochastic --------------------------------------------------------------------------


def logits_of(std: float, *, dtype: torch.dtype = torch.float32, count: int = 4000) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return std * torch.randn(count, 4, 4, generator=generator).to(dtype)


def off(matrix: Tensor, axis: int) -> Tensor:
    """How far the worst sum of each matrix is from 1."""
    return (matrix.sum(axis) - 1).abs().amax(-1)


@pytest.mark.parametrize("std", [0.0, 0.01, 0.3])
def test_twenty_iterations_are_enough_while_the_logits_are_small(std: float) -> None:
    matrix = sinkhorn(logits_of(std), 20)
    assert off(matrix, -1).max() < 1e-6
    assert off(matrix, -2).max() < 1e-6


def test_twenty_iterations_leave_a_thousandth_where_the_logits_are_of_size_one() -> None:
    matrix = sinkhorn(logits_of(1.0), 20)
    assert off(matrix, -1).max() < 1e-6
    columns = off(matrix, -2)
    assert float((columns < 1e-6).float().mean()) == pytest.approx(0.98, abs=0.01)
    assert 2e-4 < columns.max() < 2e-3


@pytest.mark.parametrize("std", [0.0, 0.01, 0.3, 1.0, 3.0, 30.0])
@pytest.mark.parametrize("iterations", [1, 20])
def test_what_sinkhorn_lacks_is_put_right_whatever_the_weights_are(
    std: float, iterations: int
) -> None:
    matrix = doubly_stochastic(sinkhorn(logits_of(std), iterations))
    assert off(matrix, -1).max() < 1e-6
    assert off(matrix, -2).max() < 1e-6
    assert matrix.min() >= 0.0


def test_a_matrix_that_is_doubly_stochastic_stays_as_it_is() -> None:
    matrix = sinkhorn(logits_of(0.3, dtype=torch.float64), 60)
    assert torch.allclose(doubly_stochastic(matrix), matrix, rtol=0, atol=1e-14)


def test_too_full_columns_are_scaled_down_and_the_rest_is_spread() -> None:
    matrix = torch.tensor([[0.5, 0.5, 0.0], [0.75, 0.25, 0.0], [0.25, 0.25, 0.5]]).double()
    # Columns sum to 1.5, 1, 0.5; the first is divided by 1.5. Rows then lack 1/6, 1/4, 1/12 and
    # the last column lacks all of it.
    expected = [[1 / 3, 1 / 2, 1 / 6], [1 / 2, 1 / 4, 1 / 4], [1 / 6, 1 / 4, 7 / 12]]
    assert same(doubly_stochastic(matrix), np.array(expected))


def test_large_logits_do_not_overflow() -> None:
    logits = torch.tensor([[500.0, -500.0], [-500.0, 500.0]])
    assert torch.equal(sinkhorn(logits, 20), torch.eye(2))


@pytest.mark.parametrize("std", [0.01, 1.0, 3.0])
def test_the_gradient_through_the_iteration_is_that_of_finite_differences(std: float) -> None:
    logits = logits_of(std, dtype=torch.float64, count=2).requires_grad_()
    assert torch.autograd.gradcheck(lambda z: doubly_stochastic(sinkhorn(z, 20)), logits)


@pytest.mark.parametrize("stir", [False, True])
def test_the_mixing_of_a_model_is_doubly_stochastic_to_a_millionth(stir: bool) -> None:
    small = model("manifold_hyper", stir=stir)
    stream = torch.randn(2, 8, 16, generator=torch.Generator().manual_seed(0))
    for sublayer in small.sublayers():
        connection: Any = sublayer.connection
        state = connection.open(stream) + 0.1 * torch.arange(4)[:, None]
        matrix = connection.mixing(state)
        assert matrix.shape == (2, 8, 4, 4)
        assert off(matrix, -1).max() < 1e-6 and off(matrix, -2).max() < 1e-6


def test_a_zero_update_moves_the_lanes_and_keeps_their_mean() -> None:
    connection = stirred(built("manifold_hyper"))
    state = lanes(4)
    after = connection.write(state, torch.zeros(EXAMPLES, TOKENS, WIDTH).double())
    assert not torch.allclose(after, state, atol=0.01)
    assert torch.allclose(connection.close(after), connection.close(state), atol=1e-14)
    assert connection.keeps_identity is True
    assert connection.mixes == "doubly stochastic"
    assert connection.starts_as is None


def test_sinkhorn_alone_does_not_promise_the_mean_for_all_weights() -> None:
    assert built("manifold_hyper(exact=false)").keeps_identity is False


def test_half_precision_is_mixed_by_a_matrix_of_float32() -> None:
    connection = built("manifold_hyper").bfloat16()
    state = lanes(4).bfloat16()
    assert connection.mixing(state).dtype == torch.float32
    after = connection.write(state, streams(1)[0].bfloat16())
    assert after.dtype == connection.read(state).dtype == torch.bfloat16


def test_autocast_rounds_neither_the_lanes_nor_the_matrix() -> None:
    connection = stirred(built("manifold_hyper"), by=0.3).float()
    state, u = lanes(4).float(), streams(1)[0].float()
    plain, read = connection.write(state, u), connection.read(state)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(connection.write(state, u), plain)
        assert torch.equal(connection.read(state), read)
        assert connection.write(state, u.bfloat16()).dtype == torch.float32


# --- against transformers -----------------------------------------------------------------------


def test_transformers_deepseek_v4_makes_the_same_write_with_the_matrix_transposed() -> None:
    from transformers.models.deepseek_v4.configuration_deepseek_v4 import DeepseekV4Config
    from transformers.models.deepseek_v4.modeling_deepseek_v4 import DeepseekV4HyperConnection

    config = DeepseekV4Config(hidden_size=WIDTH, hc_mult=4, hc_eps=0.0, rms_norm_eps=1e-6)
    theirs = DeepseekV4HyperConnection(config).float()
    ours = stirred(built("manifold_hyper(exact=false)")).float()
    n = 4
    turned = torch.arange(n * n).view(n, n).T.flatten()  # their matrix is the transpose of ours
    with torch.no_grad():
        pre, post, res = ours.phi.weight.split((n, n, n * n))
        theirs.fn.copy_(torch.cat([pre, post, res[turned]]))
        theirs.base.copy_(torch.cat([ours.bias_pre, ours.bias_post, ours.bias_res.T.flatten()]))
        theirs.scale.copy_(ours.scale)
        state, u = lanes(n).float(), streams(1)[0].float()
        post_share, comb, collapsed = theirs(state)
        after = post_share.unsqueeze(-1) * u.unsqueeze(-2) + comb.transpose(-1, -2) @ state
        assert torch.allclose(ours.read(state), collapsed, atol=1e-5)
        assert torch.allclose(ours.mixing(state), comb.transpose(-1, -2), atol=1e-6)
        assert torch.allclose(ours.write(state, u), after, atol=1e-5)
        # The orientation matters: their matrix as it stands makes another write.
        other = post_share.unsqueeze(-1) * u.unsqueeze(-2) + comb @ state
        assert not torch.allclose(ours.write(state, u), other, atol=0.05)


@pytest.mark.parametrize(
    ("choice", "sentence"),
    [
        (
            "manifold_hyper(lanes=2.5)",
            "The option lanes of manifold_hyper is 2.5; give a whole number from 1 on.",
        ),
        (
            "manifold_hyper(iterations=0)",
            "The option iterations of manifold_hyper is 0; give a whole number from 1 on.",
        ),
        (
            "manifold_hyper(diagonal=none)",
            "The option diagonal of manifold_hyper is None; give a number.",
        ),
        (
            "manifold_hyper(exact=2)",
            "The option exact of manifold_hyper is 2; give true or false.",
        ),
    ],
)
def test_a_manifold_refuses_an_impossible_option(choice: str, sentence: str) -> None:
    with pytest.raises(RecipeError) as caught:
        built(choice, place())
    assert str(caught.value) == sentence
