"""Attention of several calls waits together and has the numbers that it has alone."""

from __future__ import annotations

import weakref

import pytest
import torch
from torch import Tensor

from leadline.anatomy import SeenAttention
from leadline.numerics.patterns import pattern_queue
from leadline.numerics.patterns.pattern_queue import TOGETHER, PatternQueue
from leadline.numerics.patterns.patterns import PatternNumbers, Patterns

HEADS, WIDTH = 3, 8


def call(tokens: int, seed: int, *, examples: int = 2, mask: Tensor | None = None) -> SeenAttention:
    drawn = torch.Generator().manual_seed(seed)
    query, key, value = (
        torch.randn(examples, HEADS, tokens, WIDTH, generator=drawn) for _ in range(3)
    )
    output = torch.nn.functional.scaled_dot_product_attention(
        query, key, value, attn_mask=mask, is_causal=mask is None
    )
    return SeenAttention(
        module="attention",
        route="kernel",
        value=value,
        output=output,
        query=query,
        key=key,
        mask=mask,
        causal=mask is None,
        scaling=WIDTH**-0.5,
    )


def same(first: PatternNumbers, second: PatternNumbers) -> bool:
    tables = ("column_sum", "entropy", "logit_std", "logit_span", "sink_share", "distance")
    equal = [
        torch.equal(getattr(first, name).nan_to_num(-1), getattr(second, name).nan_to_num(-1))
        for name in (*tables, "divergence")
    ]
    facts = ("missing", "uneven", "proof", "bias_range", "excess", "lowest", "broken", "shapes")
    return all(equal) and all(getattr(first, name) == getattr(second, name) for name in facts)


def test_calls_in_one_queue_have_the_numbers_that_they_have_alone() -> None:
    padded = torch.ones(2, 40, dtype=torch.bool)
    padded[1, 30:] = False
    masked = torch.randn(40, 40, generator=torch.Generator().manual_seed(5))
    calls = [
        (call(40, 0), None),
        (call(1, 1), None),
        (call(40, 2, mask=masked), None),
        (call(90, 3), None),
        (call(40, 4), padded),
    ]
    queue = PatternQueue()
    together = [Patterns(one, queries=real, keys=real, queue=queue) for one, real in calls]
    for patterns in together:
        patterns.add_up()
    for patterns, (one, real) in zip(together, calls, strict=True):
        alone = Patterns(one, queries=real, keys=real).measured
        waited = patterns.measured
        assert same(waited, alone)
        assert torch.allclose(waited.norm.value, alone.norm.value, rtol=1e-5, atol=0)
        exact = [torch.linalg.svdvals(each.double()) for _, each in patterns.matrices()]
        for example, values in enumerate(exact):
            here = waited.norm.lower[example], waited.norm.upper[example]
            assert bool((here[0] <= values[:, 0] * (1 + 1e-6)).all())
            assert bool((here[1] >= values[:, 0] * (1 - 1e-6)).all())


def test_numbers_of_all_calls_are_fetched_by_one_transfer(monkeypatch: pytest.MonkeyPatch) -> None:
    transfers: list[int] = []
    fetch = Tensor.cpu

    def counted(tensor: Tensor, *options: object) -> Tensor:
        transfers.append(tensor.numel())
        return fetch(tensor, *options)

    monkeypatch.setattr(Tensor, "cpu", counted)
    queue = PatternQueue()
    together = [Patterns(call(20, seed), queue=queue) for seed in range(4)]
    for patterns in together:
        patterns.add_up()
    queue.settle()
    assert len(transfers) == 1
    for patterns in together:
        assert patterns.measured.entropy.shape == (2, HEADS)
    assert len(transfers) == 1


def test_nothing_of_a_kernel_is_asked_of_the_device_while_it_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refused(*_: object) -> None:
        raise AssertionError("the device was asked")

    queue = PatternQueue()
    calls = [call(20, 0), call(20, 1, mask=torch.ones(20, 20, dtype=torch.bool).tril())]
    with monkeypatch.context() as patched:
        for name in ("item", "cpu", "tolist", "numpy", "__bool__", "__float__", "__int__"):
            patched.setattr(Tensor, name, refused)
        waiting = [Patterns(calls[1], queue=queue)]
        waiting[0].add_up()
    assert waiting[0].measured.shapes[0].mask == "causal"


def test_the_tensors_of_a_model_are_let_go_and_their_shapes_are_known() -> None:
    attention = call(20, 0)
    assert attention.query is not None
    content = weakref.ref(attention.query)
    patterns = Patterns(attention, queue=PatternQueue())
    patterns.let_go()
    before = Patterns(attention).measured
    del attention
    assert content() is None
    assert patterns.attention.query is not None
    assert patterns.attention.query.shape == (2, HEADS, 20, WIDTH)
    assert same(patterns.measured, before)


def test_matrices_wait_until_there_are_enough_of_one_shape(monkeypatch: pytest.MonkeyPatch) -> None:
    """64 of 128 x 128: fewer are mostly overhead, many more leave the cache and gain nothing."""
    runs: list[int] = []
    found = pattern_queue.leading_pair

    def counted(matrices: Tensor) -> object:
        runs.append(len(matrices))
        return found(matrices)

    monkeypatch.setattr(pattern_queue, "leading_pair", counted)
    queue = PatternQueue()
    for seed in range(8):
        Patterns(call(128, seed, examples=4), queue=queue).add_up()
    assert TOGETHER == 64 * 128 * 128
    # 12 matrices a call: six calls are the first that have 64 of them.
    assert runs == [72]
    queue.settle()
    assert runs == [72, 24]
