"""The section of layers by steps: small, in order, escaped, and with warnings that link."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from leadline.reading.page.html import render_html
from leadline.reading.page.section import PageSubject, write_parts
from leadline.reading.page.sections import steps as section
from leadline.reading.page.sections.steps import StepsSection
from leadline.record import Finding
from leadline.record.run.watching import LOG_Z
from tests.facts.reading.page.test_training_page import Page
from tests.synthetic import gpt2_record
from tests.synthetic_sweep import sweep_record, training_record
from tests.synthetic_watch import OF_LAYERS, Course, watch_record

SMALL = Course(layers=6, samples=30, every=10)


def content_of(*records):
    subject = PageSubject(records, [f"name {at}" for at in range(len(records))], "title")
    [part] = StepsSection().write(subject)
    return part.content


def test_it_reads_runs_whose_layers_were_read():
    reads = StepsSection().reads
    assert reads(watch_record(SMALL))
    assert reads(training_record(layers=True))
    assert not reads(training_record())
    assert not reads(gpt2_record())
    assert not reads(sweep_record())


def test_the_most_telling_maps_are_in_the_open_and_others_folded_by_topic():
    assert section.OPEN == 2
    content = content_of(watch_record(SMALL))
    shown = content.partition('<details class="byTopic">')[0]
    titles = re.findall(r"<h4[^>]*>([^<]*)</h4>", shown)
    assert titles[0] == "Spread of the attention logits, attention"
    assert len(titles) == 2
    topics = re.findall(r'<details class="byTopic"><summary>(\w+) ', content)
    assert sorted(topics) == sorted(set(topics))
    assert {"Stream", "Update", "Weights", "Tokens"} <= set(topics)
    assert content.count("<figure") == 17  # every group: 3 of the stream, 1 of tokens and so on


def test_all_maps_of_a_run_share_its_steps_and_its_loss():
    content = content_of(watch_record(SMALL))
    assert set(re.findall(r'data-steps="([^"]*)"', content)) == {"1,290"}
    assert content.count('<symbol id="loss-0"') == 1
    assert content.count('href="#loss-0"') == content.count("<figure")


def test_two_records_have_their_own_maps_and_names():
    content = content_of(watch_record(SMALL), training_record(layers=True))
    assert "name 0</h3>" in content
    assert "name 1</h3>" in content
    assert content.count('<symbol id="loss-') == 2
    keys = re.findall(r'<figure class="[^"]*" id="([^"]*)"', content)
    assert len(keys) == len(set(keys))


def test_a_run_whose_layers_were_read_once_has_no_section():
    record = watch_record(Course(layers=3, samples=1, every=10))
    subject = PageSubject([record], ["x"], "x")
    assert StepsSection().write(subject) == []


def test_the_page_is_well_formed_and_its_warnings_lead_to_their_cards():
    page = Page(render_html([watch_record(SMALL)]))
    assert page.mismatched == []
    identifiers = {found.get("id") for _, found in page.elements}
    links = [found["href"] for tag, found in page.elements if tag == "a" and "href" in found]
    assert {"#finding-0-0", "#finding-0-1"} <= set(links)
    assert all(link.removeprefix("#") in identifiers for link in links)
    assert page.sections[:4] == ["summary", "findings", "training", "steps"]
    assert "Lower the learning rate, or add QK-norm" in page.text


def test_the_headline_is_the_answer_and_the_facts_of_the_watch():
    text = Page(render_html([watch_record(SMALL)])).text
    assert "Training report: GPT2LMHeadModel" in text
    assert "A run of 290 updates, loss from 10.1 to " in text
    assert "Updates 290 ended" in text
    assert "every 10 updates 0.4 % of the time" in text


def test_a_card_names_the_batches_of_its_warning():
    record = watch_record(SMALL)
    details = {"step": 4, "since": 4, "batches": {"3": "books <17>", "4": "books 18"}}
    record.add_finding(Finding("It grows.", severity="serious", code="G91", details=details))
    assert "Batches step 3: books <17>; step 4: books 18" in Page(render_html([record])).text


def test_a_gauge_that_was_never_read_has_no_empty_chart():
    record = watch_record(SMALL)
    record.describe(replace(LOG_Z, title="Nothing of it"))
    text = Page(render_html([record])).text
    assert "Learning rate" in text
    assert "Nothing of it" not in text


def test_a_run_that_went_on_has_one_curve():
    record = watch_record(SMALL)
    again = Course(layers=6, samples=30, every=10, run="again")
    from tests.synthetic_watch import write_sample

    write_sample(record, again, 29)
    attempts = [{"run": "", "first": 1, "time": ""}, {"run": "again", "first": 281, "time": ""}]
    record.note("watch", {**record.provenance["watch"], "attempts": attempts})
    page = Page(render_html([record]))
    loss = next(chart for chart in page.data["charts"] if chart["id"] == "training-1")
    assert len(loss["lines"]) == 1
    assert "cut off 1 time" in page.text


def test_the_loss_of_many_updates_is_thinned_in_the_page_and_says_so():
    record = watch_record(Course(layers=2, samples=40, every=50))
    page = Page(render_html([record]))
    [curve] = [c for c in page.data["records"][0]["curves"] if c["quantity"] == "train.loss"]
    assert curve["thinned_from"] == 1950
    assert 750 < len(curve["steps"]) <= 802
    assert "values are drawn, the lowest and the highest of every stretch." in page.text
    loss = next(chart for chart in page.data["charts"] if chart["id"] == "training-1")
    assert "from" in loss["lines"][0]  # its numbers stand in the page once


@pytest.mark.slow
@pytest.mark.parametrize("layers", [24])
def test_the_maps_of_200_samples_by_24_layers_weigh_little(layers):
    record = watch_record(Course(layers=layers, samples=200, every=50))
    text = render_html([record])
    maps = text[text.index('id="steps"') : text.index('id="charts"')]
    assert len(OF_LAYERS) == 10
    assert len(maps) < 100_000  # 10 quantities, 17 maps
    assert len(text) < 320_000  # of which 105 000 are style and script of every page


def test_a_section_comes_between_training_and_depth():
    parts = [part.key for part in write_parts(PageSubject([watch_record(SMALL)], ["x"], "x"))]
    assert parts.index("training") < parts.index("steps") < parts.index("charts")
