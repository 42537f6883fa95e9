"""The screen of a run: the answer first, and whatever fits a terminal of any size."""

from __future__ import annotations

import io
import json

import pytest
from rich.console import Console

from leadline.errors import UnknownName
from leadline.reading.watch import screen as rule
from leadline.reading.watch.first_screen import LINES, layers_by_steps
from leadline.reading.watch.gauge_table import watch_json
from leadline.reading.watch.screen import WatchView, watch_view
from leadline.reading.watch.sight import RunSight, sight_of
from leadline.record import Finding
from leadline.record.words.watch_answer import batch_words
from tests.synthetic import gpt2_record
from tests.synthetic_sweep import training_record
from tests.synthetic_watch import Course, watch_record

SICK = watch_record(Course(layers=24, samples=60, every=10))
WELL = watch_record(Course(layers=24, samples=60, every=10, trouble=False))


def lines_of(view: WatchView, width: int, height: int | None, colours="truecolor") -> list[str]:
    paper = Console(
        file=io.StringIO(), width=width, height=height, force_terminal=True,
        color_system=colours, highlight=False,
    )  # fmt: skip
    view.screen(width=width, height=height).show(paper)
    from rich.text import Text

    return Text.from_ansi(paper.file.getvalue()).plain.rstrip("\n").split("\n")


@pytest.mark.parametrize("colours", ["truecolor", "256", "standard", None])
@pytest.mark.parametrize("size", [(40, 10), (60, 16), (80, 24), (100, 30), (120, 40), (200, 60)])
@pytest.mark.parametrize("record", [SICK, WELL], ids=["sick", "well"])
def test_a_screen_fits_the_terminal_and_begins_with_the_answer(record, size, colours):
    view = watch_view(sight_of(record))
    lines = lines_of(view, *size, colours)
    assert len(lines) <= size[1]
    assert max(map(len, lines)) <= size[0]
    assert lines[0].startswith("The run of gpt2 has ended at step 590")


def test_every_kind_of_thing_has_its_place_in_a_common_terminal():
    text = "\n".join(lines_of(watch_view(sight_of(SICK)), 140, 46))
    places = [
        text.index(words)
        for words in (
            "1 serious warning and 1",
            "serious: G91: The loss has risen",
            "do: Stop, and go back",
            "warning: G90: ",
            "Spread of the attention logits, attention  attention.logit_std[attention]",
            "\n loss ",
            "step 1",
            "gauge",
            "train.gradient_norm",
            "closed.",
        )
    ]
    assert places == sorted(places)


def test_a_small_terminal_keeps_the_answer_the_warnings_and_the_map():
    view = watch_view(sight_of(SICK))
    shown = {
        height: [
            words in "\n".join(lines_of(view, 80, height))
            for words in ("serious: G91", "warning: G90", "step 1", "gauge ")
        ]
        for height in (28, 24, 20, 12, 7)
    }
    assert shown == {
        28: [True, True, True, True],
        24: [True, True, True, False],
        20: [True, True, True, False],
        12: [True, True, False, False],
        7: [True, False, False, False],
    }


def test_a_tall_terminal_gives_the_loss_three_lines():
    assert rule.TALL == 34
    view = watch_view(sight_of(WELL))
    for height, count in ((33, 1), (34, 3)):
        lines = lines_of(view, 100, height)
        title = next(at for at, line in enumerate(lines) if str(view.group.address) in line)
        loss = next(at for at, line in enumerate(lines) if line.lstrip().startswith("loss "))
        assert loss - title == count


def test_into_a_pipe_everything_is_shown():
    text = watch_view(sight_of(SICK)).screen().text()
    rows = text.split("gauge  ")[1].split("\n")
    assert len(rows) - 3 == rule.MOST_GAUGES == 12  # their titles, and two sentences below
    assert rule.MOST_LINES == 16
    assert "Every layer is read every 10 updates" in text


def test_without_warnings_the_answer_says_so_and_there_are_none():
    text = watch_view(sight_of(WELL)).screen().text()
    assert text.split("\n")[0].endswith("Nothing unusual.")
    assert "do: " not in text


def test_of_many_warnings_three_are_shown_and_the_rest_is_counted():
    assert rule.MOST_WARNINGS == 3
    findings = tuple(Finding(f"verdict {at}", severity="warning", code=f"G{at}") for at in range(5))
    view = WatchView(RunSight("x", "running", findings=findings), None, (), None)
    text = view.screen().text()
    assert "verdict 2" in text
    assert "verdict 3" not in text
    assert "2 more: `leadline report x --all`" in text


def test_the_map_is_of_the_quantity_that_is_asked():
    view = watch_view(sight_of(SICK), quantity="update.ratio[mlp]")
    assert str(view.group.address) == "update.ratio[mlp]"
    view = watch_view(sight_of(SICK), quantity="update.ratio")
    assert str(view.group.address) == "update.ratio[attention]"  # where the trouble is


def test_a_quantity_that_is_not_there_is_answered_with_those_that_are():
    with pytest.raises(UnknownName, match=r"update\.ratio\[mlp\]"):
        watch_view(sight_of(SICK), quantity="update.ration[mlp]")


def test_a_quantity_is_waited_for_while_there_is_no_map_at_all():
    assert watch_view(RunSight("x", "starting"), quantity="update.ratio").group is None


def test_the_map_stays_while_nothing_departs_twice_as_far():
    assert rule.FAR_MORE == 2.0
    sight = sight_of(WELL)
    best = watch_view(sight).group
    for gauge in watch_view(sight).gauges:
        if gauge.group is None or gauge.group.outside:
            continue
        kept = watch_view(sight, before=str(gauge.group.address)).group
        telling = {
            str(one.group.address): one.telling for one in watch_view(sight).gauges if one.group
        }
        far = telling[str(best.address)] > 2 * max(gauge.telling, 1.0)
        assert str(kept.address) == str(best.address if far else gauge.group.address)


def test_a_warning_takes_the_map():
    view = watch_view(sight_of(SICK), before="stream.norm")
    assert str(view.group.address) == "attention.logit_std[attention]"


def test_a_run_without_layers_shows_its_loss_and_gauges():
    text = watch_view(sight_of(training_record())).screen().text()
    assert "loss " in text.split("\n")[2]
    assert "gauge.stream_growth" in text


def test_nothing_at_all_is_a_sentence():
    view = watch_view(RunSight("run.leadline", "waiting", quiet=3.0))
    assert view.screen().text() == (
        "There is no file run.leadline yet: waiting for it, 3 s so far.\n\nCtrl-C ends the waiting."
    )
    assert json.loads(json.dumps(watch_json(view), allow_nan=False))["state"] == "waiting"


def test_json_has_the_answer_the_warnings_and_every_gauge():
    found = json.loads(json.dumps(watch_json(watch_view(sight_of(SICK))), allow_nan=False))
    assert found["step"] == 590
    assert found["state"] == "closed"
    assert found["schema"] == 1
    assert found["answer"][0].startswith("The run of gpt2 has ended")
    first, second = found["warnings"]
    assert (first["code"], second["code"]) == ("G91", "G90")
    assert (second["quantity"], second["layers"], second["since"]) == (
        "attention.logit_std", [17], 530,
    )  # fmt: skip
    gauge = found["gauges"][0]
    assert gauge["gauge"] == "attention.logit_std[attention]"
    assert gauge["worst_layer"]["layer"] == "17"
    assert set(gauge["layers"]) == {str(layer) for layer in range(1, 25)}
    assert found["loss"] == pytest.approx(Course(samples=60, every=10).loss(590))


def test_the_first_screen_of_a_record_has_the_telling_map_in_at_most_twenty_lines():
    title, drawing = layers_by_steps(SICK)
    assert "attention.logit_std[attention]; 16 more" in title.text
    assert len(drawing.text().split("\n")) + 1 <= 20
    assert LINES == 12


def test_a_record_of_one_step_has_no_map():
    assert layers_by_steps(gpt2_record()) == []
    assert layers_by_steps(training_record()) == []
    assert "by layer and step" not in str(gpt2_record())


def test_a_run_with_readings_by_layer_shows_its_map_wherever_it_is_shown():
    record = training_record(layers=True)
    assert "Stream norm, " not in str(record)
    assert "Norm of the stream by layer and step (stream.norm)" in str(record)
    assert "<figure" in record._repr_html_()


def test_below_a_warning_stand_why_and_what_to_do_and_the_batches_before_it():
    record = watch_record(Course(layers=2, samples=6, trouble=False))
    details = {
        "step": 5,
        "since": 4,
        "cause": "a large rate",
        "remedy": {"words": "Stop."},
        "batches": {"3": "books 17", "4": "books 18"},
    }
    record.add_finding(Finding("It grows.", severity="serious", code="G91", details=details))
    text = watch_view(sight_of(record)).screen().text()
    assert (
        "(since step 4)\n  likely: a large rate\n  do: Stop.\n"
        "  batches: step 3: books 17; step 4: books 18\n"
    ) in text


def test_of_many_batches_the_first_and_the_last_are_named():
    assert batch_words({}) == ""
    six = {str(step): f"b{step}" for step in range(1, 7)}
    assert batch_words(six) == "; ".join(f"step {step}: b{step}" for step in range(1, 7))
    many = {str(step): f"b{step}" for step in range(1, 33)}
    assert batch_words(many) == (
        "step 1: b1; step 2: b2; step 3: b3; step 4: b4; ...; step 32: b32"
    )
    assert batch_words({"1": "tensor([1,\n    2])"}) == "step 1: tensor([1, 2])"
    assert (
        batch_words({"1": "7" * 80, "2": "7" * 81}) == f"step 1: {'7' * 80}; step 2: {'7' * 80}..."
    )


@pytest.mark.parametrize(
    ("attempt", "words"),
    [
        ({"ended": "closed"}, "has ended at step 590, loss"),
        ({"error": "TrainingStopped: G08"}, "was stopped by the watch at step 590, loss"),
        ({"error": "ValueError: no."}, "ended at step 590 with an error (ValueError: no), loss"),
    ],
)
def test_the_first_line_says_how_the_run_ended(attempt, words):
    record = watch_record(Course(layers=2, samples=60, every=10))
    facts = {**record.provenance["watch"], "attempts": [{"run": "", "first": 1, **attempt}]}
    record.note("watch", facts)
    assert watch_view(sight_of(record)).screen().text().startswith(f"The run of gpt2 {words}")


def test_in_a_small_terminal_the_first_warning_is_whole_and_the_second_leaves_room_for_a_map():
    lines = lines_of(watch_view(sight_of(SICK)), 80, 20)
    assert sum(line.startswith("  likely: ") for line in lines) == 1
    assert sum(line.startswith("  do: ") for line in lines) == 2
    assert any(line.startswith(" step 1") for line in lines)
