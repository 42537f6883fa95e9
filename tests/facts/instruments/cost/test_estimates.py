"""The passes that are predicted are those that a record counts, and memory that which was held."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from typing import Any

import pytest

import leadline
from leadline import Recipe, Transformer, random_tokens
from leadline.instruments.cost.rates import NO_TIME
from leadline.instruments.cost.result import CostEstimate, CostPart
from leadline.instruments.cost.text import answer, table_rows
from leadline.instruments.cost.uncertainty import UNCERTAINTY
from leadline.instruments.passes.cost import Costed, estimate_measure
from leadline.instruments.passes.probe import PROBES
from tests.facts.instruments.cost.small_models import small_gpt2, small_transformer

FROM_THIS_PACKAGE = sorted(
    name for name in PROBES.names() if PROBES.get(name).__module__.startswith("leadline.")
)
"""Other tests may have registered probes of their own."""


@pytest.mark.parametrize("probe", FROM_THIS_PACKAGE)
@pytest.mark.parametrize("make", [small_transformer, small_gpt2], ids=["own", "gpt2"])
def test_the_predicted_passes_are_the_passes_made(probe: str, make: Any):
    model = make()
    inputs = random_tokens(model, examples=2, length=12)
    estimate = estimate_measure(model, inputs, probes=probe, rates=NO_TIME)
    assert estimate.passes == leadline.measure(model, inputs, probes=probe).provenance["passes"]


@pytest.mark.parametrize("unit", ["block", "sublayer"])
def test_ablations_are_counted_like_the_record_counts_them(unit: str):
    model = small_transformer()
    inputs = random_tokens(model, examples=2, length=12)
    estimate = estimate_measure(model, inputs, ablate=unit, rates=NO_TIME)
    assert estimate.passes == leadline.measure(model, inputs, ablate=unit).provenance["passes"]


@pytest.mark.parametrize("probe", FROM_THIS_PACKAGE)
def test_every_probe_declares_its_cost(probe: str):
    assert isinstance(PROBES.build(probe), Costed)


def test_a_known_anatomy_needs_no_passes():
    model = small_transformer()
    inputs = random_tokens(model, examples=2, length=12)
    anatomy = leadline.anatomy_of(model, inputs)
    estimate = estimate_measure(model, inputs, anatomy=anatomy, rates=NO_TIME)
    assert "anatomy_forward" not in estimate.passes or estimate.passes["anatomy_forward"] == 0
    record = leadline.measure(model, inputs, anatomy=anatomy)
    assert estimate.passes == record.provenance["passes"]


def test_a_probe_without_a_cost_is_named():
    class Silent:
        sees = ("stream",)
        quantities = ()

        def stream(self, at: Any, x: Any, start: Any) -> Any:
            return iter(())

    PROBES.register("silent_test")(Silent)
    try:
        model = small_transformer()
        estimate = estimate_measure(model, probes="stream,silent_test", rates=NO_TIME)
        assert estimate.undeclared == ("silent_test",)
    finally:
        PROBES._entries.pop("silent_test")


def test_more_of_anything_costs_more():
    def flops(depth: int, width: int, examples: int, tokens: int) -> float:
        model = Transformer(Recipe(depth=depth, width=width, heads=2, vocabulary=50), seed=0)
        inputs = random_tokens(model, examples=examples, length=tokens)
        return estimate_measure(model, inputs, rates=NO_TIME).part("forward").flops

    least = flops(2, 32, 2, 16)
    assert flops(4, 32, 2, 16) == pytest.approx(2 * least, rel=0.1)
    assert flops(2, 32, 4, 16) == 2 * least
    assert flops(2, 64, 2, 16) > 2 * least
    assert flops(2, 32, 2, 32) > 2 * least


def test_the_predicted_memory_is_what_a_pass_holds():
    """In a process of its own, by the high-water mark of Linux; 30 % and 12 MB of workspaces."""
    code = textwrap.dedent("""
        from pathlib import Path
        import leadline
        from leadline import Recipe, Transformer, random_tokens
        from leadline.instruments.cost.rates import NO_TIME
        from leadline.instruments.passes.cost import estimate_measure

        def status(key):
            for line in Path("/proc/self/status").read_text().splitlines():
                if line.startswith(key + ":"):
                    return int(line.split()[1]) * 1024

        model = Transformer(Recipe(depth=6, width=128, heads=4, vocabulary=500), seed=0)
        small = random_tokens(model, examples=1, length=8)
        inputs = random_tokens(model, examples=16, length=128)
        anatomy = leadline.anatomy_of(model, small)
        leadline.measure(model, small, anatomy=anatomy)
        estimate = estimate_measure(model, inputs, anatomy=anatomy, rates=NO_TIME)
        before = status("VmRSS")
        leadline.measure(model, inputs, anatomy=anatomy)
        print(estimate.added, status("VmHWM") - before)
    """)
    if not sys.platform.startswith("linux"):
        pytest.skip("the high-water mark is Linux's")
    done = subprocess.run(
        [sys.executable, "-c", code],
        check=True,
        capture_output=True,
        text=True,
        env=os.environ
        | {"OMP_NUM_THREADS": "1"},  # each thread of a product has buffers of its own
    )
    predicted, held = map(float, done.stdout.split()[-2:])
    assert held - 12e6 <= predicted * (1 + UNCERTAINTY)
    assert predicted <= (held + 12e6) * (1 + UNCERTAINTY)


def _estimate() -> CostEstimate:
    rates = {"processor": "P", "threads": 1, "products": {"512": 1e11}, "attention": 1e11,
             "bandwidth": {"64": 1e10}, "call": 5e-6}  # fmt: skip
    parts = (
        CostPart("anatomy", "", seconds=2.0, memory=1e8, passes={"anatomy_forward": 4}),
        CostPart("forward", "", seconds=0.9, memory=2e8, passes={"forward": 1}),
        CostPart("backward", "", seconds=1.8, memory=6e8, passes={"backward": 1}),
        CostPart("attention", "", seconds=9.3, memory=1.6e9),
    )
    return CostEstimate("measure", "gpt2", 4, 128, parts, weights=5e8, rates=rates)


def test_the_answer_comes_first_and_in_words():
    assert answer(_estimate()) == (
        "About 14 s and 2.1 GB on this machine: 1 forward and 1 backward pass of 0.9 s and 1.8 s, "
        "and 3 small passes and one on the inputs to read the anatomy; attention takes two thirds of it."
    )


def test_the_last_row_is_the_sum():
    *parts, total = table_rows(_estimate())
    assert len(parts) == 4
    assert (total[0], total[1], total[-1]) == ("together", "6", "14 s")
