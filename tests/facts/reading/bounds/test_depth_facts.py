"""From a record to the facts that laws of depth ask for."""

from __future__ import annotations

import inspect
import math
from typing import Any

import pytest

import leadline
from leadline.reading.bounds.depth import facts as depth_facts
from leadline.reading.bounds.depth.facts import depth_stacks, has_depth
from leadline.record import Quantity, Reading, Record, Site
from leadline.theory import DepthFacts
from leadline.theory.depth._assumptions import NORMS as UNIT_NORMS
from tests.synthetic import gpt2_record


def measured(source: str | None = None, **fields: Any) -> Record:
    small = {"depth": 2, "width": 16, "heads": 2, "context": 16, "vocabulary": 20}
    model = leadline.Transformer(**(small | fields))
    inputs = leadline.random_tokens(model, examples=2, length=6, seed=0)
    record = leadline.measure(model, inputs, probes="stream")
    if source is not None:
        record.note("model", {**record.provenance["model"], "source": source})
    return record


def facts(record: Record, *, initial: bool | None = None) -> DepthFacts:
    (stack,) = depth_stacks(record, initial=initial)
    return stack.facts


def test_a_recipe_tells_everything_but_whether_it_was_trained() -> None:
    record = measured(init="xavier(gain=0.5)", mlp="relu(hidden=32)")
    found = facts(record)
    assert found == DepthFacts(
        depth=2,
        width=16,
        connection="identity",
        placement="pre",
        init="xavier",
        init_scale=0.5,
        norm="layernorm",
        norm_eps=1e-5,
        mlp="relu",
        hidden_ratio=2.0,
        attention="multihead",
        branches=("attention", "mlp"),
        final_norm=True,
        initial=None,
        keep=1.0,
        gain=1.0,
        mean_square=found.mean_square,
    )
    variances = [one.value for one in record.select("stream.variance", statistic="mean")]
    assert sorted(found.mean_square) == pytest.approx(sorted(variances))
    assert len(found.mean_square) == 3


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("recipe default", True),
        ("random init", True),
        ("given", None),
        ("hub", None),
        ("local folder", None),
        ("trained here", True),
    ],
)
def test_where_a_model_came_from_tells_whether_its_weights_are_as_drawn(
    source: str, expected: bool | None
) -> None:
    assert facts(measured(source)).initial is expected


def test_after_the_first_step_of_a_training_weights_are_not_as_drawn() -> None:
    record = measured("trained here")
    first = record.select("stream.variance", statistic="mean")
    record.append([Reading(o.quantity, o.site, "mean", 9.0, step=5) for o in first])
    found = facts(record)
    assert found.initial is False
    assert found.mean_square == (9.0, 9.0, 9.0)


def test_the_caller_may_say_what_the_record_does_not_know() -> None:
    assert facts(measured("given"), initial=True).initial is True


def test_the_defaults_are_those_of_the_parts() -> None:
    from leadline.parts.branches import MLPS
    from leadline.parts.inits import INITS
    from leadline.parts.norms import NORMS

    for name, eps in depth_facts.EPS.items():
        assert NORMS.options(name)["eps"].default == eps
    assert set(depth_facts.EPS) == set(UNIT_NORMS)
    for name, (option, default) in depth_facts.SCALES.items():
        assert INITS.options(name)[option].default == default
    model = leadline.Transformer(depth=1, width=16, heads=2, context=8, vocabulary=8, mlp="relu")
    hidden = model.blocks[0].mlp.branch.up.out_features
    assert hidden == depth_facts.HIDDEN_RATIO * 16
    for name in depth_facts.PLAIN_MLPS:
        assert MLPS.options(name)["hidden"].default is None
        assert "Plain" in [one.__name__ for one in inspect.getmro(MLPS.get(name))]


def test_without_options_a_part_has_its_defaults() -> None:
    found = facts(measured())
    assert (found.init, found.init_scale, found.hidden_ratio) == ("gpt2", 0.02, 4.0)
    assert facts(measured(init="xavier")).init_scale == 1.0


@pytest.mark.parametrize(
    ("fields", "name", "value"),
    [
        ({"connection": "weighted(alpha=0.25)"}, "gain", 0.25),
        ({"connection": "deepnorm", "placement": "post"}, "keep", 4**0.25),
        ({"connection": "gated"}, "keep", None),
        ({"placement": "post"}, "final_norm", False),
        ({"placement": "none(closing=false)"}, "final_norm", False),
        ({"norm": "none"}, "final_norm", False),
        ({"placement": "sandwich"}, "final_norm", None),
        ({"placement": "parallel"}, "branches", ("attention and mlp at once",)),
        ({"mlp": "swiglu"}, "hidden_ratio", None),
        ({"mlp": "none"}, "branches", ("attention",)),
        ({"attention": "multihead(groups=1)"}, "attention", "multihead(groups=1)"),
        ({"attention": "multihead(groups=2)"}, "attention", "multihead"),
        ({"attention": "multihead(causal=false)"}, "attention", "multihead"),
        ({"init": "mup"}, "init_scale", None),
        ({"norm": "layernorm(eps=10.0)"}, "norm_eps", 10.0),
        ({"norm": "rmsnorm"}, "norm_eps", 1e-6),
        ({"norm": "rmsnorm(eps=0)"}, "norm_eps", 0.0),
        ({"norm": "dyt"}, "norm_eps", None),
    ],
)
def test_parts_are_read_as_they_are(fields: dict[str, Any], name: str, value: object) -> None:
    found = getattr(facts(measured(**fields)), name)
    assert found == (pytest.approx(value) if isinstance(value, float) else value)


HARMLESS = ("causal=false", "bias=false", "output_bias=false", "scale=0.5", "qk_norm=head")
TOLD = ("value_residual=0.5", "head_width=4", "groups=1")


@pytest.mark.parametrize("option", HARMLESS + TOLD)
def test_attention_is_plain_where_an_option_leaves_values_and_output_alone(option: str) -> None:
    found = facts(measured(attention=f"multihead({option})")).attention
    assert found == ("multihead" if option in HARMLESS else f"multihead({option})")


def test_every_option_of_attention_is_judged() -> None:
    from leadline.parts.branches import ATTENTIONS

    judged = {option.split("=")[0] for option in HARMLESS + TOLD}
    assert set(ATTENTIONS.options("multihead")) == judged


def test_a_write_with_a_law_of_its_own_has_no_numbers() -> None:
    record = measured()
    anatomy = record.provenance["anatomy"]
    anatomy["layers"][1]["sublayers"][0]["law"] = "gated"
    record.note("anatomy", anatomy)
    assert (facts(record).keep, facts(record).gain) == (None, None)


def test_a_model_without_a_recipe_has_no_known_init() -> None:
    (stack,) = depth_stacks(gpt2_record())
    found = stack.facts
    assert (found.placement, found.keep, found.width) == ("pre", 1.0, 768)
    assert (found.init, found.mlp, found.norm, found.attention) == (None,) * 4
    assert found.initial is True  # "random init"


def test_without_an_anatomy_there_is_nothing_to_say() -> None:
    record = measured()
    assert has_depth(record)
    record.note("anatomy", {})
    assert not has_depth(record)
    no_readings = Record()
    no_readings.note("anatomy", {"layers": []})
    assert not has_depth(no_readings)


def test_of_the_jacobians_the_largest_example_and_the_upper_end_are_read() -> None:
    record = measured()
    record.describe(Quantity("jacobian.branch", "b", "b", "b", lives_on="layer"))
    record.describe(Quantity("jacobian.through", "t", "t", "t"))
    at = Site("decoder", 1, point="block")
    record.append(
        [
            Reading("jacobian.branch", at, "mean", 0.3),
            Reading("jacobian.branch", at, "max", 0.5, lower=0.4, upper=0.6),
            Reading("jacobian.branch", Site("decoder", 1, 1, "attention"), "max", 7.0),
            Reading("jacobian.through", Site("decoder", 1), "max", 1.2, lower=1.1, upper=1.3),
        ]
    )
    (stack,) = depth_stacks(record)
    assert stack.facts.branch_norms[0] == 0.6
    assert math.isnan(stack.facts.branch_norms[1])
    assert stack.statistics["jacobian.branch"] == "max"
    assert stack.measured["jacobian.through"][1].value == 1.2


def test_of_several_seeds_the_largest_reading_stands_and_nan_goes_first() -> None:
    record = measured()
    at = Site("decoder", 1)
    record.append([Reading("stream.variance", at, "mean", 99.0, seed=1)])
    assert facts(record).mean_square[1] == 99.0
    record.append([Reading("stream.variance", at, "mean", math.nan, seed=2)])
    record.append([Reading("stream.variance", at, "mean", 100.0, seed=3)])
    assert math.isnan(facts(record).mean_square[1])
