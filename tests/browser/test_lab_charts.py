"""The charts that every view uses, and the small playground of lessons, without the rest of the page."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.lab_stub import TOKEN, Stub, serve

pytestmark = pytest.mark.browser

MODULES = "/static/modules"
# Puts an empty holder into the page, and what a test needs into `window`.
BENCH = f"""async () => {{
    const [chart, figure, api, words] = await Promise.all([
        import("{MODULES}/chart.js"), import("{MODULES}/play/figure.js"),
        import("{MODULES}/api.js"), import("{MODULES}/words.js")]);
    const t = await words.loadWords(api.api, "en");
    const holder = document.createElement("div");
    holder.id = "bench";
    holder.style.width = "600px";
    document.getElementById("main").replaceChildren(holder);
    Object.assign(window, {{ ...chart, ...figure, holder, context: {{ api: api.api, t, language: "en" }} }});
}}"""
DRAWN = "new Promise((done) => setTimeout(done, 300))"
# How much of a canvas is blue: the mean excess of blue over red among its pixels that are drawn.
INK = """(canvas) => {
    const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
    let sum = 0, count = 0;
    for (let at = 0; at < data.length; at += 4) if (data[at + 3]) { sum += data[at + 2] - data[at]; count += 1; }
    return { count, blue: count ? sum / count : 0 };
}"""


@pytest.fixture(scope="module")
def server() -> Iterator[tuple[Stub, str]]:
    started, stub, address = serve()
    yield stub, address.partition("?")[0]
    started.shutdown()
    started.server_close()


@pytest.fixture
def bench(browser: Any, server: tuple[Stub, str]) -> Iterator[Callable[[], Any]]:
    context = browser.new_context(viewport={"width": 900, "height": 900}, locale="en-GB")
    page = context.new_page()
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.goto(f"{server[1]}?token={TOKEN}#/records")
    page.locator(".view-records").wait_for()
    page.evaluate(BENCH)
    yield page
    assert problems == []
    context.close()


def chart(page: Any, lines: str, *, scale: str = "log") -> None:
    page.evaluate(
        f"""() => {{
            holder.style.display = "grid";
            holder.style.height = "300px";
            window.chart = lineChart(holder, {{ title: "Length", about: "How long.", scale: "{scale}" }});
            window.chart.update({lines});
        }}"""
    )
    page.evaluate(DRAWN)


def test_a_line_goes_on_where_floats_end(bench: Any):
    chart(
        bench, "[{ label: 'A', x: [0, 1], values: [1, 2.5], exponents: [0, -4000], colour: 'a' }]"
    )
    assert bench.locator(".chart .unseen").first.inner_text() == (
        "A: 1.00 (layer 0) → 2.50×10⁻⁴⁰⁰⁰ (layer 1)"
    )
    assert bench.locator(".uplot").is_visible()
    bench.locator(".plot").focus()
    bench.keyboard.press("End")
    assert bench.locator(".tip").inner_text().split("\n") == ["layer 1", "A", "2.500×10⁻⁴⁰⁰⁰"]


def test_an_exponent_need_not_be_whole(bench: Any):
    chart(bench, "[{ label: 'A', x: [0], values: [1], exponents: [-400.5], colour: 'a' }]")
    # 10 ** -400.5 = 10 ** 0.5 * 10 ** -401
    assert "3.16×10⁻⁴⁰¹" in bench.locator(".chart .unseen").first.inner_text()


def test_zero_on_a_logarithmic_axis_is_told(bench: Any):
    chart(bench, "[{ label: 'A', x: [1, 2], values: [0, 0], colour: 'a' }]")
    assert "exactly 0" in bench.locator(".chart-note").inner_text()
    assert bench.locator(".empty").is_hidden()
    bench.evaluate("chart.setScale('linear')")
    assert bench.locator(".chart-note").is_hidden()


def test_what_is_not_finite_is_told(bench: Any):
    chart(bench, "[{ label: 'A', x: [1, 2, 3], values: [1, null, 3], colour: 'a' }]")
    assert "not a finite number" in bench.locator(".chart-note").inner_text()


def test_a_chart_without_lines_says_so(bench: Any):
    chart(bench, "[]")
    assert bench.locator(".empty").is_visible()
    bench.evaluate("chart.update([{ label: 'A', x: [1, 2], values: [1, 2], colour: 'a' }])")
    assert bench.locator(".empty").is_hidden()
    bench.evaluate("chart.destroy()")
    assert bench.locator(".chart").count() == 0


def test_a_line_has_the_colour_of_its_side_and_a_faded_one_is_paler(bench: Any):
    line = "{ label: 'A', x: [0, 1, 2], values: [1, 2, 3], colour: 'a', dim: %s }"
    chart(bench, f"[{line % 'false'}]")
    full = bench.locator(".uplot canvas").evaluate(INK)
    bench.evaluate(f"chart.update([{line % 'true'}])")
    bench.evaluate(DRAWN)
    assert 0 < bench.locator(".uplot canvas").evaluate(INK)["blue"] <= full["blue"]


def test_a_title_is_text_and_never_html(bench: Any):
    chart(bench, "[{ label: '<b>A</b>', x: [0, 1], values: [1, 2], colour: 'a' }]")
    bench.locator(".plot").focus()
    bench.keyboard.press("ArrowRight")
    assert "<b>A</b>" in bench.locator(".tip").inner_text()


def test_a_map_is_read_by_the_arrow_keys(bench: Any):
    bench.evaluate(
        """() => {
            window.map = heatMap(holder, { title: "Gradient", scale: "log" });
            map.update({ rows: [1, 2], columns: [0, 10, 20],
                values: [[1, 10, 100], [0.5, null, 1e-3]], marks: [{ column: 10, label: "a spike" }] });
        }"""
    )
    canvas, readout = bench.locator("canvas"), bench.locator(".heat-readout")
    assert canvas.evaluate("(one) => [one.width, one.height]") == [3, 2]
    canvas.focus()
    bench.keyboard.press("ArrowRight")
    assert readout.inner_text() == "layer 1, step 0: 1.000"
    bench.keyboard.press("ArrowRight")
    bench.keyboard.press("ArrowDown")
    assert readout.inner_text() == "layer 2, step 10: not a finite number"
    bench.keyboard.press("ArrowRight")
    assert readout.inner_text() == "layer 2, step 20: 0.001000"
    assert bench.locator(".heat-ramp").inner_text().split() == ["0.00100", "100"]
    assert bench.get_by_label("a spike").count() == 1
    pixels = canvas.evaluate(
        "(one) => [...one.getContext('2d').getImageData(0, 0, 3, 2).data].filter((_, at) => at % 4 === 0)"
    )
    # The light page runs from pale to dark: the largest value is the darkest red channel.
    assert min(pixels) == pixels[2]
    bench.evaluate("map.destroy()")
    assert bench.locator(".heat-map").count() == 0


def test_a_figure_of_a_lesson_has_its_knobs_and_curves(bench: Any, server: tuple[Stub, str]):
    stub, _ = server
    stub.requests.clear()
    bench.evaluate(
        """() => { window.away = figure(holder, context, { base: { depth: 12 },
            knobs: ["depth"], curves: ["gradient.stream"], caption: "Turn it." }); }"""
    )
    bench.locator(".chart .plot .uplot").wait_for(state="attached")
    assert bench.locator(".chart").count() == 1
    assert bench.locator("figcaption").inner_text() == "Turn it."
    bench.get_by_label("Depth, as a number").fill("30")
    bench.keyboard.press("Enter")
    bench.get_by_text("Healthy: 30 layers").wait_for()
    assert stub.asked("/api/curves")[-1]["design"] == {"depth": 30}
    assert "(layer 30)" in bench.locator(".chart .unseen").first.inner_text()
    bench.evaluate("away()")
    assert bench.locator(".play-figure").count() == 0


def test_a_figure_of_two_designs_tells_them_apart(bench: Any):
    bench.evaluate(
        """() => { figure(holder, context, { base: { connection: "none" }, other: {},
            knobs: ["heads"], curves: ["stream.norm", "tokens.cosine"] }); }"""
    )
    bench.get_by_text("A: No shortcut").wait_for()
    bench.get_by_text("B: Healthy").wait_for()
    bench.get_by_label("Heads, design A, as a number").fill("5")
    bench.keyboard.press("Enter")
    bench.get_by_text("cannot be divided among 5 heads").wait_for()
    assert bench.locator("[data-knob=heads] .cell.b .reason").is_hidden()
