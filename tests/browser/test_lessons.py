"""The view of lessons in a browser: every lesson, in every language, with its figure."""

from urllib.parse import parse_qs, urlsplit

import pytest

from leadline.web.lessons import LANGUAGES, lesson_json, lessons_json
from leadline.web.lessons.reading import lesson_ids

stub = pytest.importorskip("tests.lab_stub")
pytestmark = [pytest.mark.browser]


@pytest.fixture(scope="module")
def address():
    """The address of a server that answers with the lessons as they are, but for one."""
    server, _, address = stub.serve()
    handler = server.RequestHandlerClass
    answer = handler.do_GET

    def do_get(self):
        place = urlsplit(self.path)
        language = parse_qs(place.query).get("language", ["en"])[0]
        name = place.path.rpartition("/")[2]
        if place.path == "/api/lessons":
            return self.json(lessons_json(language))
        if place.path == "/api/lessons/hostile":
            return self.json(hostile())
        if place.path.startswith("/api/lessons/") and name in lesson_ids():
            return self.json(lesson_json(name, language))
        return answer(self)

    handler.do_GET = do_get
    yield address
    handler.do_GET = answer
    server.shutdown()
    server.server_close()


def hostile():
    """A lesson whose texts look like HTML."""
    text = [{"text": "<img src=x onerror=alert(1)>"}]
    lesson = lesson_json("shortcut", "en")
    parts = [{"kind": "question", "name": "q", "question": text, "answer": []}]
    return lesson | {"title": "<b>bold</b>", "parts": parts}


@pytest.fixture
def page(browser):
    context = browser.new_context(viewport={"width": 1200, "height": 900})
    page = context.new_page()
    page.complaints = []
    page.on("pageerror", lambda error: page.complaints.append(str(error)))
    page.on(
        "console",
        lambda line: page.complaints.append(line.text) if line.type == "error" else None,
    )
    yield page
    context.close()


def open_view(page, address, view, language="en"):
    page.add_init_script(f"localStorage.setItem('leadline-language', '{language}')")
    page.goto(f"{address}#/{view}")
    page.wait_for_selector(".view-lessons h1")


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("name", lesson_ids())
def test_a_lesson_shows_every_part_without_a_complaint(page, address, name, language):
    lesson = lesson_json(name, language)
    open_view(page, address, f"lessons/{name}", language)
    assert page.locator("h1").inner_text() == lesson["title"]
    kinds = [part["kind"] for part in lesson["parts"]]
    for kind in ("text", "formula", "figure", "claim", "question"):
        assert page.locator(f".lesson-{kind}").count() == kinds.count(kind)
    verdicts = [part["verdict_words"] for part in lesson["parts"] if part["kind"] == "claim"]
    shown = [text.split(" ", 1)[1] for text in page.locator(".lesson-verdict").all_inner_texts()]
    assert shown == verdicts
    assert page.locator("math").count() > 0
    figure = next(part for part in lesson["parts"] if part["kind"] == "figure")
    page.wait_for_selector(".lesson-play .u-over")
    assert page.locator(".lesson-play .uplot").count() == len(figure["curves"])
    assert not page.complaints


def test_the_list_leads_through_all_lessons(page, address):
    open_view(page, address, "lessons")
    assert page.locator(".lesson-list a").count() == len(lesson_ids())
    page.locator(".lesson-list a").first.click()
    for name in lesson_ids()[1:]:
        page.locator("a[rel=next]").click()
        page.wait_for_function(f"location.hash === '#/lessons/{name}'")
        page.wait_for_selector(f"h1:text-is({lesson_json(name, 'en')['title']!r})")
    assert page.locator("a[rel=next]").count() == 0
    assert not page.complaints


def test_a_figure_opens_in_the_playground_as_it_was_turned(page, address):
    open_view(page, address, "lessons/pre-and-post")
    link = page.locator(".figure-open")
    link.wait_for()
    depth = page.locator(".lesson-play .cell.b input[type=number]")
    depth.fill("12")
    depth.press("Enter")
    query = parse_qs(link.get_attribute("href").partition("?")[2])
    figure = next(
        part for part in lesson_json("pre-and-post", "en")["parts"] if part["kind"] == "figure"
    )
    assert figure["other"]["placement"] == "post" and figure["base"]["init"] == "xavier"
    assert query == {"init": ["xavier"], "b.placement": ["post"], "b.depth": ["12"]}
    link.click()
    page.wait_for_selector(".play .design.b")
    assert page.locator(".design.b .depth input[type=number]").input_value() == "12"
    assert not page.complaints


def test_an_answer_opens_by_keyboard(page, address):
    open_view(page, address, "lessons/shortcut")
    question = page.locator(".lesson-question details")
    assert question.get_attribute("open") is None
    question.locator("summary").focus()
    page.keyboard.press("Enter")
    assert question.get_attribute("open") is not None


def test_nothing_is_wider_than_a_phone(page, address):
    page.set_viewport_size({"width": 390, "height": 844})
    for name in lesson_ids():
        open_view(page, address, f"lessons/{name}")
        page.wait_for_selector(".lesson-play .u-over")
        wide = page.evaluate("document.documentElement.scrollWidth - innerWidth")
        assert wide <= 0, name


def test_html_in_a_text_is_shown_as_text(page, address):
    open_view(page, address, "lessons/hostile")
    assert page.locator("h1").inner_text() == "<b>bold</b>"
    assert "<img src=x" in page.locator(".lesson-question").inner_text()
    assert page.locator(".lesson img").count() == 0


def test_a_lesson_that_is_not_there_leads_back_to_the_list(page, address):
    page.goto(f"{address}#/lessons/nothing")
    page.wait_for_selector("[role=alert] a[href='#/lessons']")
