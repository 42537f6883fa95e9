"""Designs that public code gets wrong, and the law that ours keeps: each by its numbers.

The wrong variant is written out beside ours, so that the difference is a number and not a claim.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from leadline.parts import Transformer
from leadline.parts.connections import CONNECTIONS
from leadline.parts.connections.manifold import doubly_stochastic, sinkhorn
from tests.facts.parts.connections.trial import (
    EXAMPLES,
    TOKENS,
    WIDTH,
    array,
    built,
    lanes,
    place,
    same,
    sigmoid,
    stirred,
    streams,
)

# --- lanes --------------------------------------------------------------------------------------


def test_sinkhorn_runs_over_both_lane_axes_so_rows_sum_to_one_and_not_to_four() -> None:
    # x-transformers 2.31.10 folds the lanes' matrix [4, 4] into [4, 1, 4] before it norms the last
    # two axes. Over the axis of size 1 every entry becomes 1.
    logits = torch.randn(4, 4, generator=torch.Generator().manual_seed(0))
    folded = logits.unsqueeze(1).softmax(-2)
    for _ in range(20):
        folded = folded / folded.sum(-1, keepdim=True)
        folded = folded / folded.sum(-2, keepdim=True)
    theirs = folded.squeeze(1)
    assert torch.equal(theirs, torch.ones(4, 4))
    assert theirs.sum(-1).tolist() == [4.0, 4.0, 4.0, 4.0]
    ours = doubly_stochastic(sinkhorn(logits, 20))
    assert ours.sum(-1).tolist() == pytest.approx([1.0] * 4, abs=1e-6)
    assert ours.sum(-2).tolist() == pytest.approx([1.0] * 4, abs=1e-6)
    # Twelve writes later: 4^12 = 16,777,216 against 1.
    x = torch.ones(4)
    assert (torch.linalg.matrix_power(theirs, 12) @ x).tolist() == [4.0**12] * 4
    assert (torch.linalg.matrix_power(ours, 12) @ x).tolist() == pytest.approx([1.0] * 4, abs=1e-5)


def test_the_stream_of_a_deep_stack_of_lanes_does_not_explode() -> None:
    model = Transformer(
        depth=24, width=16, heads=2, vocabulary=32, context=8, connection="manifold_hyper"
    ).eval()
    ids = torch.arange(8).view(1, 8)
    with torch.no_grad():
        first = model.embedding(ids, torch.arange(8), None).norm()
        closing, model.norm = model.norm, None
        last = model.stream(ids).norm()
        model.norm = closing
    assert 1.0 < float(last / first) < 100.0  # four lanes of ones would give 4^48


def test_lane_i_receives_row_i_of_the_matrix() -> None:
    # The paper writes H_res x; public code holds the transpose and multiplies by its transpose.
    # Whoever reads their matrix as the paper's swaps what a lane sends and what it receives.
    connection = stirred(built("manifold_hyper"))
    state = lanes(4)
    none = torch.zeros(EXAMPLES, TOKENS, WIDTH).double()
    matrix, after = array(connection.mixing(state)), connection.write(state, none)
    assert same(after, np.einsum("etij,etjw->etiw", matrix, array(state)))
    swapped = np.einsum("etji,etjw->etiw", matrix, array(state))
    assert not np.allclose(array(after), swapped, atol=0.1)


def test_the_mixing_matrix_learns_with_its_default_numbers() -> None:
    # Reported of one public mHC: H_res does not move.
    connection = built("manifold_hyper")
    state, (u,) = lanes(4), streams(1)
    connection.write(state, u).pow(3).sum().backward()
    for parameter in (connection.bias_res, connection.phi.weight, connection.scale):
        assert parameter.grad.abs().max() > 1e-6


# --- deepnorm -----------------------------------------------------------------------------------


def deepnorm(depth: int) -> Any:
    return CONNECTIONS.build("deepnorm", place=place(depth=depth))


@pytest.mark.parametrize(("layers", "alpha"), [(8, 2.0), (18, math.sqrt(6)), (1000, 6.687403)])
def test_deepnorm_multiplies_by_the_fourth_root_and_not_the_square_root(
    layers: int, alpha: float
) -> None:
    # GLM-130B calls (2L)^(1/2) DeepNorm: another design of the same name.
    connection = deepnorm(layers)
    assert connection.keep == pytest.approx(alpha, rel=1e-6)
    assert connection.keep == pytest.approx((2 * layers) ** 0.25)
    assert abs(connection.keep - math.sqrt(2 * layers)) > 1.9


def test_deepnorm_multiplies_the_stream_and_not_the_update() -> None:
    # One annotated implementation norms x + alpha u.
    connection = deepnorm(8)
    x, u = streams(2)
    found = connection.write(x, u)
    assert same(found, 2 * array(x) + array(u))
    assert not torch.allclose(found, x + 2 * u, atol=0.1)


def test_the_init_of_deepnorm_scales_the_values_and_leaves_queries_and_keys() -> None:
    # xformers once left the value projection unscaled.
    depth, width = 8, 64
    fields: dict[str, Any] = {"depth": depth, "width": width, "heads": 2, "placement": "post"}
    model = Transformer(connection="deepnorm", **fields)
    assert str(model.recipe.init) == "deepnorm"
    beta = (8 * depth) ** -0.25
    assert beta == pytest.approx(0.353553, abs=1e-6)
    for block in model.blocks:
        named = dict(block.attention.branch.weights()) | dict(block.mlp.branch.weights())  # type: ignore[union-attr, operator]
        for role, weight in named.items():
            fan = sum(weight.shape)
            gain = float(weight.detach().double().square().mean()) ** 0.5 / math.sqrt(2 / fan)
            expected = 1.0 if role in ("query", "key") else beta
            assert gain == pytest.approx(expected, rel=0.05), role


# --- gates --------------------------------------------------------------------------------------


def test_the_gate_of_gtrxl_has_the_bias_that_a_plain_recurrent_cell_lacks() -> None:
    # x-transformers puts torch's GRUCell here: no b_g, so it starts half open, and its z keeps
    # where the paper's z writes.
    gate = built("gtrxl(relu=false)")
    cell = nn.GRUCell(WIDTH, WIDTH).double()
    x, u = streams(2)
    with torch.no_grad():
        w, c = gate.from_update.weight, gate.from_stream.weight
        cell.weight_ih.copy_(torch.cat([w[:WIDTH], -w[WIDTH : 2 * WIDTH], w[2 * WIDTH :]]))
        cell.weight_hh.copy_(torch.cat([c[:WIDTH], -c[WIDTH:], gate.from_reset.weight]))
        cell.bias_ih.zero_()
        cell.bias_hh.zero_()
        gate.from_reset.weight.zero_()  # the cell resets after the product, the paper before
        cell.weight_hh[2 * WIDTH :].zero_()
        flat = [s.reshape(-1, WIDTH) for s in (u, x)]
        theirs = cell(*flat).view_as(x)
        ours = gate.write(x, u)
        assert not torch.allclose(ours, theirs, atol=0.05)
        gate.bias.zero_()
        assert torch.allclose(gate.write(x, u), theirs, atol=1e-12)
    assert sigmoid(np.array(-2.0)) == pytest.approx(0.1192, abs=1e-4)  # against one half


# --- layers -------------------------------------------------------------------------------------


def test_layernorm_scaling_norms_and_its_factors_outlive_an_empty_start() -> None:
    # The paper's own code, called as documented, builds no norm at all and returns its input; in
    # another library the factor 1 / sqrt(l) is a buffer, which an empty start erases.
    fields: dict[str, Any] = {"depth": 4, "width": 8, "heads": 1, "vocabulary": 16, "context": 8}
    model = Transformer(placement="layernorm_scaling", **fields).eval()
    with torch.device("meta"):
        other = Transformer(placement="layernorm_scaling", **fields).eval()
    other.to_empty(device="cpu")
    other.load_state_dict(model.state_dict())
    ids = torch.arange(8).view(1, 8)
    assert torch.equal(other(ids), model(ids))
    x = torch.randn(2, 3, 8, generator=torch.Generator().manual_seed(0))
    for layer, sublayer in enumerate(list(model.sublayers())[::2], 1):
        assert sublayer.enter is not None
        size = sublayer.enter(x).square().mean().sqrt().item()
        assert size == pytest.approx(1 / math.sqrt(layer), rel=1e-3)


@pytest.mark.parametrize("connection", ["identity", "hyper", "gtrxl", "denseformer"])
def test_no_two_layers_start_with_the_same_weights(connection: str) -> None:
    # torch.nn.TransformerEncoder copies one layer: all start alike.
    with pytest.warns(UserWarning, match="nested"):
        theirs = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16), 2)
    first, second = (layer.linear1.weight for layer in theirs.layers)  # type: ignore[union-attr]
    assert torch.equal(first, second)  # type: ignore[arg-type]
    model = Transformer(depth=3, width=8, heads=2, connection=connection)
    drawn = [
        weight.detach()
        for sublayer in model.sublayers()
        for _, weight in (*sublayer.branch.weights(), *sublayer.connection.weights())
    ]
    for i, one in enumerate(drawn):
        for other in drawn[i + 1 :]:
            assert one.shape != other.shape or not torch.equal(one, other)
