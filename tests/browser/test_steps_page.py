"""The maps of layers by steps in a browser. Run with `pytest -m browser`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from leadline.reading.page.html import write_html
from leadline.reading.watch.heat import chosen_series, heat_map, layer_series
from leadline.reading.watch.history import History
from leadline.reading.watch.shading import shade
from tests.browser.test_training_pages import SIZES, visit
from tests.synthetic_sweep import training_record
from tests.synthetic_watch import Course, watch_record

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.browser

COURSE = Course(layers=12, samples=60, every=10)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("steps")
    return write_html([watch_record(COURSE)], folder / "page.html")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", SIZES)
def test_the_page_fits_asks_for_nothing_and_colours_its_cells(
    browser: Any, path: Path, size: str, scheme: str
) -> None:
    page, problems = visit(browser, path, SIZES[size], scheme)
    page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
    assert problems == []
    assert page.evaluate("document.documentElement.scrollWidth") <= SIZES[size][0]
    colours = page.evaluate(
        "[...document.querySelectorAll('#heat-0-0 .field path[class^=h]')]"
        ".map(p => getComputedStyle(p).stroke)"
    )
    assert len(colours) == len(set(colours)) > 5

    def light(colour: str) -> float:
        return sum(float(one) for one in colour[4:-1].split(",")[:3])

    brightness = [light(colour) for colour in colours]
    assert brightness == sorted(brightness, reverse=scheme == "light")
    # The strokes cover all of the field, and the loss has its width.
    field = page.locator("#heat-0-0 .field").bounding_box()
    cells = page.locator("#heat-0-0 .field svg").bounding_box()
    curve = page.locator("#heat-0-0 .curve").bounding_box()
    assert cells == field
    assert (curve["x"], curve["width"]) == (field["x"], field["width"])
    page.close()


def test_letters_keep_their_size_and_do_not_run_into_each_other(browser: Any, path: Path) -> None:
    for size in SIZES.values():
        page, _ = visit(browser, path, size, "light")
        for group in (".layers span", ".steps span", ".steps b"):
            boxes = page.evaluate(
                "s => [...document.querySelectorAll('#heat-0-0 ' + s)]"
                ".map(e => e.getBoundingClientRect().toJSON())",
                group,
            )
            assert boxes
            for at, one in enumerate(boxes):
                assert one["height"] > 8
                for other in boxes[at + 1 :]:
                    apart = (
                        one["right"] <= other["left"] + 0.5
                        or other["right"] <= one["left"] + 0.5
                        or one["bottom"] <= other["top"] + 1.5
                        or other["bottom"] <= one["top"] + 1.5
                    )
                    assert apart, (group, one, other)
        page.close()


def test_the_pointer_is_told_layer_step_and_value(browser: Any, path: Path) -> None:
    page, problems = visit(browser, path, SIZES["desktop"], "light")
    [group] = chosen_series(layer_series(History.of(watch_record(COURSE))), "attention.logit_std")
    made = shade(heat_map(group, columns=100, span=(1, COURSE.last)), 9, steady=True)
    page.locator("#heat-0-0").scroll_into_view_if_needed()
    box = page.locator("#heat-0-0 .field").bounding_box()
    for row, column in ((0, 0), (7, 59), (11, 30)):
        place = (column + 0.5) / 60, (row + 0.5) / 12
        page.mouse.move(box["x"] + place[0] * box["width"], box["y"] + place[1] * box["height"])
        words = page.locator("#heat-0-0 .readout").text_content()
        assert words.startswith(f"layer {row + 1}, step")
        assert words.endswith(made.words(int(made.shades[row, column])))
    page.mouse.move(0, 0)
    assert page.locator("#heat-0-0 .readout").text_content() == ""
    assert problems == []
    page.close()


def test_the_keyboard_goes_from_cell_to_cell(browser: Any, path: Path) -> None:
    page, problems = visit(browser, path, SIZES["desktop"], "light")
    page.locator("#heat-0-0 .field").focus()
    page.keyboard.press("ArrowLeft")
    first = page.locator("#heat-0-0 .readout").text_content()
    assert first.startswith("layer 1, steps 581 to 590: ")
    page.keyboard.press("ArrowDown")
    assert page.locator("#heat-0-0 .readout").text_content().startswith("layer 2, steps 581")
    page.keyboard.press("ArrowLeft")
    assert page.locator("#heat-0-0 .readout").text_content().startswith("layer 2, steps 571")
    assert problems == []
    page.close()


def test_the_numbers_are_a_table_when_they_are_opened(browser: Any, path: Path) -> None:
    page, _ = visit(browser, path, SIZES["desktop"], "light")
    page.locator("#heat-0-0 details.layered summary").click()
    rows = page.locator("#heat-0-0 .numbers tbody tr")
    rows.first.wait_for()
    assert rows.count() == 12
    assert rows.nth(7).locator("th").text_content() == "8"
    assert "@590" in rows.nth(7).text_content()
    page.close()


def test_the_loss_is_drawn_in_folded_maps_too(browser: Any, path: Path) -> None:
    page, _ = visit(browser, path, SIZES["desktop"], "light")
    page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
    widths = page.evaluate(
        "[...document.querySelectorAll('.heat .curve use')].map(u => u.getBoundingClientRect().width)"
    )
    assert len(widths) == 17
    assert min(widths) > 100
    page.close()


def test_a_link_from_the_headline_leads_to_the_card_of_its_warning(
    browser: Any, path: Path
) -> None:
    page, _ = visit(browser, path, SIZES["desktop"], "light")
    page.locator('.findings a[href="#finding-0-1"]').click()
    assert page.locator("#finding-0-1").is_visible()
    assert "G90 logits-grow" in page.locator("#finding-0-1 h3").text_content()
    page.close()


def test_a_run_of_train_has_its_maps(browser: Any, tmp_path: Path) -> None:
    path = write_html([training_record(layers=True)], tmp_path / "page.html")
    page, problems = visit(browser, path, SIZES["phone"], "light")
    assert page.locator(".heat").count() == 1
    assert problems == []
    page.close()
