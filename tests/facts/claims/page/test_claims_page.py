"""The page of claims is one complete, harmless file that says what the rulings say."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import subprocess
import sys
from html.parser import HTMLParser

import pytest

from leadline.claims.claim import GROUPS
from leadline.claims.page.page import claims_page, page_words
from leadline.claims.ruling import rule
from leadline.errors import InputError
from tests.synthetic_claims import claim_of, languages, ruling, rulings

VOID = {"meta", "br", "input", "link", "img", "hr"}
HARM = "<script>alert('x')</script><img src=x onerror=alert(1)>\"'&"
ABOUT = {"seeds": [0, 1, 2], "date": "2026-01-01", "versions": {"numpy": "2.0"}, "machine": "two"}


class Page(HTMLParser):
    """Reads a page into its elements, and notes tags that do not match."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.words: list[str] = []
        self.open: list[str] = []
        self.mismatched: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {key: value or "" for key, value in attrs}))
        assert len(dict(attrs)) == len(attrs), f"an attribute stands twice: {tag} {attrs}"
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {key: value or "" for key, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.mismatched.append(tag)

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] not in ("script", "style"):
            self.words.append(data)


@pytest.fixture(scope="module")
def text() -> str:
    found = rulings()
    code = {one.claim.name: "def measure(seed):\n    return 1 < 2\n" for one in found}
    return claims_page(found, languages=languages(found), code=code, about=ABOUT)


def test_the_page_is_whole(text: str) -> None:
    page = Page(text)
    assert page.mismatched == []
    assert page.open == []
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(set(ids)) == len(ids)
    targets = [a["href"][1:] for _, a in page.elements if a.get("href", "").startswith("#")]
    assert set(targets) <= set(ids)


def test_every_claim_is_an_article_with_its_verdict_in_the_order_of_the_chapters(text: str) -> None:
    page = Page(text)
    shown = [a["id"] for tag, a in page.elements if tag == "article"]
    expected = [one.claim.name for group in GROUPS for one in rulings() if one.claim.group == group]
    assert shown == expected
    for one in rulings():
        article = re.search(rf'<article[^>]* id="{one.claim.name}".*?</article>', text, re.S)[0]
        assert f">{one.verdict}</span></span></header>" in article
        assert article.count('class="strip"') == len(one.checked)


def test_nothing_is_loaded_from_anywhere(text: str) -> None:
    page = Page(text)
    assert not [tag for tag, _ in page.elements if tag in ("link", "img", "iframe", "object")]
    for _, attributes in page.elements:
        for name in ("src", "href", "action", "poster", "srcset"):
            assert attributes.get(name, "#").startswith("#")
    assert re.search(r"https?://|url\((?!#)|@import", text) is None


def test_only_the_scripts_of_the_page_may_run(text: str) -> None:
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text)[1]
    assert "default-src 'none'" in policy
    assert "unsafe-eval" not in policy
    scripts = re.findall(r"<script>(.*?)</script>", text, re.S)
    assert len(scripts) == 2
    for script in scripts:
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in policy


def test_a_text_is_no_program() -> None:
    one = ruling("harmful", title=HARM, says=HARM, why=HARM, correction=HARM, source=HARM)
    found = [one]
    tables = languages(found)
    for table in tables.values():
        table[HARM] = HARM
    text = claims_page(found, languages=tables, code={"harmful": HARM}, about={"machine": HARM})
    page = Page(text)
    assert [tag for tag, _ in page.elements].count("script") == 3
    assert not [tag for tag, _ in page.elements if tag == "img"]
    assert HARM in "".join(page.words)


def test_numbers_stand_where_their_placeholders_were(text: str) -> None:
    article = re.search(r'<article[^>]* id="holds-with-curves".*?</article>', text, re.S)[0]
    assert "The product is 0.727; a bound allows 1.2\u202f×\u202f10<sup>12</sup>" in article
    assert "{ratio}" not in text


def test_the_tally_counts_the_verdicts(text: str) -> None:
    counts = dict(re.findall(r'data-filter="(\w+)">.*?<b>(\d+)</b>', text))
    assert counts == {
        "holds": "2", "conditions": "2", "false": "2",
        "uncheckable": "1", "undecided": "1", "unmeasured": "1",
    }  # fmt: skip


def test_what_is_english_in_every_language_says_so(text: str) -> None:
    for fold in re.findall(r"<details>.*?</details>", text, re.S):
        assert "How it was measured (in English)" in fold
        assert '<div lang="en" class="how">' in fold
        inside = fold.partition('class="how">')[2]
        assert "data-t" not in inside
    assert "def measure(seed):\n    return 1 &lt; 2" in text
    assert "He et al. 2016, arXiv 1603.05027." in text


def test_both_tables_have_every_text_of_the_page(text: str) -> None:
    data = json.loads(re.search(r'id="leadline-data">(.*?)</script>', text, re.S)[1])
    used = {int(key) for key in re.findall(r'data-t="(\d+)"', text)}
    used |= {int(key) for pairs in re.findall(r'data-a="([^"]*)"', text) for key in re.findall(r":(\d+)", pairs)}  # fmt: skip
    assert list(data["tables"]) == ["zh", "ru"]
    for table in data["tables"].values():
        assert set(range(len(table))) == used
        formulas = set(re.findall(r"⟦(\d+)⟧", "".join(table)))
        assert formulas <= set(re.findall(r'<math data-f="(\d+)"', text))


def test_english_alone_needs_no_dictionary() -> None:
    text = claims_page([ruling("alone")], languages={}, code={}, about={})
    assert "data-language" not in text.partition("<script>")[2].partition("</header>")[0]
    assert "中文" not in text.partition("</style>")[2].partition("<script type")[0]


def test_a_chapter_without_claims_is_left_out_but_not_its_pictures() -> None:
    text = claims_page([ruling("alone")], languages={}, code={}, about={})
    assert '<section class="chapter" id="training"' not in text
    assert '<section class="chapter" id="norms"' in text
    assert text.count('data-chapter="') == 3


def test_the_exercise_has_four_answers_and_what_training_says(text: str) -> None:
    assert len(re.findall(r'type="radio" name="exercise"', text)) == 4
    assert len(re.findall(r'class="answer right"', text)) == 1
    measured = re.search(r'<div id="exercise-measured">(.*?)</section>', text, re.S)[1]
    (one,) = [one for one in rulings() if one.claim.name == "zero-easier-than-identity"]
    assert one.verdict in measured
    assert "The product is 0.727" in measured


def test_without_its_claim_the_exercise_stays_without_curves() -> None:
    text = claims_page([ruling("alone")], languages={}, code={}, about={})
    assert '<div id="exercise-measured"></div>' in text


@pytest.mark.parametrize(
    ("found", "about", "words"),
    [
        ([], {}, "at least one ruling"),
        ([ruling("one"), ruling("one")], {}, "two rulings on one"),
        ([ruling("One name")], {}, "cannot be an address"),
        ([ruling("play-it")], {}, "cannot be an address"),
        ([ruling("norms")], {}, "cannot be an address"),
        ([ruling("one")], {"weather": "fine"}, "weather"),
    ],
)
def test_what_cannot_be_shown_is_refused(found, about, words: str) -> None:
    with pytest.raises(InputError, match=words):
        claims_page(found, languages={}, code={}, about=about)


def test_a_hundred_claims_stay_small() -> None:
    some = [one for one in rulings() if one.pictures]
    many = [
        rule(
            claim_of(f"{one.claim.name}-{k}", group=one.claim.group),
            one.numbers or {},
            pictures=one.pictures,
            seeds=one.seeds,
        )
        for k in range(110 // len(some) + 1)
        for one in some
    ]
    code = {one.claim.name: "x = 1\n" * 600 for one in many}
    text = claims_page(many, languages=languages(many), code=code, about=ABOUT)
    assert len(many) >= 110
    assert len(text.encode()) < 3_000_000


def test_the_foot_says_what_is_known_of_the_measurements() -> None:
    known = {"file": None, "seeds": [0, 1], "from": "", "versions": {"torch": ["2.4", "2.5"]}}
    text = claims_page([ruling("alone")], languages={}, code={}, about=known)
    foot = re.search(r'<section class="about">.*?</section>', text, re.S)[0]
    assert re.findall(r"<dd>(.*?)</dd>", foot) == ["0, 1", "torch 2.4, 2.5"]


def test_phrases_are_whole_sentences_once() -> None:
    phrases = page_words()
    assert len(set(phrases)) == len(phrases)
    assert all(phrase == phrase.strip() for phrase in phrases)


def test_the_page_is_made_without_torch() -> None:
    program = (
        "import sys; from leadline.claims.page.page import claims_page; "
        "sys.exit('torch' in sys.modules or 'latex2mathml' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
