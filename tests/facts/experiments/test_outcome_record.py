"""The outcome of an experiment as a record: all of it comes back, and readers of records read it."""

import csv
import math
import subprocess
import sys
from dataclasses import replace

import leadline as ll
from leadline.experiments.outcome.folder import write_outcome
from leadline.experiments.outcome.outcome import Outcome
from leadline.experiments.outcome.rows import outcome_record, read_outcome
from leadline.reading.page.figures import draw_charts
from leadline.reading.page.headline import record_answer
from leadline.reading.show.panels import Line, Places, Plane, Table
from leadline.record import Record

OUTCOME = Outcome(
    experiment="my-experiment",
    title="Does it hold?",
    value_label="log10 |x|",
    lines=(
        Line("Über ‖A‖₂", "pre norm", (1.0, math.inf, 1e-300), facts={"model": "a"}),
        Line("Über ‖A‖₂", "post norm", (2.0,), faint=True),
        Line("Über ‖A‖₂", "post norm", (3.0, 4.0)),
        Line("by depth", "pre norm", (0.1, 0.2), errors=(0.01, math.nan)),
        Line("by size", "pre norm", (5.0, 6.0)),
        Line("‖·‖", "pre norm", (-7.0,)),
    ),
    remarks=("It holds.", "Mostly."),
    records={},
    failures={"b": "It broke."},
    start=0,
    axis="site",
    scales={"by depth": "own"},
    tables=(Table("Sums", ("n", "sum"), ((1.0, 2.5), (2.0, -math.inf)), digits=3),),
    captioned=True,
    places={
        "by depth": Places("depth", (12.0, 48.0), logarithmic=True),
        "by size": Places("size", (0.5, 1.5)),
    },
    across=2,
    planes=(Plane("plane", {"a": ((0.5, -1.0),)}, (0.0, 1.0), 2.0, "circle", "z"),),
)


def test_every_field_of_an_outcome_comes_back(tmp_path):
    record = outcome_record(OUTCOME)
    # NaN differs from itself, so the one error that is NaN is compared by its text.
    assert repr(read_outcome(record)) == f"Kept{OUTCOME!r}"
    again = Record.open(record.save(tmp_path / "outcome.leadline"))
    assert repr(again.view("reproduce")) == f"Kept{OUTCOME!r}"
    assert again.view("reproduce").to_json() == OUTCOME.to_json()


def test_panels_are_quantities_and_lines_stand_at_their_places():
    record = outcome_record(OUTCOME, options={"depth": 3})
    assert [one.title for one in record.quantities.values()] == OUTCOME.panels
    assert record.instrument == "reproduce"
    assert record.provenance["instrument"]["options"] == {"depth": 3}
    first = record.profiles("my-experiment.ber_a")
    assert [line.point for line in first] == ["pre norm", "post norm", "post norm (2)"]
    assert first[0].layers == (0, 1, 2) and first[2].layers == (0, 1)
    (by_depth,) = record.profiles("my-experiment.by_depth")
    assert (by_depth.layers, list(by_depth.values)) == ((12, 48), [0.1, 0.2])
    row = record.select("my-experiment.by_depth")[0]
    assert (row.lower, row.upper) == (0.1 - 0.01, 0.1 + 0.01)
    assert record.profiles("my-experiment.by_size")[0].layers == (1, 2)  # 0.5 is no whole number
    assert record.profiles("my-experiment.panel_4")[0].values[0] == -7.0


def test_names_that_meet_are_told_apart():
    lines = (
        Line("by depth", "a", (1.0,)),
        Line("by depth", "a", (2.0,)),
        Line("by depth", "a (2)", (3.0,)),
        Line("by-depth", "a", (4.0,)),
        Line("by depth 2", "a", (5.0,)),
        Line("By depth", "a", (6.0,)),
    )
    record = outcome_record(Outcome("e", "T", "v", lines, (), {}))
    assert [line.values for line in read_outcome(record).lines] == [line.values for line in lines]
    assert [one.title for one in record.quantities.values()] == [
        "by depth",
        "by-depth",
        "by depth 2",
        "By depth",
    ]


def test_the_page_of_an_outcome_begins_with_what_came_out_and_tells_its_lines_apart(tmp_path):
    page = ll.report(outcome_record(OUTCOME), tmp_path / "o.html").read_text(encoding="utf-8")
    headline = page[page.index("<main>") : page.index('id="charts"')]
    assert "It holds." in headline and "Mostly." in headline
    assert "is a my-experiment stack" not in page
    (first, *_) = draw_charts([outcome_record(OUTCOME)])
    assert len({row.colour for row in first.rows}) == len(first.rows) == 3


def test_the_folder_has_the_record_and_its_numbers_are_those_of_the_table(tmp_path):
    inner = ll.Record()
    inner.note("model", {"name": "inner"})
    behind = Outcome("e", "T", "v", OUTCOME.lines[:1], (), {"inner": inner})
    write_outcome(behind, tmp_path, options={"seed": 0})
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["inner.leadline", "outcome.leadline", "picture.svg", "table.csv"]
    record = Record.open(tmp_path / "outcome.leadline")
    with (tmp_path / "table.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [float(row["value"]) for row in rows] == [row.value for row in record.select()]
    (beside,) = record.view("reproduce").records.values()
    assert beside.provenance["model"]["name"] == "inner"
    assert record.view("reproduce").to_json() == behind.to_json()


def test_an_outcome_is_printed_reported_and_compared_without_torch(tmp_path):
    place = outcome_record(OUTCOME).save(tmp_path / "outcome.leadline")
    script = (
        "import sys, leadline as ll; r = ll.Record.open(sys.argv[1]); print(r); "
        "ll.report([r], sys.argv[1] + '.html'); print(ll.compare(r, r)); "
        "assert 'torch' not in sys.modules"
    )
    said = subprocess.run(
        [sys.executable, "-c", script, place], check=True, capture_output=True, text=True
    ).stdout
    assert said.startswith(
        "b could not be measured: It broke.\nIt holds.\nMostly.\n\nDoes it hold?\n"
    )
    assert "It holds." in said and "b could not be measured: It broke." in said
    assert "my-experiment.by_depth[pre norm]" in said
    page = (tmp_path / "outcome.leadline.html").read_text(encoding="utf-8")
    assert "by depth" in page and "post norm (2)" in page


def test_three_remarks_are_the_answer_and_the_others_stand_below_the_tables(tmp_path):
    long = replace(OUTCOME, failures={}, remarks=("One.", "Two.", "Three.", "Four.", "Five."))
    record = outcome_record(long)
    assert record_answer(record) == ["One.", "Two.", "Three."]
    text = str(record)
    assert text.index("Three.") < text.index("Sums") < text.index("What else was seen")
    assert text.endswith("Four.\nFive.")
    page = ll.report(record, tmp_path / "x.html").read_text()
    assert page.index("Three.") < page.index("What else was seen")
    assert 'id="found-1"' in page


def test_panels_of_logarithms_say_so_and_get_no_ratios():
    logarithms = replace(OUTCOME, scales={"by size": "exponent"})
    units = {one.title: one.unit for one in outcome_record(logarithms).quantities.values()}
    assert units == {"Über ‖A‖₂": "", "by depth": "", "by size": "log10", "‖·‖": ""}
    renamed = replace(
        OUTCOME, lines=(Line("log₁₀ error", "a", (-1.0, -2.0)),), places={}, scales={}
    )
    assert [one.unit for one in outcome_record(renamed).quantities.values()] == ["log10"]
