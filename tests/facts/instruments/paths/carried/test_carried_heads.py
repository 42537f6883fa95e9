"""Heads are counted on pairs of tokens, whatever the layout of the products."""

import pytest
import torch
from torch import nn

from leadline.instruments.paths.carried.heads import declared_heads, heads_of_layer, heads_of_rows
from leadline.instruments.paths.carried.tokens import Meeting, owners

EXAMPLES, TOKENS, HEADS = 2, 6, 3
PLACES = EXAMPLES * TOKENS
ALL = torch.arange(PLACES).view(EXAMPLES, TOKENS)


def counted(*meetings):
    return heads_of_layer([Meeting(*one) for one in meetings], places=PLACES, tokens=TOKENS)


def alike(labels):
    return labels, labels


BESIDE = ALL.repeat_interleave(HEADS, 0)
LAYOUTS = {
    "heads inside": [alike(BESIDE)],
    "heads outside": [alike(ALL.repeat(HEADS, 1))],
    "windows": [alike(ALL.view(-1, 3).repeat_interleave(HEADS, 0))],
    "queries in pieces": [(BESIDE[:, at : at + 2], BESIDE) for at in (0, 2, 4)],
    "heads among the rows": [(ALL.repeat(1, HEADS), ALL)],
    "one head after the other": [alike(ALL)] * HEADS,
    "learned keys": [(BESIDE, torch.cat([torch.full((6, 1), -1), BESIDE], 1))],
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_heads_are_the_times_that_a_pair_meets(name):
    found = counted(*LAYOUTS[name])
    assert found.number == HEADS
    each = [(0, HEADS)] * len(LAYOUTS[name])
    assert list(found.held) == ([(0, 1), (1, 1), (2, 1)] if "after" in name else each)


def test_keys_in_pieces_are_counted_and_not_drawn():
    found = counted((BESIDE, BESIDE[:, :3]), (BESIDE, BESIDE[:, 3:]))
    assert (found.number, found.held) == (HEADS, None)


UNKNOWN = {
    "unequal": [alike(ALL), alike(ALL[:, :3])],
    "two examples": [(ALL, ALL.flip(0))],
    "rows of two examples": [alike(ALL.view(1, -1))],
    "nobody asks": [(None, ALL)],
    "rows of nobody": [(torch.full_like(ALL, -1), ALL)],
    "a key twice": [(ALL, torch.cat([ALL, ALL], 1))],
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_where_pairs_meet_unequally_heads_are_not_known(name):
    assert counted(*UNKNOWN[name]) == (None, None)


def test_heads_without_a_regular_place_are_not_drawn():
    shuffled = ALL[[0, 0, 1, 0, 1, 1]]
    assert counted(alike(shuffled)) == (HEADS, None)


def test_the_head_of_a_row_is_how_often_its_token_asked_before():
    found = heads_of_rows(torch.tensor([[4, 5], [7, 4], [4, 5]]))
    assert found.tolist() == [[0, 0], [0, 1], [2, 1]]


def test_owners_count_examples_and_inside_tokens():
    x = torch.zeros(2, 3, 5)
    assert owners(x, token_axis=1)[..., 4].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert owners(x, token_axis=0)[..., 4].tolist() == [[0, 2, 4], [1, 3, 5]]
    assert owners(x[0], token_axis=1)[..., 0].tolist() == [0, 1, 2]


def test_the_nearest_configuration_declares_the_heads():
    class Given:
        def __init__(self, **fields):
            self.__dict__.update(fields)

    block = nn.Sequential(nn.Linear(2, 2))
    inner, model = nn.Sequential(block), nn.Module()
    model.inner = inner
    assert declared_heads(model, "inner.0") is None
    model.config = Given(n_head=7)
    assert declared_heads(model, "inner.0") == 7
    inner.config = Given(num_attention_heads=5, n_head=True)
    assert declared_heads(model, "inner.0") == 5
    inner.config = Given(num_attention_heads=[1, 2])
    assert declared_heads(model, "inner.0") == 7


def test_a_layer_of_torch_declares_its_heads():
    model = nn.Sequential(nn.TransformerEncoderLayer(8, 4, 8))
    assert declared_heads(model, "0") == 4
