"""The terminal table: fits on a terminal, plain in a pipe."""

from __future__ import annotations

import io
import re

import pytest
from rich.console import Console

from leadline.reading.compare.compare import compare
from leadline.reading.page import screen_of
from leadline.record import Finding, Quantity, Reading, Record, Site
from leadline.record.words.shape import shape_text
from leadline.record.words.summary import summarize
from leadline.record.words.text import rows_that_matter
from tests.synthetic import RECORDS, broken_record, gpt2_record, t5_record

ESCAPE = re.compile(r"\x1b\[[0-9;]*m")


def terminal(width: int) -> Console:
    return Console(
        file=io.StringIO(), width=width, force_terminal=True, color_system="truecolor", _environ={}
    )


def pipe(encoding: str = "utf-8") -> Console:
    file = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    return Console(file=file, _environ={})


def printed(console: Console) -> str:
    file = console.file
    if isinstance(file, io.TextIOWrapper):
        file.flush()
        assert isinstance(file.buffer, io.BytesIO)
        return file.buffer.getvalue().decode(file.encoding)
    assert isinstance(file, io.StringIO)
    return file.getvalue()


def shown(record: Record, console: Console) -> list[str]:
    screen_of(record).show(console)
    return ESCAPE.sub("", printed(console)).splitlines()


@pytest.mark.parametrize("name", RECORDS)
@pytest.mark.parametrize("width", [60, 80, 100, 120, 140, 200])
def test_table_fits_the_terminal(name: str, width: int) -> None:
    lines = shown(RECORDS[name](), terminal(width))
    assert max(len(line) for line in lines) <= width
    assert "…" not in "".join(lines)


@pytest.mark.parametrize("width", [80, 140])
def test_every_row_stands_on_one_line_with_first_last_and_statistic(width: int) -> None:
    record = gpt2_record()
    lines = shown(record, terminal(width))
    for label in ("stream.norm", "tokens.residual", "update.norm[mlp]", "block.influence"):
        line = next(line for line in lines if line.startswith(label + " "))
        profile = record[label]
        cells = line.split()
        assert cells[1] == profile.statistic
        assert float(cells[2]) == pytest.approx(profile.first, rel=1e-3)
        assert float(cells[3]) == pytest.approx(profile.last, rel=1e-3)


def test_gradients_of_a_random_cotangent_are_the_first_line() -> None:
    record = gpt2_record()
    record.note("loss", {"kind": "random cotangent", "reason": "no head was found", "value": 0.1})
    first, second, *_ = shown(record, terminal(120))
    assert first.startswith("The gradients are those of a random cotangent and not of a loss")
    assert second.startswith("gpt2: GPT2LMHeadModel")


def test_wide_table_names_the_layers_of_lowest_and_highest() -> None:
    record = gpt2_record(massive=False)
    line = next(line for line in shown(record, terminal(170)) if line.startswith("stream.norm "))
    values = record["stream.norm"].values
    assert f"@{values.argmin()} " in line
    assert f"@{values.argmax()} " in line
    assert "jumps ×2.96 at layer 1, then grows in square by 179 per layer" in line


def test_narrow_table_keeps_the_law() -> None:
    lines = shown(gpt2_record(massive=False), terminal(80))
    line = next(line for line in lines if line.startswith("gradient.stream "))
    assert re.search(r"×0\.90\d? ?(/|per )layer", line)


def test_massive_activation_is_shown_with_the_median_without_it() -> None:
    lines = shown(gpt2_record(), terminal(80))
    at = next(at for at, line in enumerate(lines) if line.startswith("stream.norm "))
    assert lines[at + 1].startswith("  median_without_first ")
    assert any("the first token dominates" in line for line in lines)
    plain = shown(gpt2_record(massive=False), terminal(80))
    assert not any("median_without_first" in line for line in plain)


def test_narrow_table_shortens_the_statistic() -> None:
    record = Record()
    record.describe(Quantity("rank", "Rank", "r", "r", headline="mean_without_first"))
    record.append(
        Reading("rank", Site("decoder", l), "mean_without_first", 1.0 + l) for l in range(9)
    )
    wide = shown(record, terminal(140))
    assert any(line.startswith("rank      mean_without_first ") for line in wide)
    assert not any("*" in line for line in wide)
    narrow = shown(record, terminal(50))
    assert any(line.startswith("rank      mean* ") for line in narrow)


@pytest.mark.parametrize("name", RECORDS)
def test_pipe_gets_plain_text_in_full(name: str) -> None:
    record = RECORDS[name]()
    console = pipe()
    screen_of(record).show(console)
    text = printed(console)
    assert "\x1b" not in text
    assert not re.search("[─━│┃┌┐└┘╭╮╰╯…]", text)
    lines = text.splitlines()
    for row in rows_that_matter(summarize(record)):
        if not row.companion:
            words = shape_text(row.profile, scale=row.scale)
            assert any(line.startswith(row.label) and words in line for line in lines)


def test_pipe_does_not_wrap_long_sentences() -> None:
    record = gpt2_record()
    verdict = "A long verdict. " * 30
    record.add_finding(Finding(verdict.strip(), severity="serious"))
    console = pipe()
    screen_of(record).show(console)
    assert f"serious: {verdict.strip()}" in printed(console).splitlines()


def test_pipe_without_unicode_bars_gets_letters() -> None:
    record = gpt2_record()
    console = pipe("latin-1")
    screen_of(record).show(console)
    text = printed(console)
    assert "▁" not in text
    assert re.search(r"[_.\-=+*#@]{12}", text)


def test_serious_findings_stand_out_on_a_terminal() -> None:
    console = terminal(80)
    screen_of(broken_record()).show(console)
    assert "\x1b[1;31mserious: The stream is not finite from layer 5 on." in printed(console)


def test_findings_stand_below_the_name_the_worst_first() -> None:
    record = gpt2_record()  # has a note
    record.add_finding(Finding("The house burns.", severity="serious"))
    for console in (terminal(80), pipe()):
        lines = shown(record, console)
        assert lines[0].startswith("gpt2: ")
        assert lines[1] == "serious: The house burns."
        assert lines[2].startswith("note: ")


def test_names_are_never_read_as_markup() -> None:
    record = gpt2_record(name="[red]x[/red]")
    assert shown(record, terminal(80))[0].startswith("[red]x[/red]: ")


def test_empty_record_is_said_in_one_line() -> None:
    assert shown(Record(), terminal(80)) == ["Record with 0 readings"]


@pytest.mark.parametrize("width", [60, 80, 100, 140])
def test_comparison_fits_the_terminal(width: int) -> None:
    comparison = compare(gpt2_record(), gpt2_record(depth=24, name="gpt2-medium"), t5_record())
    console = terminal(width)
    comparison.screen().show(console)
    lines = ESCAPE.sub("", printed(console)).splitlines()
    assert max(len(line) for line in lines) <= width
    headers = " ".join(line for line in lines if line.startswith("quantity")).split()
    assert [name for name in headers if name in comparison.names] == list(comparison.names)
    assert any(line.startswith("decoder/stream.norm ") for line in lines)
    assert any(line.startswith("Only in t5: encoder/stream.norm") for line in lines)


def test_comparison_shows_the_ratio_and_the_widest_layer() -> None:
    comparison = compare(gpt2_record(), gpt2_record(name="other", massive=False))
    row = next(row for row in comparison.rows if row.label == "stream.norm")
    side = row.sides[1]
    assert side is not None
    assert side.parting is not None
    for console in (terminal(80), terminal(140), pipe()):
        comparison.screen().show(console)
        lines = ESCAPE.sub("", printed(console)).splitlines()
        (line,) = [line for line in lines if line.startswith("stream.norm ")]
        # (127 + 900) / 128 = 8.02 times less where the first token is massive, alike at the end
        assert re.search(rf"×0.125 @{side.parting.layer}$", line.rstrip())


def test_comparison_of_nothing_shared_says_what_each_has() -> None:
    console = pipe()
    compare(gpt2_record(), Record()).screen().show(console)
    lines = printed(console).splitlines()
    assert lines[0] == "gpt2 against record 2"
    assert lines[-1].startswith("Only in gpt2: stream.norm, ")
