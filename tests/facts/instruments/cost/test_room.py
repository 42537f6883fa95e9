"""What does not fit is refused before anything is allocated, with the numbers and what would fit."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import pytest
import torch

import leadline
from leadline.errors import MachineError, MemoryLack
from leadline.instruments.cost import room
from leadline.instruments.cost.rates import NO_TIME
from leadline.instruments.cost.result import CostEstimate, CostPart
from leadline.instruments.cost.room import check_room, size_of, surely_fits
from leadline.instruments.cost.uncertainty import UNCERTAINTY
from leadline.instruments.passes.cost import estimate_measure
from tests.facts.instruments.cost.small_models import small_gpt2, small_transformer

GIB = 1e9


def _estimate(examples: int, tokens: int) -> CostEstimate:
    """1 MB a token, and 1 GB of weights."""
    part = CostPart("forward", "", memory=1e6 * examples * tokens)
    return CostEstimate("measure", "M", examples, tokens, (part,), weights=GIB, rates={})


def test_what_fits_is_not_mentioned():
    assert check_room(_estimate(2, 1000), free=int(4e9), weights="whole") is None


def test_what_may_fit_is_remarked_on():
    free = int(3e9 / (1 + UNCERTAINTY)) + 10_000_000
    remark = check_room(_estimate(2, 1000), free=free, weights="whole")
    assert remark is not None and "3.0 GB" in remark


def test_what_does_not_fit_is_refused_with_what_would():
    with pytest.raises(MemoryLack) as refused:
        check_room(_estimate(8, 4096), free=int(9e9), weights="loaded", predict=_estimate)
    message = str(refused.value)
    assert "M at 8 x 4096 tokens" in message
    assert "32.8 GB" in message and "9.0 GB" in message
    # 9 GB hold 9,000 tokens: 2 x 4096, or 8 x 1024.
    assert "2 x 4096 tokens, or 8 x 1024 tokens" in message
    assert "--anyway" in message


def test_streaming_is_offered_where_it_would_fit():
    asked = replace(_estimate(8, 4096), streamed=3.1e9)
    with pytest.raises(MemoryLack, match=r"--stream, which needs about 3\.1 GB"):
        check_room(asked, free=int(9e9), weights="whole", streamable=True)
    with pytest.raises(MemoryLack) as refused:
        check_room(asked, free=int(3e9), weights="whole", streamable=True)
    assert "--stream" not in str(refused.value)
    with pytest.raises(MemoryLack) as refused:
        check_room(asked, free=int(9e9), weights="whole")
    assert "--stream" not in str(refused.value)


def test_a_streamed_measurement_is_judged_by_what_it_holds_at_once():
    asked = replace(_estimate(8, 4096), streamed=3.1e9)
    assert check_room(asked, free=int(3.2e9), weights="streamed") is None
    with pytest.raises(MemoryLack, match=r"about 3\.1 GB of memory with the weights read block by"):
        check_room(asked, free=int(2e9), weights="streamed")


def test_the_bytes_of_a_streamed_measurement_by_hand():
    """GPT-2: the largest unit is the block; its largest matrix 4 d x d; three times the logits."""
    model = small_gpt2()
    inputs = leadline.random_tokens(model, examples=4, length=16)
    estimate = estimate_measure(model, inputs, probes="stream", rates=NO_TIME)
    block = 4 * (12 * 32**2 + 13 * 32)
    matrix = 4 * 4 * 32**2
    streams = 3 * 4 * (4 * 16 * 32)
    logits = 3 * 4 * (4 * 16 * 50)
    assert estimate.streamed == block + matrix + streams + logits


def test_an_accelerator_is_asked_for_its_own_memory(monkeypatch: pytest.MonkeyPatch):
    asked: list[Any] = []

    def info(device: Any) -> tuple[int, int]:
        asked.append(device)
        return 7, 80

    monkeypatch.setattr(torch.cuda, "mem_get_info", info)
    monkeypatch.setattr(room, "free_memory", lambda: 1)
    assert room.free_on(torch.device("cuda", 1)) == 7
    assert asked == [torch.device("cuda", 1)]
    assert room.free_on(torch.device("cpu")) == 1


def test_it_is_an_error_of_the_machine():
    assert issubclass(MemoryLack, MachineError)


def test_measure_refuses_before_it_runs_the_model(monkeypatch: pytest.MonkeyPatch):
    model = small_transformer()
    calls: list[int] = []
    model.register_forward_pre_hook(lambda *_: calls.append(1))
    inputs = leadline.random_tokens(model, examples=4, length=32)
    monkeypatch.setattr("leadline.instruments.passes.cost.free_on", lambda _: 300_000)
    with pytest.raises(MemoryLack, match="What would fit: "):
        leadline.measure(model, inputs)
    # Counting calls the model's code on tensors without numbers; nothing was allocated for it.
    assert leadline.measure(model, inputs, anyway=True).provenance["passes"]["forward"] == 1


def test_small_requests_are_not_even_predicted(monkeypatch: pytest.MonkeyPatch):
    model = small_transformer()
    inputs = leadline.random_tokens(model, examples=2, length=16)
    assert surely_fits(model, size_of(inputs), int(1e9))
    assert not surely_fits(model, size_of(inputs), 1000)
    monkeypatch.setattr("leadline.instruments.passes.cost.estimate_measure", None)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        leadline.measure(model, inputs)
