"""The page of claims in a browser: languages, filters, the exercise, pictures that move."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from leadline.claims.page.page import claims_page
from leadline.claims.page.play import ten
from leadline.claims.page.shapes import (
    attention_ellipse,
    gained_axes,
    layer_norm,
    powers,
    tokens,
    view,
)
from tests.synthetic_claims import languages, rulings

pytestmark = pytest.mark.browser

DESKTOP, PHONE = (1280, 900), (360, 740)
LOGITS = [(0.0, 0.0), (2.5, 1.0), (-6.0, 6.0), (6.0, 5.9), (3.0, -3.0), (0.1, -4.2), (-2.0, -1.0)]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = rulings()
    code = {one.claim.name: "def measure(seed: int) -> Measured:\n    ...\n" for one in found}
    text = claims_page(
        found,
        languages=languages(found),
        code=code,
        about={"seeds": [0, 1, 2], "date": "2026-01-01", "versions": {"n": 2}, "machine": "1"},
    )
    place = tmp_path_factory.mktemp("claims") / "claims.html"
    place.write_text(text, encoding="utf-8")
    return place


class Visit:
    """A page in the browser, with what it asked for and what went wrong."""

    def __init__(self, page: Any) -> None:
        self.page = page
        self.requests: list[str] = []
        self.problems: list[str] = []
        page.on("request", lambda request: self.requests.append(request.url))
        page.on("pageerror", lambda error: self.problems.append(str(error)))
        page.on(
            "console",
            lambda line: self.problems.append(line.text) if line.type == "error" else None,
        )

    def speak(self, code: str) -> None:
        self.page.locator(f"[data-language={code}]").click()

    def shown(self) -> list[str]:
        return self.page.evaluate(
            "[...document.querySelectorAll('article.claim')].filter(a => a.offsetHeight).map(a => a.id)"
        )


@pytest.fixture
def visit(browser: Any, path: Path) -> Iterator[Callable[..., Visit]]:
    contexts: list[Any] = []

    def start(
        *, size: tuple[int, int] = DESKTOP, scheme: str = "light", at: str = "", **more: Any
    ) -> Visit:
        phone = size == PHONE
        context = browser.new_context(
            viewport={"width": size[0], "height": size[1]},
            color_scheme=scheme,
            has_touch=phone,
            is_mobile=phone,
            offline=True,
            **more,
        )
        contexts.append(context)
        visited = Visit(context.new_page())
        visited.page.goto(path.as_uri() + at)
        return visited

    yield start
    for context in contexts:
        context.close()


SPILLED = """() => [...document.querySelectorAll('body *')].filter(e => {
    const box = e.getBoundingClientRect();
    if (box.width === 0 || box.right <= innerWidth + 0.5) return false;
    for (let a = e; a; a = a.parentElement)
        if (getComputedStyle(a).overflowX !== 'visible' && a.tagName !== 'svg') return false;
    return true;
}).map(e => `${e.tagName} ${e.id} ${e.getAttribute('class')}`)"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("language", ["en", "zh", "ru"])
@pytest.mark.parametrize("size", [DESKTOP, PHONE, (800, 900)], ids=["desktop", "phone", "between"])
def test_the_page_asks_for_nothing_and_fits(
    visit: Callable[..., Visit], size: tuple[int, int], language: str, scheme: str
) -> None:
    visited = visit(size=size, scheme=scheme)
    visited.speak(language)
    visited.page.locator("[value=x]").check()
    visited.page.locator("#answer").click()
    for fold in visited.page.locator("details > summary").all():
        fold.click()
    assert [url.partition(":")[0] for url in visited.requests] == ["file"]
    assert visited.problems == []
    assert visited.page.evaluate("document.documentElement.scrollWidth") <= size[0]
    assert visited.page.evaluate(SPILLED) == []


@pytest.mark.parametrize(("language", "lang"), [("zh", "zh-Hans"), ("ru", "ru")])
def test_no_english_is_left_but_in_the_fold_outs(
    visit: Callable[..., Visit], language: str, lang: str
) -> None:
    visited = visit()
    visited.page.locator("[value=one]").check()
    visited.page.locator("#answer").click()
    visited.speak(language)
    assert visited.page.evaluate("document.documentElement.lang") == lang
    left = visited.page.evaluate(
        """() => {
            const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
            const found = [];
            for (let n = walker.nextNode(); n; n = walker.nextNode()) {
                if (n.parentElement.closest('script, style, mi, mo, mn, [lang=en], .brand')) continue;
                if (n.parentElement.closest('.about dd')) continue;
                if (/[A-Za-z]{2,}/.test(n.data.replace(/NaN/g, ''))) found.push(n.data);
            }
            for (const e of document.querySelectorAll('[aria-label], [title], [placeholder]'))
                for (const name of ['aria-label', 'title', 'placeholder'])
                    if (/[A-Za-z]{2,}/.test(e.getAttribute(name) ?? '')) found.push(e.getAttribute(name));
            return [...found, document.title].filter(t => /[A-Za-z]{2,}/.test(t));
        }"""
    )
    assert left == []
    visited.speak("en")
    assert visited.page.title().startswith("Residual connections")
    assert "слово" not in visited.page.inner_text("main")
    assert "字词" not in visited.page.inner_text("main")


def test_formulas_and_numbers_come_along_into_every_language(visit: Callable[..., Visit]) -> None:
    visited = visit()
    count = "document.querySelectorAll('math').length"
    why = "#holds-with-curves .why p"
    before = visited.page.evaluate(count)
    numbers = re.findall(r"\d+(?:\.\d+)?", visited.page.inner_text(why))
    visited.speak("zh")
    assert visited.page.evaluate(count) == before
    assert re.findall(r"\d+(?:\.\d+)?", visited.page.inner_text(why)) == numbers
    assert visited.page.locator(f"{why} sup").count() == 2
    assert "⟦" not in visited.page.inner_text("main")
    assert visited.page.locator("#infinite .formula mtext").text_content() == "字词 字词"


def test_the_language_is_remembered_and_can_be_asked_for(visit: Callable[..., Visit]) -> None:
    visited = visit()
    visited.speak("ru")
    visited.page.reload()
    assert visited.page.evaluate("document.documentElement.lang") == "ru"
    assert visited.page.locator("[data-language=ru]").get_attribute("aria-pressed") == "true"
    asked = visit(at="?lang=zh")
    assert asked.page.evaluate("document.documentElement.lang") == "zh-Hans"
    russian = visit(locale="ru-RU")
    assert russian.page.evaluate("document.documentElement.lang") == "ru"


def test_what_is_read_stays_in_view_when_the_language_changes(visit: Callable[..., Visit]) -> None:
    visited = visit(at="#spectral-norm-ellipse")
    top = "document.getElementById('spectral-norm-ellipse').getBoundingClientRect().top"
    before = visited.page.evaluate(top)
    # The mouse itself: a locator's click scrolls a sticky element into view beforehand.
    box = visited.page.locator("[data-language=ru]").bounding_box()
    visited.page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    assert visited.page.evaluate("document.documentElement.lang") == "ru"
    assert abs(visited.page.evaluate(top) - before) < 2


def test_verdict_note_and_search_filter_together(visit: Callable[..., Visit]) -> None:
    visited = visit()
    page = visited.page
    assert len(visited.shown()) == 9
    page.locator("[data-filter=conditions]").click()
    assert visited.shown() == ["zero-easier-than-identity", "layernorm-sphere"]
    assert page.locator("[data-n=shown]").inner_text() == "2"
    assert page.locator(".play:visible").count() == 0
    page.locator("#note").select_option("card")
    assert visited.shown() == ["zero-easier-than-identity"]
    page.locator("#search").fill("no such word")
    assert visited.shown() == []
    assert page.locator("#nothing").is_visible()
    page.locator("#reset").click()
    assert len(visited.shown()) == 9
    assert page.locator("#nothing").is_hidden()
    page.locator(".bar .false").click()
    assert visited.shown() == ["false-as-stated", "infinite"]
    page.locator("[data-filter=undecided]").click()
    assert len(visited.shown()) == 3


def test_search_reads_the_language_that_is_shown(visit: Callable[..., Visit]) -> None:
    visited = visit()
    visited.speak("ru")
    visited.page.locator("#search").fill("hundred layers")
    assert visited.shown() == []
    visited.page.locator("#search").fill("слово")
    assert len(visited.shown()) == 9
    assert visited.page.locator("[data-n=shown]").inner_text() == "9"


def test_an_address_leads_to_its_claim_even_through_a_filter(visit: Callable[..., Visit]) -> None:
    visited = visit(at="#infinite")
    place = visited.page.locator("#infinite").bounding_box()
    assert 0 <= place["y"] < 300
    visited.page.locator("[data-filter=holds]").click()
    assert "undecided" not in visited.shown()
    visited.page.evaluate("location.hash = 'undecided'")
    visited.page.wait_for_function("!document.getElementById('undecided').hidden")
    assert visited.page.locator("#undecided").is_visible()


def test_the_contents_say_where_the_reader_is(visit: Callable[..., Visit]) -> None:
    visited = visit()
    for chapter in ("norms", "collapse", "training"):
        visited.page.evaluate(f"location.hash = '{chapter}'")
        visited.page.wait_for_function(
            f"document.querySelector('.contents .here')?.dataset.chapter === '{chapter}'"
        )


@pytest.mark.parametrize(("choice", "kind"), [("x", "wrong"), ("zero", "right"), ("one", "wrong")])
def test_every_answer_is_explained_and_then_the_curves_are_shown(
    visit: Callable[..., Visit], choice: str, kind: str
) -> None:
    visited = visit()
    page = visited.page
    assert page.locator("#answer").is_disabled()
    assert page.locator(".answer:visible, #exercise-measured:visible").count() == 0
    page.locator(f"[value={choice}]").check()
    page.locator("#answer").click()
    shown = page.locator(".answer:visible")
    assert shown.count() == 1
    assert kind in shown.get_attribute("class")
    assert page.locator("#exercise-curves .line").count() >= 5
    assert "holds under conditions" in page.locator("#exercise-measured h4").first.inner_text()
    page.locator("[value=inverse]").check()
    page.locator("#answer").click()
    assert page.locator(".answer:visible").get_attribute("data-answer") == "inverse"
    assert page.locator("#exercise-curves figure").count() == 1


# --- formulas of the script against NumPy ----------------------------------------------------


def test_powers_agree_with_python(visit: Callable[..., Visit]) -> None:
    page = visit().page
    for epsilon, depth in [(0.01, 200), (0.1, 50), (0.5, 1), (0.33, 117)]:
        found = page.evaluate(f"leadline.powers({epsilon}, {depth})")
        np.testing.assert_allclose(found, powers(epsilon, depth), rtol=1e-9)
        for value in found:
            assert page.evaluate(f"leadline.ten({value!r})") == ten(value)


def test_the_ellipse_agrees_with_the_svd_of_numpy(visit: Callable[..., Visit]) -> None:
    page = visit().page
    for s, t in LOGITS:
        found, expected = page.evaluate(f"leadline.attention({s}, {t})"), attention_ellipse(s, t)
        for name in ("matrix", "long", "short", "bound"):
            np.testing.assert_allclose(found[name], getattr(expected, name), atol=1e-9)
        assert np.linalg.norm(found["before"]) == pytest.approx(1, abs=1e-9)
        if s != -t:  # equal singular values have no direction of their own
            np.testing.assert_allclose(found["before"], expected.before, atol=1e-9)
        np.testing.assert_allclose(np.linalg.norm(found["after"]), expected.long, atol=1e-9)


def test_layer_norm_and_its_ellipse_agree_with_numpy(visit: Callable[..., Visit]) -> None:
    page = visit().page
    for token in tokens().tolist():
        np.testing.assert_allclose(
            page.evaluate(f"leadline.layerNorm({token})"), layer_norm(token), atol=1e-9
        )
        np.testing.assert_allclose(
            page.evaluate(f"leadline.view({token}, 0.8)"), view(np.array(token), 0.8), atol=1e-9
        )
    for gains in ([1, 1, 1], [1.6, 0.6, 1.0], [0.2, 2.0, 2.0], [0.5, 0.5, 1.7]):
        found = page.evaluate(f"leadline.gainedAxes({gains})")
        np.testing.assert_allclose(found, gained_axes(gains), atol=1e-9)


def test_the_script_draws_at_first_what_stood_there_without_it(
    browser: Any, visit: Callable[..., Visit], path: Path
) -> None:
    drawn = """() => Object.fromEntries([...document.querySelectorAll('.play svg.curves [id], .play output')]
        .map(e => [e.id || e.outerHTML, [e.getAttribute('d'), e.getAttribute('cx'), e.getAttribute('r'), e.textContent]]))"""
    context = browser.new_context(java_script_enabled=False)
    still = context.new_page()
    still.goto(path.as_uri())
    before = still.evaluate(drawn)
    context.close()
    after = visit().page.evaluate(drawn)
    assert before.keys() == after.keys()
    for name, old in before.items():
        for one, two in zip(old, after[name], strict=True):
            texts = [re.sub(r"[-\d.]+", "#", text or "") for text in (one, two)]
            assert texts[0] == texts[1], name
            numbers = [[float(v) for v in re.findall(r"-?\d+(?:\.\d+)?", t or "")] for t in (one, two)]  # fmt: skip
            np.testing.assert_allclose(*numbers, atol=0.02, err_msg=name)


def test_sliders_move_the_pictures_and_their_numbers(visit: Callable[..., Visit]) -> None:
    visited = visit()
    page = visited.page
    page.locator("#power-l").fill("200")
    page.locator("#power-e").fill("0.01")
    assert page.locator("#number-more").inner_text() == "7.32"
    assert page.locator("#number-less").inner_text() == "0.134"
    assert page.locator("#number-only").inner_html().endswith("10<sup>−400</sup>")
    page.locator("#ellipse-s").fill("3")
    page.locator("#ellipse-t").fill("-3")
    assert page.locator("#ellipse-long").inner_text() == "1.0000"
    assert page.locator("#ellipse-limit").inner_text() == "1.0000"
    page.locator("#ellipse-t").fill("3")
    assert page.locator("#ellipse-short").inner_text() == "0.0000"
    for gain in ("gain-1", "gain-2", "gain-3"):
        page.locator(f"#{gain}").fill("1")
    root = f"{math.sqrt(3):.4f}"
    assert page.locator("#sphere-long").inner_text() == root
    assert page.locator("#sphere-short").inner_text() == root
    circle, ellipse = (
        page.locator(f"#sphere-{name}").get_attribute("d") for name in ("circle", "ellipse")
    )
    assert circle == ellipse
    assert visited.problems == []


# --- other ways of reading -------------------------------------------------------------------


def test_the_page_can_be_read_without_javascript(browser: Any, path: Path) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(path.as_uri())
    text = page.locator("body").inner_text()
    assert "other languages chosen where JavaScript runs" in text
    assert "Right:" in text
    assert "The claim called false-as-stated" in text
    assert page.locator("[data-language]:visible, #search:visible").count() == 0
    assert page.locator("article.claim:visible").count() == 9
    context.close()


def test_a_page_that_may_store_nothing_still_works(visit: Callable[..., Visit]) -> None:
    visited = visit()
    visited.page.add_init_script(
        "Object.defineProperty(window, 'localStorage', { get() { throw new Error('no'); } });"
    )
    visited.page.reload()
    visited.speak("zh")
    visited.page.locator("#theme").click()
    assert visited.page.evaluate("document.documentElement.lang") == "zh-Hans"
    assert visited.problems == []


def test_the_theme_follows_the_system_and_the_button(visit: Callable[..., Visit]) -> None:
    visited = visit(scheme="dark")
    ground = "getComputedStyle(document.body).backgroundColor"
    dark = visited.page.evaluate(ground)
    visited.page.locator("#theme").click()
    light = visited.page.evaluate(ground)
    assert (dark, light) == ("rgb(14, 19, 24)", "rgb(248, 248, 246)")
    visited.page.reload()
    assert visited.page.evaluate(ground) == light


def test_it_prints_on_white_without_controls(visit: Callable[..., Visit]) -> None:
    visited = visit(scheme="dark")
    assert visited.page.pdf(format="A4").startswith(b"%PDF")
    visited.page.emulate_media(media="print")
    assert (
        visited.page.evaluate("getComputedStyle(document.body).backgroundColor")
        == "rgb(255, 255, 255)"
    )
    assert visited.page.locator("#filters:visible, .contents:visible, .top:visible").count() == 0


def test_an_injected_script_would_not_run(
    visit: Callable[..., Visit], path: Path, tmp_path: Path
) -> None:
    visited = visit()
    harmed = tmp_path / "harmed.html"
    text = path.read_text(encoding="utf-8")
    harmed.write_text(text.replace("</main>", "<script>window.harmed = 1</script></main>", 1))
    visited.page.goto(harmed.as_uri())
    assert visited.page.evaluate("window.harmed") is None
    assert any("Content Security Policy" in problem for problem in visited.problems)


def test_everything_has_a_name_for_readers_aloud(visit: Callable[..., Visit]) -> None:
    nameless = visit().page.evaluate(
        """() => [...document.querySelectorAll('button, input, select, a')]
            .filter(e => !(e.textContent.trim() || e.ariaLabel || e.labels?.length))
            .map(e => e.outerHTML.slice(0, 80))"""
    )
    assert nameless == []
