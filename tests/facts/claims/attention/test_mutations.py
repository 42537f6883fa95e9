"""A formula of the product that is changed is noticed: a verdict or a correction becomes another."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

import leadline.numerics.patterns.patterns as patterns
import leadline.numerics.spectra.spectrum as spectrum
import leadline.parts.transformer
import leadline.theory.attention._span_bound as span_bound
import leadline.theory.attention.bidirectional as bidirectional
import leadline.theory.attention.logit_span as logit_span
from leadline.instruments.attacks.heads import DrawnHeads
from leadline.instruments.passes.probe import Single
from leadline.instruments.passes.probes import attention as attention_probe
from leadline.parts import Recipe
from leadline.parts.branches.mlp.perceptron import Plain
from leadline.parts.inits.gpt2 import GPT2Init
from leadline.parts.inits.init import RESIDUAL, normal
from leadline.parts.norms.layernorm import LayerNorm
from leadline.theory import AttentionFacts
from leadline.theory.attention.any_mask import AnyMask
from leadline.theory.attention.causal import Causal
from leadline.theory.attention.column_sum import ColumnSum
from leadline.theory.attention.one import One
from leadline.theory.attention.pre_norm_as_written import PreNormAsWritten
from leadline.theory.attention.product import Product
from leadline.theory.attention.sqrt_queries import SqrtQueries
from tests.claims_ruled import ruled

Patch = pytest.MonkeyPatch
FALSE = "false as stated"


def _note(facts: AttentionFacts, span: float) -> float:
    """The note's bound, as a function of the span."""
    n = facts.keys
    return math.sqrt(n / (1 + (n - 1) * math.exp(-span)))


def test_the_causal_bound_turned_back_into_the_notes(monkeypatch: Patch) -> None:
    monkeypatch.setattr(Causal, "at_span", lambda _self, facts, span: _note(facts, span))
    assert ruled("pre-norm-bound-causal", seeds=(0,)).correction == "fails"
    assert ruled("causal-bound", seeds=(0,)).verdict == FALSE


def test_a_causal_bound_that_is_too_large_is_noticed_because_it_is_attained(
    monkeypatch: Patch,
) -> None:
    right = Causal.at_span
    monkeypatch.setattr(
        Causal, "at_span", lambda self, facts, span: 1.01 * right(self, facts, span)
    )
    assert ruled("pre-norm-bound-causal", seeds=(0,)).correction == "fails"


def test_a_span_that_forgets_the_shift(monkeypatch: Patch) -> None:
    right = logit_span.weight_span

    def forgetful(facts: AttentionFacts) -> float | None:
        return right(replace(facts, shift=0.0))

    monkeypatch.setattr(span_bound, "weight_span", forgetful)
    monkeypatch.setattr(logit_span, "weight_span", forgetful)
    assert ruled("pre-norm-bound-with-beta", seeds=(0,)).correction == "fails"
    assert ruled("logit-bound", seeds=(0,)).correction == "fails"


def test_a_span_scaled_by_the_width_of_the_stream(monkeypatch: Patch) -> None:
    right = logit_span.weight_span

    def by_width(facts: AttentionFacts) -> float | None:
        assert facts.width is not None
        return right(replace(facts, scaling=facts.width**-0.5))

    monkeypatch.setattr(span_bound, "weight_span", by_width)
    assert ruled("pre-norm-bound-by-head-width", seeds=(0,)).correction == "fails"


def test_a_concentration_with_one_top_logit_only(monkeypatch: Patch) -> None:
    def one_at_the_top(allowed: Any, span: float) -> np.ndarray:
        m = np.asarray(allowed, dtype=float)
        return (math.exp(2 * span) + m - 1) / (math.exp(span) + m - 1) ** 2

    monkeypatch.setattr(bidirectional, "row_concentration", one_at_the_top)
    assert ruled("bidirectional-bound", seeds=(0,)).verdict == FALSE


def test_a_bound_for_any_mask_that_counts_all_keys(monkeypatch: Patch) -> None:
    monkeypatch.setattr(AnyMask, "at_span", lambda _self, facts, span: _note(facts, span))
    assert ruled("any-mask-bound", seeds=(0,)).verdict == FALSE
    assert ruled("pre-norm-bound", seeds=(0,)).correction == "fails"


def test_a_column_sum_without_its_factor(monkeypatch: Patch) -> None:
    monkeypatch.setattr(ColumnSum, "value", lambda _self, facts: facts.column_sum**0.25)
    assert ruled("attention-norm-bounds", seeds=(0,)).verdict == FALSE


def test_a_lower_bound_that_is_too_high(monkeypatch: Patch) -> None:
    monkeypatch.setattr(One, "value", lambda _self, _facts: 1.05)
    assert ruled("attention-norm-bounds", seeds=(0,)).verdict == FALSE


def test_the_notes_bound_with_half_its_exponent(monkeypatch: Patch) -> None:
    right = PreNormAsWritten.value

    def halved(self: PreNormAsWritten, facts: AttentionFacts) -> float | None:
        gain = None if facts.gain is None else facts.gain / math.sqrt(2)
        return right(self, replace(facts, gain=gain))

    monkeypatch.setattr(PreNormAsWritten, "value", halved)
    assert ruled("pre-norm-bound", seeds=(0,)).verdict == FALSE
    assert ruled("pre-norm-presses-the-bound", seeds=(0,)).correction == "fails"


@pytest.mark.parametrize("name", ["repeated-attention-explodes", "backward-chain-non-expansive"])
def test_a_product_bound_of_one(monkeypatch: Patch, name: str) -> None:
    monkeypatch.setattr(Product, "value", lambda _self, _facts: 1.0)
    assert ruled(name, seeds=(0,)).correction == "fails"


@pytest.mark.parametrize("name", ["never-shortens-every-vector", "norm-one-iff-doubly-stochastic"])
def test_a_spectral_norm_that_stops_early(monkeypatch: Patch, name: str) -> None:
    right = spectrum.spectral_norm

    def early(matrices: torch.Tensor) -> spectrum.SpectralNorm:
        found = right(matrices)
        return replace(found, value=0.99 * found.value)

    monkeypatch.setattr(spectrum, "spectral_norm", early)
    assert ruled(name, seeds=(0,)).verdict == FALSE


def test_singular_values_that_are_squares(monkeypatch: Patch) -> None:
    right = spectrum.singular_values
    monkeypatch.setattr(spectrum, "singular_values", lambda matrix: right(matrix).square())
    assert ruled("spectral-norm-ellipse", seeds=(0,)).verdict == FALSE


def test_residual_weights_scaled_by_the_number_of_blocks(monkeypatch: Patch) -> None:
    def by_blocks(self: GPT2Init, role: str, weight: Any, place: Any, generator: Any) -> None:
        std = self.std / math.sqrt(place.depth) if role in RESIDUAL else self.std
        normal(weight, std, generator)

    monkeypatch.setattr(GPT2Init, "fill", by_blocks)
    assert ruled("gpt2-residual-scaling").correction == "fails"


def test_a_layernorm_that_divides_by_too_little(monkeypatch: Patch) -> None:
    right = LayerNorm.forward
    monkeypatch.setattr(LayerNorm, "forward", lambda self, x: 1.05 * right(self, x))
    assert ruled("layernorm-output-bound", seeds=(0,)).verdict == FALSE


def test_an_mlp_without_its_activation(monkeypatch: Patch) -> None:
    monkeypatch.setattr(Plain, "forward", lambda self, x, _run: self.down(self.up(x)))
    assert ruled("ffn-position-wise", seeds=(0,)).verdict == FALSE
    assert ruled("ffn-mixes-features", seeds=(0,)).verdict == FALSE


def test_a_model_that_forgets_its_mask(monkeypatch: Patch) -> None:
    monkeypatch.setattr(leadline.parts.transformer, "mask_of", lambda *_a, **_k: (None, False))
    assert ruled("mask-hides-the-future", seeds=(0,)).verdict == FALSE
    assert ruled("generation-needs-mask", seeds=(0,)).correction == "fails"


def test_heads_whose_rows_sum_to_less(monkeypatch: Patch) -> None:
    right = DrawnHeads.attention

    def leaking(self: DrawnHeads) -> tuple[torch.Tensor, torch.Tensor]:
        weights, logits = right(self)
        return 0.999 * weights, logits

    monkeypatch.setattr(DrawnHeads, "attention", leaking)
    assert ruled("attention-rows-sum-to-one", seeds=(0,)).verdict == FALSE


def test_a_recipe_of_gpt2_with_another_context(monkeypatch: Patch) -> None:
    right = Recipe.named
    monkeypatch.setattr(Recipe, "named", lambda name: right(name).but(context=2048))
    assert ruled("gpt2-vocabulary-and-context").verdict == FALSE


def test_query_weights_measured_too_small(monkeypatch: Patch) -> None:
    """The bound at GPT-2's start is void because sigma is 0.7; a tenth of it would press."""
    right = attention_probe._largest
    monkeypatch.setattr(attention_probe, "_largest", lambda weights: 0.1 * right(weights))
    assert ruled("column-sum-near-one", seeds=(0,)).correction == "fails"


def test_a_root_of_twice_the_queries(monkeypatch: Patch) -> None:
    monkeypatch.setattr(SqrtQueries, "value", lambda _self, facts: math.sqrt(2 * facts.queries))
    assert ruled("attention-norm-bounds", seeds=(0,)).verdict == FALSE


@pytest.mark.parametrize("factor", [0.5, 1.2])
def test_a_span_of_another_size(monkeypatch: Patch, factor: float) -> None:
    right = logit_span.weight_span

    def other(facts: AttentionFacts) -> float:
        span = right(facts)
        assert span is not None
        return factor * span

    monkeypatch.setattr(logit_span, "weight_span", other)
    assert ruled("logit-bound", seeds=(0,)).correction == "fails"


def test_a_gain_that_is_the_mean(monkeypatch: Patch) -> None:
    right = attention_probe._ingredients

    def by_mean(at: Any, patterns: Any) -> Any:
        for one in right(at, patterns):
            if isinstance(one, Single) and one.quantity is attention_probe.GAIN:
                yield replace(one, value=patterns.attention.query_source.norm.gain.mean())
            else:
                yield one

    monkeypatch.setattr(attention_probe, "_ingredients", by_mean)
    assert ruled("gains-do-not-grow-with-depth", seeds=(0,)).correction == "fails"


def _halved(monkeypatch: Patch, row: int) -> None:
    """Half of one row of the table: column sum, entropy, variance, span, sink, distance."""
    right = patterns._measured

    def half(group: Any, queue: Any) -> Any:
        numbers = right(group, queue)
        numbers.table[row] /= 2
        return numbers

    monkeypatch.setattr(patterns, "_measured", half)


def test_half_the_distance(monkeypatch: Patch) -> None:
    _halved(monkeypatch, 5)
    assert ruled("heads-learn-different-ranges", seeds=(0,)).verdict == FALSE


def test_half_the_span_of_the_logits(monkeypatch: Patch) -> None:
    _halved(monkeypatch, 3)
    assert ruled("without-norm-attention-saturates", seeds=(0,)).correction == "fails"
