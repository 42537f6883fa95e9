"""A design trains: it learns, can be stopped anywhere and goes on as if it had not been."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest

from leadline.lab.optimizer import FlatAdamW
from leadline.lab.tasks import build_task
from leadline.web.playground.curves import curves_of
from leadline.web.playground.design import Design, DesignError
from leadline.web.playground.training import LiveRun, LiveSettings, train_live

TINY = {"depth": 2, "width": 32, "heads": 2}


def losses(events: list[dict[str, Any]]) -> list[float]:
    return [one["loss"] for one in events if one["event"] == "step"]


def test_events_come_in_order_and_the_loss_falls() -> None:
    events = list(train_live(TINY, {"steps": 40, "rate": 3e-3, "every": 20}))
    json.dumps(events, allow_nan=False)
    assert [one["step"] for one in events if one["event"] == "gauges"] == [0, 20, 40]
    assert [one["step"] for one in events if one["event"] == "step"] == list(range(1, 41))
    assert events[0]["event"] == "gauges" and events[-1]["event"] == "end"
    assert events[-1]["reason"] == "finished" and "from 5." in events[-1]["sentence"]
    assert sum(losses(events)[-5:]) / 5 < 0.75 * losses(events)[0]


def test_the_first_curves_are_those_of_the_design() -> None:
    design = Design.from_json(TINY)
    first = next(train_live(design, {"steps": 1}))
    assert first["curves"] == [one.to_json() for one in curves_of(design).curves]


def test_the_losses_are_those_of_a_loop_written_by_hand() -> None:
    design = Design.from_json(TINY)
    model, task = design.model(), build_task("stdlib")
    optimizer = FlatAdamW(model, decay=0.01)
    expected: list[float] = []
    for step in range(4):
        batch = task.train(step, 16, seed=0)
        optimizer.zero()
        loss = model.loss(batch.ids, batch.targets)
        loss.backward()
        expected.append(float(loss.detach()))
        optimizer.step(2e-3 * min(1.0, (step + 1) / 3))
    settings = {"steps": 4, "rate": 2e-3, "warmup": 3, "every": 2}
    assert losses(list(train_live(design, settings))) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("stop_after", [1, 2, 3, 7, 11])
def test_a_run_that_was_stopped_goes_on_as_if_it_had_not_been(stop_after: int) -> None:
    design = Design.from_json({**TINY, "connection": "dropout(rate=0.3)"})
    settings = LiveSettings(steps=10, every=4)
    uninterrupted = list(LiveRun(design, settings).events())
    run = LiveRun(design, settings)
    part = run.events()
    before = list(itertools.islice(part, stop_after))
    part.close()
    after = list(run.events())
    steps = [one for one in [*before, *after] if one["event"] == "step"]
    assert steps == [one for one in uninterrupted if one["event"] == "step"]
    assert after[-1] == uninterrupted[-1] == list(run.events())[-1]


def test_a_run_that_diverges_ends_and_says_so() -> None:
    events = list(
        train_live(
            {**TINY, "norm": "none", "placement": "none", "init": "xavier(gain=4.0)", "gain": 4.0, "depth": 40},
            {"steps": 20, "rate": 1.0},
        )
    )  # fmt: skip
    assert events[-1]["reason"] == "diverged" and "not finite" in events[-1]["sentence"]
    assert any(one["event"] == "finding" and one["level"] == "serious" for one in events)


def test_what_the_lesson_on_warm_up_lets_a_reader_see() -> None:
    """Post-norm, 12 layers, Xavier: healthy as drawn, and all tokens alike after a few dozen steps."""
    design = {"placement": "post", "depth": 12, "init": "xavier"}
    told = list(train_live(design, {"steps": 25, "every": 25}))
    levels = [one["level"] for one in told if one["event"] == "finding"]
    assert levels == ["healthy", "serious"]
    last = [one for one in told if one["event"] == "gauges"][-1]
    cosine = next(one for one in last["curves"] if one["quantity"] == "tokens.cosine")
    assert cosine["series"][0]["values"][-1] > 0.999
    found = [one for one in told if one["event"] == "finding"][-1]
    assert [one["key"] for one in found["said"]] == ["equal", "start-again"]


def test_a_full_mask_gets_a_task_whose_answers_it_cannot_see() -> None:
    run = LiveRun(Design.from_json({**TINY, "mask": "full"}), LiveSettings(steps=2))
    assert not run.task.causal
    assert [one["event"] for one in run.events()][-1] == "end"


@pytest.mark.parametrize(
    ("design", "settings", "knob"),
    [
        ({"heads": 5}, {}, "heads"),
        (TINY, {"steps": 0}, "steps"),
        (TINY, {"steps": 10**9}, "steps"),
        (TINY, {"rate": 0}, "rate"),
        (TINY, {"rate": float("nan")}, "rate"),
        (TINY, {"warmup": -1}, "warmup"),
        (TINY, {"every": 0}, "every"),
        (TINY, {"task": "stdlib(length=512)"}, "task"),
        (TINY, {"task": "sudoku"}, "task"),
        ({**TINY, "mask": "full"}, {"task": "stdlib"}, "mask"),
        (TINY, {"speed": 3}, "speed"),
        (TINY, [], None),
    ],
)
def test_wrong_settings_are_refused_before_the_first_event(
    design: object, settings: object, knob: str | None
) -> None:
    with pytest.raises(DesignError) as caught:
        train_live(design, settings)
    assert caught.value.knob == knob
