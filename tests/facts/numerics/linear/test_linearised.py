"""A function as its linear map at one point."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import layer_norm, scaled_dot_product_attention
from torch.utils.checkpoint import checkpoint

from leadline.errors import ProbeError
from leadline.numerics.linear.linear_maps import dense
from leadline.numerics.linear.linearised import ITERATED, TOGETHER, Linearised

TOKENS, WIDTH = 5, 6


def _stream(examples: int = 2, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(examples, TOKENS, WIDTH, generator=generator, dtype=torch.float64)


def _block(x: Tensor) -> Tensor:
    """Mixes tokens and features; made of operations that all have second derivatives."""
    generator = torch.Generator().manual_seed(1)
    weight = torch.randn(WIDTH, WIDTH, generator=generator, dtype=torch.float64)
    y = layer_norm(x, (WIDTH,))
    return x + torch.softmax(y @ y.mT, -1) @ torch.tanh(y @ weight)


def _by_differences(x: Tensor, step: float = 1e-6) -> Tensor:
    """[example, N, N] by central differences."""
    size = TOKENS * WIDTH
    columns: list[Tensor] = []
    for j in range(size):
        bump = torch.zeros(size, dtype=x.dtype)
        bump[j] = step
        moved = bump.view(1, TOKENS, WIDTH)
        columns.append((_block(x + moved) - _block(x - moved)).flatten(1) / (2 * step))
    return torch.stack(columns, 2)


def test_the_map_equals_central_differences() -> None:
    x = _stream()
    torch.testing.assert_close(
        dense(Linearised(_block, x)), _by_differences(x), rtol=1e-7, atol=1e-8
    )


def test_the_map_equals_reverse_mode_of_each_example() -> None:
    x = _stream()
    for found, one in zip(dense(Linearised(_block, x)), x, strict=True):
        rows = torch.func.jacrev(lambda z: _block(z.unsqueeze(0))[0])(one)
        torch.testing.assert_close(found, rows.reshape(TOKENS * WIDTH, -1))


def test_forward_products_are_directional_derivatives() -> None:
    x, v = _stream(), torch.stack([_stream(seed=seed) for seed in (2, 3, 4)])
    found = Linearised(_block, x).forward(v)
    step = 1e-6
    expected = torch.stack([(_block(x + step * d) - _block(x - step * d)) / (2 * step) for d in v])
    torch.testing.assert_close(found, expected, rtol=1e-7, atol=1e-8)


def test_what_the_function_returns_is_kept() -> None:
    x = _stream()
    given = Linearised(_block, x)
    assert torch.equal(given.y, _block(x))
    assert not given.y.requires_grad


def test_the_stream_given_is_not_touched() -> None:
    x = _stream()
    kept = x.clone()

    def in_place(z: Tensor) -> Tensor:
        y = z.clone()
        y.mul_(3.0)
        return y

    found = dense(Linearised(in_place, x))
    assert torch.equal(x, kept)
    assert not x.requires_grad
    torch.testing.assert_close(found[0], 3.0 * torch.eye(TOKENS * WIDTH, dtype=torch.float64))


def test_a_constant_has_no_jacobian() -> None:
    x = _stream()
    given = Linearised(torch.ones_like, x)
    assert float(dense(given).abs().max()) == 0.0
    assert float(given.forward(torch.stack([x, x])).abs().max()) == 0.0


def test_a_linear_function_has_a_second_graph_too() -> None:
    x = _stream()
    given = Linearised(lambda z: 2.0 * z, x)
    torch.testing.assert_close(given.forward(torch.stack([x, -x])), torch.stack([2 * x, -2 * x]))


def test_a_map_to_another_shape_is_refused() -> None:
    with pytest.raises(ProbeError, match=r"turns a stream of shape \[2, 5, 6\] into \[2, 5, 3\]"):
        Linearised(lambda z: z[..., :3], _stream())


class _OneAtATime(torch.autograd.Function):
    """x^2 with a backward pass that vmap knows nothing of."""

    @staticmethod
    def forward(ctx: object, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)  # type: ignore[attr-defined]
        return x.square()

    @staticmethod
    def backward(ctx: object, gradient: Tensor) -> Tensor:  # type: ignore[override]
        (x,) = ctx.saved_tensors  # type: ignore[attr-defined]
        assert gradient.detach().sum().item() is not None  # a number, which vmap cannot give
        return 2.0 * x * gradient


def test_an_operation_without_vmap_goes_one_vector_at_a_time() -> None:
    x, u = _stream(), torch.stack([_stream(seed=seed) for seed in (5, 6)])
    given = Linearised(_OneAtATime.apply, x)
    torch.testing.assert_close(given.adjoint(u), 2.0 * x * u)
    assert not given.batched
    torch.testing.assert_close(given.forward(u), 2.0 * x * u)


def test_a_block_of_plain_operations_goes_all_at_once() -> None:
    given = Linearised(_block, _stream())
    dense(given)
    assert given.batched


def _fused(x: Tensor) -> Tensor:
    heads = x.view(x.shape[0], TOKENS, 1, WIDTH).transpose(1, 2)
    return scaled_dot_product_attention(heads, heads, heads)[:, 0]


def test_fused_attention_has_adjoint_products_and_no_forward_ones() -> None:
    x = _stream().float()
    u = torch.stack([_stream(seed=5).float()])
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        given = Linearised(_fused, x)
        assert bool(torch.isfinite(given.adjoint(u)).all())
        with pytest.raises(ProbeError, match="has no second derivative"):
            given.forward(u)
    with sdpa_kernel(SDPBackend.MATH):
        plain = Linearised(_fused, x)
        torch.testing.assert_close(plain.adjoint(u), given.adjoint(u))
        assert bool(torch.isfinite(plain.forward(u)).all())


def test_checkpointing_that_is_not_reentrant_works() -> None:
    x, v = _stream(), torch.stack([_stream(seed=8)])
    given = Linearised(lambda z: checkpoint(_block, z, use_reentrant=False), x)
    plain = Linearised(_block, x)
    torch.testing.assert_close(given.adjoint(v), plain.adjoint(v))
    torch.testing.assert_close(given.forward(v), plain.forward(v))


def test_reentrant_checkpointing_is_refused_by_name() -> None:
    given = Linearised(lambda z: checkpoint(_block, z, use_reentrant=True), _stream())
    with pytest.raises(ProbeError, match="reentrant checkpointing"):
        given.adjoint(torch.stack([_stream(seed=8)]))


def test_parameters_get_no_gradients() -> None:
    layer = nn.Linear(WIDTH, WIDTH, dtype=torch.float64)
    dense(Linearised(layer, _stream()))
    assert layer.weight.grad is None


@pytest.mark.parametrize(
    ("width", "calls"), [(TOGETHER // 8, 1), (TOGETHER // 2, 4), (TOGETHER, 8)]
)
def test_so_many_vectors_go_at_once_as_hold_32768_numbers(width: int, calls: int) -> None:
    assert TOGETHER == 2**15
    seen: list[int] = []

    def f(x: Tensor) -> Tensor:
        y = 2.0 * x
        y.register_hook(lambda _: seen.append(1))
        return y

    x = torch.zeros(1, 1, width)
    u = torch.randn(8, 1, 1, width, generator=torch.Generator().manual_seed(0))
    assert torch.equal(Linearised(f, x).adjoint(u), 2.0 * u)
    assert len(seen) == calls


def test_an_iterated_map_runs_on_copies_and_stays_what_it_is() -> None:
    """The first J v goes through the graph of one x, the next ones through that of several."""
    assert ITERATED == 2
    x = _stream()
    v = torch.stack([_stream(seed=seed) for seed in (2, 3, 4)])
    runs: list[int] = []

    def f(z: Tensor) -> Tensor:
        runs.append(1)
        return _block(z)

    given = Linearised(f, x)
    before = given.forward(v), given.adjoint(v)
    assert len(runs) == 1
    after = given.forward(v), given.adjoint(v)
    assert len(runs) == 3  # on the copies, and once more on the stream itself
    for one, other in zip(before, after, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-13, atol=1e-13)
    # Another number of vectors goes its own way, and nothing is built again.
    torch.testing.assert_close(given.adjoint(v[:2]), before[1][:2], rtol=1e-13, atol=1e-13)
    given.forward(v)
    assert len(runs) == 3


@pytest.mark.parametrize("breaks", [False, True])
def test_what_a_function_keeps_stays_usable_behind_the_copies(breaks: bool) -> None:
    x, v = _stream(), torch.stack([_stream(seed=seed) for seed in (2, 3)])
    kept: list[Tensor] = [x]

    def f(z: Tensor) -> Tensor:
        kept[0] = 2.0 * z
        if breaks:
            kept[0].sum().item()
        return z + kept[0]

    given = Linearised(f, x)
    for _ in range(3):
        given.forward(v)
    assert torch.equal(kept[0] + 1.0, 2.0 * x + 1.0)


def _that_asks(z: Tensor) -> Tensor:
    """Asks for a number, which vmap cannot give."""
    return 2.0 * z if z.detach().sum().item() != 0.5 else z


def _that_counts() -> Callable[[Tensor], Tensor]:
    """Another function at every call."""
    calls: list[int] = []

    def f(z: Tensor) -> Tensor:
        calls.append(1)
        return len(calls) * z

    return f


@pytest.mark.parametrize(("f", "gain"), [(_that_asks, 2.0), (_that_counts(), 1.0)])
def test_copies_that_do_not_run_or_are_another_function_are_not_used(
    f: Callable[[Tensor], Tensor], gain: float
) -> None:
    v = torch.stack([_stream(seed=seed) for seed in (2, 3)])
    given = Linearised(f, _stream())
    for _ in range(3):
        torch.testing.assert_close(given.forward(v), gain * v)
        torch.testing.assert_close(given.adjoint(v), gain * v)
