"""Text token by token: with or without a cache, greedy or drawn, and what is refused."""

from __future__ import annotations

import math

import pytest
import torch

from leadline.errors import InputError
from leadline.parts import Transformer
from leadline.parts.connections import CONNECTIONS
from leadline.parts.generation import Cache, generate, probabilities
from leadline.parts.placements import PLACEMENTS

TINY = {"depth": 2, "width": 16, "heads": 4, "vocabulary": 31, "context": 24}

ATTENTIONS = {
    "plain": {},
    "grouped": {"attention": "multihead(groups=2)"},
    "one group": {"attention": "multihead(groups=1, bias=false)"},
    "rotary": {"positions": "rotary"},
    "rotary, a half in neighbours": {"positions": "rotary(share=0.5, pairs=neighbours)"},
    "no positions": {"positions": "none"},
    "norm of each head": {"attention": "multihead(qk_norm=head)", "positions": "rotary"},
    "norm of all heads": {"attention": "multihead(qk_norm=width, groups=2)"},
    "wide heads": {"attention": "multihead(head_width=6)", "positions": "rotary"},
    "value residual": {"attention": "multihead(value_residual=0.3)"},
    "learned value residual": {"attention": "multihead(value_residual=learned, groups=2)"},
    "scaled": {"attention": "multihead(scale=0.5)"},
    "attention only": {"mlp": "none"},
    "mlp only": {"attention": "none"},
    "parallel": {"placement": "parallel(norms=2)", "positions": "rotary"},
}


def _model(**fields):
    """A model whose weights are large enough that tokens differ, whatever the connection."""
    model = Transformer(**{**TINY, **fields})
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.empty(weight.shape).normal_(0, 0.2, generator=generator))
    return model.eval()


def _ids(examples=2, tokens=5, seed=0):
    return torch.randint(1, 31, (examples, tokens), generator=torch.Generator().manual_seed(seed))


def _piecewise(model, ids, pieces):
    """Logits of a text that is given in pieces, through a cache."""
    cache = Cache(ids.shape[1])
    parts = [model(part, cache=cache) for part in ids.split(pieces, dim=1)]
    assert cache.length == ids.shape[1]
    return torch.cat(parts, 1)


@pytest.mark.parametrize("fields", ATTENTIONS.values(), ids=ATTENTIONS)
@torch.no_grad()
def test_a_cache_changes_neither_logits_nor_text(fields):
    model, ids = _model(**fields), _ids(tokens=9)
    whole = model(ids)
    for pieces in ([1] * 9, [5, 1, 3], [9]):
        assert torch.allclose(_piecewise(model, ids, pieces), whole, rtol=0, atol=1e-5)
    # Weights this size make every step depend on more than the last token.
    text = model.generate(ids, steps=8)
    assert torch.equal(text, model.generate(ids, steps=8, cache=False))
    assert torch.equal(text[:, :9], ids) and text.shape == (2, 17)


def _placement(connection):
    """The first placement with which a connection makes sense."""
    refuses = CONNECTIONS.get(connection).refuses
    return next(p for p in ("pre", "post") if refuses(PLACEMENTS.build(p), 2) is None)


@pytest.mark.parametrize("connection", CONNECTIONS.names())
@torch.no_grad()
def test_a_cache_serves_every_connection(connection):
    model, ids = _model(connection=connection, placement=_placement(connection)), _ids(tokens=7)
    whole = model(ids)
    assert torch.allclose(_piecewise(model, ids, [3, 1, 1, 2]), whole, rtol=1e-5, atol=1e-5)
    text = model.generate(ids, steps=5)
    assert torch.equal(text, model.generate(ids, steps=5, cache=False))


@pytest.mark.parametrize(
    ("options", "lengths"),
    [({}, [5, 1, 1]), ({"cache": True}, [5, 1, 1]), ({"cache": False}, [5, 6, 7])],
)
def test_with_a_cache_each_step_computes_one_token(options, lengths):
    model, seen = _model(), []
    model.blocks[0].register_forward_pre_hook(lambda _, given: seen.append(given[0].shape[1]))
    model.generate(_ids(), steps=3, **options)
    assert seen == lengths
    seen.clear()
    generate(model, _ids(), steps=3, **options)
    assert seen == lengths


@torch.no_grad()
def test_greedy_text_takes_the_largest_logit_each_time():
    model, ids = _model(), _ids()
    expected = ids
    for _ in range(6):
        expected = torch.cat((expected, model(expected)[:, -1:].argmax(-1)), 1)
    assert torch.equal(generate(model, ids, steps=6), expected)


def test_no_steps_give_the_ids_back():
    assert torch.equal(generate(_model(), _ids(), steps=0), _ids())


# Sampling ---------------------------------------------------------------------------------------


def test_sampled_tokens_are_as_frequent_as_the_softmax_says():
    model, drawn = _model(), 20_000
    ids = _ids(examples=1, tokens=3)
    temperature = 0.7
    with torch.no_grad():
        expected = (model(ids)[0, -1].double() / temperature).softmax(-1)
    text = model.generate(ids.expand(drawn, -1), steps=1, temperature=temperature, seed=3)
    counts = torch.bincount(text[:, -1], minlength=31).double()
    # Pearson's chi-square with 30 degrees of freedom stays below 59.7 in 999 of 1000 cases.
    statistic = ((counts - drawn * expected).square() / (drawn * expected)).sum()
    assert statistic < 59.7


def _by_hand(logits, temperature, top_k, top_p):
    """The same law, one token at a time in plain Python."""
    order = sorted(range(len(logits)), key=lambda i: (-logits[i], i))
    left = order if top_k is None else [i for i in order if logits[i] >= logits[order[top_k - 1]]]
    weights = {i: math.exp(logits[i] / temperature) for i in left}
    total = sum(weights.values())
    kept, reached = {}, 0.0
    for i in left:
        if top_p is None or reached < top_p:
            kept[i] = weights[i] / total
        reached += weights[i] / total
    share = sum(kept.values())
    return [kept.get(i, 0.0) / share for i in range(len(logits))]


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("top_k", [None, 1, 3, 12, 40])
@pytest.mark.parametrize("top_p", [None, 0.05, 0.5, 0.9, 1.0])
def test_top_k_and_top_p_leave_the_tokens_that_brute_force_leaves(temperature, top_k, top_p):
    logits = torch.randn(4, 12, generator=torch.Generator().manual_seed(1)) * 2
    found = probabilities(logits, temperature, top_k=top_k, top_p=top_p)
    k = None if top_k is None else min(top_k, 12)
    expected = torch.tensor([_by_hand(row, temperature, k, top_p) for row in logits.tolist()])
    assert torch.allclose(found, expected, atol=1e-6)
    assert torch.equal(found > 0, expected > 0)


def test_top_p_is_reached_by_the_fewest_tokens():
    logits = torch.tensor([[0.5, 0.3, 0.15, 0.05]]).log()
    # 0.5 alone reaches 0.5; a little more needs the second.
    assert (probabilities(logits, 1.0, top_p=0.499) > 0).tolist() == [[True, False, False, False]]
    assert (probabilities(logits, 1.0, top_p=0.501) > 0).tolist() == [[True, True, False, False]]
    found = probabilities(logits, 1.0, top_p=0.75)
    assert found.tolist()[0] == pytest.approx([0.625, 0.375, 0.0, 0.0])


def test_tokens_that_reach_p_exactly_are_enough_and_the_first_of_equals_come_first():
    found = probabilities(torch.zeros(1, 64), 1.0, top_p=0.5)
    assert found.tolist() == [[1 / 32] * 32 + [0.0] * 32]


def test_the_narrowest_and_the_widest_choice_are_allowed():
    model, ids = _model(), _ids()
    greedy = model.generate(ids, steps=6)
    assert torch.equal(model.generate(ids, steps=6, temperature=3.0, top_k=1), greedy)
    free = model.generate(ids, steps=6, temperature=3.0)
    assert torch.equal(model.generate(ids, steps=6, temperature=3.0, top_p=1.0), free)
    assert not torch.equal(free, greedy)


def test_the_first_and_the_last_id_are_ids():
    assert _model().generate(torch.zeros(1, 3, dtype=torch.long), steps=1).shape == (1, 4)
    assert _model().generate(torch.full((1, 3), 30), steps=1).shape == (1, 4)


def test_tokens_as_likely_as_the_kth_stay():
    found = probabilities(torch.tensor([[1.0, 2.0, 1.0, 0.0]]), 1.0, top_k=2)
    assert (found > 0).tolist() == [[True, True, True, False]]


def test_sampled_tokens_keep_to_top_k():
    model, ids = _model(), _ids(examples=200, tokens=2)
    text = model.generate(ids, steps=1, temperature=5.0, top_k=2)
    with torch.no_grad():
        best = model(ids)[:, -1].topk(2).indices
    assert (text[:, -1:] == best).any(1).all()
    assert (text[:, -1] == best[:, 1]).any()


def test_a_seed_gives_the_same_text_and_leaves_the_global_numbers_alone():
    model, ids = _model(), _ids()
    before = torch.random.get_rng_state()
    first = model.generate(ids, steps=10, temperature=1.0, seed=4)
    assert torch.equal(torch.random.get_rng_state(), before)
    assert torch.equal(model.generate(ids, steps=10, temperature=1.0, seed=4), first)
    assert not torch.equal(model.generate(ids, steps=10, temperature=1.0, seed=5), first)
    for default in (model.generate, lambda *a, **k: generate(model, *a, **k)):
        text = default(ids, steps=10, temperature=1.0)
        assert torch.equal(text, model.generate(ids, steps=10, temperature=1.0, seed=0))


# Ends, padding, modes -----------------------------------------------------------------------------


def test_an_example_ends_with_its_stop_token_and_is_filled_with_it():
    model, ids = _model(), _ids(examples=3)
    free = model.generate(ids, steps=10)
    stop = int(free[0, 7])
    text = model.generate(ids, steps=10, stop=stop)
    for row, unbounded in zip(text, free, strict=True):
        ends = (unbounded[5:] == stop).nonzero()
        end = 5 + int(ends[0]) if len(ends) else len(row) - 1
        assert torch.equal(row[: end + 1], unbounded[: end + 1])
        assert (row[end + 1 :] == stop).all()
    assert torch.equal(text, model.generate(ids, steps=10, stop=[stop]))


def test_generation_ends_when_all_examples_have():
    model, ids = _model(), _ids(examples=1)
    free = model.generate(ids, steps=10)
    first = int((free[0, 5:] == free[0, 8]).nonzero()[0]) + 5
    text = model.generate(ids, steps=10, stop=[int(free[0, 8]), 30])
    assert torch.equal(text, free[:, : first + 1])
    # A stop token in the prompt ends nothing.
    assert model.generate(ids, steps=2, stop=int(ids[0, -1])).shape[1] >= 6


@pytest.mark.parametrize("positions", ["learned", "rotary", "none"])
@pytest.mark.parametrize("cache", [True, False])
def test_padding_on_the_left_changes_no_text(positions, cache):
    model = _model(positions=positions)
    long, short = _ids(1, 7, seed=1), _ids(1, 4, seed=2)
    ids = torch.cat((long, torch.cat((torch.zeros(1, 3, dtype=torch.long), short), 1)))
    mask = (torch.arange(7) >= torch.tensor([[0], [3]])).long()
    text = model.generate(ids, steps=8, attention_mask=mask, cache=cache)
    assert torch.equal(text[:1], model.generate(long, steps=8))
    assert torch.equal(text[1:, 3:], model.generate(short, steps=8))
    as_flags = model.generate(ids, steps=8, attention_mask=mask.bool(), cache=cache)
    assert torch.equal(as_flags, text)


def test_the_mode_of_every_module_is_put_back():
    model = _model(connection="dropout").train()
    model.blocks[0].eval()
    before = [module.training for module in model.modules()]
    first = model.generate(_ids(), steps=6)
    assert [module.training for module in model.modules()] == before
    # In evaluation mode nothing is dropped, so the text is always the same.
    assert torch.equal(model.generate(_ids(), steps=6), first)
    assert torch.equal(model.eval().generate(_ids(), steps=6), first)
    model.train().blocks[1].register_forward_pre_hook(_break)
    with pytest.raises(RuntimeError, match="broken"):
        model.generate(_ids(), steps=1)
    assert all(module.training for module in model.modules())


def _break(*_):
    raise RuntimeError("broken")


def test_generating_leaves_no_gradient():
    model = _model()
    assert not model.generate(_ids(), steps=2).requires_grad
    assert all(weight.grad is None for weight in model.parameters())


def test_half_precision_generates_too():
    model = _model(positions="rotary").to(torch.bfloat16)
    text = model.generate(_ids(), steps=6)
    assert text.shape == (2, 11)
    drawn = model.generate(_ids(), steps=6, temperature=1.0, top_p=0.9)
    assert drawn.shape == (2, 11)


def test_short_whole_numbers_stay_short():
    ids = _ids().int()
    text = _model().generate(ids, steps=3)
    assert text.dtype == torch.int32
    assert torch.equal(text.long(), _model().generate(ids.long(), steps=3))


# The cache itself ---------------------------------------------------------------------------------


def test_a_cache_returns_what_it_was_given_in_order():
    cache = Cache(5)
    key, value = torch.randn(2, 3, 4, 6), torch.randn(2, 3, 4, 7)
    first = cache.extend(1, key[:, :, :3], value[:, :, :3])
    assert torch.equal(first[0], key[:, :, :3]) and torch.equal(first[1], value[:, :, :3])
    cache.length = 3
    both = cache.extend(1, key[:, :, 3:], value[:, :, 3:])
    assert torch.equal(both[0], key) and torch.equal(both[1], value)
    # Another layer has its own room, which is made once.
    cache.length = 0
    other = cache.extend(2, 2 * key, 2 * value)
    assert torch.equal(other[0], 2 * key)
    assert [len(cache.layers), cache.layers[2][0].shape[2]] == [2, 5]


def test_a_full_cache_says_so():
    cache = Cache(4)
    with pytest.raises(InputError, match="holds 4 tokens and was given 5"):
        cache.extend(1, torch.zeros(1, 1, 5, 2), torch.zeros(1, 1, 5, 2))


# Refusals -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"attention": "multihead(causal=false)"}, "A bidirectional model cannot generate"),
        ({"head": "none"}, "A model without head"),
        ({"embedding": "none"}, "A model without embedding"),
    ],
)
def test_models_that_cannot_generate_say_why(fields, sentence):
    with pytest.raises(InputError, match=sentence):
        _model(**fields).generate(_ids(), steps=1)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"steps": 20}, "positions for 24 tokens, and 5 with 20 more were .* at most 19 more"),
        ({"steps": -1}, "steps is -1; give a whole number"),
        ({"steps": True}, "steps is True"),
        ({"steps": 1.5}, r"steps is 1\.5"),
        ({"temperature": -0.1}, r"temperature is -0\.1"),
        ({"temperature": math.nan}, "temperature is nan"),
        ({"temperature": math.inf}, "temperature is inf"),
        ({"top_k": 0}, "top_k is 0"),
        ({"top_k": True}, "top_k is True"),
        ({"top_p": 0.0}, r"top_p is 0\.0"),
        ({"top_p": 1.1}, r"top_p is 1\.1"),
        ({"attention_mask": torch.ones(2, 4)}, "must have the shape of the ids"),
        ({"attention_mask": torch.tensor([[1, 1, 1, 1, 0]] * 2)}, "padding on the left only"),
        ({"attention_mask": torch.tensor([[1, 0, 1, 1, 1]] * 2)}, "a 0 after a 1"),
    ],
)
def test_impossible_wishes_are_refused(arguments, sentence):
    with pytest.raises(InputError, match=sentence):
        generate(_model(), _ids(), **{"steps": 1, **arguments})


@pytest.mark.parametrize(
    ("ids", "sentence"),
    [
        (torch.ones(3, dtype=torch.long), r"The ids are \[3\]"),
        (torch.ones(1, 0, dtype=torch.long), "one token at least"),
        (torch.ones(1, 3), "of torch.float32"),
        (torch.tensor([[1, 31]]), "from 1 to 31, and the vocabulary from 0 to 30"),
        (torch.tensor([[-1, 3]]), "from -1 to 3"),
        (torch.ones(1, 30, dtype=torch.long), "and 30 with 1 more were .* at most 0 more"),
    ],
)
def test_ids_that_are_none_are_refused(ids, sentence):
    with pytest.raises(InputError, match=sentence):
        generate(_model(), ids, steps=1)


def test_the_whole_context_can_be_used():
    assert generate(_model(), _ids(), steps=19).shape[1] == 24


def test_logits_that_are_not_finite_are_named():
    model = _model()
    with torch.no_grad():
        model.norm.weight[0] = math.nan
    with pytest.raises(InputError, match="logits after 5 tokens are not finite"):
        model.generate(_ids(), steps=1)
