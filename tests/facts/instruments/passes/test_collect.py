"""From tensors to rows: which tokens count, which statistics are kept, what is held on to."""

from __future__ import annotations

import gc
import math
import statistics
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from leadline.anatomy import Block, Port, SeenAttention, Stack, Sublayer
from leadline.instruments.passes import collect as _collect
from leadline.instruments.passes.collect import Collector
from leadline.instruments.passes.probe import At, PerToken, Result, Single
from leadline.instruments.passes.probe_plan import Plan, plan
from leadline.numerics.patterns.patterns import Patterns
from leadline.numerics.tokens import Tokens
from leadline.record import Quantity, Reading

DECODER, ENCODER = Stack("decoder", (), 1), Stack("encoder", (), 1)
SUBLAYER = Sublayer(1, "mlp", "h.0.mlp")
BLOCK = Block(1, "h.0", Port("h.0", "input"), Port("h.0", "output"), (SUBLAYER,))


def _column(*rows: list[float]) -> torch.Tensor:
    """[example, token, 1]: a token's norm is the absolute value of its number."""
    return torch.tensor(rows).unsqueeze(-1)


def _norms(readings: list[Reading], layer: int = 0) -> dict[str, float]:
    return {
        r.statistic: r.value
        for r in readings
        if r.quantity == "stream.norm" and r.site.layer == layer
    }


def test_means_and_medians_with_and_without_the_first_token() -> None:
    collector = Collector(plan("stream"))
    collector.stream(DECODER, 0, None, _column([100.0, 1.0, 2.0], [200.0, 3.0, 10.0]))
    found = _norms(collector.readings())
    every, rest = [100, 1, 2, 200, 3, 10], [1, 2, 3, 10]
    assert found == pytest.approx(
        {
            "mean": statistics.mean(every),
            "median": statistics.median(every),
            "mean_without_first": statistics.mean(rest),
            "median_without_first": statistics.median(rest),
        }
    )


def test_the_first_token_is_the_first_real_one_of_every_example() -> None:
    mask = torch.tensor([[True, True, True, False], [False, True, True, True]])
    collector = Collector(plan("stream"), mask)
    collector.stream(DECODER, 0, None, _column([50.0, 1.0, 2.0, 1e6], [1e6, 70.0, 4.0, 8.0]))
    found = _norms(collector.readings())
    assert found["mean"] == pytest.approx((50 + 1 + 2 + 70 + 4 + 8) / 6)
    assert found["mean_without_first"] == pytest.approx((1 + 2 + 4 + 8) / 4)
    assert found["median_without_first"] == pytest.approx(3.0)


def test_an_odd_count_has_one_median_and_nan_has_none() -> None:
    collector = Collector(plan("stream"))
    collector.stream(DECODER, 0, None, _column([9.0, 1.0, 5.0]))
    collector.stream(DECODER, 1, None, _column([9.0, 1.0, math.nan]))
    readings = collector.readings()
    assert _norms(readings)["median"] == 5.0
    # One broken token of three is enough: a median that hides it would call the layer sound.
    assert math.isnan(_norms(readings, 1)["median"]) and math.isnan(_norms(readings, 1)["mean"])


def test_a_single_token_has_no_statistic_without_it() -> None:
    collector = Collector(plan("stream"))
    collector.stream(DECODER, 0, None, _column([3.0]))
    assert _norms(collector.readings()) == {"mean": 3.0, "median": 3.0}


def test_numbers_do_not_depend_on_when_they_are_reduced(monkeypatch: pytest.MonkeyPatch) -> None:
    def measured() -> list[Reading]:
        collector = Collector(plan("stream,tokens"))
        g = torch.Generator().manual_seed(0)
        for layer in range(4):
            collector.stream(DECODER, layer, None, torch.randn(2, 5, 3, generator=g))
        return sorted(collector.readings(), key=str)

    late = measured()
    monkeypatch.setattr(_collect, "_FLUSH_AT", 15)
    assert measured() == late


def test_the_decoder_takes_the_decoders_mask() -> None:
    first = torch.tensor([[True, True, False]])
    second = torch.tensor([[True, False, False]])
    collector = Collector(plan("stream"), first, decoder_mask=second, pair=True)
    for stack in (ENCODER, DECODER):
        collector.stream(stack, 0, None, _column([1.0, 3.0, 100.0]))
    found = {
        r.site.stack: r.value
        for r in collector.readings()
        if r.quantity == "stream.norm" and r.statistic == "mean"
    }
    assert found == {"encoder": 2.0, "decoder": 1.0}


def test_a_mask_that_fits_no_stream_is_told() -> None:
    collector = Collector(plan("stream"), torch.tensor([[True, False]]))
    collector.stream(DECODER, 0, None, _column([1.0, 2.0, 3.0]))
    assert collector.unmasked == {"decoder"}
    whole = Collector(plan("stream"), torch.tensor([[True, True]]))
    whole.stream(DECODER, 0, None, _column([1.0, 2.0, 3.0]))
    assert not whole.unmasked


def test_padding_is_left_out_of_updates() -> None:
    mask = torch.tensor([[True, True, False]])
    collector = Collector(plan("update"), mask)
    collector.update(DECODER, BLOCK, SUBLAYER, _column([1.0, 3.0, 1e6]), _column([1.0, 1.0, 1.0]))
    found = {r.statistic: r.value for r in collector.readings() if r.quantity == "update.norm"}
    assert found["mean"] == 2.0 and found["median_without_first"] == 3.0


def test_only_the_start_and_the_last_two_streams_are_held() -> None:
    size = 7 * 11 * 13
    collector = Collector(plan("stream,tokens,rank,memory"))
    for layer in range(6):
        collector.stream(DECODER, layer, None, torch.randn(7, 11, 13))
    gc.collect()
    held = {
        t.untyped_storage().data_ptr()
        for t in gc.get_objects()
        # The centred copies lack one token.
        if type(t) is torch.Tensor and t.numel() in (size, size - 7 * 13)
    }
    assert len(held) == 3
    del collector


def test_the_statistics_of_a_stream_that_is_read_again_are_used_again() -> None:
    seen: list[int] = []

    class Watching:
        sees = ("stream", "block")
        quantities: tuple[Quantity, ...] = ()

        def stream(self, at: At, x: Tokens, start: Tokens) -> Iterator[Result]:
            seen.append(id(x))
            yield from ()

        def block(self, at: At, before: Tokens, after: Tokens) -> Iterator[Result]:
            seen.extend([id(before), id(after)])
            yield from ()

    collector = Collector(Plan((), (Watching(),)))
    before, after = torch.randn(1, 4, 3), torch.randn(1, 4, 3)
    collector.stream(DECODER, 0, None, before)
    collector.block(DECODER, BLOCK, before, after)
    collector.stream(DECODER, 1, None, after)
    first, again, second, last = seen
    assert first == again and second == last and first != second


QUANTITY = Quantity(name="test.norm", title="t", symbol="s", formula="f", high="h", low="l")


class _OnlyParameters:
    sees = ("parameters",)
    quantities = (QUANTITY,)

    def parameters(self, at: At, norm: torch.Tensor) -> Iterator[Result]:
        yield Single(QUANTITY, norm)


def test_a_probe_of_parameters_alone_asks_for_the_backward_pass() -> None:
    assert Plan((), (_OnlyParameters(),)).backward
    assert not plan("stream,tokens,rank,update,influence,memory,lanes").backward


def test_a_probe_may_name_another_site_and_means_are_over_examples() -> None:
    collector = Collector(plan("tokens"))
    # Two tokens each: residuals |a - b| / sqrt(2) of 1 and 3.
    collector.stream(DECODER, 0, None, _column([0.0, math.sqrt(2)], [0.0, 3 * math.sqrt(2)]))
    (mean,) = [
        r.value
        for r in collector.readings()
        if r.quantity == "tokens.residual" and r.statistic == "mean"
    ]
    assert mean == pytest.approx(2.0)


def test_per_token_numbers_of_different_shapes_stand_side_by_side() -> None:
    class Both:
        sees = ("stream",)
        quantities = (QUANTITY,)

        def stream(self, at: At, x: Tokens, start: Tokens) -> Iterator[Any]:
            yield PerToken(QUANTITY, x.norm)

    collector = Collector(Plan((), (Both(),)))
    collector.stream(ENCODER, 0, None, _column([1.0, 3.0]))
    collector.stream(DECODER, 0, None, _column([2.0, 4.0, 12.0]))
    means = {r.site.stack: r.value for r in collector.readings() if r.statistic == "mean"}
    assert means == {"encoder": 2.0, "decoder": 6.0}


def _attention(seed: int, *, wrong: bool = False) -> SeenAttention:
    drawn = torch.Generator().manual_seed(seed)
    query, key, value = (torch.randn(1, 2, 12, 4, generator=drawn) for _ in range(3))
    output = torch.nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
    return SeenAttention(
        module="attention",
        route="kernel",
        value=value,
        output=-output if wrong else output,
        query=query,
        key=key,
        causal=True,
        scaling=0.5,
    )


@pytest.mark.parametrize("probes", ["attention", "attention,attention_product"])
def test_attention_that_is_not_proved_is_left_out_whenever_it_is_judged(probes: str) -> None:
    """Probes of numbers alone are judged when the pass is over, those of matrices at once."""
    blocks = [
        Block(
            layer,
            f"h.{layer}",
            Port(f"h.{layer}", "input"),
            Port(f"h.{layer}", "output"),
            (Sublayer(1, "attention", f"h.{layer}.attention"),),
        )
        for layer in (1, 2, 3)
    ]
    stack = Stack("decoder", tuple(blocks), 8)
    collector = Collector(plan(probes))
    for block in blocks:
        seen = _attention(block.layer, wrong=block.layer == 2)
        collector.attention(stack, block, block.sublayers[0], seen)
    assert bool(collector.attentions) == (probes != "attention")
    readings = collector.readings()
    assert [one["layer"] for one in collector.attentions] == [1, 3]
    assert list(collector.unproved) == [("decoder", 2, 1)]
    entropies = [r for r in readings if r.quantity == "attention.entropy" and r.site.head is None]
    assert [r.site.layer for r in entropies if r.statistic == "mean"] == [1, 3]
    for reading in (r for r in entropies if r.statistic == "mean"):
        alone = Patterns(_attention(reading.site.layer)).measured
        assert reading.value == pytest.approx(float(alone.entropy.mean()))
