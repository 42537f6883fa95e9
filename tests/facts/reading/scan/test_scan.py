"""A scan read from its record: rows, runs among its checkpoints, words, JSON."""

import json
import math

import pytest

from leadline.errors import RecordError, UnknownName
from leadline.reading.scan.scan import one_checkpoint, read_scan
from leadline.record import Reading, Record, Site
from tests.synthetic_scan import SEVERE, broken_run, entry, run_record, scan_record


def test_a_row_has_growth_of_the_stream_and_of_the_gradient_backwards():
    values = {"stream.norm": [2.0, 3.0, 8.0], "gradient.stream": [6.0, 1.0, 2.0]}
    record = scan_record(
        [entry("a")], lambda name, layer, _: values.get(name, [1, 1, 1])[layer - 1], layers=3
    )
    (one,) = record.scan.checkpoints
    assert one.growth == 4.0
    assert one.gradient == 3.0
    assert one.loss == 2.0
    assert (one.healthy, one.first, one.worst_layers) == (True, None, ())


def test_of_several_stacks_the_one_farthest_from_one_counts():
    record = scan_record([entry("a")], lambda *_: 1.0, layers=2)
    record.append(
        Reading("stream.norm", Site("encoder", layer), "mean", value, run="a")
        for layer, value in ((1, 8.0), (2, 1.0))
    )
    assert record.scan.checkpoints[0].growth == 1 / 8


def test_checkpoints_of_one_run_come_by_step_and_a_zoo_by_verdict():
    steps = [entry("b", step=20), entry("c", step=3), entry("a", step=100)]
    assert [one.name for one in scan_record(steps).scan.checkpoints] == ["c", "b", "a"]
    zoo = [
        entry("a"),
        entry("b", healthy=False, findings=[{**SEVERE, "severity": "warning"}]),
        entry("c", healthy=False, findings=[SEVERE]),
        entry("d", findings=[{**SEVERE, "severity": "note"}]),
    ]
    scan = scan_record(zoo).scan
    assert [one.name for one in scan.checkpoints] == ["c", "b", "a", "d"]
    assert scan.series == ()
    assert [one.name for one in scan.unhealthy] == ["c", "b"]


@pytest.mark.parametrize(
    ("changes", "runs"),
    [
        ({}, [["a", "b"]]),
        ({"group": "other"}, []),
        ({"class": "Llama"}, []),
        ({"parameters": 2000}, []),
        ({"step": 1}, []),
        ({"step": None}, []),
        ({"status": "refused", "reason": "no"}, []),
    ],
)
def test_a_run_is_one_folder_one_shape_and_steps_that_differ(changes, runs):
    record = scan_record([entry("a", step=1), entry("b", **{"step": 2, **changes})])
    found = [[one.name for one in series.checkpoints] for series in record.scan.series]
    assert found == runs


def test_two_runs_are_two_series_the_longest_first():
    entries = [
        entry(f"{run}-{step}", step=step, group=f"runs/{run}")
        for run, count in (("a", 2), ("b", 3))
        for step in range(1, count + 1)
    ]
    series = scan_record(entries).scan.series
    assert [(one.name, len(one.checkpoints), one.span) for one in series] == [
        ("b", 3, (1, 3)),
        ("a", 2, (1, 2)),
    ]
    assert list(series[0].loss.steps) == [1, 2, 3]


def test_runs_in_folders_of_one_name_are_told_apart_by_their_paths():
    entries = [
        entry(f"{place}{at}", step=at, group=f"/{place}/gpt") for place in "ab" for at in (1, 2)
    ]
    series = read_scan(scan_record(entries)).series
    assert sorted(one.name for one in series) == ["/a/gpt", "/b/gpt"]


def test_the_answer_names_the_unhealthy_and_why():
    scan = broken_run().scan
    assert scan.answer == [
        "Of 12 checkpoints, 4 are unhealthy and 1 could not be measured.",
        "checkpoint-900 to checkpoint-1200 (4 checkpoints): A weight is odd.",
        "checkpoint-400 (refused): It is cut short.",
    ]
    assert scan.worse_than("note") and scan.worse_than("serious")


def test_healthy_checkpoints_are_said_in_one_sentence():
    scan = run_record(5, lambda *_: 1.0).scan
    assert scan.answer == ["All 5 checkpoints are healthy."]
    assert not scan.worse_than("note")
    assert scan_record([entry("a")]).scan.answer == ["Nothing unusual in 1 checkpoint."]
    assert scan_record([]).scan.answer == ["No checkpoint has been measured yet."]
    assert scan_record([entry("a"), entry("b")]).scan.answer == ["Both checkpoints are healthy."]


def test_one_checkpoint_and_none_that_could_be_measured_are_said_in_plain_words():
    broken = {"status": "refused", "reason": "It is cut short."}
    first = [
        scan_record(entries).scan.answer[0]
        for entries in (
            [entry("a", **broken)],
            [entry("a", healthy=False, findings=[SEVERE])],
            [entry("a", **broken), entry("b", **broken)],
        )
    ]
    assert first == [
        "The only checkpoint could not be measured.",
        "The only checkpoint is unhealthy.",
        "None of 2 checkpoints could be measured.",
    ]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"seed": 0}, "on random tokens, so it may rise with training"),
        ({"text": ["The sea is deep."]}, "on your texts"),
        ({"text_file": "sea (1).txt (0123456789abcdef)"}, "on sea (1).txt"),
        ({"tokens_file": "ids.npy (0123456789abcdef)"}, "on ids.npy"),
    ],
)
def test_screen_and_page_say_what_the_loss_is_on(settings, words):
    from leadline.reading.page.html import render_html

    record = run_record(5, lambda *_: 1.0)
    record.note("instrument", {"name": "scan", "settings": settings, "stopped": None})
    assert f"loss: {words}\n" in str(record).replace(";", "\n")
    assert f"Loss: {words}." in render_html([record])


def test_what_could_not_be_measured_is_worse_than_anything():
    record = scan_record([entry("a", status="failed", reason="It died.")])
    assert record.scan.worse_than("serious")
    assert record.scan.checkpoints[0].severity == "serious"


def test_the_screen_has_the_answer_the_changes_the_table_and_the_map():
    text = str(broken_run())
    assert text.index("4 are unhealthy") < text.index("What changes over 11 checkpoints of runs")
    assert text.index("What changes") < text.index("checkpoint-100   ")
    assert text.index("checkpoint-1200  1,200  W02 weights-scale-odd") < text.index("by layer and")
    row = next(line for line in text.splitlines() if line.startswith("Stream norm  "))
    words = row.split()
    assert words[:4] == ["Stream", "norm", "3", "900"]
    assert 9.5 < float(words[-2].removeprefix("×")) < 10.5
    assert 0.95 < float(words[-1].removeprefix("×")) < 1.05
    assert "Stream norm by layer and step, runs (stream.norm)" in text
    assert next(line for line in text.splitlines() if "1,200  W02" in line).endswith("  2-3")


def test_many_checkpoints_show_the_unhealthy_ones_and_all_where_asked():
    entries = [entry(f"m{at:02d}") for at in range(30)]
    entries[25] |= {"healthy": False, "findings": [SEVERE]}
    scan = scan_record(entries).scan
    short, full = scan.screen().text(), scan.screen(everything=True).text()
    assert "m25" in short and short.count("healthy\n") < 12
    assert "\n18 more healthy checkpoints: .screen(everything=True)." in short
    one_more = scan_record([entry(f"m{at:02d}") for at in range(13)]).scan.screen()
    assert "\n1 more healthy checkpoint: .screen(everything=True)." in one_more.text()
    sick = [entry(f"m{at:02d}", healthy=False, findings=[SEVERE]) for at in range(14)]
    assert "\n2 more checkpoints: " in scan_record(sick).scan.screen().text()
    assert all(f"m{at:02d} " in full for at in range(30))


def test_an_incomplete_scan_says_so():
    assert "The scan is incomplete: it was cut off." in str(
        run_record(4, lambda *_: 1.0, stopped="it was cut off")
    )


def test_the_screen_fits_eighty_columns():
    from io import StringIO

    from rich.console import Console

    paper = Console(file=StringIO(), width=80, force_terminal=True, color_system=None)
    broken_run().screen().show(paper)
    assert max(map(len, paper.file.getvalue().splitlines())) <= 80


def test_a_notebook_shows_tables_and_a_picture():
    shown = broken_run()._repr_html_()
    assert "<table>" in shown and "<svg" in shown and "4 are unhealthy" in shown


def test_the_json_is_strict_and_complete():
    made = json.loads(json.dumps(broken_run().scan.to_json(), allow_nan=False))
    assert made["schema"] == 1
    assert [one["name"] for one in made["checkpoints"]][:2] == ["checkpoint-100", "checkpoint-200"]
    assert made["checkpoints"][3]["reason"] == "It is cut short."
    assert made["checkpoints"][3]["healthy"] is None
    assert made["checkpoints"][11]["worst_layers"] == [2, 3]
    (run,) = made["runs"]
    assert run["steps"] == [100, 200, 300, *range(500, 1300, 100)]
    (change,) = run["changes"]
    assert (change["line"], change["layers"], change["since"]) == ("stream.norm", ["3"], 900)
    assert change["factor"] == pytest.approx(10, rel=0.02)


def test_one_checkpoint_is_a_record_of_its_own():
    record = broken_run()
    single = record.scan.checkpoint("checkpoint-900")
    assert single.runs == [""]
    assert {reading.step for reading in single.select()} == {0}
    assert len(single) == 3 * 6
    assert single.provenance["model"]["name"] == "checkpoint-900"
    assert single.instrument == ""
    expected = [r.value for r in record.select("stream.norm", run="checkpoint-900")]
    assert list(single["stream.norm"].values) == expected


def test_rows_of_a_checkpoint_that_was_measured_again_are_the_latest_ones():
    again = entry("a", run="a (2)")
    record = scan_record([again], lambda *_: 5.0)
    record.append([Reading("stream.norm", Site("decoder", 1), "mean", 1.0, run="a")])
    assert set(record.scan.checkpoint("a")["stream.norm"].values) == {5.0}
    assert record.scan.checkpoints[0].growth == 1.0


def test_names_that_are_not_there_are_refused():
    record = broken_run()
    with pytest.raises(UnknownName, match="checkpoint-100"):
        record.scan.checkpoint("checkpoint-1000000")
    with pytest.raises(RecordError, match=r"was not measured: It is cut short\."):
        record.scan.checkpoint("checkpoint-400")


def test_a_scan_of_one_checkpoint_needs_no_name():
    record = scan_record([entry("a"), entry("b", status="refused", reason="no")])
    assert one_checkpoint(record, None, file="s").provenance["model"]["name"] == "a"
    with pytest.raises(RecordError, match="is a scan of 11 checkpoints; name one"):
        one_checkpoint(broken_run(), None, file="s.leadline")
    nothing = scan_record([entry("b", status="refused", reason="no")])
    with pytest.raises(RecordError, match="no checkpoint could be measured"):
        one_checkpoint(nothing, None, file="s.leadline")


def test_numbers_that_are_not_there_are_nan_and_a_zero_is_no_ratio():
    values = {"stream.norm": [0.0, 1.0]}
    record = scan_record(
        [entry("a", loss=None)], lambda n, at, _: values.get(n, [1, 1])[at - 1], layers=2
    )
    (one,) = record.scan.checkpoints
    assert math.isnan(one.loss) and math.isnan(one.growth)
    assert "a           healthy" in str(record)


def test_what_is_about_one_model_refuses_a_scan():
    import leadline as ll

    for ask in (ll.diagnose, lambda record: ll.compare(record, record), ll.bounds):
        with pytest.raises(RecordError, match=r"take one of them, as record\.scan\.checkpoint"):
            ask(broken_run())


def test_rules_are_not_asked_about_many_models_at_once():
    from leadline.reading.diagnosis.standing import standing_findings

    assert standing_findings(broken_run()) == []


def test_the_page_has_a_row_for_every_checkpoint_and_the_maps_of_the_run(tmp_path):
    from leadline.reading.page.html import render_html

    page = render_html([broken_run()])
    assert '<h1 id="headline">Scan of 12 checkpoints</h1>' in page
    assert page.count('<th scope="row">checkpoint-') == 12
    assert "It is cut short." in page
    assert 'id="heat-0-0-0"' in page
    assert page.index("What changes over the checkpoints") < page.index('id="heat-0-0-0"')
    assert 'id="charts"' not in page


def test_a_zoo_has_no_maps_on_its_page():
    from leadline.reading.page.html import render_html

    page = render_html([scan_record([entry("a"), entry("b")])])
    assert 'id="steps"' not in page
    assert "What changes over" not in page
    assert page.count('<th scope="row">') >= 2


def test_reading_a_scan_needs_no_torch(tmp_path):
    import subprocess
    import sys

    path = tmp_path / "s.leadline"
    with Record() as record:
        record.note("instrument", {"name": "scan", "stopped": None})
        record.save(path)
    script = (
        "import sys, leadline.record as r\n"
        f"print(r.Record.open({str(path)!r}).scan.screen().text())\n"
        "assert 'torch' not in sys.modules"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert read_scan(Record.open(path)).checkpoints == ()
