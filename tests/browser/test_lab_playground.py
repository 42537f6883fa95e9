"""The playground in a browser, against a server that answers by formula."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.lab_stub import PRESETS, QUANTITIES, TOKEN, Stub, curves, defaults, knobs, serve

pytestmark = pytest.mark.browser

expect = pytest.importorskip("playwright.sync_api").expect

FACTS = {"parameters": 1, "tokens": 2, "seconds": 0.0}
DESKTOP, PHONE = (1400, 900), (390, 844)
LONG_TASKS = """
window.longTasks = [];
new PerformanceObserver((list) => {
    for (const entry of list.getEntries()) window.longTasks.push([entry.startTime, entry.duration]);
}).observe({ type: "longtask", buffered: true });
"""
FRAMES = """new Promise((done) => {
    let rest = 20;
    const next = () => (rest-- ? requestAnimationFrame(next) : done());
    next();
})"""
# The page's policy forbids what `wait_for_function` does, so the waiting is done in the page.
SETTLED = """new Promise((done, fail) => {
    const [start, all] = [performance.now(), (selector) => [...document.querySelectorAll(selector)]];
    let calm = 0;
    const look = () => {
        const ready = all(".design").length === 2 && !all(".design.busy").length
            && !all(".design.waiting").length;
        calm = ready ? calm + 1 : 0;
        if (calm > 20) done();
        else if (performance.now() - start > 20000) fail(new Error(document.body.innerText));
        else requestAnimationFrame(look);
    };
    look();
})"""
ZOOMED_OUT = "document.documentElement.scrollWidth"


class Visit:
    """A page in the browser, with what went wrong on it."""

    def __init__(self, page: Any, origin: str, stub: Stub) -> None:
        self.page, self.origin, self.stub = page, origin, stub
        self.problems: list[str] = []
        self.foreign: list[str] = []
        page.on("pageerror", lambda error: self.problems.append(str(error)))
        page.on("console", self._hear)
        page.on("request", self._look)

    def _hear(self, line: Any) -> None:
        if line.type in ("error", "warning"):
            self.problems.append(line.text)

    def _look(self, request: Any) -> None:
        if not request.url.startswith(self.origin):
            self.foreign.append(request.url)

    def go(self, address: str = "#/play?preset=none", *, token: bool = True) -> Visit:
        self.page.goto(f"{self.origin}{f'?token={TOKEN}' if token else ''}{address}")
        return self

    def cell(self, knob: str, side: str) -> Any:
        return self.page.locator(f"[data-knob={knob}] .cell.{side}")

    def card(self, side: str) -> Any:
        return self.page.locator(f".design.{side}")

    def settled(self) -> Visit:
        """Wait until both sides have been answered and drawn."""
        self.page.evaluate(SETTLED)
        return self

    def frames(self) -> None:
        """Wait until what is due is drawn."""
        self.page.evaluate(FRAMES)

    def asked(self, side: str) -> dict[str, Any]:
        """The design of the latest request of a side."""
        bodies = [one for one in self.stub.asked("/api/curves") if one["side"] == side]
        return bodies[-1]["design"]

    def hash(self) -> str:
        return self.page.evaluate("location.hash")

    def words_of(self, quantity: str) -> str:
        """A chart in words."""
        return self.page.locator(f"[data-quantity='{quantity}'] .unseen").first.inner_text()


@pytest.fixture(scope="module")
def server() -> Iterator[tuple[Stub, str]]:
    started, stub, address = serve()
    yield stub, address.partition("?")[0]
    started.shutdown()
    started.server_close()


@pytest.fixture
def visit(browser: Any, server: tuple[Stub, str]) -> Iterator[Callable[..., Visit]]:
    stub, origin = server
    stub.requests.clear()
    contexts: list[Any] = []

    def start(*, size: tuple[int, int] = DESKTOP, scheme: str = "light", **more: Any) -> Visit:
        context = browser.new_context(
            viewport={"width": size[0], "height": size[1]},
            color_scheme=scheme,
            has_touch=size == PHONE,
            is_mobile=size == PHONE,
            locale="en-GB",
            **more,
        )
        contexts.append(context)
        context.add_init_script(LONG_TASKS)
        return Visit(context.new_page(), origin, stub)

    yield start
    stub.delay = 0.0
    for context in contexts:
        context.close()


def test_the_token_leaves_the_address_and_stays_for_the_next_visit(visit: Callable[..., Visit]):
    visited = visit().go().settled()
    assert "token" not in visited.page.url
    visited.go(token=False).settled()
    assert visited.problems == [] and visited.foreign == []


def test_without_a_token_the_printed_address_can_be_pasted(visit: Callable[..., Visit]):
    visited = visit().go(token=False)
    visited.page.get_by_label("Address").fill(f"{visited.origin}?token={TOKEN}#/")
    visited.page.keyboard.press("Enter")
    visited.settled()


@pytest.mark.parametrize("pasted", ["слово", "http://127.0.0.1/?token=%E0%A4%A#/", "a\u2028b"])
def test_what_is_no_token_is_asked_for_again_also_after_a_reload(
    visit: Callable[..., Visit], pasted: str
):
    page = visit().go(token=False).page
    page.get_by_label("Address").fill(pasted)
    page.keyboard.press("Enter")
    expect(page.get_by_label("Address")).to_have_value("")
    page.reload()
    page.get_by_label("Address").wait_for()


@pytest.mark.parametrize(
    "view", ["constructor", "__proto__", "toString", "nothing", "play%E0%A4%A"]
)
def test_an_address_of_no_view_opens_the_playground(visit: Callable[..., Visit], view: str):
    visited = visit().go(f"#/{view}").settled()
    assert visited.problems == []


@pytest.mark.parametrize("side", ["a", "b"])
def test_every_knob_asks_for_its_design(visit: Callable[..., Visit], side: str):
    visited = visit().go().settled()
    turned = {}
    for knob in knobs()["knobs"]:
        name = knob["name"]
        cell = visited.card(side).locator(".depth") if name == "depth" else visited.cell(name, side)
        if knob["kind"] == "choice":
            turned[name] = knob["choices"][-1]["name"]
            cell.locator("select").first.select_option(turned[name])
        elif knob["kind"] == "text":
            turned[name] = "Waves."
            cell.locator("textarea").fill(turned[name])
        else:
            turned[name] = {"gain": 0.5, "heads": 8, "width": 128, "depth": 7, "seed": 3}[name]
            cell.locator("input[type=number]").fill(str(turned[name]))
            visited.page.keyboard.press("Enter")
        visited.settled()
        other = visited.asked("b" if side == "a" else "a")
        assert visited.asked(side) == turned
        assert other == {}
    visited.cell("connection", side).get_by_label("lanes").fill("4")
    visited.page.keyboard.press("Enter")
    visited.settled()
    assert visited.asked(side)["connection"] == "hyper(lanes=4)"
    differing = visited.page.locator(".knob.differs").evaluate_all(
        "rows => rows.map((row) => row.dataset.knob)"
    )
    assert set(differing) == set(turned) - {"depth"}
    assert visited.problems == []


def test_the_curves_of_both_designs_are_those_of_the_answer(visit: Callable[..., Visit]):
    visited = visit().go("#/play?depth=9&b.connection=none").settled()
    words = visited.words_of("gradient.stream")
    # 0.02 * 10 ** (-0.45 * 9) at layer 0, 0.02 (1 + 0.2 sin 9) at layer 9, by hand
    assert "B: 1.78×10⁻⁶ (layer 0) → 0.0216 (layer 9)" in words
    assert words.startswith("A: 0.0200 (layer 0)")
    # 0.9 * 10 ** -118: below the range of floats further on
    residual = visited.words_of("tokens.relative_residual")
    assert "B: 0.0900 (layer 0) → 9.00×10⁻¹¹⁹ (layer 9)" in residual
    assert "; grows as √layer: 8.00" in visited.words_of("stream.norm")


def test_the_first_visit_tells_the_first_story(visit: Callable[..., Visit]):
    visited = visit().go("#/").settled()
    chip = visited.page.get_by_role("button", name="Norm before or after")
    assert chip.get_attribute("aria-pressed") == "true"
    assert PRESETS[0]["story"] in visited.page.locator(".story").inner_text()
    watched = visited.page.locator(".watched").evaluate_all(
        "all => all.map((c) => c.dataset.quantity)"
    )
    assert watched == ["gradient.stream"]
    assert visited.asked("a") == PRESETS[0]["a"]


def test_a_story_can_be_changed_and_told_again(visit: Callable[..., Visit]):
    visited = visit().go("#/").settled()
    visited.page.get_by_role("button", name="ReZero").click()
    visited.settled()
    assert visited.hash() == "#/play?preset=rezero"
    visited.cell("placement", "a").locator("select").select_option("sandwich")
    visited.settled()
    assert visited.hash() == "#/play?preset=rezero&placement=sandwich"
    visited.page.get_by_role("button", name="Start the story again").click()
    visited.settled()
    assert visited.hash() == "#/play?preset=rezero"
    assert visited.asked("a") == {"connection": "rezero"}


def test_the_state_is_in_the_address_and_comes_back(visit: Callable[..., Visit]):
    address = "#/play?connection=hyper(lanes=4)&depth=48&b.placement=post&b.gain=0.5"
    visited = visit().go(address).settled()
    assert visited.asked("a") == {"connection": "hyper(lanes=4)", "depth": 48}
    assert visited.asked("b") == {**visited.asked("a"), "placement": "post", "gain": 0.5}
    assert visited.cell("connection", "b").get_by_label("lanes").input_value() == "4"
    visited.page.get_by_role("button", name="Swap A and B").click()
    visited.settled()
    assert visited.asked("a")["placement"] == "post"
    visited.page.go_back()
    visited.settled()
    assert visited.asked("a") == {"connection": "hyper(lanes=4)", "depth": 48}
    visited.page.get_by_role("button", name="Make B like A").click()
    visited.settled()
    assert visited.asked("b") == visited.asked("a")
    visited.page.reload()
    visited.settled()
    assert visited.asked("b") == {"connection": "hyper(lanes=4)", "depth": 48}


def drag(visited: Visit, *, moves: int) -> None:
    """Drag the depth of A from end to end."""
    box = visited.card("a").locator("input[type=range]").bounding_box()
    mouse, y = visited.page.mouse, box["y"] + box["height"] / 2
    mouse.move(box["x"] + 10, y)
    mouse.down()
    for at in range(moves):
        mouse.move(box["x"] + 10 + (box["width"] - 20) * (at + 1) / moves, y)
    mouse.move(box["x"] + box["width"] + 5, y)
    mouse.up()


def test_a_drag_is_one_step_of_the_history_and_only_the_latest_design_waits(
    visit: Callable[..., Visit],
):
    visited = visit().go("#/play?b.placement=post").settled()
    visited.stub.delay = 0.1
    before = len(visited.stub.requests)
    drag(visited, moves=80)
    visited.settled()
    assert visited.asked("a") == {"depth": 96}
    assert len(visited.stub.requests) - before < 40
    assert "depth=96" in visited.hash()
    visited.page.go_back()
    visited.settled()
    assert visited.hash() == "#/play?b.placement=post"
    assert visited.asked("a") == {}


def test_no_task_is_long_while_dragging(visit: Callable[..., Visit]):
    """Three drags; the machine may be busy with other things during one of them."""
    visited = visit().go("#/play?preset=no-shortcut").settled()
    longest = []
    for _ in range(3):
        visited.page.evaluate("window.longTasks.length = 0")
        drag(visited, moves=120)
        visited.settled()
        longest.append(max((one[1] for one in visited.page.evaluate("longTasks")), default=0))
    assert min(longest) <= 50


def test_a_design_that_cannot_be_built_is_told_beside_its_knob(visit: Callable[..., Visit]):
    visited = visit().go().settled()
    before = visited.words_of("stream.norm")
    field = visited.cell("heads", "a").locator("input[type=number]")
    field.fill("5")
    visited.page.keyboard.press("Enter")
    reason = visited.cell("heads", "a").locator(".reason")
    reason.wait_for(state="visible")
    assert "cannot be divided among 5 heads" in reason.inner_text()
    assert field.get_attribute("aria-invalid") == "true"
    assert field.get_attribute("aria-describedby") == reason.get_attribute("id")
    assert "cannot be built" in visited.card("a").inner_text()
    assert visited.words_of("stream.norm") == before
    field.fill("8")
    visited.page.keyboard.press("Enter")
    reason.wait_for(state="hidden")
    assert "Healthy" in visited.card("a").inner_text()
    assert visited.problems == []


def test_a_verdict_is_pale_until_that_of_the_new_curves_comes(visit: Callable[..., Visit]):
    visited = visit().go().settled()
    answered = json.dumps(
        {"part": "curves", "curves": curves(defaults() | {"depth": 7}), "facts": FACTS}
    )
    visited.page.route(
        "**/api/curves",
        lambda route: route.fulfill(body=answered + "\n", content_type="application/x-ndjson"),
    )
    visited.card("a").locator("input[type=number]").fill("7")
    visited.page.keyboard.press("Enter")
    visited.page.locator(".design.a.stale").wait_for()
    visited.page.unroute("**/api/curves")
    visited.card("a").locator("input[type=number]").fill("8")
    visited.page.keyboard.press("Enter")
    visited.settled()
    assert visited.page.locator(".design.stale").count() == 0


def test_a_server_that_is_gone_is_told_and_comes_back(visit: Callable[..., Visit]):
    visited = visit().go().settled()
    visited.page.route("**/api/curves", lambda route: route.abort())
    visited.card("a").locator("input[type=number]").fill("30")
    visited.page.keyboard.press("Enter")
    visited.card("a").locator(".verdict .reason").wait_for(state="visible")
    visited.page.unroute("**/api/curves")
    visited.card("a").locator("input[type=number]").fill("31")
    visited.page.keyboard.press("Enter")
    visited.settled()
    assert "31 layers" in visited.card("a").locator(".sentence").inner_text()


def test_what_an_address_holds_too_much_is_said_until_a_knob_is_turned(
    visit: Callable[..., Visit],
):
    visited = visit().go("#/play?a.depth=12&dept=6&preset=nothing").settled()
    left_out = visited.page.locator(".story .left-out")
    assert left_out.inner_text().endswith("left out: a.depth, dept, preset=nothing.")
    visited.card("a").locator(".depth input[type=number]").fill("6")
    visited.card("a").locator(".depth input[type=number]").press("Enter")
    left_out.wait_for(state="hidden")
    visited.go("#/play?preset=none&b.placement=post").settled()
    assert left_out.is_hidden()


def test_training_moves_loss_and_gauges_and_can_stop_and_go_on(visit: Callable[..., Visit]):
    visited = visit().go("#/play?preset=post-against-pre").settled()
    start = visited.words_of("gradient.stream")
    card = visited.card("a")
    sentence = card.locator(".sentence").inner_text()
    visited.page.locator(".settings summary").click()
    visited.page.get_by_label("training steps").fill("80")
    visited.page.locator(".settings summary").click()
    card.get_by_role("button", name="Train").click()
    card.get_by_role("button", name="Pause").click()
    card.get_by_role("button", name="Go on").wait_for()
    visited.page.wait_for_timeout(200)
    paused = visited.page.locator(".run.a").inner_text()
    visited.page.wait_for_timeout(300)
    assert visited.page.locator(".run.a").inner_text() == paused
    card.get_by_role("button", name="Go on").click()
    card.get_by_role("button", name="Show the start").wait_for(timeout=20000)
    # The loss has taken its place on the one screen, and has not pushed anything off it.
    assert visited.page.evaluate("document.documentElement.scrollHeight - innerHeight") <= 0
    assert "step 80" in visited.page.locator(".run.a").inner_text()
    assert "after 80 training steps" in card.inner_text()
    assert card.locator(".sentence").inner_text() == "Tokens became equal."
    assert card.get_attribute("data-level") == "serious"
    assert visited.words_of("gradient.stream") != start
    card.get_by_role("button", name="Show the start").click()
    visited.frames()
    assert visited.words_of("gradient.stream") == start
    assert card.locator(".sentence").inner_text() == sentence
    card.get_by_role("button", name="Train").click()
    card.get_by_role("button", name="Stop").click()
    card.get_by_role("button", name="Train").wait_for()
    job = list(visited.stub.jobs.values())[-1]
    assert job.stopped.is_set() and job.training["steps"] == 80
    assert visited.problems == []


def test_a_verdict_is_said_in_the_language_of_the_page(visit: Callable[..., Visit]):
    visited = visit()
    visited.page.add_init_script("localStorage.setItem('leadline-language', 'zh')")
    visited.go("#/play?depth=12&b.depth=11").settled()
    assert visited.card("a").locator(".sentence").inner_text() == (
        "前置归一化，12 层：健康；请给每个分支加上捷径。"
    )
    # A phrase that the page does not know: the engine's English.
    assert "Healthy: 11 layers" in visited.card("b").locator(".sentence").inner_text()
    visited.page.locator("header select").select_option("en")
    visited.settled()
    assert "Healthy: 12 layers" in visited.card("a").locator(".sentence").inner_text()


def test_the_address_opens_the_page_of_claims_at_a_claim(visit: Callable[..., Visit]):
    visited = visit()
    visited.page.goto(f"{visited.origin}?token={TOKEN}#/claims?claim=post-norm-needs-warmup")
    frame = visited.page.locator("iframe")
    frame.wait_for(state="attached")
    assert frame.get_attribute("src").endswith("#post-norm-needs-warmup")
    visited.page.evaluate("location.hash = '#/claims?claim=zero-branch-is-identity'")
    visited.page.wait_for_timeout(200)
    assert frame.get_attribute("src").endswith("#zero-branch-is-identity")


def test_another_design_ends_the_training_of_the_old_one(visit: Callable[..., Visit]):
    visited = visit().go().settled()
    visited.card("b").get_by_role("button", name="Train").click()
    visited.card("b").get_by_role("button", name="Stop").wait_for()
    visited.cell("norm", "b").locator("select").select_option("rmsnorm")
    visited.settled()
    visited.card("b").get_by_role("button", name="Train").wait_for()
    assert list(visited.stub.jobs.values())[-1].stopped.is_set()


def test_a_chart_opens_large_with_its_numbers(visit: Callable[..., Visit]):
    visited = visit().go("#/play?depth=5&b.placement=post").settled()
    visited.page.locator("[data-quantity='stream.norm'] .u-over").click()
    dialog = visited.page.locator("dialog")
    assert "Xiong et al. 2020" in dialog.locator(".key").inner_text()
    dialog.get_by_text("All numbers").click()
    first = dialog.locator("tbody tr").first.locator("td").all_inner_texts()
    assert first == ["8.0000", "8.0000", "8.0000"]
    assert dialog.locator("tbody tr").count() == 6
    dialog.get_by_role("button", name="linear").click()
    visited.page.keyboard.press("Escape")
    assert dialog.count() == 0
    assert visited.problems == []


def test_everything_works_with_the_keyboard_alone(visit: Callable[..., Visit]):
    visited = visit().go().settled()
    keys = visited.page.keyboard
    keys.press("Tab")
    assert visited.page.evaluate("document.activeElement.id") == "skip"
    keys.press("Enter")
    reached: list[str] = []
    for _ in range(120):
        keys.press("Tab")
        here = visited.page.evaluate(
            "(() => { const e = document.activeElement; return [e.tagName, e.className, e.type || '',"
            " e.closest('[data-knob]')?.dataset.knob || '', e.closest('[data-quantity]')?.dataset.quantity || ''].join(' '); })()"
        )
        if here.startswith("BODY"):
            break
        reached.append(here)
    text = "\n".join(reached)
    for knob in knobs()["knobs"]:
        assert knob["name"] == "depth" or text.count(f" {knob['name']} ") >= 3
    for name, *_ in QUANTITIES:
        assert f"plot  {name}".replace("  ", " ") in re.sub(" +", " ", text).replace(
            "plot without", "plot"
        )
    slider = visited.card("a").locator("input[type=range]")
    slider.focus()
    for _ in range(3):
        keys.press("ArrowRight")
    visited.settled()
    assert visited.asked("a") == {"depth": 27}
    visited.page.go_back()  # quick presses of one key are one entry of the history
    visited.settled()
    assert visited.asked("a") == {}


def test_the_arrow_keys_read_a_chart_along_its_lines(visit: Callable[..., Visit]):
    visited = visit().go("#/play?depth=6&b.connection=none").settled()
    chart = visited.page.locator("[data-quantity='gradient.stream']")
    chart.locator(".plot").focus()
    spoken, keys = chart.locator("[aria-live]"), visited.page.keyboard
    keys.press("ArrowRight")
    assert spoken.text_content() == "A, layer 0: 0.02000"
    keys.press("ArrowRight")
    # 0.02 (1 + 0.2 sin 1)
    assert spoken.text_content() == "A, layer 1: 0.02337"
    keys.press("ArrowDown")
    # the same times 10 ** (-0.45 * 5)
    assert spoken.text_content() == "B, layer 1: 1.314×10⁻⁴"
    keys.press("End")
    assert spoken.text_content().startswith("B, layer 6")
    keys.press("Escape")
    assert chart.locator(".tip").is_hidden()


def test_every_word_explains_itself(visit: Callable[..., Visit]):
    visited = visit().go().settled()
    buttons = visited.page.locator(".about")
    assert buttons.count() == len(QUANTITIES) + len(knobs()["knobs"]) + 2  # depth twice, and loss
    for button in buttons.all():
        button.focus()
        visited.page.keyboard.press("Enter")
        sheet = visited.page.locator(".about-sheet")
        assert button.get_attribute("aria-expanded") == "true"
        assert button.get_attribute("aria-describedby") == sheet.get_attribute("id")
        assert len(sheet.inner_text()) > 40
        visited.page.keyboard.press("Escape")
        assert sheet.is_hidden()


@pytest.mark.parametrize("language", ["en", "zh", "ru"])
@pytest.mark.parametrize("size", [DESKTOP, PHONE, (800, 900)], ids=["desktop", "phone", "between"])
def test_the_page_fits(visit: Callable[..., Visit], size: tuple[int, int], language: str):
    visited = visit(size=size, scheme="dark").go("#/play?preset=rank-collapse").settled()
    visited.page.locator(".tools select").select_option(language)
    visited.settled()
    assert visited.page.evaluate(ZOOMED_OUT) <= size[0]
    if size == DESKTOP:
        assert visited.page.evaluate("document.documentElement.scrollHeight") <= size[1]
    assert visited.problems == []


def test_a_phone_shows_one_design_at_a_time(visit: Callable[..., Visit]):
    visited = visit(size=PHONE).go("#/play?b.depth=12").settled()
    assert visited.card("a").is_visible() and visited.card("b").is_hidden()
    visited.page.get_by_role("button", name="Design B", exact=True).tap()
    assert visited.card("b").is_visible() and visited.card("a").is_hidden()
    assert visited.cell("norm", "b").is_visible() and visited.cell("norm", "a").is_hidden()
    assert visited.card("b").locator("input[type=number]").input_value() == "12"


def test_reduced_motion_is_respected(visit: Callable[..., Visit]):
    visited = visit(reduced_motion="reduce").go().settled()
    moving = visited.page.evaluate(
        "[...document.querySelectorAll('*')].filter((e) => { const s = getComputedStyle(e);"
        " return parseFloat(s.transitionDuration) > 0 && s.transitionProperty !== 'none'"
        " || s.animationName !== 'none'; }).length"
    )
    assert moving == 0


def test_the_theme_is_kept(visit: Callable[..., Visit]):
    visited = visit(scheme="light").go().settled()
    visited.page.get_by_role("button", name="Switch between light and dark").click()
    visited.page.reload()
    visited.settled()
    assert visited.page.evaluate("document.documentElement.dataset.theme") == "dark"


@pytest.mark.parametrize("view", ["records", "diagnose", "lessons", "claims", "play"])
def test_every_view_opens_from_the_navigation(visit: Callable[..., Visit], view: str):
    visited = visit().go().settled()
    visited.page.locator(f"nav a[href='#/{view}']").click()
    assert visited.page.locator(f".view-{view}").is_visible()
    assert urlsplit(visited.page.url).fragment.startswith(f"/{view}")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_axe_has_no_serious_complaint(
    visit: Callable[..., Visit], axe: str, size: tuple[int, int], scheme: str
):
    visited = visit(size=size, scheme=scheme).go("#/play?preset=rank-collapse").settled()
    visited.page.evaluate(axe)
    complaints = list(visited.page.evaluate("axe.run().then((result) => result.violations)"))
    visited.page.locator(".enlarge").first.click()
    complaints += visited.page.evaluate("axe.run().then((result) => result.violations)")
    serious = [
        (one["id"], [node["html"] for node in one["nodes"]][:3])
        for one in complaints
        if one["impact"] in ("serious", "critical")
    ]
    assert serious == []


def test_the_default_design_asks_for_nothing_but_itself(visit: Callable[..., Visit]):
    visited = visit().go().settled()
    assert visited.asked("a") == {} and defaults()["depth"] == 24
    assert visited.hash() == "#/play?preset=none"
