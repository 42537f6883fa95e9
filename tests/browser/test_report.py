"""The report in a browser: it opens from disk, asks for nothing, fits a phone and answers.

Run with `pytest -m browser`. The browser is the one that CHROMIUM names, an installed chromium, or
the one that playwright brings.
"""

from __future__ import annotations

import csv
import io
import json
import re
from typing import TYPE_CHECKING, Any

import pytest

from leadline.reading.page import as_json
from leadline.reading.page.html import write_html
from leadline.record import Quantity, Reading, Record, Site
from tests.synthetic import broken_record, gpt2_record, t5_record
from tests.synthetic_attention import attention_record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytestmark = pytest.mark.browser

DESKTOP, PHONE = (1440, 900), (390, 844)


class Visit:
    """A page in the browser, with what it asked for and what went wrong."""

    def __init__(self, page: Any) -> None:
        self.page = page
        self.requests: list[str] = []
        self.problems: list[str] = []
        page.on("request", lambda request: self.requests.append(request.url))
        page.on("pageerror", lambda error: self.problems.append(str(error)))
        page.on("dialog", lambda dialog: self.problems.append(dialog.message))
        page.on(
            "console",
            lambda line: self.problems.append(line.text) if line.type == "error" else None,
        )

    def show_all(self) -> None:
        """Unfold the page and scroll through it until every chart is drawn."""
        self.page.evaluate("document.querySelectorAll('details.part').forEach(d => d.open = true)")
        height = self.page.evaluate("document.documentElement.scrollHeight")
        for y in range(0, height, 400):
            self.page.evaluate(f"scrollTo(0, {y})")
            self.page.wait_for_timeout(20)
        self.page.wait_for_function("!document.querySelector('.plot.waiting')")

    def chart(self, title: str) -> Any:
        self.page.evaluate("document.querySelectorAll('details.part').forEach(d => d.open = true)")
        found = self.page.locator("article.chart").filter(
            has=self.page.get_by_text(title, exact=True)
        )
        found.scroll_into_view_if_needed()
        found.locator("canvas").first.wait_for()
        return found

    def spot(self, chart: Any, line: int, at: int) -> tuple[float, float]:
        """Where a value of a line stands on the screen."""
        chart.locator(".plot").scroll_into_view_if_needed()
        return tuple(
            chart.locator(".plot").evaluate(
                """(plot, [line, at]) => {
                    const { shown, views, scale } = plot.chart;
                    const drawn = shown[line], view = views[drawn.panel];
                    const over = view.over.getBoundingClientRect();
                    const value = drawn.values[at];
                    const edge = over.height * (value === Infinity ? 0.03 : 0.97);
                    const y = Number.isFinite(value) ? view.valToPos(value, "y") : edge;
                    return [over.left + view.valToPos(drawn.x[at], "x"), over.top + y];
                }""",
                [line, at],
            )
        )

    def hover(self, chart: Any, line: int, at: int) -> str:
        x, y = self.spot(chart, line, at)
        self.page.mouse.move(x - 3, y)
        self.page.mouse.move(x, y)
        chart.locator(".tip").wait_for()
        return chart.locator(".tip").inner_text()

    def plot(self, chart: Any, expression: str) -> Any:
        return chart.locator(".plot").evaluate(f"plot => {expression}")


@pytest.fixture
def visit(browser: Any, tmp_path: Path) -> Iterator[Callable[..., Visit]]:
    contexts: list[Any] = []

    def start(
        records: list[Record],
        *,
        size: tuple[int, int] = DESKTOP,
        scheme: str = "light",
        **more: Any,
    ) -> Visit:
        path = write_html(records, tmp_path / "report.html", **more)
        phone = size == PHONE
        context = browser.new_context(
            viewport={"width": size[0], "height": size[1]},
            color_scheme=scheme,
            has_touch=phone,
            is_mobile=phone,
            offline=True,
        )
        contexts.append(context)
        visited = Visit(context.new_page())
        visited.page.goto(path.as_uri())
        return visited

    yield start
    for context in contexts:
        context.close()


def lanes_record() -> Record:
    record = gpt2_record(depth=6, name="lanes")
    anatomy = record.provenance["anatomy"]
    anatomy["stacks"]["decoder"]["lanes"] = 4
    record.note("anatomy", anatomy)
    record.describe(
        Quantity("lane.norm", "Norm of each lane", "‖x_l^{(k)}‖", "q", scale="log", axes=("lane",))
    )
    record.append(
        Reading("lane.norm", Site("decoder", at, lane=lane), "mean", float(lane * (1 + at)))
        for at in range(7)
        for lane in (1, 2, 3, 4)
    )
    return record


CASES: dict[str, Callable[[], list[Record]]] = {
    "one": lambda: [gpt2_record()],
    "two": lambda: [gpt2_record(), gpt2_record(depth=24, name="a-model-with-a-rather-long-name")],
    "stacks": lambda: [t5_record()],
    "lanes": lambda: [lanes_record()],
    "broken": lambda: [broken_record()],
    "attention": lambda: [
        attention_record(),
        attention_record(layers=5, causal=False, name="open"),
    ],
}


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
@pytest.mark.parametrize("case", CASES)
def test_the_page_asks_for_nothing_and_fits(
    visit: Callable[..., Visit], case: str, size: tuple[int, int], scheme: str
) -> None:
    visited = visit(CASES[case](), size=size, scheme=scheme)
    visited.show_all()
    assert [url.partition(":")[0] for url in visited.requests] == ["file"]
    assert visited.problems == []
    assert visited.page.evaluate("document.documentElement.scrollWidth") <= size[0]
    spilled = visited.page.evaluate(
        """() => [...document.querySelectorAll('.chart, .chart *:not(svg *)')]
            .filter(e => !e.closest('.numbers') && e.getBoundingClientRect().right > innerWidth)
            .map(e => e.className)"""
    )
    assert spilled == []


def test_charts_wait_until_they_come_into_view(visit: Callable[..., Visit]) -> None:
    visited = visit([gpt2_record()])
    waiting = visited.page.locator(".plot.waiting")
    visited.page.wait_for_function("document.querySelectorAll('.plot canvas').length === 2")
    assert visited.page.locator(".plot").count() == 8
    assert waiting.count() == visited.page.locator("details.part .plot").count() == 6
    visited.show_all()
    assert waiting.count() == 0


def test_hover_tells_layer_role_statistic_value_and_module(visit: Callable[..., Visit]) -> None:
    visited = visit([gpt2_record()])
    chart = visited.chart("Norm of the update")
    text = visited.hover(chart, 0, 6)
    value = gpt2_record().by_layer("update.norm", point="attention").values[6]
    for words in ("layer 7, attention", "mean", f"{value:.3f}", "transformer.h.6.attn"):
        assert words in text


def test_a_tap_tells_it_on_a_phone(visit: Callable[..., Visit]) -> None:
    visited = visit([gpt2_record()], size=PHONE)
    chart = visited.chart("Norm of the update")
    visited.page.touchscreen.tap(*visited.spot(chart, 0, 6))
    chart.locator(".tip").wait_for()
    assert "layer 7, attention" in chart.locator(".tip").inner_text()
    assert visited.plot(chart, "plot.chart.tip.getBoundingClientRect().right <= innerWidth")


def test_the_keyboard_goes_along_a_line_and_from_line_to_line(visit: Callable[..., Visit]) -> None:
    visited = visit([gpt2_record()])
    chart = visited.chart("Norm of the update")
    chart.locator(".plot").focus()
    tip = chart.locator(".tip")
    for key, words in (
        ("ArrowRight", "layer 1, attention"),
        ("ArrowRight", "layer 2, attention"),
        ("ArrowDown", "layer 2, attention"),  # its other statistic
        ("ArrowDown", "layer 2, mlp"),
        ("ArrowLeft", "layer 1, mlp"),
    ):
        visited.page.keyboard.press(key)
        assert words in tip.inner_text()
    visited.page.keyboard.press("Escape")
    assert tip.is_hidden()


def test_a_drag_zooms_and_a_button_goes_back(visit: Callable[..., Visit]) -> None:
    visited = visit([gpt2_record()])
    chart = visited.chart("Norm of the stream")
    ends = "[plot.chart.views[0].scales.x.min, plot.chart.views[0].scales.x.max]"
    first = visited.plot(chart, ends)
    reset = chart.get_by_role("button", name="Reset zoom")
    assert reset.is_hidden()
    (left, y), (right, _) = visited.spot(chart, 0, 3), visited.spot(chart, 0, 8)
    visited.page.mouse.move(left, y)
    visited.page.mouse.down()
    visited.page.mouse.move(right, y, steps=4)
    visited.page.mouse.up()
    assert visited.plot(chart, ends) == pytest.approx([3, 8], abs=0.05)
    reset.click()
    assert visited.plot(chart, ends) == first
    assert reset.is_hidden()


def test_a_chart_is_saved_as_a_picture(visit: Callable[..., Visit]) -> None:
    visited = visit([t5_record()])
    chart = visited.chart("Norm of the stream")
    with visited.page.expect_download() as download:
        chart.get_by_role("button", name="Save the chart as PNG").click()
    assert download.value.suggested_filename.endswith(".png")
    assert download.value.path().read_bytes().startswith(b"\x89PNG")


def test_parts_are_folded_until_a_link_leads_there(visit: Callable[..., Visit]) -> None:
    visited = visit([gpt2_record()])
    page = visited.page
    assert page.locator("details.part[open]").count() == 0
    page.locator("nav").get_by_text("Update", exact=True).click()
    assert page.locator("details.part[open] h2").all_inner_texts() == ["Update"]
    page.locator("nav").get_by_text("At a glance").click()
    link = page.locator("#glance tbody a").last
    link.click()
    target = link.get_attribute("href")
    assert page.locator(f"details.part[open] {target}").count() == 1


def test_an_address_of_a_chart_opens_its_part(visit: Callable[..., Visit], tmp_path: Path) -> None:
    visited = visit([gpt2_record()])
    key = visited.page.locator("details.part article.chart").last.get_attribute("id")
    visited.page.goto(f"{(tmp_path / 'report.html').as_uri()}#{key}")
    visited.page.reload()
    assert visited.page.locator(f"details.part[open] #{key}").count() == 1


def test_a_chart_switches_between_linear_and_log(visit: Callable[..., Visit]) -> None:
    visited = visit([gpt2_record()])
    chart = visited.chart("Norm of the stream")
    axis = "plot.chart.views[0].scales.y.distr === 3 ? 'log' : 'linear'"
    assert visited.plot(chart, axis) == "log"
    chart.get_by_role("button", name="linear").click()
    assert visited.plot(chart, axis) == "linear"
    assert chart.get_by_role("button", name="linear").get_attribute("aria-pressed") == "true"
    assert chart.get_by_role("button", name="log").get_attribute("aria-pressed") == "false"


def test_one_switch_moves_all_charts_and_back(visit: Callable[..., Visit]) -> None:
    visited = visit([gpt2_record()])
    visited.show_all()
    types = "[...document.querySelectorAll('.plot')].map(p => p.chart.scale)"
    suited = visited.page.evaluate(types)
    assert set(suited) == {"linear", "log"}
    visited.page.locator("[data-scale-all=log]").click()
    assert set(visited.page.evaluate(types)) == {"log"}
    visited.page.locator("[data-scale-all=linear]").click()
    assert set(visited.page.evaluate(types)) == {"linear"}
    visited.page.locator("[data-scale-all=suited]").click()
    assert visited.page.evaluate(types) == suited


def test_values_that_a_logarithm_cannot_show_are_told(visit: Callable[..., Visit]) -> None:
    record = Record()
    record.describe(Quantity("q", "Mixed signs", "q", "q"))
    values = [-1.0, 0.0, 2.0, 3.0]
    record.append(Reading("q", Site("decoder", at), "value", v) for at, v in enumerate(values))
    visited = visit([record])
    chart = visited.chart("Mixed signs")
    assert chart.locator(".lost").is_hidden()
    chart.get_by_role("button", name="log").click()
    assert chart.locator(".lost").text_content().startswith("2 values are zero or negative")


def test_statistics_and_lines_are_switched_on_and_off(visit: Callable[..., Visit]) -> None:
    visited = visit([gpt2_record()])
    chart = visited.chart("Norm of the update")
    shown = "plot.chart.shown.map(line => line.heading).sort()"
    robust = "median without first token"
    assert visited.plot(chart, shown) == [
        "attention, mean",
        f"attention, {robust}",
        "mlp, mean",
        f"mlp, {robust}",
    ]
    chart.locator("[data-statistic=median_without_first]").click()
    assert visited.plot(chart, shown) == ["attention, mean", "mlp, mean"]
    chart.get_by_role("button", name="mlp").click()
    assert visited.plot(chart, shown) == ["attention, mean"]
    visited.page.locator("[data-statistic-all=median]").click()
    assert visited.plot(chart, shown) == ["attention, mean", "attention, median"]


def test_records_of_different_depth_meet_on_relative_depth(visit: Callable[..., Visit]) -> None:
    visited = visit([gpt2_record(depth=6), gpt2_record(depth=24, name="deep")])
    chart = visited.chart("Norm of the stream")
    ends = "[plot.chart.views[0].data[0].at(-1)]"
    assert visited.plot(chart, ends) == [24]
    visited.page.locator("[data-depth=relative]").click()
    assert visited.plot(chart, ends) == [1]
    assert visited.plot(chart, "plot.chart.views[0].axes[0].label") == "layer / depth"
    columns = "plot.chart.views[0].data.slice(1).map(c => c.filter(v => v !== undefined).length)"
    assert visited.plot(chart, columns) == [7, 25]


def test_panels_stand_side_by_side_or_one_below_the_other(visit: Callable[..., Visit]) -> None:
    places = (
        "(([a, b]) => [b.left > a.left, b.top > a.top])"
        "(plot.chart.views.map(v => v.over.getBoundingClientRect()))"
    )
    scales = "plot.chart.views.map(v => [v.scales.y.min, v.scales.y.max].join())"
    wide, narrow = visit([t5_record()]), visit([t5_record()], size=PHONE)
    assert wide.plot(wide.chart("Norm of the stream"), places) == [True, False]
    assert narrow.plot(narrow.chart("Norm of the stream"), places) == [False, True]
    assert len(set(wide.plot(wide.chart("Norm of the stream"), scales))) == 1


def test_the_theme_follows_the_system_and_the_button(visit: Callable[..., Visit]) -> None:
    visited = visit([gpt2_record()], scheme="dark")
    chart = visited.chart("Norm of the stream")
    ground = "getComputedStyle(document.body).backgroundColor"
    colour = "plot.chart.views[0].series[1].stroke()"
    dark = (visited.page.evaluate(ground), visited.plot(chart, colour))
    visited.page.get_by_role("button", name="Switch between dark and light").click()
    light = (visited.page.evaluate(ground), visited.plot(chart, colour))
    assert dark == ("rgb(14, 19, 24)", "#56B4E9")
    assert light == ("rgb(246, 247, 248)", "#0072B2")
    visited.page.reload()
    assert visited.page.evaluate(ground) == light[0]


def test_values_that_are_not_finite_are_crosses_one_can_hover(visit: Callable[..., Visit]) -> None:
    visited = visit([broken_record(depth=12, first_bad=5)])
    chart = visited.chart("Norm of the stream")
    gaps = "plot.chart.views[0].data[1].filter(v => v === null).length"
    assert visited.plot(chart, gaps) == 8
    assert "NaN" in visited.hover(chart, 0, 8)
    assert "∞" in visited.hover(chart, 0, 5)


def test_the_table_holds_every_number(visit: Callable[..., Visit]) -> None:
    record = gpt2_record(depth=12)
    visited = visit([record])
    chart = visited.chart("Norm of the update")
    assert chart.locator("table").count() == 0
    chart.locator("summary").click()
    chart.locator("table").wait_for()
    assert chart.locator("tbody tr").count() == 12
    heads = chart.locator("thead th").all_text_contents()
    column = heads.index("mlp, median")
    cell = chart.locator("tbody tr").nth(4).locator("th, td").nth(column).text_content()
    expected = record.by_layer("update.norm", point="mlp", statistic="median").values[4]
    assert float(cell) == pytest.approx(expected, rel=1e-3)


def test_the_data_can_be_taken_home(visit: Callable[..., Visit]) -> None:
    records = [gpt2_record(depth=4), broken_record(depth=4, first_bad=2)]
    visited = visit(records, names=['a, quoted "name"', "b"])
    with visited.page.expect_download() as download:
        visited.page.get_by_role("button", name="Download as JSON").click()
    assert download.value.suggested_filename == "report.json"
    expected = [json.loads(json.dumps(as_json(record))) for record in records]
    assert json.loads(download.value.path().read_text(encoding="utf-8")) == expected
    with visited.page.expect_download() as download:
        visited.page.get_by_role("button", name="Download as CSV").click()
    rows = list(csv.DictReader(io.StringIO(download.value.path().read_text(encoding="utf-8"))))
    numbers = sum(len(p.layers) for r in records for q in r.quantities for p in r.profiles(q))
    assert len(rows) == numbers
    assert rows[0]["record"] == 'a, quoted "name"'
    assert [row["value"] for row in rows if row["record"] == "b"][2:] == ["Infinity", "NaN", "NaN"]


def test_a_model_called_script_does_no_harm(visit: Callable[..., Visit]) -> None:
    name = "<script>window.harmed = 1</script><img src=x onerror='window.harmed = 1'>"
    visited = visit([gpt2_record(name=name), gpt2_record(seed=1, massive=False)])
    visited.show_all()
    chart = visited.chart("Norm of the stream")
    assert "<script>" in visited.hover(chart, 0, 6)
    chart.locator("summary").click()
    assert visited.page.evaluate("window.harmed") is None
    assert visited.problems == []
    assert visited.page.locator("img").count() == 0


def test_an_injected_script_would_not_run(visit: Callable[..., Visit], tmp_path: Path) -> None:
    visited = visit([gpt2_record()])
    path = tmp_path / "report.html"
    text = path.read_text(encoding="utf-8")
    path.write_text(re.sub("</main>", "<script>window.harmed = 1</script></main>", text, count=1))
    visited.page.reload()
    assert visited.page.evaluate("window.harmed") is None
    assert any("Content Security Policy" in problem for problem in visited.problems)


def test_printing_draws_every_chart_on_white(visit: Callable[..., Visit]) -> None:
    visited = visit([gpt2_record()], scheme="dark")
    visited.page.evaluate(
        """() => addEventListener('beforeprint', () => {
            const plots = [...document.querySelectorAll('.plot')];
            window.printed = plots.map(p => p.chart.drawn && p.chart.views[0].series[1].stroke());
        })"""
    )
    assert visited.page.pdf(format="A4").startswith(b"%PDF")
    printed = visited.page.evaluate("window.printed")
    assert len(printed) == 8
    assert set(printed) <= {"#0072B2", "#D55E00"}
    colour = "p => p.chart.views[0].series[1].stroke()"
    assert visited.page.locator(".plot").first.evaluate(colour) == "#56B4E9"
    assert visited.page.locator("details.part[open]").count() == 0


def test_the_page_can_be_read_without_javascript(browser: Any, tmp_path: Path) -> None:
    path = write_html([gpt2_record()], tmp_path / "report.html")
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(path.as_uri())
    page.locator("#glance summary").click()
    text = page.locator("body").inner_text()
    context.close()
    assert "The charts need JavaScript" in text
    assert "no simple law" not in text
    assert "GPT2LMHeadModel" in text
