"""The identity share of the gradient, against autograd by hand."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

import leadline
from leadline.anatomy import Stack
from leadline.instruments.passes.probe import At, Refused, Single
from leadline.instruments.passes.probes.identity_share import IdentityShareProbe
from leadline.numerics.tokens import Tokens
from leadline.record import Record, Site
from leadline.testing.tiny import Linear, MeanAttention

SHARE = "gradient.identity_share"


class _Toy(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.ModuleList(_Block() for _ in range(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


class _Block(nn.Module):
    """A write that mixes tokens and one that does not, so that the gradient turns at every site."""

    def __init__(self) -> None:
        super().__init__()
        self.mix = MeanAttention(0.7)
        self.inner = nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 6))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.mix(x)
        return x + self.inner(x)


DECLARED = leadline.declare(blocks="layers", writes=["attention", "mlp"])


def _stack() -> Stack:
    """A stack of one block that keeps an identity."""
    two = leadline.anatomy_of(Linear(2), torch.randn(1, 3, 2), anatomy=DECLARED).stacks[0]
    return replace(two, blocks=two.blocks[:1])


def _weighted(output: object, inputs: object) -> torch.Tensor:
    """A loss whose gradient differs from token to token."""
    assert isinstance(output, torch.Tensor)
    weights = torch.linspace(-1, 2, output.numel()).reshape(output.shape)
    return (weights * output.square()).sum()


def _refusals(record: Record) -> str:
    return "; ".join(r["why"] for r in record.provenance["coverage"]["refused"])


def test_the_share_of_a_toy_is_that_of_autograd() -> None:
    model = _Toy()
    x = torch.randn(2, 5, 6, generator=torch.Generator().manual_seed(1))
    record = leadline.measure(model, x, probes="identity_share", loss=_weighted)
    streams = [x.clone().requires_grad_(True)]
    for layer in model.layers:
        streams.append(layer(streams[-1]))
    gradients = torch.autograd.grad(_weighted(streams[-1], None), streams)
    last = gradients[-1].double()
    expected = [float((last * g).sum() / g.double().square().sum()) for g in gradients]
    found = record.by_layer(SHARE)
    assert found.layers == (0, 1, 2)
    assert found.values.tolist() == pytest.approx(expected, rel=1e-5)
    assert found.values[-1] == 1.0
    assert abs(expected[0] - 1) > 0.05


def test_the_share_of_a_transformer_is_that_of_autograd() -> None:
    model = leadline.Transformer(depth=3, width=16, heads=2, vocabulary=11, context=8)
    inputs = leadline.random_tokens(model, examples=2, length=8, seed=3)
    record = leadline.measure(model, inputs, probes="identity_share")
    streams: list[Any] = []
    hooks = [model.blocks[0].register_forward_pre_hook(lambda m, a: streams.append(a[0]))]
    hooks += [b.register_forward_hook(lambda m, a, o: streams.append(o)) for b in model.blocks]
    ids = inputs.tensors["input_ids"]
    logits = model.eval()(ids)
    for hook in hooks:
        hook.remove()
    logits = logits if isinstance(logits, torch.Tensor) else logits.logits
    loss = nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())
    gradients = torch.autograd.grad(loss, streams)
    last = gradients[-1].double()
    expected = [float((last * g).sum() / g.double().square().sum()) for g in gradients]
    assert record.by_layer(SHARE).values.tolist() == pytest.approx(expected, rel=1e-4)


def test_branches_that_are_linear_have_the_share_that_follows_by_hand() -> None:
    # Without attention a layer multiplies by 1 + beta: g_l = (1 + beta)^(L - l) g_L.
    model = Linear(3, alpha=0.0, beta=0.5)
    x = torch.randn(1, 4, 5, generator=torch.Generator().manual_seed(0))
    record = leadline.measure(model, x, probes="identity_share", loss="random", anatomy=DECLARED)
    expected = [1.5 ** -(3 - layer) for layer in range(4)]
    assert record.by_layer(SHARE).values.tolist() == pytest.approx(expected, rel=1e-5)


def test_where_a_branch_takes_the_stream_away_no_gradient_and_no_share_is_left() -> None:
    # x - x = 0: nothing flows, whatever is said of the 1 of the skip connection.
    model = Linear(2, alpha=0.0, beta=-1.0)
    x = torch.randn(1, 4, 5, generator=torch.Generator().manual_seed(0))
    record = leadline.measure(
        model, x, probes="identity_share,gradient", loss="random", anatomy=DECLARED
    )
    assert record.by_layer("gradient.stream", statistic="total").values.tolist()[:2] == [0.0, 0.0]
    found = record.by_layer(SHARE)
    assert found.layers == (2,) and found.values.tolist() == [1.0]
    assert "zero there" in _refusals(record)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"placement": "post"}, "normed after the addition"),
        ({"connection": "deepnorm", "placement": "post"}, "keeps 1.414 times the stream"),
        ({"connection": "none"}, "keeps 0 times the stream"),
        ({"connection": "highway"}, "no sum of stream and update"),
    ],
)
def test_a_connection_without_an_identity_is_refused_with_the_reason(
    options: dict[str, Any], reason: str
) -> None:
    model = leadline.Transformer(depth=2, width=16, heads=2, vocabulary=11, context=8, **options)
    record = leadline.measure(model, probes="stream,identity_share")
    assert SHARE not in record
    assert reason in _refusals(record)


def test_padding_has_no_part_in_the_share() -> None:
    stack = _stack()
    probe = IdentityShareProbe()
    mask = torch.tensor([[True, True, False]])
    last = torch.tensor([[[1.0, 0.0], [0.0, 2.0], [50.0, 0.0]]])
    here = torch.tensor([[[2.0, 0.0], [0.0, 1.0], [0.0, 70.0]]])
    (one,) = probe.gradient(At(stack, Site(stack.name, 1)), Tokens(last, mask))
    (share,) = probe.gradient(At(stack, Site(stack.name, 0)), Tokens(here, mask))
    assert isinstance(one, Single) and float(one.value) == 1.0
    assert isinstance(share, Single) and float(share.value) == pytest.approx((2 + 2) / (4 + 1))
    assert probe._last == {}


def test_a_gradient_too_small_for_squares_in_float32_still_has_its_share() -> None:
    stack = _stack()
    probe = IdentityShareProbe()
    tiny = torch.full((1, 3, 2), 1e-30)
    list(probe.gradient(At(stack, Site(stack.name, 1)), Tokens(tiny)))
    (share,) = probe.gradient(At(stack, Site(stack.name, 0)), Tokens(4 * tiny))
    assert isinstance(share, Single) and math.isclose(float(share.value), 0.25, rel_tol=1e-6)


def test_without_the_gradient_of_the_last_site_nothing_is_said() -> None:
    stack = _stack()
    (refused,) = IdentityShareProbe().gradient(
        At(stack, Site(stack.name, 0)), Tokens(torch.ones(1, 3, 2))
    )
    assert isinstance(refused, Refused) and "did not come" in refused.why
