"""G01 names the place that broke first, and since when."""

import math

import pytest

from leadline.reading.watch.alarm import ALARMS
from leadline.reading.watch.history import History
from leadline.record import Reading
from leadline.record.rows.site import RUN, Site
from tests.synthetic_history import QUANTITIES, warnings_of

NAN = math.nan
LAYERS = range(5)


def from_step(step, *, value=NAN, before=1.0):
    """A course that is lost from a step on."""
    return lambda at: value if at >= step else before


def lost(quantity, layers, step):
    """A gauge by layer that is lost from a step on in some of the layers."""
    return {
        layer: from_step(step if layer in layers else 10**9)
        for layer in (LAYERS if quantity in ("stream.norm", "gradient.stream") else LAYERS[1:])
    }


def said(**gauges):
    return warnings_of("gauge-not-finite", {n.replace("_", ".", 1): g for n, g in gauges.items()})[
        0
    ]


def test_nothing_is_said_of_finite_numbers():
    assert not warnings_of("gauge-not-finite", {"stream.norm": {0: lambda _: 1e30}})


def test_of_a_forward_pass_the_lowest_write_is_named_and_not_the_gradient_that_reaches_layer_0():
    finding = said(
        gradient_stream=lost("gradient.stream", LAYERS, 25),
        stream_norm=lost("stream.norm", (3, 4), 25),
        update_norm=lost("update.norm", (3, 4), 25),
    )
    assert (finding.quantity, finding.layers, finding.sublayer) == (
        "update.norm",
        (3,),
        "attention",
    )
    assert "forward" in finding.cause


def test_a_stream_that_breaks_behind_finite_writes_is_named_itself():
    finding = said(
        stream_norm=lost("stream.norm", (3, 4), 25), update_norm=lost("update.norm", (4,), 25)
    )
    assert (finding.quantity, finding.layers) == ("stream.norm", (3,))


def test_of_a_backward_pass_that_breaks_alone_the_highest_layer_is_named():
    finding = said(
        gradient_stream=lost("gradient.stream", (0, 1, 2), 25),
        stream_norm=lost("stream.norm", (), 25),
    )
    assert (finding.quantity, finding.layers) == ("gradient.stream", (2,))
    assert "backward" in finding.cause


def test_the_loss_says_since_when_and_what_to_go_back_to():
    finding = said(train_loss=from_step(23), stream_norm=lost("stream.norm", (2, 3, 4), 23))
    assert finding.details["step"] == 25
    assert finding.details["since"] == 23
    assert "The loss is not finite since step 23; at step 25, the next sample" in finding.verdict
    # The loss of step 22 was finite: it is that of the weights after 21 updates.
    assert "a checkpoint of step 21 or earlier" in finding.remedy["words"]
    assert "every=1" in finding.remedy["words"]
    # By then weights are broken everywhere, and no layer is to blame.
    assert finding.layers == () and finding.stack is None


def test_a_loss_that_breaks_behind_finite_layers_is_the_loss_itself():
    finding = said(train_loss=from_step(25), stream_norm=lost("stream.norm", (), 25))
    assert finding.verdict == "Training loss is nan since step 25, while every layer is finite."
    assert "targets" in finding.cause


def test_a_loss_alone_is_named():
    finding = said(train_loss=from_step(23, value=math.inf))
    assert finding.verdict == "Training loss is inf since step 23."
    assert finding.stack is None and finding.layers == ()


@pytest.mark.parametrize(("climbs", "good"), [((), 38), ((1e3, 1e9), 36), ((1.05, 1.05), 38)])
def test_a_loss_that_climbed_before_it_was_lost_was_usual_before_that(climbs, good):
    losses = dict.fromkeys(range(1, 40), 1.0) | dict(zip((38, 39), climbs, strict=False))
    finding = said(
        train_loss=lambda step: losses.get(step, NAN), stream_norm=lost("stream.norm", LAYERS, 40)
    )
    assert finding.details["since"] == 40
    assert f"a checkpoint of step {good} or earlier" in finding.remedy["words"]


def test_a_loss_that_has_come_back_is_no_fault():
    assert not warnings_of("gauge-not-finite", {"train.loss": lambda at: NAN if at == 23 else 2.0})


@pytest.mark.parametrize("quantity", ["update.bf16_loss", "attention.logit_std"])
def test_what_may_be_zero_over_zero_breaks_nothing(quantity):
    assert not warnings_of("gauge-not-finite", {quantity: {1: from_step(23)}})


def test_stacks_stand_in_the_order_in_which_they_run():
    history = History(QUANTITIES.values())
    for stack in ("encoder", "decoder"):  # not that of their names
        history.add([Reading("stream.norm", Site(stack, 1), "mean", NAN, step=5)])
    history.add([Reading("train.loss", RUN, "value", NAN, step=5)])
    (finding,) = ALARMS.get("gauge-not-finite").look(history)
    assert finding.stack == "encoder"
