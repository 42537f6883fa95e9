"""What every probe and every quantity must have, whoever wrote it."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path

import pytest
import torch

import leadline
from leadline.catalog import load_plugin
from leadline.errors import ProbeError
from leadline.instruments.passes.ablation import BLOCK, SUBLAYER
from leadline.instruments.passes.probe import SIGHTS, Single
from leadline.instruments.passes.probes import DEFAULT, PROBES, plan
from leadline.record import Quantity
from leadline.testing.zoo import ZOO

EVERYTHING = {"jacobian": "jacobian(smallest=1,through=true)"}
"""Probes that have quantities which only an option asks for, with that option."""
QUANTITIES = [q for _, probe in PROBES.items() for q in probe.quantities] + [BLOCK, SUBLAYER]


@pytest.mark.parametrize("name", PROBES.names())
def test_a_probe_says_what_it_is_and_has_something_to_do(name: str) -> None:
    probe = PROBES.get(name)
    assert probe.__doc__ and probe.__doc__.endswith(".")
    assert probe.quantities
    assert probe.sees == tuple(sight for sight in SIGHTS if hasattr(probe, sight))


@pytest.mark.parametrize("quantity", QUANTITIES, ids=lambda q: q.name)
def test_a_quantity_explains_itself(quantity: Quantity) -> None:
    for text in (quantity.title, quantity.symbol, quantity.formula):
        assert text.strip()
    for sentence in (quantity.meaning, quantity.high, quantity.low):
        assert sentence.endswith(".")
    assert quantity.lives_on in ("stream", "sublayer", "layer")
    assert "." in quantity.name and quantity.name == quantity.name.lower()


def test_of_every_topic_that_readers_tell_one_quantity_leads() -> None:
    leading = Counter(quantity.topic for quantity in QUANTITIES if quantity.leads)
    assert set(leading.values()) == {1}
    assert {quantity.topic for quantity in QUANTITIES} == set(leading)


def test_what_stands_beside_a_quantity_is_a_quantity_on_the_same_sites() -> None:
    known = {quantity.name: quantity for quantity in QUANTITIES}
    beside = [(quantity, known[quantity.beside]) for quantity in QUANTITIES if quantity.beside]
    assert beside
    assert all(first.lives_on == other.lives_on for first, other in beside)


def test_a_probe_that_does_not_say_what_it_sees_is_told_the_line_to_write() -> None:
    class Blind:
        """A probe of before sights were declared."""

        quantities = (BLOCK,)

        def stream(self, at, x, start): ...

    PROBES.register("blind-of-a-test")(Blind)
    try:
        with pytest.raises(ProbeError, match=r"sees = \('stream',\)"):
            plan("blind-of-a-test")
    finally:
        PROBES._entries.pop("blind-of-a-test")


def _no_result(probe, at, x, start):
    return None


def _bare_number(probe, at, x, start):
    return [1.0]


def _not_a_tensor(probe, at, x, start):
    yield Single(BLOCK, 1.0)


def _several_numbers(probe, at, x, start):
    yield Single(BLOCK, torch.ones(3))


@pytest.mark.parametrize("stream", [_no_result, _bare_number, _not_a_tensor, _several_numbers])
def test_what_is_no_result_of_a_probe_is_refused_in_a_sentence(stream) -> None:
    members = {"sees": ("stream",), "quantities": (BLOCK,), "stream": stream}
    PROBES.register("odd-of-a-test")(type("Odd", (), members))
    model = leadline.Transformer(depth=1, width=8, heads=2)
    inputs = leadline.random_tokens(model, examples=1, length=4, seed=0)
    try:
        with pytest.raises(ProbeError, match="gave"):
            leadline.measure(model, inputs, probes="odd-of-a-test")
    finally:
        PROBES._entries.pop("odd-of-a-test")


@pytest.mark.parametrize(
    ("members", "words"),
    [
        ({"sees": ("stream",), "stream": _no_result}, "quantities"),
        ({"sees": ("linear",), "quantities": (BLOCK,), "linear": _no_result}, "LinearProbe"),
    ],
)
def test_a_probe_without_what_it_must_declare_is_told_so(members, words) -> None:
    PROBES.register("odd-of-a-test")(type("Odd", (), members))
    try:
        with pytest.raises(ProbeError, match=words):
            plan("odd-of-a-test")
    finally:
        PROBES._entries.pop("odd-of-a-test")


def test_no_quantity_is_defined_twice() -> None:
    names = [quantity.name for quantity in QUANTITIES]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("name", PROBES.names())
def test_a_probe_alone_measures_all_its_quantities_with_finite_numbers(name: str) -> None:
    specimen = ZOO["deepseek_v4" if name == "lanes" else "gpt2"]
    model = specimen.build(0)
    inputs = dict(specimen.inputs(model, 1))
    record = leadline.measure(model, inputs, probes=EVERYTHING.get(name, name))
    # A soft cap or a QK-norm is measured where a model has one.
    missing = [q for q in PROBES.get(name).quantities if q.name not in record.quantities]
    assert all(q.ingredient_of for q in missing)
    assert all(math.isfinite(r.value) for r in record.select())
    for quantity in record.quantities.values():
        assert any(r.statistic == quantity.headline for r in record.select(quantity.name))


def test_the_default_set_is_everything_that_costs_next_to_nothing() -> None:
    attention = {"attention", "attention_product", "attention_spectrum"}
    costly = {"recall", "residual", "collapse", "jacobian", "lyapunov"} | attention
    # It costs nothing, and says something of stacks that keep an identity only.
    # Extremes are for a diagnosis.
    special = {"identity_share", "extremes"}
    assert set(DEFAULT) == set(PROBES.names()) - costly - special
    assert plan("all").backward and not plan("stream").backward


@pytest.mark.parametrize("name", ["jacobian", "lyapunov"])
def test_a_probe_of_linear_maps_gives_each_of_its_quantities_by_one_kind_of_part(name: str) -> None:
    probe = plan(EVERYTHING.get(name, name)).probes[0]
    stack = leadline.anatomy_of(leadline.Transformer(depth=2, width=8, heads=2)).stacks[0]
    kinds = [kind for kind in ("block", "chain", "product") if probe.steps(kind, stack)]
    given = [quantity for kind in kinds for quantity in probe.gives(kind)]
    assert sorted(q.name for q in given) == sorted(q.name for q in probe.quantities)


def test_all_probes_are_measured_together() -> None:
    specimen = ZOO["gpt2"]
    model = specimen.build(0)
    record = leadline.measure(model, dict(specimen.inputs(model, 1)), probes="all")
    assert {
        "stream.norm",
        "attention.spectral_norm",
        "jacobian.singular",
        "lyapunov.exponent",
    } <= set(record.quantities)


PLUGIN = '''
"""A probe from outside: the largest feature of every token."""

from leadline.instruments.passes.probes import PROBES, PerToken
from leadline.record import Quantity

LARGEST = Quantity(
    name="mine.largest",
    title="Largest feature",
    symbol="max |x|",
    formula="largest absolute feature of a token",
    high="One feature dominates.",
    low="No feature dominates.",
)


@PROBES.register("{name}")
class Largest:
    """Largest absolute feature of every token."""

    sees = ("stream",)
    quantities = (LARGEST,)

    def stream(self, at, x, start):
        yield PerToken(LARGEST, x.x.abs().amax(-1))
'''


def test_one_file_with_one_decorator_adds_a_probe(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(PLUGIN.replace("{name}", "largest-of-a-test"))
    load_plugin(file)
    try:
        specimen = ZOO["llama"]
        model = specimen.build(0).eval()
        tensors = dict(specimen.inputs(model, 1))
        record = leadline.measure(model, tensors, probes="largest-of-a-test")
        with torch.no_grad():
            states = model(**tensors, output_hidden_states=True).hidden_states
        mask = tensors.get("attention_mask", torch.ones(states[0].shape[:2])).bool()
        found = record.by_layer("mine.largest", statistic="mean").values
        assert found[0] == pytest.approx(float(states[0].abs().amax(-1)[mask].mean()), rel=1e-5)
        assert found[1] == pytest.approx(float(states[1].abs().amax(-1)[mask].mean()), rel=1e-5)
    finally:
        PROBES._entries.pop("largest-of-a-test")
