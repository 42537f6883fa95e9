"""What does not fit is refused before anything is allocated, with the numbers and what would fit."""

from __future__ import annotations

import warnings

import pytest

import leadline
from leadline.errors import MachineError, MemoryLack
from leadline.instruments.cost.result import UNCERTAINTY, Estimate, Part
from leadline.instruments.cost.room import check_room, surely_fits
from tests.facts.instruments.cost.small_models import small_transformer

GIB = 1e9


def _estimate(examples: int, tokens: int) -> Estimate:
    """1 MB a token, and 1 GB of weights."""
    part = Part("forward", "", memory=1e6 * examples * tokens)
    return Estimate("measure", "M", examples, tokens, (part,), weights=GIB, rates={})


def test_what_fits_is_not_mentioned():
    assert check_room(_estimate(2, 1000), free=int(4e9), loaded=False) is None


def test_what_may_fit_is_remarked_on():
    free = int(3e9 / (1 + UNCERTAINTY)) + 10_000_000
    remark = check_room(_estimate(2, 1000), free=free, loaded=False)
    assert remark is not None and "3.0 GB" in remark


def test_what_does_not_fit_is_refused_with_what_would():
    with pytest.raises(MemoryLack) as refused:
        check_room(_estimate(8, 4096), free=int(9e9), loaded=True, predict=_estimate)
    message = str(refused.value)
    assert "M at 8 x 4096 tokens" in message
    assert "32.8 GB" in message and "9.0 GB" in message
    # 9 GB hold 9,000 tokens: 2 x 4096, or 8 x 1024.
    assert "2 x 4096 tokens, or 8 x 1024 tokens" in message
    assert "--anyway" in message


def test_streaming_is_offered_where_it_would_fit():
    with pytest.raises(MemoryLack, match=r"--stream, which needs about 3\.1 GB"):
        check_room(_estimate(8, 4096), free=int(9e9), loaded=False, streamed=3.1e9)


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
    assert surely_fits(model, inputs, int(1e9))
    assert not surely_fits(model, inputs, 1000)
    monkeypatch.setattr("leadline.instruments.passes.cost.estimate_measure", None)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        leadline.measure(model, inputs)
