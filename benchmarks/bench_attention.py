"""What does measuring attention cost, beside the forward pass that it watches?

SmolLM2-135M (30 layers, 9 heads; `make models` fetches it) on 1,024 tokens: the plain forward pass,
and `measure` with the probe `attention` on a known anatomy, without a loss: at most two plain passes in all.
Beside it what users do today, at 128 tokens, because a loop of SVDs over
270 matrices of 1,024 x 1,024 takes minutes: the model with eager attention that returns all
weights, and `torch.linalg.svdvals` of every head; it gives the spectral norm alone, the probe all
its quantities.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch

import leadline
from _harness import Result, interleave, ratio
from leadline.instruments.passes.running import call

MODELS = Path(__file__).parents[1] / ".cache" / "models"
LONG, SHORT = 1024, 128
ROUNDS = 7


def _model() -> Any:
    found = sorted(MODELS.glob("smollm2/**/*.gguf"))
    if not found:
        raise FileNotFoundError("SmolLM2 is not there; run `make models` first.")
    return leadline.load(found[0]).model


def _plain(model: Any, inputs: Any) -> Callable[[], object]:
    def work() -> object:
        with torch.no_grad():
            return call(model, inputs)

    return work


def _measured(model: Any, inputs: Any) -> Callable[[], object]:
    anatomy = leadline.anatomy_of(model, inputs)
    return lambda: leadline.measure(
        model, inputs, probes="attention", anatomy=anatomy, loss=_no_loss
    )


def _no_loss(output: Any, inputs: Any) -> torch.Tensor:
    """The plain pass computes no loss either."""
    return output.logits[0, -1, 0]


def _loop(model: Any, inputs: Any) -> Callable[[], object]:
    """The note's loop: every weight returned, one SVD per head."""

    def work() -> object:
        model.set_attn_implementation("eager")
        try:
            with torch.no_grad():
                found = model(**inputs.tensors, output_attentions=True, use_cache=False).attentions
        finally:
            model.set_attn_implementation("sdpa")
        return [
            torch.stack(
                [torch.linalg.svdvals(head.float()).max() for sample in layer for head in sample]
            ).mean()
            for layer in found
        ]

    return work


def run() -> Iterable[Result]:
    """Yield the ratio at 1,024 tokens, and the comparison with the loop at 128."""
    model = _model()
    inputs = leadline.random_tokens(model, examples=1, length=LONG, seed=0)
    times = interleave(
        {"plain": _plain(model, inputs), "attention": _measured(model, inputs)},
        rounds=ROUNDS,
        warmup=1,
    )
    yield ratio(times, "attention", "plain", name=f"SmolLM2, {LONG} tokens, probe", target=2.0)
    inputs = leadline.random_tokens(model, examples=1, length=SHORT, seed=0)
    times = interleave(
        {"attention": _measured(model, inputs), "loop of svdvals": _loop(model, inputs)},
        rounds=ROUNDS,
        warmup=1,
    )
    yield ratio(times, "attention", "loop of svdvals", name=f"SmolLM2, {SHORT} tokens", target=1.0)
