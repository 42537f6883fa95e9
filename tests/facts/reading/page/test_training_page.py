"""The page of a training run, of two of them, and of a sweep."""

from __future__ import annotations

import json
import math
from html.parser import HTMLParser
from typing import Any

import pytest

from leadline.errors import LeadlineError
from leadline.reading.page import as_json
from leadline.reading.page.figures import quantity_figure
from leadline.reading.page.html import render_html
from leadline.record import Quantity, Reading, Site
from leadline.record.rows.site import RUN
from tests.synthetic import gpt2_record
from tests.synthetic_sweep import BIGRAM, LOST, UNIGRAM, sweep_record, training_record

VOID = {"meta", "br", "input", "link", "img", "hr"}
HARM = "<script>alert('x')</script><img src=x onerror=alert(1)>\"'&"


class Page(HTMLParser):
    """Reads a page into elements and words, and notes tags that do not match."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.open: list[str] = []
        self.mismatched: list[str] = []
        self.words: list[str] = []
        self.data: dict[str, Any] = {}
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {key: value or "" for key, value in attrs}))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {key: value or "" for key, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.mismatched.append(tag)

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "script":
            if self.elements[-1][1].get("id"):
                self.data = json.loads(data)
        elif self.open and self.open[-1] != "style":
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())

    @property
    def sections(self) -> list[str]:
        folded = ("details", "part")
        return [
            found["id"]
            for tag, found in self.elements
            if tag == "section" or (tag, found.get("class")) == folded
        ]


def numbers_of(page: Page, line: dict[str, Any]) -> dict[str, Any]:
    """What the page holds of a line."""
    record, kind, at = line["from"]
    return page.data["records"][record][kind][at]


def page_of(*records, **options) -> Page:
    return Page(render_html(records, **options))


SWEEP_WITH_HOLES = {
    "design=post, depth=24, seed=1": {"status": "failed", "loss": None, "reason": "No memory."},
    "design=pre, depth=48, seed=0": {"status": "diverged", "loss": None, "reason": "NaN"},
}


@pytest.mark.parametrize(
    "records",
    [
        (training_record(),),
        (training_record(layers=True),),
        (training_record(), training_record(name="other")),
        (sweep_record(changes=SWEEP_WITH_HOLES),),
        (sweep_record(), sweep_record(name="second")),
        (sweep_record(), training_record(layers=True), gpt2_record(depth=3)),
    ],
)
def test_every_page_is_well_formed_and_every_chart_has_its_card(records) -> None:
    page = page_of(*records)
    assert (page.mismatched, page.open) == ([], [])
    identifiers = [found["id"] for _, found in page.elements if "id" in found]
    assert len(identifiers) == len(set(identifiers))
    cards = [found["id"] for tag, found in page.elements if tag == "article"]
    assert cards == [chart["id"] for chart in page.data["charts"]]
    scales = [found["data-scale"] for _, found in page.elements if "data-scale" in found]
    assert scales == ["linear", "log"] * len(cards)
    links = [found["href"][1:] for tag, found in page.elements if tag == "a" and "href" in found]
    assert set(links) <= set(identifiers)


def test_a_page_of_training_alone_has_no_empty_part_about_depth() -> None:
    assert page_of(training_record()).sections == ["summary", "training", "provenance"]
    assert page_of(sweep_record()).sections == ["summary", "map", "provenance"]


def test_readings_by_layer_come_after_the_curves() -> None:
    sections = page_of(training_record(layers=True)).sections
    assert sections == ["summary", "training", "steps", "charts", "glance", "provenance"]


def test_a_measurement_keeps_its_parts() -> None:
    sections = page_of(gpt2_record()).sections
    assert sections[:4] == ["summary", "charts", "glance", "anatomy"]
    assert sections[-1] == "provenance"


def test_the_headline_tells_the_loss_and_the_unigram_entropy() -> None:
    text = page_of(training_record()).text
    assert "Training report: Transformer" in text
    assert (
        "The model has learned: the validation loss went from 5.5 to 2.26 nats in 400 steps, 0.88 "
        "below the unigram entropy of its task."
    ) in text


@pytest.mark.parametrize(
    ("end", "words"),
    [
        (2.2, "The model has learned: "),
        (3.1, "The model has learned no more than how frequent the symbols are: "),
        (9.9, "Training has done harm: "),
    ],
)
def test_the_headline_says_whether_anything_was_learned(end: float, words: str) -> None:
    record = training_record(end=end)
    if end > 5.5:
        first = Reading("validation.loss", RUN, "value", 5.5, step=-1, seed=0)
        record.append([first])
    assert words in page_of(record).text


def test_a_run_that_diverged_says_so() -> None:
    record = training_record()
    record.append([Reading("validation.loss", RUN, "value", math.nan, step=450, seed=0)])
    page = page_of(record)
    assert "The validation loss is not a number at step 450: the run diverged." in page.text
    assert "marked × on the edge: validation: from step 450 on." in page.text
    (line,) = [one for one in page.data["charts"][0]["lines"] if one["heading"] == "validation"]
    held = numbers_of(page, line)
    assert (held["steps"][-1], held["values"][-1]) == (450, None)


def test_the_loss_chart_has_both_losses_and_both_entropies() -> None:
    page = page_of(training_record())
    chart = page.data["charts"][0]
    lines = {line["heading"]: line for line in chart["lines"]}
    assert set(lines) == {"training", "validation", "unigram entropy", "bigram entropy"}
    assert lines["unigram entropy"]["values"] == [UNIGRAM, UNIGRAM]
    assert lines["bigram entropy"]["values"] == [BIGRAM, BIGRAM]
    assert lines["unigram entropy"]["x"] == [0, 400]
    assert numbers_of(page, lines["validation"])["steps"][:3] == [0, 50, 100]
    assert chart["across"] == "step"


def test_curves_of_two_records_are_laid_over_each_other() -> None:
    page = page_of(training_record(), training_record(end=2.5, name="other", steps=300))
    chart = page.data["charts"][0]
    assert [line["heading"] for line in chart["lines"]][:4] == [
        "small, training",
        "small, validation",
        "other, training",
        "other, validation",
    ]
    colours = [chart["rows"][line["series"]]["colour"] for line in chart["lines"]]
    assert colours[0] == colours[1] != colours[2] == colours[3]
    assert (
        "Validation loss at the end: small 2.26 at step 400; other 2.56 at step 300." in page.text
    )


def test_the_map_the_curves_and_the_reasons_of_a_sweep_are_on_its_page() -> None:
    page = page_of(sweep_record(changes=SWEEP_WITH_HOLES))
    for words in (
        "Sweep report",
        "post trains up to depth 12, not at 24.",
        "12, not 24",
        "Gauges as predictors of failure",
        "Cells that were not measured",
        "No memory.",
        "All 36 cells that have ended",
        "1 cell failed: a hole, which counts neither way.",
    ):
        assert words in page.text
    charts = page.data["charts"]
    assert [chart["id"] for chart in charts] == ["map-1-1", "map-1-2", "map-1-3"]
    names = [line["heading"] for line in charts[1]["lines"]]
    assert names[0] == "depth 6, seed 0"
    assert len(names) == 12 - 1 + 2  # one cell failed; two lines across
    assert [found for tag, found in page.elements if found.get("class") == "trainmap"]


def test_cells_stand_in_their_own_table_and_not_in_the_provenance() -> None:
    page = page_of(sweep_record())
    provenance = page.text[page.text.index("All 36 cells") :]
    after = provenance[provenance.rindex("Provenance") :]
    assert "design=pre" not in after
    assert "digest" in after


def test_the_json_holds_curves_and_no_line_over_depth_of_them() -> None:
    record = training_record(layers=True)
    found = json.loads(json.dumps(as_json(record), allow_nan=False))
    assert {line["quantity"] for line in found["series"]} == {"stream.norm"}
    assert list(found["quantities"]) == ["stream.norm"]
    curve = next(c for c in found["curves"] if c["quantity"] == "validation.loss")
    assert curve["steps"][:2] == [0, 50]
    assert curve["run"] == ""
    assert curve["values"][0] == 5.5
    assert found["definitions"]["validation.loss"]["lives_on"] == "run"


def test_the_json_of_training_alone_has_no_depth() -> None:
    found = json.loads(json.dumps(as_json(sweep_record()), allow_nan=False))
    assert found["anatomy"]["layers"] == 0
    assert len(found["curves"]) == 36 * 7
    assert as_json(gpt2_record())["curves"] == []


def test_a_number_of_a_run_cannot_be_drawn_over_depth() -> None:
    with pytest.raises(LeadlineError, match="has no depth to be drawn over"):
        quantity_figure([training_record()], "validation.loss")


def test_a_sweep_with_readings_by_layer_says_which_run_it_shows_over_depth() -> None:
    record = sweep_record()
    record.describe(Quantity("stream.norm", "Norm", "n", "n"))
    for run, depth in (("design=pre, depth=6, seed=0", 6), ("design=pre, depth=48, seed=0", 48)):
        record.append(
            Reading("stream.norm", Site("decoder", l), "mean", 1.0 + l, run=run)
            for l in range(depth + 1)
        )
    page = page_of(record)
    assert page.sections == ["summary", "map", "charts", "glance", "provenance"]
    assert "The charts over depth show the run 'design=pre, depth=6, seed=0'." in page.text
    assert "stack of" not in page.text
    lines = str(record).splitlines()
    assert any(line.startswith("36 cells: ") for line in lines)
    assert "36 runs; shown: 'design=pre, depth=6, seed=0'" in lines


def test_no_label_reason_or_name_becomes_markup() -> None:
    record = sweep_record(
        limits={HARM: 12, "pre": 6},
        name=HARM,
        changes={"design=pre, depth=6, seed=0": {"status": "failed", "loss": None, "reason": HARM}},
    )
    page = page_of(record)
    assert page.mismatched == []
    assert sum(tag == "script" for tag, _ in page.elements) == 4
    assert all(tag != "img" for tag, _ in page.elements)
    assert HARM in page.text


def key_of(page: Page, chart: str) -> str:
    """The label that a chart is heard by."""
    at = next(i for i, (_, found) in enumerate(page.elements) if found.get("id") == chart)
    return next(f["aria-label"] for _, f in page.elements[at:] if f.get("role") == "img")


def test_a_run_that_diverged_has_no_result_on_its_page() -> None:
    page = page_of(training_record(outcome=LOST))
    assert "The run diverged: the loss was not finite at step 407." in page.text
    assert "The last validation loss, 2.26 nats, was read before, at step 400." in page.text
    assert "went from" not in page.text
    assert "Steps 407 diverged" in page.text
    assert "Validation loss diverged 5.50 at the start" in page.text
    assert "validation: 5.50 → diverged; " in key_of(page, "training-1")
    assert key_of(page, "training-2").endswith(" → 0.00100")


def test_a_run_that_has_not_ended_says_so() -> None:
    assert "The run has not ended." in page_of(training_record()).text


@pytest.mark.parametrize(
    ("status", "words"), [("plateau", "ended on a plateau"), ("seconds", "ended by the clock")]
)
def test_a_run_that_ended_early_says_so_and_takes_its_steps_from_there(
    status: str, words: str
) -> None:
    outcome = {"status": status, "reason": "enough", "steps": 1405, "loss": 2.26}
    text = page_of(training_record(outcome=outcome)).text
    assert "the validation loss went from 5.5 to 2.26 nats in 1405 steps" in text
    assert f"The run {words} after 1,405 steps: enough." in text
    assert f"Steps 1,405 {words}" in text


def test_a_run_that_finished_is_told_without_a_second_sentence() -> None:
    outcome = {"status": "finished", "reason": "", "steps": 400, "loss": 2.26}
    text = page_of(training_record(outcome=outcome)).text
    assert "The run" not in text
    assert "Steps 400 finished" in text


def test_a_comparison_with_a_run_that_diverged_says_so() -> None:
    page = page_of(training_record(), training_record(name="other", outcome=LOST))
    assert "Validation loss at the end: small 2.26 at step 400; other diverged at step 407." in (
        page.text
    )
    assert "other, validation: 5.50 → diverged" in key_of(page, "training-1")


def test_a_cell_that_diverged_says_so_in_the_key_of_its_row() -> None:
    lost = {"design=post, depth=24, seed=1": {"status": "diverged", "loss": None}}
    page = page_of(sweep_record(changes=lost))
    assert "depth 24: → 3.13, diverged, 3.14;" in key_of(page, "map-1-2")
    assert "diverged" not in key_of(page, "map-1-1")


def test_the_page_of_two_seeds_promises_no_middle_one() -> None:
    assert "Alone: the worst and the best seed" in page_of(sweep_record(seeds=(0, 1))).text
    assert "Alone: the worst, the middle and the best seed" in page_of(sweep_record()).text
