"""The plan on paper follows from counts that models and measurements confirm."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import leadline
from leadline.models.loading import load_model
from leadline.models.streaming.cost import (
    MACHINES,
    SIZES,
    LlamaSize,
    Machine,
    cost_of,
    plan_on_paper,
)
from leadline.models.streaming.pager import pager_of

SMALL = LlamaSize("small", 3, 64, 96, 32, 99)
FAST, SLOW = Machine("fast", 1e15, 1e9, 1e9), Machine("slow", 0, 1e9, 1e9)


@pytest.mark.parametrize("size", [*SIZES, SMALL], ids=lambda size: size.name)
def test_the_parameters_are_those_that_transformers_counts(size):
    transformers = pytest.importorskip("transformers")
    heads = 32 if size.width > 1000 else 4
    config = transformers.LlamaConfig(
        num_hidden_layers=size.layers,
        hidden_size=size.width,
        intermediate_size=size.inner,
        num_attention_heads=heads,
        num_key_value_heads=heads * size.key_width // size.width,
        vocab_size=size.vocabulary,
    )
    with torch.device("meta"):
        model = transformers.LlamaForCausalLM(config)
    assert sum(p.numel() for p in model.parameters()) == size.parameters
    assert sum(p.numel() for p in model.model.layers[0].parameters()) == size.block_parameters


def test_the_bytes_are_those_that_a_measurement_reads(tmp_path):
    transformers = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(
        num_hidden_layers=4,
        hidden_size=256,
        intermediate_size=512,
        num_attention_heads=4,
        num_key_value_heads=4,
        vocab_size=200,
    )
    transformers.LlamaForCausalLM(config).save_pretrained(tmp_path)
    loaded = load_model(tmp_path, stream=True)
    record = leadline.measure(loaded, leadline.random_inputs(loaded.model, examples=2, length=16))
    pager = pager_of(loaded.model)
    assert pager is not None
    size = LlamaSize("here", 4, 256, 512, 256, 200)
    expected = cost_of(size, SLOW, tokens=32, number_bytes=4).bytes_read
    # Fitting runs one block alone as well, and the head is not read again on the way back.
    assert record.provenance["streaming"]["bytes_requested"] == pytest.approx(expected, rel=0.1)


def test_minutes_follow_from_bytes_and_operations():
    cost = cost_of(SMALL, SLOW, tokens=100, number_bytes=4)
    assert cost.bytes_read == 4 * 4 * SMALL.parameters
    assert cost.operations == 2 * SMALL.parameters * (64 + 5 * 100)
    assert cost.minutes_reading == pytest.approx(cost.bytes_read / 1e9 / 60)
    assert cost.minutes_computing == pytest.approx(cost.operations / 1e9 / 60)
    assert cost.limit == "processor"
    assert cost_of(SMALL, FAST, tokens=100, number_bytes=4).bytes_read == 4 * SMALL.parameters
    block = 4 * (SMALL.block_parameters + 96 * 64)
    streams, logits = 4 * 4 * 100 * 64, 3 * 100 * 99 * 4
    assert cost.bytes_held == block + streams + logits
    many = Machine("many", 0, 1e9, 1e9, workers=8)
    assert cost_of(SMALL, many, tokens=100, number_bytes=4).minutes_each == pytest.approx(
        max(cost.minutes_reading, cost.minutes_computing) / 8
    )


def test_the_page_shows_the_plan_that_is_computed():
    page = Path(__file__).parents[4] / "docs" / "scale.md"
    assert plan_on_paper() in page.read_text(encoding="utf-8")
    assert len(plan_on_paper().splitlines()) == 2 + len(SIZES) * len(MACHINES)
