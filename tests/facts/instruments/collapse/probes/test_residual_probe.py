"""The residual probe: what it writes into a record, and how far rounding reaches."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
import torch
from torch import Tensor

import leadline as ll
from leadline.anatomy import Stack
from leadline.instruments.collapse.probes.residual import ResidualProbe
from leadline.instruments.passes.probe import At, Each, Single
from leadline.instruments.passes.probes import DEFAULT
from leadline.numerics.tokens import Tokens
from leadline.parts import Transformer
from leadline.record import Reading, Record, Site
from leadline.testing.tiny import Linear

COMPOSITE = "tokens.composite_residual"
RELATIVE = "tokens.relative_composite_residual"
SMALLEST = "tokens.smallest_composite_residual"
RELATIVE_SMALLEST = "tokens.relative_smallest_composite_residual"
SINGULAR = "tokens.singular_value"


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def composite(matrix: Tensor) -> float:
    sizes = matrix.double().abs()
    return math.sqrt(float(sizes.sum(0).max()) * float(sizes.sum(1).max()))


def one(
    record: Record, quantity: str, layer: int, *, rank: int | None = None, **where: Any
) -> Reading:
    where = {"statistic": "mean"} | where
    (found,) = [r for r in record.select(quantity, layer=layer, **where) if r.site.rank == rank]
    return found


def test_residuals_of_a_model_with_answers_known_by_hand() -> None:
    """One layer takes R to (1 + beta) R and the mean to (1 + alpha)(1 + beta) times itself."""
    x = drawn(2, 6, 8)
    record = ll.measure(Linear(3, alpha=0.5, beta=-0.25), x, probes="residual")
    for layer in range(4):
        mean = x.double().mean(1, keepdim=True)
        now = 0.75**layer * (1.5**layer * mean + x.double() - mean)
        exact = [composite(one - one.mean(0)) for one in now]
        sizes = [composite(one) for one in now]
        assert one(record, COMPOSITE, layer).value == pytest.approx(sum(exact) / 2, rel=1e-5)
        shares = [a / b for a, b in zip(exact, sizes, strict=True)]
        assert one(record, RELATIVE, layer).value == pytest.approx(sum(shares) / 2, rel=1e-5)
        rest = [composite(one[1:] - one[1:].mean(0)) for one in now]
        got = one(record, COMPOSITE, layer, statistic="mean_without_first")
        assert got.value == pytest.approx(sum(rest) / 2, rel=1e-5)
        values = torch.linalg.svdvals(now).mean(0)
        for rank in range(1, 7):
            got = one(record, SINGULAR, layer, rank=rank)
            assert got.value == pytest.approx(float(values[rank - 1]), rel=1e-5)
        assert one(record, SINGULAR, layer).value == pytest.approx(float(values.mean()), rel=1e-5)


def test_the_smallest_residual_shrinks_with_the_others_and_has_its_interval() -> None:
    x = drawn(2, 6, 8) ** 3
    record = ll.measure(Linear(2, alpha=0.5, beta=-0.25), x, probes="residual")
    first = one(record, SMALLEST, 0)
    for layer in range(3):
        least, mean = one(record, SMALLEST, layer), one(record, COMPOSITE, layer)
        assert least.value == pytest.approx(first.value * 0.75**layer, rel=1e-3)
        assert least.lower is not None and least.upper is not None
        assert mean.value / 2 <= least.lower <= least.value <= least.upper
        assert least.value < 0.99 * mean.value
        share = one(record, RELATIVE_SMALLEST, layer)
        assert share.lower is not None and share.upper is not None
        assert share.lower <= share.value <= share.upper


def test_no_more_than_eight_singular_values_are_kept() -> None:
    record = ll.measure(Linear(2), drawn(1, 12, 16), probes="residual")
    ranks = {r.site.rank for r in record.select(SINGULAR, layer=0)}
    assert ranks == {None, *range(1, 9)}


def test_the_largest_example_is_kept_beside_the_mean() -> None:
    x = drawn(3, 6, 8)
    x[1] *= 4
    record = ll.measure(Linear(2), x, probes="residual")
    exact = composite(x[1] - x[1].mean(0))
    largest = one(record, COMPOSITE, 0, statistic="max")
    assert largest.value == pytest.approx(exact, rel=1e-5)
    assert largest.lower is not None and largest.upper is not None
    assert largest.lower < largest.value < largest.upper
    least = one(record, SMALLEST, 0, statistic="max")
    assert least.value <= exact and least.lower is not None and least.lower > 0


# --- rounding --------------------------------------------------------------------------------------


def at(eps: float = 1.1920928955078125e-07, sublayer: int | None = None) -> At:
    return At(Stack("decoder", (), 8), Site("decoder", 1, sublayer), eps)


def test_the_interval_is_eight_eps_of_the_stream() -> None:
    x = Tokens(drawn(1, 6, 8) + 5)
    size = composite(x.x[0])
    results = list(ResidualProbe().stream(at(eps=1e-6), x, x))
    found = {r.quantity.name: r for r in results if getattr(r, "statistic", "mean") == "mean"}  # type: ignore[union-attr]
    mean = found[COMPOSITE]
    assert isinstance(mean, Each) and mean.lower is not None and mean.upper is not None
    assert float(mean.upper.all - mean.values.all) == pytest.approx(8e-6 * size, rel=1e-6)
    assert float(mean.values.all - mean.lower.all) == pytest.approx(8e-6 * size, rel=1e-6)
    rest = composite(x.x[0, 1:])
    assert float(mean.upper.rest - mean.values.rest) == pytest.approx(8e-6 * rest, rel=1e-6)
    share = found[RELATIVE]
    assert isinstance(share, Each) and share.upper is not None
    assert float(share.upper.all - share.values.all) == pytest.approx(8e-6, rel=1e-6)
    least = found[SMALLEST]
    assert isinstance(least, Single) and least.upper is not None
    assert float(least.upper - least.value) == pytest.approx(8e-6 * size, rel=1e-6)


def test_the_eps_is_that_of_the_stream() -> None:
    x = drawn(1, 6, 8)
    for dtype, eps in ((torch.float32, 2**-23), (torch.bfloat16, 2**-7), (torch.float64, 2**-52)):
        record = ll.measure(Linear(2).to(dtype), x.to(dtype), probes="residual")
        reading = one(record, RELATIVE, 0)
        assert reading.upper is not None
        assert reading.upper - reading.value == pytest.approx(8 * eps, rel=1e-2)


def test_the_lower_end_is_never_below_zero() -> None:
    x = Tokens(torch.ones(1, 4, 8) + 1e-7 * drawn(1, 4, 8))
    for result in ResidualProbe().stream(at(), x, x):
        if isinstance(result, Each):
            assert result.lower is not None and float(result.lower.all) == 0.0
        elif result.quantity.name in (SMALLEST, RELATIVE_SMALLEST):  # type: ignore[union-attr]
            assert isinstance(result, Single)
            assert result.lower is not None and float(result.lower) == 0.0


def network(**settings: Any) -> Transformer:
    """Attention alone, twelve layers, nothing kept of the stream."""
    chosen = {
        "depth": 12,
        "width": 64,
        "heads": 4,
        "attention": {"name": "multihead", "causal": False},
        "positions": "none",
        "mlp": "none",
        "connection": "none",
        "placement": "none",
        "init": "xavier",
        "vocabulary": 50,
    } | settings
    model = Transformer(seed=0, **chosen).eval()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "branch" in name and parameter.ndim == 1:
                parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))
    return model


@pytest.mark.parametrize(
    "settings",
    [{}, {"placement": "pre"}, {"placement": "post", "mlp": "relu"}, {"heads": 1, "width": 128}],
    ids=str,
)
def test_rounding_of_collapsed_tokens_is_not_taken_for_evidence(settings: dict[str, Any]) -> None:
    """In float32 the residual stops at a floor; the interval reaches down to 0 and holds the truth."""
    model = network(**settings)
    tokens = torch.randint(0, 50, (2, 24), generator=torch.Generator().manual_seed(2))
    coarse = ll.measure(model, tokens, probes="residual(steps=5)")
    fine = ll.measure(copy.deepcopy(model).double(), tokens, probes="residual(steps=5)")
    eps = torch.finfo(torch.float32).eps
    for quantity in (COMPOSITE, RELATIVE):
        for layer in range(13):
            seen, true = one(coarse, quantity, layer), one(fine, quantity, layer)
            assert seen.lower is not None and seen.upper is not None
            assert seen.lower <= true.value <= seen.upper
    for layer in range(5, 13):
        floor, true = one(coarse, RELATIVE, layer), one(fine, RELATIVE, layer)
        # The truth is far below; the floor stays within half of the interval.
        assert true.value < 1e-8 and floor.value < 4 * eps
        assert floor.lower == 0.0 == one(coarse, SMALLEST, layer).lower
    assert max(one(coarse, RELATIVE, layer).value for layer in range(5, 13)) > eps / 10
    assert (one(coarse, RELATIVE, 1).lower or 0.0) > 0.1


# --- what is left out ------------------------------------------------------------------------------


def test_padding_changes_nothing() -> None:
    model = network(depth=2)
    tokens = torch.randint(1, 50, (2, 8), generator=torch.Generator().manual_seed(2))
    mask = torch.ones(2, 8, dtype=torch.long)
    mask[1, 5:] = 0
    together = ll.measure(model, {"input_ids": tokens, "attention_mask": mask}, probes="residual")
    apart = [
        ll.measure(model, tokens[:1], probes="residual"),
        ll.measure(model, tokens[1:, :5], probes="residual"),
    ]
    for quantity in (COMPOSITE, RELATIVE, SMALLEST, RELATIVE_SMALLEST):
        for layer in range(3):
            mean = sum(one(record, quantity, layer).value for record in apart) / 2
            assert one(together, quantity, layer).value == pytest.approx(mean, rel=1e-4)


def test_it_reads_block_boundaries_and_needs_two_tokens() -> None:
    x = Tokens(drawn(1, 6, 8))
    assert list(ResidualProbe().stream(at(sublayer=1), x, x)) == []
    single = Tokens(drawn(2, 1, 8))
    assert list(ResidualProbe().stream(at(), single, single)) == []
    lonely = Tokens(drawn(2, 3, 8), torch.tensor([[True, False, False]] * 2))
    assert list(ResidualProbe().stream(at(), lonely, lonely)) == []


def test_a_stream_of_zeros_has_the_share_zero() -> None:
    zeros = Tokens(torch.zeros(1, 4, 8))
    for result in ResidualProbe().stream(at(), zeros, zeros):
        value = result.values.all if isinstance(result, Each) else result.value  # type: ignore[union-attr]
        assert float(value) == 0.0


def test_it_is_not_in_the_default_set() -> None:
    assert "residual" not in DEFAULT and "collapse" not in DEFAULT


@pytest.mark.parametrize("steps", [0, -1, 1.5, True, "many"])
def test_steps_that_are_none_are_refused(steps: Any) -> None:
    with pytest.raises(ll.ProbeError, match="whole number of at least 1"):
        ResidualProbe(steps=steps)


def test_a_longer_search_is_asked_for_by_name() -> None:
    x = drawn(1, 6, 8)
    short = ll.measure(Linear(2), x, probes="residual(steps=1)")
    long = ll.measure(Linear(2), x, probes="residual(steps=300)")
    assert one(long, SMALLEST, 0).value < one(short, SMALLEST, 0).value
