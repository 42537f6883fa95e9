"""The value residual of attention (ResFormer): v_l <- (1 - r) v_l + r v_1."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from leadline.errors import RecipeError
from leadline.parts import Transformer

WIDTH, HEADS, TOKENS = 8, 2, 5


def built(value_residual: str | None, *, depth: int = 3, **options: Any) -> Transformer:
    said = "".join(f", {key}={value}" for key, value in options.items())
    share = "none" if value_residual is None else value_residual
    return Transformer(
        depth=depth,
        width=WIDTH,
        heads=HEADS,
        vocabulary=16,
        context=8,
        init="xavier",
        attention=f"multihead(value_residual={share}{said})",
    ).eval()


def ids() -> Tensor:
    return torch.tensor([[1, 2, 3, 4, 5], [6, 7, 8, 9, 10]])


def attended(model: Transformer, layer: int) -> tuple[Tensor, Tensor]:
    """What the attention of a layer was given (after its norm), and what it returned."""
    seen: list[tuple[Tensor, Tensor]] = []
    branch = model.blocks[layer - 1].attention.branch  # type: ignore[union-attr]
    hook = branch.register_forward_hook(lambda _, given, out: seen.append((given[0], out)))  # type: ignore[operator]
    with torch.no_grad():
        model(ids())
    hook.remove()
    return seen[0]


def by_hand(model: Transformer, layer: int, mixed: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    """Attention of a layer, head by head and token by token, with mixed values."""
    branch: Any = model.blocks[layer - 1].attention.branch  # type: ignore[union-attr]
    x, _ = attended(model, layer)
    size = WIDTH // HEADS
    with torch.no_grad():
        q, k, v = (x @ branch.qkv.weight.T + branch.qkv.bias).split(WIDTH, -1)
        first: Any = model.blocks[0].attention.branch  # type: ignore[union-attr]
        v_1 = (attended(model, 1)[0] @ first.qkv.weight.T + first.qkv.bias).split(WIDTH, -1)[2]
        v = mixed(v, v_1)
        out = torch.zeros_like(x)
        for e in range(2):
            for t in range(TOKENS):
                for h in range(HEADS):
                    mine = slice(h * size, (h + 1) * size)
                    scores = k[e, : t + 1, mine] @ q[e, t, mine] / size**0.5
                    out[e, t, mine] = torch.softmax(scores, 0) @ v[e, : t + 1, mine]
        return out @ branch.output.weight.T + branch.output.bias


def test_the_first_layer_is_as_without_it() -> None:
    given, found = attended(built("0.5"), 1)
    plain_given, plain = attended(built(None), 1)
    assert torch.equal(given, plain_given)
    assert torch.equal(found, plain)


@pytest.mark.parametrize("layer", [2, 3])
def test_later_layers_take_half_of_the_first_values(layer: int) -> None:
    model = built("0.5")
    _, found = attended(model, layer)
    expected = by_hand(model, layer, lambda v, v_1: 0.5 * v + 0.5 * v_1)
    assert torch.allclose(found, expected, atol=1e-6)
    assert not torch.allclose(found, by_hand(model, layer, lambda v, _: v), atol=1e-2)


@pytest.mark.parametrize("share", ["0.25", "1.0", "1"])
def test_the_share_is_that_of_the_first_values(share: str) -> None:
    model = built(share)
    r = float(share)
    _, found = attended(model, 3)
    assert torch.allclose(found, by_hand(model, 3, lambda v, v_1: (1 - r) * v + r * v_1), atol=1e-6)


def test_a_share_of_nothing_is_no_value_residual() -> None:
    assert torch.allclose(built("0")(ids()), built(None)(ids()), atol=1e-7)


def test_a_learned_share_starts_at_one_half_with_one_number_per_later_layer() -> None:
    model = built("learned")
    named = {n: p for n, p in model.named_parameters() if n.endswith(".share")}
    assert list(named) == ["blocks.1.attention.branch.share", "blocks.2.attention.branch.share"]
    assert all(p.shape == () and p.item() == 0.5 for p in named.values())
    assert torch.allclose(model(ids()), built("0.5")(ids()), atol=1e-6)


def test_every_layer_uses_its_own_learned_share() -> None:
    model = built("learned")
    shares = {2: 0.125, 3: 0.75}
    with torch.no_grad():
        for layer, r in shares.items():
            model.get_parameter(f"blocks.{layer - 1}.attention.branch.share").fill_(r)
    for layer, r in shares.items():
        _, found = attended(model, layer)
        expected = by_hand(model, layer, lambda v, v_1, r=r: (1 - r) * v + r * v_1)  # type: ignore[misc]
        assert torch.allclose(found, expected, atol=1e-6)


def test_the_loss_moves_the_learned_shares_and_the_first_values() -> None:
    model = built("learned")
    model(ids()).square().sum().backward()
    for layer in (1, 2):
        gradient = model.get_parameter(f"blocks.{layer}.attention.branch.share").grad
        assert gradient is not None and gradient.isfinite() and gradient != 0


@pytest.mark.parametrize("share", ["0.5", "learned"])
def test_a_value_residual_runs_in_half_precision_and_under_autocast(share: str) -> None:
    model = built(share)
    with torch.no_grad():
        expected = model(ids())
        with torch.autocast("cpu", torch.bfloat16):
            mixed = model(ids())
        half = model.to(torch.bfloat16)(ids())
    for found in (mixed, half):
        assert (found.float() - expected).norm() < 0.05 * expected.norm()


def test_one_pass_leaves_nothing_for_the_next() -> None:
    model = built("0.5")
    first = model(ids())
    model(ids().flip(0))
    assert torch.equal(model(ids()), first)


def test_grouped_values_are_mixed_as_groups() -> None:
    model = built("0.5", groups=1)
    assert model(ids()).isfinite().all()
    assert not torch.allclose(model(ids()), built(None, groups=1)(ids()), atol=1e-3)


@pytest.mark.parametrize("share", ["true", "-0.5", "1.5", "half"])
def test_a_share_that_is_none_is_refused(share: str) -> None:
    with pytest.raises(RecipeError, match="value_residual"):
        built(share)
