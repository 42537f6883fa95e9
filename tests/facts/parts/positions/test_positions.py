"""Positions: rotary as a turn of complex numbers, learned ones as a table."""

from __future__ import annotations

import cmath
import itertools
import math
from typing import Any

import numpy as np
import pytest
import torch

from leadline.errors import InputError, RecipeError
from leadline.parts import Transformer
from leadline.parts.positions import POSITIONS
from leadline.parts.positions.rotary import Rotary
from tests.facts.parts.by_hand import attention, stir

HEAD = 8


def _rotary(head_width: int = HEAD, **options: Any) -> Rotary:
    return POSITIONS.build(
        {"name": "rotary", **options}, width=2 * head_width, context=16, head_width=head_width
    )


def _turned(vector: np.ndarray, position: int, turned: int, base: float, pairs: str) -> np.ndarray:
    """Pairs of features as complex numbers, each times exp(i position / base^(2 k / turned))."""
    out = vector.copy()
    for k in range(turned // 2):
        a, b = (k, k + turned // 2) if pairs == "half" else (2 * k, 2 * k + 1)
        z = complex(vector[a], vector[b]) * cmath.exp(1j * position / base ** (2 * k / turned))
        out[a], out[b] = z.real, z.imag
    return out


def _heads(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


@pytest.mark.parametrize("pairs", ["half", "neighbours"])
@pytest.mark.parametrize(("share", "turned"), [(1.0, 8), (0.5, 4), (0.25, 2)])
@pytest.mark.parametrize("base", [10000.0, 500.0])
def test_rotary_turns_pairs_of_features_like_complex_numbers(
    pairs: str, share: float, turned: int, base: float
) -> None:
    rotary = _rotary(pairs=pairs, share=share, base=base)
    positions = torch.tensor([0, 1, 2, 7, 100])
    x = _heads(2, 3, 5, HEAD)
    rotate = rotary.rotation(positions, torch.float64)
    assert rotate is not None
    got = rotate(x)
    for e, h, i in itertools.product(range(2), range(3), range(5)):
        expected = _turned(x[e, h, i].numpy(), int(positions[i]), turned, base, pairs)
        assert np.allclose(got[e, h, i].numpy(), expected, atol=2e-5)
    assert torch.equal(got[..., turned:], x[..., turned:])


def test_rotary_has_the_base_ten_thousand_turns_all_and_pairs_halves_unless_told() -> None:
    given = _rotary(base=10000.0, share=1.0, pairs="half")
    x, positions = _heads(1, 1, 4, HEAD), torch.tensor([3, 50, 1000, 5])
    first, second = (r.rotation(positions, torch.float64) for r in (_rotary(), given))
    assert first is not None and second is not None
    assert torch.equal(first(x), second(x))
    slowest = _rotary().frequencies[-1].item()
    assert slowest == pytest.approx(10000.0 ** (-6 / 8), rel=1e-6)


@pytest.mark.parametrize("base", [500.0, 0.1])
def test_frequencies_are_powers_of_the_base(base: float) -> None:
    expected = [base ** (-2 * k / 8) for k in range(4)]
    assert _rotary(base=base).frequencies.tolist() == pytest.approx(expected, rel=1e-7)


def test_frequencies_keep_their_digits_in_half_precision() -> None:
    model = Transformer(depth=1, width=16, heads=2, positions="rotary")
    rotary = model.embedding.positions
    assert isinstance(rotary, Rotary)
    exact = rotary.frequencies.clone()
    model.to(torch.bfloat16)
    assert rotary.frequencies.dtype == torch.float32
    assert torch.equal(rotary.frequencies, exact)
    rotate = rotary.rotation(torch.arange(3), torch.bfloat16)
    assert rotate is not None
    assert rotate(torch.ones(1, 1, 3, 8, dtype=torch.bfloat16)).dtype == torch.bfloat16
    assert "frequencies" not in "".join(model.state_dict())


@pytest.mark.parametrize("pairs", ["half", "neighbours"])
def test_scores_of_turned_vectors_depend_on_the_distance_alone(pairs: str) -> None:
    rotary = _rotary(pairs=pairs)
    q, k = _heads(1, HEAD), _heads(2, HEAD)[1:]

    def score(i: int, j: int) -> float:
        turn_q = rotary.rotation(torch.tensor([i]), torch.float64)
        turn_k = rotary.rotation(torch.tensor([j]), torch.float64)
        assert turn_q is not None and turn_k is not None
        return (turn_q(q) @ turn_k(k).T).item()

    for i, j in itertools.product(range(6), range(6)):
        assert score(i + 9, j + 9) == pytest.approx(score(i, j), abs=1e-5)
    assert abs(score(3, 0) - score(0, 0)) > 0.01


def test_positions_may_differ_from_example_to_example() -> None:
    rotary = _rotary()
    positions = torch.tensor([[0, 1, 2], [5, 6, 7]])
    x = _heads(2, 4, 3, HEAD)
    together = rotary.rotation(positions, torch.float64)
    assert together is not None
    for example in range(2):
        alone = rotary.rotation(positions[example], torch.float64)
        assert alone is not None
        assert torch.equal(together(x)[example], alone(x[example]))


@torch.no_grad()
def test_attention_turns_queries_and_keys_but_not_values() -> None:
    model = Transformer(
        depth=1,
        width=16,
        heads=2,
        positions="rotary(share=0.5)",
        attention="multihead(groups=1)",
        init="xavier",
        embedding="none",
        head="none",
        placement="none(closing=false)",
        mlp="none",
    )
    model = stir(model).double()
    x = _heads(2, 4, 16)

    def turn(vector: torch.Tensor, position: int) -> torch.Tensor:
        return torch.tensor(_turned(vector.numpy(), position, 4, 10000.0, "half"))

    branch = model.get_submodule("blocks.0.attention.branch")
    expected = x + attention(branch, x, heads=2, groups=1, turn=turn)
    assert torch.allclose(model(x), expected, atol=1e-6)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"pairs": "both"}, "pairs is 'both'; rotary pairs are half or neighbours."),
        ({"base": 0}, "The option base of rotary is 0; give a number above 0."),
        ({"share": 1.5}, "The option share of rotary is 1.5; give a number from 0 to 1."),
        (
            {"share": 0.4},
            "Rotary positions turn pairs of features: 0.4 of a head of 8 is 3, which must be an "
            "even number from 2 to 8. Change share, width or heads.",
        ),
        (
            {"share": 0},
            "Rotary positions turn pairs of features: 0 of a head of 8 is 0, which must be an "
            "even number from 2 to 8. Change share, width or heads.",
        ),
    ],
)
def test_an_impossible_turn_is_refused(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(RecipeError) as caught:
        _rotary(**options)
    assert str(caught.value) == sentence


def test_a_head_of_odd_width_cannot_be_turned() -> None:
    with pytest.raises(RecipeError, match="1 of a head of 5 is 5, which must be an even number"):
        Transformer(depth=1, width=10, heads=2, positions="rotary")
    Transformer(depth=1, width=10, heads=2, positions="rotary", attention="multihead(head_width=4)")


def test_learned_positions_are_added_to_the_embedding() -> None:
    model = Transformer(depth=1, width=8, heads=2, vocabulary=9, context=4)
    tokens = model.get_parameter("embedding.tokens.weight")
    places = model.get_parameter("embedding.positions.table.weight")
    assert places.shape == (4, 8)
    ids = torch.tensor([[1, 2, 3], [3, 3, 3]])
    for positions in (torch.tensor([0, 1, 2]), torch.tensor([1, 3, 0])):
        expected = tokens[ids] + torch.stack([places[int(p)] for p in positions])
        assert torch.equal(model.embedding(ids, positions, None), expected)
    assert model.embedding.positions.rotation(torch.arange(3), torch.float32) is None


def test_a_model_has_positions_for_its_context_and_no_more() -> None:
    model = Transformer(depth=1, width=8, heads=2, vocabulary=9, context=4)
    assert model.context_limit == 4
    assert model(torch.zeros(1, 4, dtype=torch.long)).shape == (1, 4, 9)
    with pytest.raises(InputError) as caught:
        model(torch.zeros(1, 5, dtype=torch.long))
    assert str(caught.value) == (
        "The model has positions for 4 tokens and was given 5; shorten the input, or build it "
        "with a larger context."
    )
    for positions in ("rotary", "none"):
        endless = model.with_(positions=positions)
        assert endless.context_limit is None
        assert endless(torch.zeros(1, 5, dtype=torch.long)).shape == (1, 5, 9)


def test_without_positions_equal_tokens_stay_equal() -> None:
    model = Transformer(depth=2, width=8, heads=2, vocabulary=9, positions="none", init="xavier")
    ids = torch.tensor([[4, 4, 4, 4]])
    out = model(ids)[0]
    assert torch.allclose(out, out[:1].expand_as(out), atol=1e-5)
    learned = model.with_(positions="learned")(ids)[0]
    assert float((learned - learned[:1]).abs().max().detach()) > 0.01
    assert [n for n, _ in model.named_parameters() if "positions" in n] == []
    assert math.isfinite(float(out.detach().sum()))
