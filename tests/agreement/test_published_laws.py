"""What the papers say of their designs at initialisation, measured at 6 to 96 layers.

Width 128, 4 heads, 32 tokens, ReLU, Xavier unless the design has an init of its own, as in the
trials that these laws were first checked with; no positions, so that the embedding is white.
"""

import functools

import numpy as np
import pytest
import torch

import leadline

DEPTHS = (6, 24, 96)
WIDTH = 128


@functools.cache
def measured(depth, **fields):
    """The mean square of the stream, its gradient and the tokens' cosine over the layers."""
    model = leadline.Transformer(**recipe(depth, **fields))
    inputs = leadline.random_tokens(model, examples=2, length=32, seed=0)
    record = leadline.measure(model, inputs, probes="stream,tokens,gradient")
    square = np.asarray(record["stream.norm"]) ** 2 / WIDTH
    return square, np.asarray(record["gradient.stream"]), np.asarray(record["tokens.cosine"])


def recipe(depth, **fields):
    plain = {"positions": "none", "mlp": "relu", "init": "xavier", "context": 32}
    return {"depth": depth, "width": WIDTH, "heads": 4} | plain | fields


def straightness(values):
    """R² of the straight line through the values."""
    layers = np.arange(len(values))
    return np.corrcoef(layers, values)[0, 1] ** 2


@pytest.mark.parametrize("depth", DEPTHS)
def test_the_pre_norm_stream_grows_linearly_in_mean_square(depth):
    square, _, _ = measured(depth, placement="pre")
    assert straightness(square) > 0.98
    assert square[-1] / square[0] > 0.5 * depth


def test_four_times_the_depth_is_four_times_the_pre_norm_mean_square():
    growth = {d: np.ptp(measured(d, placement="pre")[0]) for d in DEPTHS}
    assert 3.5 < growth[96] / growth[24] < 5


@pytest.mark.parametrize("depth", DEPTHS)
def test_branches_scaled_by_one_over_root_two_depth_keep_the_stream_flat(depth):
    square, gradient, _ = measured(depth, placement="pre", connection="weighted(alpha=depth)")
    assert square[-1] / square[0] < 1.5
    assert 0.8 < gradient[0] / gradient[-1] < 1.3


def test_gpt2_scaling_of_the_residual_weights_makes_the_last_stream_independent_of_depth():
    last = [measured(d, placement="pre", init="gpt2")[0][-1] for d in DEPTHS]
    assert max(last) / min(last) < 1.2
    unscaled = [measured(d, placement="pre")[0][-1] for d in DEPTHS]
    assert max(unscaled) / min(unscaled) > 10


@pytest.mark.parametrize("depth", DEPTHS)
def test_deepnorm_keeps_the_gradient_within_twofold_and_the_tokens_apart(depth):
    square, gradient, cosine = measured(
        depth, placement="post", connection="deepnorm", init="deepnorm"
    )
    assert np.allclose(square[1:], 1, rtol=1e-3)
    assert 0.5 < gradient[0] / gradient[-1] < 2
    assert cosine[-1] < 0.1


def test_plain_post_norm_makes_all_tokens_alike():
    cosine = [measured(d, placement="post")[2][-1] for d in DEPTHS]
    assert 0.7 < cosine[0] < cosine[1] and cosine[1] > 0.99 and cosine[2] > 0.9999


@pytest.mark.parametrize("depth", DEPTHS)
def test_rezero_is_the_identity_at_every_depth(depth):
    model = leadline.Transformer(**recipe(depth, connection="rezero", placement="none"))
    ids = torch.arange(32).view(1, 32)
    positions = torch.arange(32)
    x = model.embedding(ids, positions, None)
    assert torch.equal(model.stream(ids), model.norm(x))
    _, gradient, _ = measured(depth, connection="rezero", placement="none")
    assert np.allclose(gradient, gradient[0], rtol=1e-6)


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("connection", ["hyper", "hyper(dynamic=false)"])
def test_hyper_connections_start_exactly_as_the_plain_residual(depth, connection):
    ids = torch.arange(32).view(1, 32)
    plain = leadline.Transformer(**recipe(depth))
    hyper = leadline.Transformer(**recipe(depth, connection=connection))
    assert torch.equal(plain(ids), hyper(ids))


@pytest.mark.parametrize("depth", DEPTHS)
def test_sinkhorn_mixing_is_doubly_stochastic_and_so_is_its_product_over_depth(depth):
    model = leadline.Transformer(**recipe(depth, connection="manifold_hyper"))
    generator = torch.Generator().manual_seed(0)
    state = torch.randn(2, 5, 4, WIDTH, generator=generator)
    product = torch.eye(4).expand(2, 5, 4, 4)
    for sublayer in model.sublayers():
        mix = sublayer.connection.mixing(state)
        assert (mix.sum(-1) - 1).abs().max() < 1e-6 and (mix.sum(-2) - 1).abs().max() < 1e-6
        assert mix.min() >= 0
        product = mix @ product
    assert (product.sum(-1) - 1).abs().max() < 1e-5 and (product.sum(-2) - 1).abs().max() < 1e-5


@pytest.mark.parametrize("depth", DEPTHS)
def test_layernorm_scaling_grows_slower_than_pre_norm(depth):
    scaled, _, _ = measured(depth, placement="layernorm_scaling")
    plain, _, _ = measured(depth, placement="pre")
    assert np.ptp(scaled) < 0.5 * np.ptp(plain)


def test_layernorm_scaling_adds_about_the_same_for_each_doubling_of_depth():
    """The sum of 1/l is logarithmic: 6 to 24 and 24 to 96 layers are two doublings each."""
    six, four_and_twenty, most = (measured(d, placement="layernorm_scaling")[0][-1] for d in DEPTHS)
    assert 0.5 < (most - four_and_twenty) / (four_and_twenty - six) < 2


@pytest.mark.parametrize("depth", DEPTHS)
def test_peri_norm_adds_the_same_variance_at_every_write(depth):
    square, _, _ = measured(depth, placement="sandwich")
    assert straightness(square) > 0.99
    assert 1.5 < np.ptp(square) / depth < 2.5
