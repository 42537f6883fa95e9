"""What does a diagnosis cost beside one plain training pass?

GPT-2 small as it is drawn (12 layers of width 768, a vocabulary of 50,257), 4 x 128 random tokens:
`leadline.diagnose` with everything it does by default (passes, checks, the twin with random weights,
all rules) against one forward and one backward pass on the same inputs. And the rules alone on the
record of a model of 96 layers, in seconds. One thread.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

import leadline
from _harness import Result, interleave, median_with_interval, ratio
from leadline.instruments.visit.visit import visit
from leadline.reading.diagnosis.diagnosis import diagnose_record

LAYERS, WIDTH, HEADS, VOCABULARY = 12, 768, 12, 50257
EXAMPLES, TOKENS, ROUNDS = 4, 128, 5
MOST_PASSES = 4.0
DEEP = 96
MOST_SECONDS = 0.3


def gpt2(layers: int, width: int, heads: int, vocabulary: int) -> Any:
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    config = GPT2Config(
        n_layer=layers, n_embd=width, n_head=heads, vocab_size=vocabulary,
        bos_token_id=0, eos_token_id=0,
    )  # fmt: skip
    return GPT2LMHeadModel(config).eval()


def run() -> Iterable[Result]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield from _visit()
        yield from _rules()
    finally:
        torch.set_num_threads(threads)


def _visit() -> Iterable[Result]:
    model = gpt2(LAYERS, WIDTH, HEADS, VOCABULARY)
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(0, VOCABULARY, (EXAMPLES, TOKENS), generator=generator)

    def plain() -> None:
        model.zero_grad()
        model(ids, labels=ids).loss.backward()

    times = interleave(
        {"diagnose": lambda: leadline.diagnose(model, ids), "forward and backward": plain},
        rounds=ROUNDS,
        warmup=1,
    )
    yield ratio(
        times,
        "diagnose",
        "forward and backward",
        name=f"GPT-2 small, {EXAMPLES} x {TOKENS} tokens",
        target=MOST_PASSES,
    )


def _rules() -> Iterable[Result]:
    model = gpt2(DEEP, 32, 4, 100)
    record = visit(model, torch.randint(0, 100, (2, 16)))
    times = interleave({"rules": lambda: diagnose_record(record)}, rounds=11, warmup=1)
    middle, low, high = median_with_interval(times["rules"])
    yield Result(
        name=f"all rules, {DEEP} layers",
        compared="seconds",
        ratio=middle,
        target=MOST_SECONDS,
        repetitions=11,
        spread=(low, high),
        detail={"readings": sum(1 for _ in record.select())},
    )
