"""What was counted once is counted again: constants of the estimates against operations that were done."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import leadline
from leadline.instruments.cost.operations import operation_of
from leadline.instruments.cost.rates import NO_TIME, faster
from leadline.instruments.cost.work import Operation, Workload
from leadline.instruments.passes.cost import READ, estimate_measure


class _Done(TorchDispatchMode):
    """Counts what really runs."""

    def __init__(self) -> None:
        super().__init__()
        self.operations: Counter[Operation] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        output = func(*args, **(kwargs or {}))
        if not str(func).startswith("prim."):
            operation = operation_of(str(func).split(".")[1], args, output)
            if operation is not None:
                self.operations[operation] += 1
        return output


def work_of(run: Callable[[], object]) -> Workload:
    """The operations of a run."""
    mode = _Done()
    with mode:
        run()
    return Workload(dict(mode.operations))


@pytest.fixture(scope="module")
def gpt2() -> Any:
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.GPT2Config(n_layer=3, n_embd=96, n_head=4, vocab_size=100)
    return transformers.GPT2LMHeadModel(config).eval()


def test_steps_of_a_search_for_singular_values(gpt2: Any):
    inputs = leadline.random_tokens(gpt2, examples=2, length=32)
    predicted = estimate_measure(gpt2, inputs, probes="jacobian", rates=NO_TIME)
    done = work_of(lambda: leadline.measure(gpt2, inputs, probes="jacobian"))
    # With 8 steps for 5 it would be 1.3.
    assert predicted.flops == pytest.approx(done.flops, rel=0.2)


def test_small_operations_of_attention(gpt2: Any):
    inputs = leadline.random_tokens(gpt2, examples=2, length=64)
    anatomy = leadline.anatomy_of(gpt2, inputs)

    def calls(probe: str) -> float:
        return work_of(lambda: leadline.measure(gpt2, inputs, probes=probe, anatomy=anatomy)).calls

    added = calls("attention") - calls("stream")
    estimate = estimate_measure(gpt2, inputs, probes="attention,stream", rates=NO_TIME)
    parts = {part.name: part.calls for part in estimate.parts}
    python = READ * 7 * (20 - 3)  # of quantities at places, beside the operations
    assert parts["attention"] - parts["stream"] - python == pytest.approx(added, rel=0.3)


def test_runs_of_a_block_while_the_anatomy_is_found(gpt2: Any):
    inputs = leadline.random_tokens(gpt2, examples=1, length=8)
    done = work_of(lambda: leadline.anatomy_of(gpt2, inputs))
    estimate = estimate_measure(gpt2, inputs, probes="stream", rates=NO_TIME)
    assert estimate.part("anatomy").flops == pytest.approx(done.flops, rel=0.1)


def test_python_is_counted_once_for_each_module_and_reading(gpt2: Any):
    """In operations' worth; that of a GPT-2 of 3 layers under the probe `stream`, by hand."""
    inputs = leadline.random_tokens(gpt2, examples=2, length=16)
    anatomy = leadline.anatomy_of(gpt2, inputs)
    estimate = estimate_measure(gpt2, inputs, probes="stream", anatomy=anatomy, rates=NO_TIME)
    modules = sum(1 for _ in gpt2.modules())
    plain = work_of(lambda: gpt2(**inputs.tensors, use_cache=False)).calls
    python = estimate.part("forward").calls - plain
    assert python == pytest.approx(1400 + 6 * modules, rel=0.05)
    assert estimate.part("stream").calls == pytest.approx(11 * 3 * 7, rel=0.3)
    backward = estimate_measure(gpt2, inputs, probes="gradient", anatomy=anatomy, rates=NO_TIME)
    assert backward.part("backward").calls == pytest.approx(17 * 36, rel=0.4)


def test_several_threads_are_no_slower_than_one():
    slow = NO_TIME
    fast = type(slow)("", 1, (9.0, 0.5, 9.0), 3.0, (0.1, 7.0, 0.1), 2.0, 0.5, -1.0)
    both = faster(slow, fast)
    assert both.products == (9.0, 1.0, 9.0)
    assert both.bandwidth == (1.0, 7.0, 1.0)
    assert (both.attention, both.functions, both.decompositions, both.call) == (3.0, 2.0, 1.0, -1.0)
    assert both.threads == slow.threads
