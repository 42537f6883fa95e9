"""What every section of the report promises, and what a plug-in may count on."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from leadline.reading.page.html import render_html
from leadline.reading.page.section import SECTIONS, PagePart, PageSubject, write_parts
from leadline.record import Record
from tests.synthetic import RECORDS, gpt2_record
from tests.synthetic_attention import attention_record
from tests.synthetic_scan import broken_run
from tests.synthetic_sweep import sweep_record, training_record

SUBJECTS = {
    **RECORDS,
    "empty": Record,
    "attention": attention_record,
    "training": lambda: training_record(layers=True),
    "sweep": sweep_record,
    "scan": broken_run,
}


def subject(*records: Record) -> PageSubject:
    return PageSubject(records, [f"name {at}" for at in range(len(records))], "title")


@pytest.mark.parametrize("kind", SUBJECTS)
@pytest.mark.parametrize("name", SECTIONS.names())
def test_a_section_that_reads_a_record_writes_well_named_parts(name: str, kind: str) -> None:
    section, record = SECTIONS.get(name)(), SUBJECTS[kind]()
    if not section.reads(record):
        return
    parts = section.write(subject(record))
    assert all(isinstance(part, PagePart) for part in parts)
    for part in parts:
        assert part.key.replace("-", "").isalnum()
        assert part.key.isascii()
        assert part.to_html().count(f'id="{part.key}"') == 1
        cards = [
            chart
            for chart in part.charts
            if f'<article class="card chart" id="{chart.key}"' in part.content
        ]
        assert len(cards) == len(part.charts) == part.content.count("<article")


@pytest.mark.parametrize("name", SECTIONS.names())
def test_a_section_says_what_it_is_and_where_it_stands(name: str) -> None:
    section = SECTIONS.get(name)
    assert section.__doc__
    assert 0 <= section.place < 100


def test_the_answer_comes_first_then_the_stream_and_the_provenance_last() -> None:
    parts = write_parts(subject(gpt2_record()))
    assert [part.key for part in parts[:2]] == ["summary", "charts"]
    assert parts[-1].key == "provenance"
    assert {part.key for part in parts if not part.folded} == {"summary", "charts", "provenance"}
    leading = [chart.topic for chart in parts[1].charts]
    assert leading == ["stream", "gradient"]


def test_every_chart_stands_in_the_page_once() -> None:
    about = subject(gpt2_record(), gpt2_record(seed=1))
    keys = [chart.key for part in write_parts(about) for chart in part.charts]
    assert len(keys) == len(set(keys))
    assert set(keys) == {chart.key for chart in about.charts}


def test_a_plug_in_adds_a_section(monkeypatch: pytest.MonkeyPatch) -> None:
    SECTIONS.names()  # those of the package are loaded
    monkeypatch.setattr(SECTIONS, "_entries", dict(SECTIONS._entries))  # pyright: ignore[reportPrivateUsage]

    @SECTIONS.register("mine")
    class MineSection:
        """One paragraph."""

        place = 85

        def reads(self, record: Record) -> bool:
            return "mine" in record.provenance

        def write(self, subject: PageSubject) -> list[PagePart]:
            return [PagePart("mine", "Mine", "<p>as I like it</p>")]

    record = gpt2_record()
    assert "as I like it" not in render_html([record])
    record.note("mine", 1)
    page = render_html([record])
    assert '<details class="part" id="mine">' in page
    assert page.index("as I like it") < page.index('id="provenance"')
    assert '<a href="#mine">Mine</a>' in page


def test_a_plain_report_imports_no_sweep_no_training_and_no_bounds(tmp_path: Path) -> None:
    file = tmp_path / "x.leadline"
    gpt2_record().save(file)
    code = (
        "import sys\n"
        "from leadline.record import Record\n"
        "from leadline.reading.page import report\n"
        "report(Record.open(sys.argv[1]), sys.argv[2])\n"
        "rooms = ('leadline.reading.map.', 'leadline.reading.bounds.', 'leadline.theory.')\n"
        "files = ('training_curves', 'run_headline', 'map_content', 'plotly_figure')\n"
        "print([m for m in sys.modules if m.startswith(rooms) or m.endswith(files)])\n"
    )
    command = [sys.executable, "-c", code, str(file), str(tmp_path / "x.html")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_report_asks_a_closed_file_few_questions(tmp_path: Path) -> None:
    file = tmp_path / "x.leadline"
    attention_record(layers=6, heads=3, tokens=8).save(file)
    record = Record.open(file)
    asked: list[str] = []
    record._connection.set_trace_callback(asked.append)  # pyright: ignore[reportPrivateUsage]
    render_html([record])
    assert 0 < len(asked) <= 40
