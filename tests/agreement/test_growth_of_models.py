"""The laws that are said of models before training, against what theory says of their design."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from transformers import BertConfig, BertModel, Olmo2Config, Olmo2ForCausalLM

import leadline
from leadline.record import Growth, Record

WIDTH = 128


def olmo2(depth: int, *, seed: int = 0) -> Record:
    """OLMo-2 normalises every update to the norm sqrt(width), before it joins the stream."""
    torch.manual_seed(seed)
    config = Olmo2Config(
        hidden_size=WIDTH,
        intermediate_size=2 * WIDTH,
        num_attention_heads=4,
        num_hidden_layers=depth,
        vocab_size=512,
        pad_token_id=None,
        bos_token_id=None,
        eos_token_id=None,
    )
    model = Olmo2ForCausalLM(config)
    inputs = leadline.random_tokens(model, examples=2, length=32, seed=seed)
    return leadline.measure(model, inputs, probes="stream")


def law_of_the_stream(record: Record) -> Growth:
    (line,) = [line for line in record.profiles("stream.norm") if line.statistic == "mean"]
    return line.growth


@pytest.mark.parametrize("depth", [16, 32, 64])
def test_the_square_of_an_olmo2_stream_grows_by_twice_the_width_at_every_depth(
    depth: int,
) -> None:
    """Two updates of norm sqrt(width) a layer, nearly orthogonal to the stream and each other.

    The first layer reads an embedding so small that its updates hardly pass the epsilon of their
    norms, so the stream jumps before it grows.
    """
    rates: list[float] = []
    for seed in range(3):
        record = olmo2(depth, seed=seed)
        growth = law_of_the_stream(record)
        assert growth.law == "root"
        assert growth.jump is not None
        assert growth.jump.layer in (1, 2)
        # The same by hand: the mean growth of the square behind the jump.
        square = np.asarray(record["stream.norm"])[growth.jump.layer :] ** 2
        by_hand = (square[-1] - square[0]) / (len(square) - 1)
        assert growth.rate == pytest.approx(by_hand, rel=0.15)
        rates.append(growth.rate)
    assert np.mean(rates) == pytest.approx(2 * WIDTH, rel=0.1)


def test_a_post_norm_stream_is_flat_and_jumps_where_its_embedding_has_another_norm() -> None:
    torch.manual_seed(0)
    config = BertConfig(
        hidden_size=WIDTH,
        intermediate_size=2 * WIDTH,
        num_attention_heads=4,
        num_hidden_layers=6,
        vocab_size=512,
    )
    model = BertModel(config)
    inputs = leadline.random_tokens(model, examples=2, length=32, seed=0)
    plain = law_of_the_stream(leadline.measure(model, inputs, probes="stream"))
    assert (plain.law, plain.jump) == ("flat", None)
    with torch.no_grad():
        model.embeddings.LayerNorm.weight.fill_(1 / 35)
    small = law_of_the_stream(leadline.measure(model, inputs, probes="stream"))
    assert small.law == "jump"
    assert small.jump is not None
    assert small.jump.layer == 1
    assert small.jump.factor == pytest.approx(35, rel=0.01)
    assert small.text.startswith("jumps ×35 at layer 1, then flat (±")
