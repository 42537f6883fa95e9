"""A formula of the product that is changed is noticed: a verdict or a correction becomes another."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch

import leadline.instruments.attacks.stacks
import leadline.instruments.attacks.steps
import leadline.instruments.collapse.composite_residual
import leadline.instruments.collapse.measure
import leadline.instruments.collapse.weight_products
import leadline.instruments.paths.result
import leadline.theory.rank_collapse.collapse_published as published
import leadline.theory.rank_collapse.convergence
import leadline.theory.rank_collapse.cubic as cubic
import leadline.theory.rank_collapse.lipschitz
import leadline.theory.rank_collapse.log
from leadline.theory.rank_collapse import StackFacts
from leadline.theory.rank_collapse.collapse_causal_rate import CollapseCausalRate
from leadline.theory.rank_collapse.collapse_cubic_law import CollapseCubicLaw
from leadline.theory.rank_collapse.collapse_proved import CollapseProved
from leadline.theory.rank_collapse.collapse_sharp import CollapseSharp
from leadline.theory.rank_collapse.skip_keeps_residual import SkipKeepsResidual
from tests.claims_ruled import ruled

Patch = pytest.MonkeyPatch
FALSE, CONDITIONS = "false as stated", "holds under conditions"


def judged(name: str) -> tuple[str, str | None]:
    found = ruled(name, seeds=(0,))
    return found.verdict, found.correction


def changed(monkeypatch: Patch, bound: Any, by: float) -> None:
    """Multiply what a bound predicts behind the entry by 10^by."""
    true = bound.log10_values

    def values(self: Any, facts: StackFacts) -> tuple[float, ...] | None:
        found = true(self, facts)
        return None if found is None else (found[0], *(value + by for value in found[1:]))

    monkeypatch.setattr(bound, "log10_values", values)


def test_the_sharp_constant_made_smaller(monkeypatch: Patch):
    changed(monkeypatch, CollapseSharp, math.log10(0.9))
    assert judged("residual-obeys-the-cubic-bound")[1] == "fails"


def test_the_sharp_constant_made_larger(monkeypatch: Patch):
    changed(monkeypatch, CollapseSharp, math.log10(1.1))
    assert judged("residual-obeys-the-cubic-bound")[1] == "fails"


def test_the_published_constant_four_made_one_half(monkeypatch: Patch):
    changed(monkeypatch, published.CollapsePublished, math.log10(0.125))
    assert judged("residual-obeys-the-cubic-bound") == (FALSE, "fails")


def test_the_published_constant_four_made_two(monkeypatch: Patch):
    true = published.published_factor
    monkeypatch.setattr(
        published,
        "published_factor",
        lambda facts: None if (f := true(facts)) is None else f - math.log10(2.0),
    )
    assert judged("residual-obeys-the-cubic-bound")[1] == "fails"


def test_the_proved_bound_with_one_head_of_two(monkeypatch: Patch):
    changed(monkeypatch, CollapseProved, math.log10(0.5))
    assert judged("value-norms-suffice-with-heads")[1] == "fails"


def test_the_exponent_of_the_tower_as_the_note_prints_it(monkeypatch: Patch):
    def tower(factor: float, start: float, layers: int) -> float:
        return 0.5 * (3 * layers - 1) * factor + 3.0**layers * start if layers else start

    for module in (published, leadline.theory.rank_collapse.log):
        monkeypatch.setattr(module, "tower", tower)
    assert judged("mlp-exponent-is-linear-in-depth")[1] == "fails"
    assert judged("prefactor-grows-exponentially") == ("holds", "fails")


def test_a_condition_for_convergence_without_the_residual(monkeypatch: Patch):
    module = leadline.theory.rank_collapse.convergence
    monkeypatch.setattr(module, "converges", module.converges_as_written)
    assert judged("small-factor-suffices-for-collapse")[1] == "fails"


def test_a_condition_for_convergence_with_the_residual_once(monkeypatch: Patch):
    def once(facts: StackFacts) -> bool:
        factor = published.published_factor(facts)
        assert factor is not None
        return factor + facts.log10_composite[0] < 0.0

    monkeypatch.setattr(leadline.theory.rank_collapse.convergence, "converges", once)
    assert judged("small-factor-suffices-for-collapse")[1] == "fails"


def test_a_cubic_law_without_the_number_of_tokens(monkeypatch: Patch):
    changed(monkeypatch, CollapseCubicLaw, math.log10(8.0))
    assert judged("pure-attention-collapses-doubly")[1] == "fails"
    assert judged("bound-tells-the-residual")[1] == "fails"


def test_a_causal_rate_without_the_diagonal(monkeypatch: Patch):
    changed(monkeypatch, CollapseCausalRate, math.log10(2.0))
    assert judged("causal-attention-collapses-doubly")[1] == "fails"


def test_attention_that_forgets_its_mask(monkeypatch: Patch):
    true = leadline.instruments.collapse.measure._through_weights

    def unmasked(*given: Any, causal: bool, heads: int, facts: bool, seed: int) -> Any:
        return true(*given, causal=False, heads=heads, facts=facts, seed=seed)

    monkeypatch.setattr(leadline.instruments.collapse.measure, "_through_weights", unmasked)
    assert judged("causal-attention-collapses-doubly") == ("holds", "fails")
    assert judged("pure-attention-collapses-doubly")[0] == CONDITIONS  # tokens still swap


def test_a_gamma_of_half_the_size(monkeypatch: Patch):
    true = leadline.instruments.collapse.measure.attention_facts

    def halved(*given: Any, causal: bool) -> Any:
        found = true(*given, causal=causal)
        assert found.joint_gamma is not None
        return replace(
            found,
            gamma=tuple(0.5 * one for one in found.gamma),
            joint_gamma=0.5 * found.joint_gamma,
        )

    monkeypatch.setattr(leadline.instruments.collapse.measure, "attention_facts", halved)
    assert judged("residual-obeys-the-cubic-bound")[1] == "fails"


def test_a_measure_that_is_the_larger_of_the_two_norms(monkeypatch: Patch):
    def larger(matrices: torch.Tensor) -> torch.Tensor:
        sizes = matrices.double().abs()
        return torch.maximum(sizes.sum(-2).amax(-1), sizes.sum(-1).amax(-1))

    monkeypatch.setattr(leadline.instruments.collapse.composite_residual, "composite", larger)
    assert judged("composite-is-a-norm")[0] == "holds"


def test_a_smallest_residual_that_is_the_one_at_the_mean(monkeypatch: Patch):
    module = leadline.instruments.collapse.composite_residual

    def at_mean(x: torch.Tensor) -> Any:
        value = module.composite(x - x.mean(1, keepdim=True))
        return module.Smallest(value, value)

    monkeypatch.setattr(module, "smallest_composite", at_mean)
    assert judged("mean-is-the-argmin")[0] == "holds"


def test_column_and_row_sums_exchanged(monkeypatch: Patch):
    module = leadline.instruments.collapse.weight_products
    true = module.column_and_row_sums
    monkeypatch.setattr(module, "column_and_row_sums", lambda a, b: true(a, b)[::-1])
    assert judged("one-norm-is-the-largest-column-sum")[0] == FALSE


def test_a_lipschitz_constant_of_gelu_that_is_one(monkeypatch: Patch):
    monkeypatch.setattr(leadline.theory.rank_collapse.lipschitz, "lip", lambda _act: 1.0)
    assert judged("mlp-is-lipschitz")[1] == "fails"


def test_a_lipschitz_constant_without_the_second_matrix(monkeypatch: Patch):
    module = leadline.theory.rank_collapse.lipschitz
    monkeypatch.setattr(
        module,
        "composite_lipschitz",
        lambda act, one, inf, *_: module.lip(act) * math.sqrt(one * inf),
    )
    assert judged("mlp-is-lipschitz")[0] == FALSE


def test_a_pattern_shift_that_is_twice_as_large(monkeypatch: Patch):
    module = leadline.instruments.attacks.steps
    true = module.pattern_shift
    monkeypatch.setattr(module, "pattern_shift", lambda *given: 2.0 * true(*given))
    assert judged("published-proof-step")[1] == "fails"


def test_path_counts_that_forget_a_head(monkeypatch: Patch):
    module = leadline.instruments.paths.result
    true = module.path_counts
    monkeypatch.setattr(
        module, "path_counts", lambda heads, skips: true([max(1, h - 1) for h in heads], skips)
    )
    assert judged("many-more-paths-with-skip")[1] == "fails"


def test_a_lower_bound_for_skips_that_is_a_tenth_too_high(monkeypatch: Patch):
    changed(monkeypatch, SkipKeepsResidual, math.log10(1.1))
    assert judged("orthogonal-updates-keep-the-residual") == (FALSE, "fails")


def test_a_lower_bound_for_skips_without_its_condition(monkeypatch: Patch):
    monkeypatch.setattr(SkipKeepsResidual, "direction", lambda _self, _facts: [])
    assert judged("orthogonal-updates-keep-the-residual") == (FALSE, "fails")


def test_an_alignment_without_its_sign(monkeypatch: Patch):
    stacks = leadline.instruments.attacks.stacks.Stacks
    true = stacks._written

    def unsigned(self: Any, state: Any, update: Any) -> Any:
        after, alignment, overlap = true(self, state, update)
        return after, alignment.abs(), overlap

    monkeypatch.setattr(stacks, "_written", unsigned)
    assert judged("orthogonal-updates-keep-the-residual") == (FALSE, "fails")


def test_a_published_factor_without_the_number_of_heads(monkeypatch: Patch):
    true = published.published_factor

    def headless(facts: StackFacts) -> float | None:
        found = true(facts)
        heads = max(len(layer.query_key) for layer in facts.layers)
        return None if found is None else found - math.log10(heads)

    monkeypatch.setattr(published, "published_factor", headless)
    assert judged("heads-multiply-the-factor")[0] == FALSE


def test_a_proved_factor_with_the_largest_head_instead_of_their_sum(monkeypatch: Patch):
    true = cubic.layer_weight

    def largest(layer: Any) -> float:
        query_key = layer.query_key
        return true(layer) + math.log10(max(query_key) / sum(query_key))

    monkeypatch.setattr(cubic, "layer_weight", largest)
    assert judged("value-norms-suffice-with-heads")[1] == "fails"


def test_a_largest_gamma_of_half_the_size(monkeypatch: Patch):
    true = cubic.largest_gamma
    monkeypatch.setattr(cubic, "largest_gamma", lambda tokens: true(tokens) - math.log10(2.0))
    assert judged("gamma-is-a-constant") == (FALSE, "fails")


def test_a_causal_rate_with_half_the_gain_of_the_values(monkeypatch: Patch):
    true = leadline.instruments.collapse.measure.attention_facts

    def halved(*given: Any, causal: bool) -> Any:
        found = true(*given, causal=causal)
        assert found.value_gain is not None
        return replace(found, value_gain=0.5 * found.value_gain)

    monkeypatch.setattr(leadline.instruments.collapse.measure, "attention_facts", halved)
    assert judged("causal-attention-collapses-doubly")[1] == "fails"
