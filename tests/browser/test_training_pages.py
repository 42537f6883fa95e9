"""The pages of training runs and sweeps in a browser. Run with `pytest -m browser`."""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING, Any

import pytest

from leadline.reading.page.html import write_html
from tests.synthetic import gpt2_record
from tests.synthetic_sweep import sweep_record, training_record

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.browser

SIZES = {"desktop": (1280, 900), "phone": (390, 844)}
PAGES = {
    "sweep": lambda: [sweep_record(depths=(6, 12, 24, 48, 96), axes={"warmup": [300, 0]})],
    "training": lambda: [training_record(layers=True)],
    "two": lambda: [training_record(), training_record(name="other", end=2.5)],
    "mixed": lambda: [training_record(layers=True), gpt2_record(depth=3)],
}


def visit(browser: Any, path: Path, size: tuple[int, int], scheme: str) -> tuple[Any, list[str]]:
    """Open a page, scroll until every chart is drawn; return it with what went wrong."""
    page = browser.new_page(
        viewport={"width": size[0], "height": size[1]}, color_scheme=scheme, accept_downloads=True
    )
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("console", lambda line: problems.append(line.text) if line.type == "error" else None)
    page.on(
        "request",
        lambda request: problems.append(request.url) if request.url[:5] != "file:" else None,
    )
    page.goto(path.as_uri())
    page.evaluate("document.querySelectorAll('details.part').forEach(d => d.open = true)")
    for y in range(0, page.evaluate("document.documentElement.scrollHeight"), 300):
        page.evaluate(f"scrollTo(0, {y})")
        page.wait_for_timeout(20)
    page.wait_for_function("!document.querySelector('.plot.waiting')")
    return page, problems


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", PAGES)
def test_every_page_draws_all_its_charts_asks_for_nothing_and_fits(
    browser: Any, tmp_path: Path, name: str, size: str, scheme: str
) -> None:
    path = write_html(PAGES[name](), tmp_path / "page.html")
    page, problems = visit(browser, path, SIZES[size], scheme)
    assert problems == []
    assert page.evaluate("document.documentElement.scrollWidth") <= SIZES[size][0]
    assert page.locator(".plot canvas").count() > 0
    page.close()


def test_curves_over_steps_stay_when_depth_is_made_relative(browser: Any, tmp_path: Path) -> None:
    path = write_html(PAGES["mixed"](), tmp_path / "page.html")
    page, problems = visit(browser, path, SIZES["desktop"], "light")
    page.locator('[data-depth="relative"]').click()
    ends = page.evaluate(
        "id => document.querySelector(`#${id} .plot`).chart.views[0].data[0].at(-1)", "training-1"
    )
    assert ends == 400
    title = "id => document.querySelector(`#${id} .plot`).chart.views[0].axes[0].label"
    assert page.evaluate(title, "training-1") == "step"
    assert problems == []
    page.close()


def test_the_downloaded_table_holds_curves_and_layers(browser: Any, tmp_path: Path) -> None:
    path = write_html([training_record(layers=True)], tmp_path / "page.html")
    page, _ = visit(browser, path, SIZES["desktop"], "light")
    with page.expect_download() as waiting:
        page.locator('[data-download="csv"]').click()
    waiting.value.save_as(tmp_path / "all.csv")
    text = (tmp_path / "all.csv").read_text(encoding="utf-8")
    rows = list(csv.DictReader(io.StringIO(text)))
    losses = [row for row in rows if row["quantity"] == "validation.loss"]
    assert [int(row["step"]) for row in losses] == list(range(0, 401, 50))
    assert [row["layer"] for row in rows if row["quantity"] == "stream.norm"] == list("0123456")
    page.close()


def test_the_numbers_of_a_curve_are_told_by_step(browser: Any, tmp_path: Path) -> None:
    path = write_html([training_record()], tmp_path / "page.html")
    page, _ = visit(browser, path, SIZES["desktop"], "light")
    page.locator("#training-1 details summary").click()
    assert page.locator("#training-1 .numbers th").first.text_content() == "step"
    page.close()
