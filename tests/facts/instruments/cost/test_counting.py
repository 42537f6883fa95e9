"""Flops, bytes and memory of a pass, against formulas by hand and against what really happened."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from leadline import Recipe, Transformer, random_tokens
from leadline.instruments.cost.counting import count_pass
from leadline.instruments.cost.work import eigenvalues, functions, moving, product
from leadline.instruments.passes.cost import counted

EXAMPLES, TOKENS, WIDTH, LAYERS, VOCABULARY, HEADS = 2, 32, 64, 3, 100, 4


def _gpt2() -> Any:
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        n_layer=LAYERS, n_embd=WIDTH, n_head=HEADS, vocab_size=VOCABULARY, n_positions=TOKENS
    )
    return transformers.GPT2LMHeadModel(config).eval()


def _forward_flops() -> float:
    """2 m n k of every product: 12 d^2 a token in a block, 4 n^2 d in attention, and the head."""
    tokens = EXAMPLES * TOKENS
    block = 2 * tokens * 12 * WIDTH**2 + 4 * EXAMPLES * TOKENS**2 * WIDTH
    return LAYERS * block + 2 * tokens * WIDTH * VOCABULARY


def test_the_flops_of_gpt2_are_those_of_the_formula():
    model = _gpt2()
    inputs = random_tokens(model, examples=EXAMPLES, length=TOKENS)
    count, _ = counted(model, inputs)
    assert count.forward.forward.flops == _forward_flops()


def test_a_backward_pass_takes_twice_the_forward_one_and_recomputes_attention():
    model = _gpt2()
    count, _ = counted(model, random_tokens(model, examples=EXAMPLES, length=TOKENS))
    attention = LAYERS * 4 * EXAMPLES * TOKENS**2 * WIDTH
    products = _forward_flops() - attention
    assert count.count("all").backward.flops == 2 * products + 2.5 * attention


def test_gradients_of_the_stream_alone_take_the_blocks_once():
    model = _gpt2()
    count, _ = counted(model, random_tokens(model, examples=EXAMPLES, length=TOKENS))
    attention = LAYERS * 4 * EXAMPLES * TOKENS**2 * WIDTH
    blocks = LAYERS * 2 * EXAMPLES * TOKENS * 12 * WIDTH**2
    assert count.count("stream").backward.flops == blocks + 2.5 * attention


def test_another_counter_counts_the_same_products():
    model = Transformer(Recipe(depth=2, width=32, heads=2, vocabulary=50), seed=0)
    inputs = random_tokens(model, examples=2, length=16)
    count, _ = counted(model, inputs)
    plain = torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH)
    with plain, FlopCounterMode(display=False) as other, torch.no_grad():
        model(**inputs.tensors)
    assert count.count("none", plain=True).forward.flops == other.get_total_flops()


def test_the_memory_of_a_chain_is_that_of_its_tensors():
    width, rows = 64, 128
    model = nn.Sequential(*(nn.Linear(width, width, bias=False) for _ in range(5)))
    count = count_pass(
        model, lambda m, t: m(t["x"]), {"x": torch.zeros(rows, width)}, gradients="none"
    )
    # What goes into a layer and what comes out of it; the input is the caller's.
    assert count.memory == 2 * rows * width * 4
    graph = count_pass(
        model,
        lambda m, t: m(t["x"]),
        {"x": torch.zeros(rows, width)},
        gradients="all",
        loss=lambda y: y.sum(),
    )
    # Every layer's input stays for the gradient of its weight.
    assert 4 * rows * width * 4 <= graph.held <= 5 * rows * width * 4 + 4


def test_counting_runs_nothing_and_leaves_the_model_as_it_was():
    model = _gpt2()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    hooks = sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules())
    count, _ = counted(model, random_tokens(model, examples=1, length=8))
    assert count.measuring.backward.flops > 0
    after = model.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert all(type(p) is nn.Parameter and p.grad is None for p in model.parameters())
    assert hooks == sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules())


def test_a_stack_is_seen_with_its_sizes():
    model = _gpt2()
    count, _ = counted(model, random_tokens(model, examples=EXAMPLES, length=TOKENS))
    [size] = count.sizes()
    assert (size.depth, size.width, size.tokens, size.examples) == (LAYERS, WIDTH, TOKENS, EXAMPLES)
    assert (size.heads, size.head_width, size.keys) == (HEADS, WIDTH // HEADS, TOKENS)
    assert (size.attentions, size.writes, size.inner) == (LAYERS, 2, 4 * WIDTH)


def test_work_adds_up_by_hand():
    work = 3 * (product(2, 3, 4, count=5) + moving(10, times=2) + functions(7))
    assert work.flops == 3 * 2 * 5 * 2 * 3 * 4
    assert work.bytes == 3 * (4 * 5 * (6 + 12 + 8) + 2 * 40 + 56)
    assert work.calls == 3 * (1 + 2 + 1)
    assert eigenvalues(6, count=2).flops == 2 * 4 / 3 * 216
