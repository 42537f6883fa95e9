"""The exported lab in a browser, from a disk and from a web host that knows nothing."""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from leadline.web.export import export_site
from leadline.web.export.grid import GridFamily
from leadline.web.playground.curves import curves_of
from leadline.web.playground.design import Design
from leadline.web.playground.presets import STORIES

pytestmark = pytest.mark.browser

RECORD = Path(__file__).parents[1] / "fixtures" / "schema1" / "measure.leadline"
STORY = STORIES[0]
DESKTOP, PHONE = (1400, 900), (390, 844)


def family(design: Design, *depths: int) -> GridFamily:
    knobs = design.difference()
    knobs.pop("depth", None)
    return GridFamily(tuple(knobs.items()), depths)


GRID = (
    family(Design(), 6, 12, 24),
    family(Design(placement="post"), 6, 24),
    *(family(design, 24) for design in STORY.designs()),
    family(Design(connection="none", norm="none", init="xavier", gain=0.2), 12),
    family(Design(norm="none", init="xavier", gain=0.2), 12),
)


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name of the base
        """Write nothing into the output of the tests."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    # A blank and a hash in a path are what addresses of files trip over.
    place = tmp_path_factory.mktemp("export") / "my site #1"
    export_site(place, grid=GRID, processes=0, records=[RECORD])
    return place


@pytest.fixture(scope="module", params=["file", "http"])
def origin(request: pytest.FixtureRequest, folder: Path) -> Iterator[str]:
    if request.param == "file":
        yield folder.as_uri()
        return
    handler = functools.partial(Quiet, directory=str(folder))
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


@pytest.fixture
def visit(browser: Any, origin: str) -> Iterator[Any]:
    """A page of the site; at the end nothing may have gone wrong or elsewhere."""
    problems: list[str] = []
    context = browser.new_context(viewport={"width": DESKTOP[0], "height": DESKTOP[1]})
    page = context.new_page()
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("console", lambda line: problems.append(line.text) if line.type in BAD else None)
    page.on("request", lambda one: problems.append(one.url) if foreign(one.url, origin) else None)
    page.site = f"{origin}/index.html"
    yield page
    context.close()
    assert problems == []


BAD = ("error", "warning")


def foreign(address: str, origin: str) -> bool:
    return not address.startswith((origin, "data:", "blob:"))


def large_numbers(page: Any, quantity: str) -> list[list[str]]:
    """The table of numbers of a chart, row by row."""
    page.locator(f"[data-quantity='{quantity}'] .u-over").click()
    dialog = page.locator("dialog")
    dialog.get_by_text("All numbers").click()
    dialog.locator("tbody tr").first.wait_for()
    rows = dialog.locator("tbody tr").all()
    numbers = [row.locator("td").all_inner_texts() for row in rows]
    page.keyboard.press("Escape")
    return numbers


def shows(page: Any, side: str, words: str) -> None:
    page.locator(f".design.{side} .sentence").get_by_text(words).wait_for()


@pytest.mark.parametrize("quantity", ["stream.norm", "gradient.stream", "tokens.relative_residual"])
def test_the_numbers_are_those_of_the_engine(visit: Any, quantity: str):
    visit.goto(f"{visit.site}#/play?preset=none&b.placement=post")
    shows(visit, "a", "24 layers")
    shows(visit, "b", "Post-norm, 24 layers")
    rows = large_numbers(visit, quantity)
    for column, design in enumerate((Design(), Design(placement="post"))):
        curve = next(one for one in curves_of(design).curves if one.quantity == quantity)
        (line,) = curve.series
        assert len(rows) == len(line.values) == 25
        for row, value in zip(rows, line.values, strict=True):
            assert value is not None
            assert float(row[column]) == pytest.approx(value, rel=6e-5)  # five digits are shown


def test_curves_move_with_the_depth_and_it_keeps_to_the_grid(visit: Any):
    visit.goto(f"{visit.site}#/play?preset=none")
    shows(visit, "a", "24 layers")
    slider = visit.get_by_label("Depth, design A", exact=True)
    assert slider.get_attribute("aria-valuetext") == "24"
    slider.focus()
    visit.keyboard.press("ArrowLeft")
    shows(visit, "a", "12 layers")
    visit.keyboard.press("ArrowLeft")
    shows(visit, "a", "6 layers")
    assert "depth=6" in visit.url
    assert "(layer 6)" in visit.locator("[data-quantity='stream.norm'] .unseen").first.inner_text()
    number = visit.locator(".design.a input[type=number]")
    number.fill("7")
    visit.keyboard.press("Enter")
    shows(visit, "a", "12 layers")
    assert number.input_value() == "12"


def test_knobs_outside_of_the_grid_cannot_be_turned_and_say_how(visit: Any):
    visit.goto(f"{visit.site}#/play?preset=none")
    shows(visit, "a", "24 layers")
    cell = visit.locator("[data-knob=placement] .cell.a")
    assert cell.locator("option:not([disabled])").evaluate_all(
        "all => all.map((o) => o.value)"
    ) == [
        "post",
        "pre",
    ]
    cell.locator("select").select_option("post")
    shows(visit, "a", "Post-norm")
    heads = visit.locator("[data-knob=heads] .cell.a")
    assert heads.locator("input").evaluate_all("all => all.every((one) => one.disabled)")
    assert "leadline lab" in (heads.get_attribute("title") or "")
    assert "leadline lab" in visit.locator(".limits").inner_text()


def test_a_design_of_an_address_that_is_not_there_is_not_replaced_by_another(visit: Any):
    visit.goto(f"{visit.site}#/play?preset=none&heads=2&b.depth=7")
    visit.locator(".design.a .reason").get_by_text("leadline lab").wait_for()
    visit.locator(".design.b .reason").get_by_text("leadline lab").wait_for()
    assert visit.locator(".design.a .verdict .reason").inner_text().startswith("Not in this copy:")
    told = visit.locator(".play .chart .unseen").all_inner_texts()
    assert not any("(layer" in one for one in told)  # nothing is drawn in its place


def test_a_preset_tells_its_story(visit: Any):
    visit.goto(f"{visit.site}#/play?preset={STORY.id}")
    visit.locator(".design.a:not(.waiting)").wait_for()
    visit.locator(".design.b:not(.waiting)").wait_for()
    assert visit.locator(".reason:visible").count() == 0
    assert visit.locator("[data-quantity='gradient.stream'] .uplot").count() == 1


def test_training_and_diagnosis_name_the_command(visit: Any):
    visit.goto(f"{visit.site}#/play?preset=none")
    shows(visit, "a", "24 layers")
    assert visit.get_by_role("button", name="Train").first.is_disabled()
    assert "leadline lab" in visit.locator(".training").inner_text()
    visit.goto(f"{visit.site}#/diagnose")
    visit.get_by_text("leadline diagnose MODEL").wait_for()


def test_lessons_have_figures_claims_and_three_languages(visit: Any):
    visit.goto(f"{visit.site}#/lessons")
    visit.locator(".lesson-list a").first.click()
    visit.locator(".play-figure .uplot").first.wait_for(state="attached")
    visit.locator(".figure-verdict.a").get_by_text("12 layers").wait_for()
    assert visit.locator(".play-figure .reason:visible").count() == 0
    for code, word in (("zh", "课"), ("ru", "Урок")):
        visit.locator("header select").select_option(code)
        visit.locator(".lesson").get_by_text(word).first.wait_for()
    assert visit.locator(".lesson [class*=verdict]").count() > 0


def test_claims_and_reports_open_in_the_page(visit: Any):
    visit.goto(f"{visit.site}#/claims")
    visit.frame_locator("iframe").get_by_text("Residual algebra").first.wait_for()
    visit.goto(f"{visit.site}#/lessons/bounds")
    visit.locator(".lesson a[href*='claim=']").first.click()
    name = visit.url.partition("claim=")[2]
    visit.frame_locator("iframe").locator(f"#{name}").wait_for()
    assert visit.locator("iframe").get_attribute("src").endswith(f"#{name}")
    visit.goto(f"{visit.site}#/records")
    visit.get_by_role("link", name="measure").click()
    visit.frame_locator("iframe").locator("h1").wait_for()
    assert visit.url.endswith("#/record/measure")


@pytest.mark.parametrize("view", ["play", "records", "record/measure", "lessons", "diagnose"])
def test_the_site_fits_a_phone(visit: Any, view: str):
    visit.set_viewport_size({"width": PHONE[0], "height": PHONE[1]})
    visit.goto(f"{visit.site}#/{view}")
    visit.locator(f".view-{view.partition('/')[0]}").wait_for()
    assert visit.evaluate("document.documentElement.scrollWidth") <= PHONE[0]


def test_axe_has_no_serious_complaint(visit: Any, axe: str):
    visit.goto(f"{visit.site}#/records")
    visit.get_by_role("link", name="measure").wait_for()
    visit.evaluate(axe)
    violations = visit.evaluate("axe.run(document, { preload: false })")["violations"]
    assert [one["id"] for one in violations if one["impact"] in ("serious", "critical")] == []
