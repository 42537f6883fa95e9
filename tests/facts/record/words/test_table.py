"""One table in plain text, on a terminal and as HTML."""

from __future__ import annotations

import pytest

from leadline.record.words.screen import Screen, Sentence
from leadline.record.words.table import Row, TableCell, TableColumn, TextTable

COLUMNS = (
    TableColumn("name"),
    TableColumn("value", right=True),
    TableColumn("shape", gives_way=(1, 3)),
    TableColumn("note", gives_way=(2,)),
)
TABLE = TextTable(
    COLUMNS,
    (
        Row(("a", "1", TableCell(("long long", "short"), html="<svg/>"), "first")),
        Row(("bb", "22", "x", "")),
    ),
)


def test_without_a_width_every_column_stands_in_full() -> None:
    assert TABLE.text().splitlines() == [
        "name  value  shape      note",
        "a         1  long long  first",
        "bb       22  x",
    ]


@pytest.mark.parametrize(
    ("width", "header", "first"),
    [
        (29, "name  value  shape      note", "a         1  long long  first"),
        (28, "name  value  shape  note", "a         1  short  first"),
        # Without the note the long form has room again.
        (24, "name  value  shape", "a         1  long long"),
        (21, "name  value  shape", "a         1  short"),
        (17, "name  value", "a         1"),
    ],
)
def test_columns_give_way_in_the_order_of_their_numbers(width, header, first) -> None:
    assert TABLE.text(width).splitlines()[:2] == [header, first]


def test_notes_explain_the_columns_that_are_shown_in_the_form_that_they_have() -> None:
    columns = (
        TableColumn("a", notes=("about both",)),
        TableColumn("b", gives_way=(1, 2), notes=("long <form>", "short form")),
        TableColumn("c", notes=("about both",)),
    )
    table = TextTable(columns, (Row(("1", TableCell(("x" * 40, "x" * 10)), "2")),))
    assert table.text().splitlines()[-1] == "about both; long <form>"
    assert table.text(40).splitlines()[-1] == "about both; short form"
    assert table.text(14).splitlines() == ["a  c", "1  2", "about both"]
    assert '<tfoot><tr><td colspan="3">about both; long &lt;form&gt;</td>' in table.html()


def test_columns_in_which_nothing_stands_can_be_left_out() -> None:
    table = TextTable((TableColumn("a"), TableColumn("b")), (Row(("1", "")), Row(("2", ""))))
    assert table.without_empty_columns().text().splitlines() == ["a", "1", "2"]


def test_columns_that_find_no_room_stand_in_a_table_below() -> None:
    table = TextTable((TableColumn("k"), *(TableColumn("12345") for _ in range(3))),
                      (Row(("x", "a", "b", "c")),))  # fmt: skip
    assert table.text(14).splitlines() == ["k 12345 12345", "x a     b", "k 12345", "x c"]


def test_a_column_that_wraps_is_broken_between_words() -> None:
    table = TextTable((TableColumn(), TableColumn(wraps=True)), (Row(("a", "one two " * 4)),))
    assert table.text(23).splitlines() == ["a  one two one two one", "   two one two"]


def test_html_escapes_texts_and_keeps_drawings() -> None:
    page = TextTable(COLUMNS[:3], (Row(("<b>", "1", TABLE.rows[0].cells[2])),)).html()
    assert "&lt;b&gt;" in page
    assert "<svg/>" in page
    assert page.count("<th") - page.count("<thead") == 3


def test_a_screen_leaves_out_empty_tables_and_lines_that_part_nothing() -> None:
    empty = TextTable(COLUMNS, ())
    screen = Screen((Sentence(), Sentence("One."), Sentence(), empty, Sentence(), Sentence("Two.")))
    assert screen.text() == "One.\n\nTwo."
