"""Which tokens a query may see, by brute force over every small case."""

from __future__ import annotations

import itertools

import pytest
import torch

from leadline.errors import InputError
from leadline.parts.masking import mask_of

CPU = torch.device("cpu")


def _seen(
    start: int, tokens: int, causal: bool, padding: tuple[int, ...] | None
) -> list[list[bool]]:
    """Row by row: a key is seen if it is no padding and, where causal, not later than the query."""
    rows: list[list[bool]] = []
    for query in range(start, start + tokens):
        row = [
            (not causal or key <= query) and (padding is None or padding[key] == 1)
            for key in range(start + tokens)
        ]
        if not any(row):
            row[query] = True
        rows.append(row)
    return rows


def _given(start: int, tokens: int, causal: bool, padding: torch.Tensor | None) -> torch.Tensor:
    """What the kernel is told, as a mask of every query and key."""
    mask, by_kernel = mask_of(padding, tokens=tokens, start=start, causal=causal, device=CPU)
    every = torch.ones(tokens, start + tokens, dtype=torch.bool)
    if by_kernel:
        assert mask is None and start == 0
        return torch.tril(every)[None, None]
    return every[None, None] if mask is None else mask


@pytest.mark.parametrize("causal", [True, False])
def test_without_padding_a_query_sees_what_is_not_later(causal: bool) -> None:
    for start, tokens in itertools.product(range(4), range(1, 5)):
        got = _given(start, tokens, causal, None)
        assert got[0, 0].tolist() == _seen(start, tokens, causal, None)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize(("start", "tokens"), [(0, 1), (0, 2), (0, 3), (0, 4), (1, 2), (2, 1)])
def test_padding_is_never_seen_but_by_a_query_that_sees_nothing_else(
    causal: bool, start: int, tokens: int
) -> None:
    every = list(itertools.product((0, 1), repeat=start + tokens))
    for padding in every:
        got = _given(start, tokens, causal, torch.tensor([padding]))
        assert got.shape[1] == 1
        assert got[0, 0].tolist() == _seen(start, tokens, causal, padding)
    together = _given(start, tokens, causal, torch.tensor(every))
    for row, padding in zip(together, every, strict=True):
        assert row[0].tolist() == _seen(start, tokens, causal, padding)


def test_the_kernel_hides_later_tokens_itself_where_nothing_else_is_hidden() -> None:
    assert mask_of(None, tokens=3, start=0, causal=True, device=CPU) == (None, True)
    ones = torch.ones(2, 3)
    assert mask_of(ones, tokens=3, start=0, causal=True, device=CPU) == (None, True)
    assert mask_of(None, tokens=3, start=0, causal=False, device=CPU) == (None, False)
    assert mask_of(None, tokens=1, start=5, causal=True, device=CPU) == (None, False)


def test_numbers_and_truth_values_hide_alike() -> None:
    padding = torch.tensor([[0, 1, 1], [1, 1, 0]])
    first, _ = mask_of(padding, tokens=3, start=0, causal=True, device=CPU)
    for same in (padding.bool(), padding.float()):
        second, _ = mask_of(same, tokens=3, start=0, causal=True, device=CPU)
        assert first is not None and second is not None
        assert torch.equal(first, second)


@pytest.mark.parametrize("shape", [(2, 3), (2, 5), (4,), (2, 1, 4)])
def test_a_mask_of_another_shape_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(InputError) as caught:
        mask_of(torch.ones(shape), tokens=3, start=1, causal=True, device=CPU)
    assert str(caught.value) == (
        f"The attention mask is {list(shape)}; give one number per example and token, 4 tokens "
        "in all."
    )
