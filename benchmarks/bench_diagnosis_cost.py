"""What does a diagnosis cost beside one plain training pass?

GPT-2 small as it is drawn (12 layers of width 768, a vocabulary of 50,257), 4 x 128 random tokens:
`leadline.diagnose` with everything it does by default (passes, checks, the twin with random weights,
all rules) against one forward and one backward pass on the same inputs, in time that passes and in
time of the processor, which other programs do not lengthen. And the rules alone on the record of a
model of 96 layers, in seconds of the processor. One thread.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any

import torch

import leadline
from _harness import Result, interleave, median_with_interval, ratio
from leadline.instruments.visit.visit import visit, visit_cost
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

    work = {"diagnose": lambda: leadline.diagnose(model, ids), "forward and backward": plain}
    processor: dict[str, list[float]] = {name: [] for name in work}
    times = interleave(
        {name: _with_processor_time(one, processor[name]) for name, one in work.items()},
        rounds=ROUNDS,
        warmup=1,
    )
    processor = {name: seconds[1:] for name, seconds in processor.items()}  # without the warm-up
    said = {"said beforehand": visit_cost()}
    name = f"GPT-2 small, {EXAMPLES} x {TOKENS} tokens"
    for clock, label in ((times, name), (processor, f"{name}, processor time")):
        yield ratio(
            clock, "diagnose", "forward and backward", name=label, target=MOST_PASSES, detail=said
        )


def _with_processor_time(work: Callable[[], object], seconds: list[float]) -> Callable[[], None]:
    def timed() -> None:
        start = time.process_time()
        work()
        seconds.append(time.process_time() - start)

    return timed


def _rules() -> Iterable[Result]:
    model = gpt2(DEEP, 32, 4, 100)
    record = visit(model, torch.randint(0, 100, (2, 16)))
    times = interleave(
        {"rules": lambda: diagnose_record(record)}, rounds=11, warmup=1, clock=time.process_time
    )
    middle, low, high = median_with_interval(times["rules"])
    yield Result(
        name=f"all rules, {DEEP} layers",
        compared="seconds of the processor",
        ratio=middle,
        target=MOST_SECONDS,
        repetitions=11,
        spread=(low, high),
        detail={"readings": sum(1 for _ in record.select())},
    )
