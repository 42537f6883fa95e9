"""Records and runs on the page, against the lab as it is started from the command line."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.synthetic import broken_record, gpt2_record
from tests.synthetic_sweep import cell_entry, cell_readings, sweep_record
from tests.synthetic_watch import Course, growing_file, note_progress, write_sample
from tests.visited_lab import DESKTOP, LONG, PHONE, VisitedLab

pytestmark = pytest.mark.browser

pytest.importorskip("starlette")
expect = pytest.importorskip("playwright.sync_api").expect

ROOT = Path(__file__).parents[2]
COURSE = Course(layers=4, samples=30)
HOSTILE = "<img src=x onerror=alert(1)>"


def row(page: Any, name: str) -> Any:
    return page.locator("tr[data-record]").filter(
        has=page.get_by_role("link", name=name, exact=True)
    )


def columns(page: Any) -> int:
    """How many columns the heat map has."""
    return page.locator(".heat-map canvas").evaluate("canvas => canvas.width")


def wait_for_columns(page: Any, least: int) -> None:
    """Wait until the heat map has so many columns."""
    for _ in range(LONG // 250):
        if columns(page) >= least:
            return
        page.wait_for_timeout(250)
    assert columns(page) >= least


def test_an_empty_folder_says_how_to_make_a_record(lab: VisitedLab):
    page = lab.open("#/records")
    expect(page.get_by_text("There is no record in this folder yet")).to_be_visible(timeout=LONG)
    assert "leadline measure" in page.locator(".nothing").inner_text()
    gpt2_record().save(lab.folder / "first.leadline")
    expect(row(page, "first")).to_be_visible(timeout=LONG)
    expect(page.locator(".nothing")).to_be_hidden()
    (lab.folder / "first.leadline").unlink()
    expect(page.get_by_text("There is no record in this folder yet")).to_be_visible(timeout=LONG)


def test_the_list_can_be_searched_filtered_and_ordered(lab: VisitedLab):
    gpt2_record().save(lab.folder / "gpt2.leadline")
    broken_record().save(lab.folder / "broken.leadline")
    (lab.folder / "odd.leadline").write_bytes(b"this is no record\n" * 40)
    page = lab.open("#/records")
    names = page.locator(".record-name")
    expect(row(page, "broken").locator(".level-mark")).to_have_text("✕serious", timeout=LONG)
    expect(row(page, "broken")).to_contain_text("The stream is not finite from layer 5 on.")
    expect(row(page, "gpt2").locator(".level-mark")).to_have_text("inote")
    expect(row(page, "odd").locator(".state")).to_contain_text("damaged")
    expect(row(page, "odd")).to_contain_text("it is not an SQLite file")
    assert row(page, "odd").locator("input").is_disabled()
    page.get_by_label("Search").fill("finite LAYER")
    expect(names).to_have_text(["broken"])
    page.get_by_label("Search").fill("nowhere")
    expect(page.get_by_text("No record matches.")).to_be_visible()
    page.get_by_role("button", name="Show all records").click()
    page.get_by_label("Verdict").select_option("note")
    expect(names).to_have_text(["gpt2"])
    page.get_by_label("Verdict").select_option("")
    page.get_by_label("Status").select_option("damaged")
    expect(names).to_have_text(["odd"])
    page.get_by_label("Status").select_option("")
    page.get_by_label("Order").select_option("worst")
    expect(names).to_have_text(["broken", "odd", "gpt2"])
    assert page.evaluate("location.hash") == "#/records?order=worst"
    page.get_by_label("Search").fill("g")
    page.reload()
    expect(page.get_by_label("Search")).to_have_value("g")
    expect(page.get_by_label("Order")).to_have_value("worst")


def test_a_record_opens_as_its_report_and_several_as_one(lab: VisitedLab):
    gpt2_record().save(lab.folder / "gpt2.leadline")
    broken_record().save(lab.folder / "broken.leadline")
    (lab.folder / "odd.leadline").write_bytes(b"this is no record\n" * 40)
    page = lab.open("#/records")
    row(page, "gpt2").get_by_role("link").click()
    report = page.frame_locator("iframe.report")
    expect(report.locator("h1")).to_contain_text("gpt2", timeout=LONG)
    assert page.locator("iframe.report").evaluate("frame => frame.clientWidth") == DESKTOP[0]
    with page.context.expect_page() as opened:
        page.get_by_role("link", name="Open in a tab").click()
    expect(opened.value.locator("h1")).to_contain_text("gpt2", timeout=LONG)
    page.get_by_role("link", name="← All records").click()
    page.get_by_label("Choose gpt2").check()
    assert page.get_by_role("button", name="Show together").is_disabled()
    page.get_by_label("Choose broken").check()
    page.get_by_role("button", name="Show together").click()
    expect(report.locator("h1")).to_have_text("gpt2 and broken", timeout=LONG)
    page.goto(f"{lab.origin}#/records")
    row(page, "odd").get_by_role("link").click()
    expect(page.locator(".record-said")).to_contain_text("it is not an SQLite file")
    assert page.locator("iframe").count() == 0
    page.goto(f"{lab.origin}#/record/0123456789abcdef")
    expect(page.locator("h1")).to_have_text("This record is not in the folder any more")


def test_a_training_appears_and_grows_while_it_is_written(
    lab: VisitedLab, start: Callable[..., subprocess.Popen[str]]
):
    page = lab.open("#/records")
    file = lab.folder / "run.leadline"
    small = ("--set", "depth=3", "--set", "width=32", "--set", "heads=2")
    command = [sys.executable, "-m", "leadline", "train", "--recipe", "gpt2", *small, "--layers"]
    training = start(
        [*command, "--steps", "4000", "-q", "-o", str(file)],
        text=True,
        cwd=ROOT,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    expect(row(page, "run").locator(".state")).to_contain_text("being written", timeout=LONG)
    row(page, "run").get_by_role("link").click()
    page.locator(".heat-map canvas").wait_for()
    state = page.locator(".run-state")
    expect(state).to_contain_text("being written")
    before, step = columns(page), page.locator(".run-answer").inner_text()
    expect(page.locator(".run-answer")).not_to_have_text(step, timeout=LONG)
    wait_for_columns(page, before + 1)
    expect(page.locator(".run-loss .unseen").first).to_contain_text("step")
    training.kill()
    training.wait()
    expect(state).to_contain_text("was cut off", timeout=LONG)
    page.get_by_role("link", name="← All records").click()
    expect(row(page, "run").locator(".state")).to_contain_text("cut off", timeout=LONG)


def test_a_watched_run_tells_maps_gauges_and_findings_until_it_ends(lab: VisitedLab):
    record = growing_file(lab.folder / "watch.leadline", COURSE)
    for sample in range(10):
        write_sample(record, COURSE, sample)
    context = lab.context()
    first, second = (lab.open("#/records", context=context) for _ in range(2))
    row(first, "watch").get_by_role("link").click()
    second.goto(first.url)
    for page in (first, second):
        expect(page.locator(".run-answer")).to_contain_text(
            f"Step {COURSE.step_of(9)}", timeout=LONG
        )
    assert first.locator(".heat-map h3").inner_text() == "Stream norm"
    first.get_by_label("Map of").select_option("tokens.cosine")
    expect(first.locator(".heat-map h3")).to_have_text("Token cosine")
    wait_for_columns(first, 10)
    canvas = first.locator(".heat-map canvas")
    canvas.focus()
    first.keyboard.press("ArrowRight")
    # 0.15 at layer 0 and 0.1 of the part of the run that is done: the formula of the course
    value = 0.15 + 0.1 * COURSE.step_of(0) / COURSE.last
    expect(first.locator(".heat-readout")).to_have_text(f"layer 0, step 1: {value:.4f}")
    for sample in range(10, COURSE.samples):
        write_sample(record, COURSE, sample)
    for page in (first, second):
        expect(page.locator(".finding").first).to_contain_text("The loss has risen", timeout=LONG)
    expect(first.locator(".finding")).to_have_count(2, timeout=LONG)
    wait_for_columns(first, COURSE.samples)
    expect(first.locator(".heat-map h3")).to_have_text("Token cosine")  # as it was chosen
    expect(second.locator(".heat-map h3")).to_have_text("Spread of the attention logits, attention")
    warned = first.locator(".gauges tr.warned").filter(has_text=f"layer {COURSE.sick_layer}")
    expect(warned).to_contain_text("Spread of the attention logits", timeout=LONG)
    warned.get_by_role("button").click()
    expect(first.locator(".heat-map h3")).to_have_text("Spread of the attention logits, attention")
    expect(first.locator(".heat-marks b")).to_have_count(2)
    note_progress(record, COURSE, step=COURSE.last, closed=True)
    record.close()
    for page in (first, second):
        expect(page.locator(".run-state")).to_contain_text("has ended", timeout=LONG)
    first.get_by_role("button", name="Report").click()
    expect(first.frame_locator("iframe.report").locator("h1")).to_be_visible(timeout=LONG)


def test_the_map_of_a_sweep_fills(lab: VisitedLab):
    import numpy as np

    from leadline.record import Record

    last = "design=post, depth=12, seed=0"
    made = sweep_record(limits={"pre": 12, "post": 6}, depths=(6, 12), seeds=(0,), missing=(last,))
    made.save(lab.folder / "sweep.leadline")
    record = Record.reopen(lab.folder / "sweep.leadline")
    page = lab.open("#/records")
    expect(row(page, "sweep").locator(".state")).to_contain_text("being written", timeout=LONG)
    row(page, "sweep").get_by_role("link").click()
    cells = page.locator(".sweep td[data-cell]")
    expect(cells).to_have_text(["●1 of 1", "●1 of 1", "●1 of 1", "·1 to run"], timeout=LONG)
    expect(page.locator(".follow")).to_contain_text("3 of 4 trainings have ended.")
    entry = cell_entry({"design": "post", "depth": 12}, 0, loss=3.13)
    with record.together():
        record.append(cell_readings(last, 0, entry, good=False, rng=np.random.default_rng(0)))
        record.note(f"cell:{last}", entry)
    expect(cells).to_have_text(["●1 of 1", "●1 of 1", "●1 of 1", "○0 of 1"], timeout=LONG)
    record.close()
    expect(page.locator(".run-state")).to_contain_text("has ended", timeout=LONG)


def test_a_lost_connection_is_told_and_taken_up_again(lab: VisitedLab):
    gpt2_record().save(lab.folder / "gpt2.leadline")
    requests: list[str] = []

    def break_off(route: Any) -> None:
        """The first stream ends at once, and no other one begins."""
        requests.append(route.request.url)
        if len(requests) == 1:
            route.fulfill(content_type="text/event-stream", body=": leadline\n\n")
        else:
            route.abort()

    context = lab.context()
    context.route("**/api/records/events", break_off)
    page = lab.open("#/records", context=context)
    expect(row(page, "gpt2")).to_be_visible(timeout=LONG)
    expect(page.get_by_text("The connection is lost; trying again")).to_be_visible(timeout=LONG)
    broken_record().save(lab.folder / "broken.leadline")
    page.wait_for_timeout(1500)
    assert row(page, "broken").count() == 0
    context.unroute("**/api/records/events")
    expect(row(page, "broken")).to_be_visible(timeout=LONG)
    expect(page.locator(".connection")).to_be_hidden()
    assert len(requests) > 1
    lab.problems[:] = [one for one in lab.problems if "ERR_FAILED" not in one]


def test_names_are_text(lab: VisitedLab):
    (lab.folder / "<b>").mkdir()
    gpt2_record(name=HOSTILE).save(lab.folder / "<b>" / "<img src=x onerror=alert(1)>.leadline")
    record = growing_file(lab.folder / "<i onclick=alert(1)>run.leadline", COURSE)
    record.note("model", {"name": HOSTILE})
    for sample in range(5):
        write_sample(record, COURSE, sample)
    page = lab.open("#/records")
    expect(row(page, HOSTILE)).to_be_visible(timeout=LONG)
    assert page.locator("main img, main b:not(.level-mark b), main i[onclick]").count() == 0
    page.get_by_label("Search").fill("<img")
    row(page, HOSTILE).get_by_role("link").click()
    expect(page.frame_locator("iframe.report").locator("h1")).to_contain_text("<img", timeout=LONG)
    assert page.locator("h1").inner_text() == HOSTILE
    page.goto(f"{lab.origin}#/records")
    row(page, "<i onclick=alert(1)>run").get_by_role("link").click()
    expect(page.locator(".run-answer")).to_contain_text("Step", timeout=LONG)
    record.close()
    page.goto(f"{lab.origin}#/diagnose?model={HOSTILE}&kind=folder")
    page.get_by_role("button", name="Diagnose").click()
    expect(page.locator(".reason")).to_contain_text(f"There is no folder {HOSTILE}")
    lab.problems[:] = [one for one in lab.problems if "422" not in one]  # Chromium's own line
    assert page.locator("main img").count() == 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_the_views_fit_and_axe_has_no_serious_complaint(
    lab: VisitedLab, axe: str, size: tuple[int, int], scheme: str
):
    gpt2_record().save(lab.folder / "gpt2.leadline")
    broken_record().save(lab.folder / "broken.leadline")
    sweep_record().save(lab.folder / "sweep.leadline")
    record = growing_file(lab.folder / "watch.leadline", COURSE)
    for sample in range(COURSE.samples):
        write_sample(record, COURSE, sample)
    page = lab.open("#/records", size=size, scheme=scheme)
    expect(row(page, "broken").locator(".level-mark")).to_be_visible(timeout=LONG)
    page.get_by_label("Choose gpt2").check()
    addresses = {
        name: row(page, name).get_by_role("link").get_attribute("href")
        for name in ("watch", "sweep")
    }
    page.evaluate(axe)
    serious = complaints(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= size[0]
    views = {
        addresses["watch"]: ".gauges",
        f"{addresses['sweep']}?part=steps": ".sweep td",
        "#/diagnose": ".diagnose-form",
    }
    for view, part in views.items():
        page.evaluate("address => { location.hash = address; }", view)
        page.locator(part).first.wait_for()
        assert page.evaluate("document.documentElement.scrollWidth") <= size[0]
        serious += complaints(page)
    record.close()
    assert serious == []


def complaints(page: Any) -> list[Any]:
    violations = page.evaluate("axe.run().then((result) => result.violations)")
    return [
        (one["id"], [node["html"] for node in one["nodes"]][:3])
        for one in violations
        if one["impact"] in ("serious", "critical")
    ]


@pytest.mark.parametrize("language", ["zh", "ru"])
def test_the_views_speak_the_language_of_the_page(lab: VisitedLab, language: str):
    gpt2_record().save(lab.folder / "gpt2.leadline")
    page = lab.open("#/records", size=PHONE)
    expect(row(page, "gpt2")).to_be_visible(timeout=LONG)
    page.locator(".tools select").select_option(language)
    title = {"zh": "记录", "ru": "Записи"}[language]
    expect(page.locator("h1")).to_have_text(title)
    expect(row(page, "gpt2")).to_be_visible(timeout=LONG)
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE[0]
    page.goto(f"{lab.origin}#/diagnose")
    expect(page.locator("h1")).to_have_text(
        {"zh": "诊断一个模型", "ru": "Диагноз модели"}[language]
    )
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE[0]


def test_a_record_that_is_gone_or_damaged_is_told_where_several_overlay(lab: VisitedLab):
    gpt2_record().save(lab.folder / "gpt2.leadline")
    broken_record().save(lab.folder / "broken.leadline")
    page = lab.open("#/records")
    expect(row(page, "broken").locator(".level-mark")).to_have_text("✕serious", timeout=LONG)
    names = [row(page, name).get_attribute("data-record") or "" for name in ("gpt2", "broken")]
    page.evaluate("ids => location.hash = '#/record/' + ids", ",".join([*names, "gone"]))
    expect(page.get_by_text("This record is not in the folder any more")).to_be_visible()
    assert page.locator("iframe").count() == 0
    page.evaluate("ids => location.hash = '#/record/' + ids", ",".join(names))
    expect(page.frame_locator("iframe.report").locator("h1").first).to_be_visible(timeout=LONG)
    (lab.folder / "broken.leadline").write_bytes(b"this is no record\n" * 40)
    expect(page.locator(".record-said")).to_contain_text("broken: ", timeout=LONG)
    expect(page.locator(".record-said")).to_contain_text("it is not an SQLite file")
    assert page.locator("iframe").count() == 0


def test_a_record_is_reached_with_the_keyboard_alone(lab: VisitedLab):
    gpt2_record().save(lab.folder / "gpt2.leadline")
    broken_record().save(lab.folder / "broken.leadline")
    page = lab.open("#/records")
    expect(row(page, "gpt2")).to_be_visible(timeout=LONG)
    page.get_by_label("Search").focus()
    for _ in range(4):
        page.keyboard.press("Tab")
    page.keyboard.press("Space")
    assert page.locator("tr[data-record] input").first.is_checked()
    page.keyboard.press("Tab")
    name = page.evaluate("document.activeElement.textContent")
    page.keyboard.press("Enter")
    expect(page.locator("h1")).to_have_text(name)
