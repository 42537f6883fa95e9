"""Gates, lanes and history in a tiny Transformer: the books balance, gradients arrive, all is saved."""

from __future__ import annotations

import pytest
import torch

import leadline
from leadline.parts import Transformer
from tests.facts.parts.connections.trial import model

PAIRS = [
    ("highway", "pre"),
    ("gtrxl", "pre"),
    ("gtrxl(relu=false)", "sandwich"),
    ("orthogonal", "pre"),
    ("orthogonal", "post"),
    ("hyper", "pre"),
    ("hyper", "post"),
    ("hyper(dynamic=false, lanes=3, close=sum)", "parallel"),
    ("manifold_hyper", "pre"),
    ("manifold_hyper(lanes=2, exact=false)", "post"),
    ("denseformer", "pre"),
    ("denseformer(dilation=2, period=2)", "hybrid"),
    ("denseformer", "post"),
    ("depth_attention", "pre"),
    ("depth_attention(blocks=2)", "parallel"),
    ("dual", "post"),
    ("b2t", "post"),
    ("b2t", "keel"),
    ("laurel", "pre"),
    ("laurel(kind=lr, rank=4)", "post"),
    ("laurel(kind=pa, rank=4)", "pre"),
    ("laurel(kind=pa, rank=4)", "mix(share=0.5)"),
]


def ids() -> torch.Tensor:
    return torch.arange(16).view(2, 8)


@pytest.mark.parametrize(("choice", "placement"), PAIRS)
def test_the_books_balance_at_the_start_and_when_the_weights_have_moved(
    choice: str, placement: str
) -> None:
    for stir in (False, True):
        small = model(choice, placement, stir=stir)
        tokens = leadline.random_tokens(small, examples=2, length=8, seed=0)
        anatomy = leadline.anatomy_of(small, tokens)
        assert anatomy.source == "declaration of the model"
        assert anatomy.balance is not None and anatomy.balance.eps < 4
        assert anatomy.balance.layers == 3


@pytest.mark.parametrize(("choice", "placement"), PAIRS)
def test_gradients_are_finite_and_reach_every_parameter(choice: str, placement: str) -> None:
    small = model(choice, placement, stir=True)
    small(ids()).square().sum().backward()
    for name, parameter in small.named_parameters():
        if name.startswith("embedding.positions"):
            continue
        gradient = parameter.grad
        assert gradient is not None and gradient.isfinite().all(), name
        if ".connection." in name:
            assert gradient.abs().max() > 0, name


@pytest.mark.parametrize(("choice", "placement"), PAIRS)
def test_a_model_is_measured_and_its_blocks_left_out_in_turn(choice: str, placement: str) -> None:
    small = model(choice, placement, stir=True)
    tokens = leadline.random_tokens(small, examples=2, length=8, seed=0)
    record = leadline.measure(small, tokens, ablate="block")
    assert not record.findings
    assert len(record.select("stream.norm")) > 0
    left_out = [r.value for r in record.select("ablation.block")]
    assert len(left_out) == 3 and all(abs(value) < 10 for value in left_out)
    lanes = small.first.lanes
    assert ("lane.norm" in record.quantities) is (lanes > 1)
    if lanes > 1:
        read = {r.site.lane for r in record.select("lane.norm")}
        assert read == set(range(1, lanes + 1))


@pytest.mark.parametrize(("choice", "placement"), PAIRS)
def test_a_saved_model_comes_back_the_same(choice: str, placement: str) -> None:
    small = model(choice, placement, stir=True)
    other = model(choice, placement, seed=1)
    assert not torch.equal(small(ids()), other(ids()))
    other.load_state_dict(small.state_dict())
    assert torch.equal(small(ids()), other(ids()))
    # Twice: nothing is left over from one call to the next.
    assert torch.equal(other(ids()), other(ids()))


@pytest.mark.parametrize(("choice", "placement"), PAIRS)
def test_half_precision_and_autocast_stay_near_float32(choice: str, placement: str) -> None:
    small = model(choice, placement)
    with torch.no_grad():
        expected = small(ids())
        with torch.autocast("cpu", torch.bfloat16):
            mixed = small(ids())
        half = small.to(torch.bfloat16)(ids())
    assert half.dtype == torch.bfloat16
    size = expected.square().mean().sqrt()
    for found in (mixed, half):
        assert (found.float() - expected).square().mean().sqrt() < 0.1 * size


@pytest.mark.parametrize(("choice", "placement"), PAIRS)
def test_the_stream_stays_in_float32_under_autocast(choice: str, placement: str) -> None:
    small = model(choice, placement)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        assert small.stream(ids()).dtype == torch.float32


@pytest.mark.parametrize(("choice", "placement"), PAIRS)
def test_what_a_token_reads_does_not_depend_on_later_ones(choice: str, placement: str) -> None:
    small = model(choice, placement, stir=True)
    with torch.no_grad():
        assert torch.allclose(small(ids())[:, :5], small(ids()[:, :5]), atol=1e-6)


def test_exchanging_the_connection_keeps_the_weights_of_the_branches() -> None:
    plain = Transformer(depth=2, width=16, heads=2, connection="identity", placement="pre")
    lanes = plain.with_(connection="hyper")
    shared = set(plain.state_dict()) & set(lanes.state_dict())
    assert shared == set(plain.state_dict())
    assert all(torch.equal(plain.state_dict()[n], lanes.state_dict()[n]) for n in shared)
