"""The page is one complete, harmless file, written whole or not at all."""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
import subprocess
import sys
from html.parser import HTMLParser
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

from leadline.errors import LeadlineError, RecordError
from leadline.reading.page import as_json, report
from leadline.reading.page.figures import draw_charts
from leadline.reading.page.html import render_html, write_html
from leadline.reading.page.vendor import DIGESTS, VERSION
from leadline.record import Finding, Quantity, Reading, Record, Site
from tests.synthetic import RECORDS, broken_record, gpt2_record, t5_record

VOID = {"meta", "br", "input", "link", "img", "hr"}
HARM = "<script>alert('x')</script><img src=x onerror=alert(1)>\"'&"


class Page(HTMLParser):
    """Reads a page into its elements, and notes tags that do not match."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.scripts: list[tuple[dict[str, str], str]] = []
        self.words: list[str] = []
        self.open: list[str] = []
        self.mismatched: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {key: value or "" for key, value in attrs}
        self.elements.append((tag, found))
        if tag == "script":
            self.scripts.append((found, ""))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {key: value or "" for key, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.mismatched.append(tag)

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "script":
            attributes, text = self.scripts[-1]
            self.scripts[-1] = (attributes, text + data)
        elif self.open and self.open[-1] != "style":
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())

    @property
    def data(self) -> dict[str, Any]:
        found = [text for attributes, text in self.scripts if attributes.get("id")]
        return json.loads(found[0])


@pytest.fixture(scope="module")
def one() -> Page:
    return Page(render_html([gpt2_record()]))


@pytest.mark.parametrize("name", RECORDS)
def test_the_markup_is_well_formed(name: str) -> None:
    page = Page(render_html([RECORDS[name](), gpt2_record(depth=3)]))
    assert page.mismatched == []
    assert page.open == []
    identifiers = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(identifiers) == len(set(identifiers))


def test_nothing_is_loaded(one: Page) -> None:
    for tag, attributes in one.elements:
        assert tag not in ("link", "iframe", "img", "object", "embed", "base")
        assert "src" not in attributes
        assert attributes.get("href", "#").startswith("#")
    css = re.search(r"<style>(.*?)</style>", render_html([gpt2_record()]), flags=re.DOTALL)
    assert css is not None
    assert "url(" not in css[1]
    assert "@import" not in css[1]


def test_the_policy_forbids_every_request_and_every_other_script(one: Page) -> None:
    (policy,) = [a["content"] for t, a in one.elements if a.get("http-equiv")]
    rules = dict(rule.split(" ", 1) for rule in policy.split("; "))
    assert rules["default-src"] == "'none'"
    assert set(rules) == {
        "default-src", "script-src", "style-src", "img-src", "base-uri", "form-action"
    }  # fmt: skip
    assert rules["base-uri"] == rules["form-action"] == "'none'"
    assert "unsafe" not in rules["script-src"]
    programs = [text for attributes, text in one.scripts if "type" not in attributes]
    digests = [
        base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in programs
    ]
    assert rules["script-src"].split() == [f"'sha256-{digest}'" for digest in digests]
    assert len(programs) == 3


def test_the_library_is_the_file_that_was_declared(one: Page) -> None:
    folder = resources.files("leadline.reading.page.vendor")
    for name, digest in DIGESTS.items():
        assert hashlib.sha256(folder.joinpath(name).read_bytes()).hexdigest() == digest
    source = folder.joinpath("uplot.min.js").read_text(encoding="utf-8")
    assert f"(v{VERSION})" in source[:80]
    assert any(text == source for _, text in one.scripts)


def test_a_page_of_two_records_of_twelve_layers_is_small() -> None:
    page = render_html([gpt2_record(depth=12), gpt2_record(depth=12, seed=1)])
    assert len(page.encode()) < 1_500_000


def test_no_number_of_a_record_stands_in_the_page_twice(one: Page) -> None:
    lines = [line for chart in one.data["charts"] for line in chart["lines"]]
    assert lines
    assert all("from" in line and "values" not in line for line in lines)


def test_every_line_of_a_chart_leads_to_its_numbers(one: Page) -> None:
    drawn = {chart.key: chart for chart in draw_charts([gpt2_record()])}
    for chart in one.data["charts"]:
        for line, expected in zip(chart["lines"], drawn[chart["id"]].lines, strict=True):
            record, kind, at = line["from"]
            held = one.data["records"][record][kind][at]
            assert tuple(held["layers"]) == expected.x
            assert tuple(held["values"]) == expected.values


def harmful_record() -> Record:
    record = gpt2_record(depth=3, name=HARM)
    record.describe(
        Quantity(f"{HARM}.a", HARM, HARM, HARM, unit=HARM, high=HARM, low=HARM, source=HARM)
    )
    record.append(
        Reading(f"{HARM}.a", Site(HARM, at, None, HARM), HARM, math.nan) for at in range(3)
    )
    record.add_finding(Finding(HARM, severity="serious"))
    anatomy = record.provenance["anatomy"]
    anatomy |= {"source": HARM, "remarks": [HARM], "balance_dtype": HARM, "judged": HARM}
    anatomy["stacks"][HARM] = {"depth": 1, "width": 1}
    anatomy["layers"][0] |= {"stack": HARM, "module": HARM, "placement": HARM, "opening": HARM}
    for write in anatomy["layers"][0]["sublayers"]:
        write.update({"role": HARM, "module": HARM, "gain": HARM, "placement": HARM, "law": HARM})
    record.note("anatomy", anatomy)
    record.note("input", {"kind": HARM, "text_preview": HARM})
    record.note("loss", {"kind": HARM})
    record.note("coverage", {"refused": [{"what": HARM, "why": HARM}], HARM: HARM})
    record.note("versions", {HARM: HARM})
    record.note(HARM, HARM)
    return record


@pytest.mark.parametrize("copies", [1, 2])
def test_no_text_of_a_record_becomes_markup(copies: int) -> None:
    page = Page(render_html([harmful_record()] * copies, title=HARM))
    assert page.mismatched == []
    assert len(page.scripts) == 4
    assert all(tag != "img" for tag, _ in page.elements)
    assert not [
        key for _, attributes in page.elements for key in attributes if key.startswith("on")
    ]
    assert HARM in page.text
    assert page.data["names"][0] == HARM


def test_the_data_block_holds_the_record_as_json() -> None:
    record = gpt2_record(depth=4)
    page = Page(render_html([record]))
    assert page.data["records"] == [json.loads(json.dumps(as_json(record)))]
    raw = page.scripts[1][1]
    assert not set(raw) & set("<>&\u2028\u2029")


def test_the_headline_tells_model_depth_and_growth(one: Page) -> None:
    assert "gpt2" in one.text
    assert "decoder stack of 12 layers" in one.text
    assert "The first token carries up to 920 times" in one.text
    assert "The books balance: 0.42 eps, worst at layer 12." in one.text


def test_serious_findings_come_first() -> None:
    record = gpt2_record()
    record.add_finding(Finding("The house burns.", severity="serious"))
    text = Page(render_html([record])).text
    # Before any sentence about growth.
    assert text.index("Serious The house burns.") < text.index("Note ") < text.index("The norm")


def test_every_quantity_says_what_high_and_low_mean(one: Page) -> None:
    for quantity in gpt2_record().quantities.values():
        for words in (quantity.title, quantity.high, quantity.low):
            assert words in one.text


def test_every_chart_has_its_switches_its_key_and_its_table(one: Page) -> None:
    charts = [a["id"] for t, a in one.elements if t == "article"]
    assert charts == [chart["id"] for chart in one.data["charts"]]
    scales = [a["data-scale"] for _, a in one.elements if "data-scale" in a]
    assert scales == ["linear", "log"] * len(charts)
    tables = [a for t, a in one.elements if t == "details" and a.get("class") == "table"]
    assert len(tables) == len(charts)


def test_gaps_are_told_in_words() -> None:
    text = Page(render_html([broken_record(first_bad=5)])).text
    assert "marked × on the edge: stream, mean: ∞ at layer 5." in text


def test_the_depth_switch_stands_only_where_depths_differ() -> None:
    def has_switch(records: list[Record]) -> bool:
        return any("data-depth" in a for _, a in Page(render_html(records)).elements)

    assert not has_switch([gpt2_record(), gpt2_record(seed=1)])
    assert has_switch([gpt2_record(), gpt2_record(depth=6)])
    assert has_switch([t5_record()])


def test_a_chart_without_positive_values_bars_the_logarithm() -> None:
    record = Record()
    record.describe(Quantity("q", "Q", "q", "q"))
    record.append(Reading("q", Site("decoder", at), "mean", -1.0) for at in range(3))
    buttons = {
        a["data-scale"]: a for _, a in Page(render_html([record])).elements if "data-scale" in a
    }
    assert "disabled" in buttons["log"]
    assert "disabled" not in buttons["linear"]


def test_a_quantity_that_one_record_lacks_is_told() -> None:
    text = Page(render_html([gpt2_record(), broken_record()])).text
    assert "Not measured in broken" in text


def test_provenance_is_complete_and_refusals_are_told() -> None:
    record = gpt2_record()
    record.note("coverage", {"measured": ["stream.norm"], "refused": [{"what": "a", "why": "b"}]})
    text = Page(render_html([record])).text
    for words in ("GPT2LMHeadModel", "124,439,808", "random tokens", "3.11.2", "a (b)"):
        assert words in text


@pytest.mark.parametrize("record", [Record(), gpt2_record(depth=1)], ids=["empty", "one layer"])
def test_small_records_have_a_page(record: Record) -> None:
    assert Page(render_html([record])).mismatched == []


def test_names_and_title_can_be_given(tmp_path: Path) -> None:
    records = [gpt2_record(), gpt2_record(seed=1)]
    path = write_html(records, tmp_path / "x.html", names=["before", "after"], title="The change")
    page = Page(path.read_text(encoding="utf-8"))
    assert page.data["names"] == ["before", "after"]
    assert "The change" in page.text
    assert page.data["file"] == "x"


def test_report_takes_one_record_or_several(tmp_path: Path) -> None:
    one = report(gpt2_record(), tmp_path / "one.html")
    two = report([gpt2_record(), gpt2_record(seed=1)], str(tmp_path / "two.html"))
    assert len(Page(one.read_text(encoding="utf-8")).data["records"]) == 1
    assert len(Page(two.read_text(encoding="utf-8")).data["records"]) == 2


def test_no_records_are_refused(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="needs at least one record"):
        write_html([], tmp_path / "x.html")
    assert list(tmp_path.iterdir()) == []


def test_a_path_that_cannot_be_written_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(LeadlineError, match=r"cannot be written to .*nowhere"):
        write_html([gpt2_record()], tmp_path / "nowhere" / "x.html")
    folder = tmp_path / "folder.html"
    folder.mkdir()
    with pytest.raises(LeadlineError, match=r"cannot be written to .*folder\.html"):
        write_html([gpt2_record()], folder)
    assert list(tmp_path.iterdir()) == [folder]


def test_a_report_that_fails_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "x.html"
    path.write_text("old")
    with pytest.raises(LeadlineError):
        write_html([gpt2_record()], path, names=["a", "b"])
    assert path.read_text() == "old"
    write_html([gpt2_record()], path)
    assert path.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert list(tmp_path.iterdir()) == [path]


def test_the_new_file_can_be_read_by_whom_the_umask_allows(tmp_path: Path) -> None:
    path = write_html([gpt2_record()], tmp_path / "x.html")
    plain = tmp_path / "plain"
    plain.write_text("")
    assert path.stat().st_mode == plain.stat().st_mode


def test_a_report_needs_no_torch(tmp_path: Path) -> None:
    file = tmp_path / "x.leadline"
    gpt2_record().save(file)
    code = (
        "import sys\n"
        "from leadline.record import Record\n"
        "from leadline.reading.page import report\n"
        "report(Record.open(sys.argv[1]), sys.argv[2])\n"
        "print([m for m in ('torch', 'transformers', 'pandas', 'plotly') if m in sys.modules])\n"
    )
    command = [sys.executable, "-c", code, str(file), str(tmp_path / "x.html")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_same_record_gives_the_same_page() -> None:
    assert render_html([gpt2_record()]) == render_html([gpt2_record()])


def test_long_names_stand_once_in_the_title_and_once_among_the_facts() -> None:
    names = ["a model with a long name, deep", "a model with a long name, wide"]
    page = render_html([gpt2_record(), gpt2_record(depth=6)], names=names)
    markup = re.sub(r"<(script|title)\b.*?</\1>", "", page, flags=re.DOTALL)
    assert "A: a model with a long name, deep; B: a model with a long name, wide</h1>" in markup
    assert [markup.count(name) for name in names] == [2, 2]
    assert "Not measured in" not in markup


@pytest.mark.parametrize(
    ("lives_on", "heading"), [("stream", "Over depth"), ("path", "Over the length of paths")]
)
def test_the_heading_of_the_charts_says_what_their_axis_counts(lives_on, heading):
    record = Record()
    record.describe(Quantity("a.share", "Share", "s", "s", lives_on=lives_on, headline="value"))
    record.append(
        Reading(
            "a.share",
            Site("decoder", 3, hops=at) if lives_on == "path" else Site("decoder", at),
            "value",
            1.0 / (at + 1),
        )
        for at in range(3)
    )
    # A single value has no axis, wherever it stands.
    record.describe(Quantity("a.norm", "Norm", "n", "n", headline="value"))
    record.append([Reading("a.norm", Site("decoder", 3), "value", 1.0)])
    page = render_html([record])
    assert f'<th scope="col">{heading}</th>' in page
    words = re.findall(r"Over [a-z ]+", re.sub(r"(?s)<(script|style)\b.*?</\1>", "", page))
    assert {word.strip() for word in words} == {heading}
