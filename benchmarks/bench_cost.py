"""Is the predicted cost of a measurement the measured one?

Seconds and peak memory, predicted over measured: GPT-2 of its usual size with random weights at 4 x
128 tokens under the default probes, attention and Lyapunov exponents, and a Llama-shaped model at
1 x 1,024 tokens under the default probes and attention. The rates of the machine come from the
microbenchmark alone, in the same process just before; nothing is fitted on what is measured here.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import torch

import leadline
from _harness import Result, median_with_interval, peak_memory
from leadline.instruments.cost.rates import measured_rates
from leadline.instruments.passes.cost import estimate_measure

LEAST, MOST = 0.7, 1.3
"""The prediction says that it may be off by 30 %."""
CASES = (
    ("gpt2", 4, 128, "default", 3),
    ("gpt2", 4, 128, "attention", 3),
    ("gpt2", 4, 128, "lyapunov", 1),
    ("llama", 1, 1024, "default", 3),
    ("llama", 1, 1024, "attention", 3),
)
NAMES = {"gpt2": "GPT-2 small, 4x128", "llama": "Llama of 30 layers, 576 wide, 1x1024"}


def _model(kind: str) -> Any:
    from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    if kind == "gpt2":
        return GPT2LMHeadModel(GPT2Config()).eval()
    # The sizes of SmolLM2-135M.
    config = LlamaConfig(
        num_hidden_layers=30,
        hidden_size=576,
        intermediate_size=1536,
        num_attention_heads=9,
        num_key_value_heads=3,
        vocab_size=49152,
    )
    return LlamaForCausalLM(config).eval()


def prepare(kind: str, examples: str, tokens: str, probes: str) -> Callable[[], object]:
    """The work, warmed up on short inputs, for the measurement of its peak memory."""
    model = _model(kind)
    short = leadline.random_tokens(model, examples=1, length=16)
    anatomy = leadline.anatomy_of(model, short)
    leadline.measure(model, short, probes=probes, anatomy=anatomy)
    inputs = leadline.random_tokens(model, examples=int(examples), length=int(tokens))
    gc.collect()
    return lambda: leadline.measure(model, inputs, probes=probes)


def run() -> Iterable[Result]:
    """Two lines for each case: seconds, and peak memory beside the weights."""
    # One thread has a clock of its own, which does not run while others have the processor.
    clock = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
    for kind in dict.fromkeys(case[0] for case in CASES):
        model = _model(kind)
        for other, examples, tokens, probes, rounds in CASES:
            if other != kind:
                continue
            inputs = leadline.random_tokens(model, examples=examples, length=tokens)
            ratios: list[float] = []
            seconds: list[float] = []
            estimate = None
            for _ in range(rounds):
                estimate = estimate_measure(
                    model, inputs, probes=probes, rates=measured_rates(clock)
                )
                start = clock()
                leadline.measure(model, inputs, probes=probes)
                seconds.append(clock() - start)
                ratios.append(estimate.seconds / seconds[-1])
            assert estimate is not None
            yield _line(
                f"{NAMES[kind]}, {probes}: seconds",
                ratios,
                {
                    "predicted": estimate.seconds,
                    "measured": float(np.median(seconds)),
                    "parts": {part.name: part.seconds for part in estimate.parts},
                    "rates": estimate.rates,
                },
            )
            held = peak_memory(__file__, "prepare", kind, str(examples), str(tokens), probes).added
            yield _line(
                f"{NAMES[kind]}, {probes}: peak memory",
                [estimate.added / held],
                {"predicted": estimate.added, "measured": held},
            )


def _line(name: str, ratios: list[float], detail: dict[str, Any]) -> Result:
    middle, low, high = median_with_interval(ratios)
    return Result(
        name=name,
        compared="predicted / measured",
        ratio=middle,
        target=MOST,
        repetitions=len(ratios),
        spread=(low, high),
        met=LEAST <= middle <= MOST,
        detail={**detail, "least": LEAST, "most": MOST},
    )
