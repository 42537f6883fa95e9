"""Text of a record never commands the terminal or the page that shows it."""

from __future__ import annotations

import io
import re

import pytest
from rich.console import Console

import leadline
from leadline.reading.page.html import render_html
from leadline.record import Finding, Record
from leadline.record.words.printable import printable
from leadline.record.words.screen import Screen, Sentence, Showable
from leadline.record.words.table import Row, TableColumn, TextTable
from tests.synthetic import gpt2_record

WILD = "evil\nname\x1b[2J\ttab\x07bell\x7f\x9bc1\u2028line\u202eturned\u2069"
TAME = r"evil\nname\x1b[2J\ttab\x07bell\x7f\x9bc1\u2028line\u202eturned\u2069"
RAW = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def wild_record() -> Record:
    record = gpt2_record()
    for key, field in (("model", "name"), ("model", "class"), ("input", "kind"), ("loss", "kind")):
        record.note(key, {**record.provenance.get(key, {}), field: WILD})
    record.add_finding(Finding(WILD))
    return record


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("gpt2 – größer 模型 👩‍🔬", "gpt2 – größer 模型 👩‍🔬"),
        (WILD, TAME),
        ("", ""),
        (
            "\u05de\u05d5\u05d3\u05dc \u0646\u0645\u0627",
            "\u05de\u05d5\u05d3\u05dc \u0646\u0645\u0627",
        ),
        ("\u061c\u200e\u200f\u202a\u202d\u2066", r"\u061c\u200e\u200f\u202a\u202d\u2066"),
        ("\r\n\0", r"\r\n\x00"),
    ],
)
def test_control_characters_are_spelled_out_and_nothing_else_is(text: str, shown: str):
    assert printable(text) == shown


def test_what_is_kept_stays():
    assert printable("a\n\tb\x1b", keep="\n\t") == "a\n\tb\\x1b"


@pytest.mark.parametrize("show", [str, lambda record: record._repr_html_()], ids=["text", "html"])
@pytest.mark.parametrize(
    "make", [wild_record, lambda: leadline.compare(wild_record(), gpt2_record())]
)
def test_names_in_a_record_cannot_command_a_terminal(make, show):
    text = show(make())
    assert TAME in text
    assert not RAW.search(text)


class NamedView(Showable):
    """A bare view that shows a name as its record has it."""

    def screen(self, *, everything: bool = False) -> Screen:
        table = TextTable((TableColumn(WILD),), (Row((WILD,)),))
        return Screen((Sentence(WILD, in_python=f"python {WILD}"), table))


def printed(view: NamedView) -> str:
    console = Console(file=io.StringIO(), width=300)
    view.screen().show(console)
    return console.file.getvalue()


@pytest.mark.parametrize("show", [str, NamedView._repr_html_, printed])
def test_a_bare_view_cannot_command_a_terminal(show):
    text = show(NamedView())
    assert text.count(TAME) == 3
    assert not RAW.search(text)


def test_the_page_of_a_record_holds_no_control_character_outside_of_its_numbers():
    page = render_html([wild_record()])
    words = re.sub(r"(?s)<(script|style)\b.*?</\1>", "", page)
    # Line breaks and tabs are white space in a page, and need no spelling.
    assert "evil\nname\\x1b[2J\ttab\\x07bell\\x7f\\x9bc1\\u2028line\\u202eturned\\u2069" in words
    assert not RAW.search(words.replace("\t", ""))
