"""The map on a terminal: fields of colour, bars without it, marks of warnings."""

from __future__ import annotations

import io
import math

import numpy as np
import pytest
from rich.console import Console

from leadline.reading.show.ramp import as_terminal_colours, ramp
from leadline.reading.watch import drawing
from leadline.reading.watch.drawing import HeatDrawing, bar_lines
from leadline.reading.watch.heat import chosen_series, layer_series, loss_of
from leadline.reading.watch.history import History
from leadline.record import Finding
from leadline.record.words.numbers import BARS
from tests.facts.reading.watch.test_heat import NORM, group_of
from tests.synthetic_watch import Course, watch_record

SMALL = Course(layers=8, samples=60, every=10)


def drawing_of(address="attention.logit_std", course=SMALL, **options):
    record = watch_record(course)
    history = History.of(record)
    [group] = chosen_series(layer_series(history), address)
    options.setdefault("loss", loss_of(history))
    return HeatDrawing(group, findings=tuple(record.findings), **options)


def plain_lines(picture, width=80, **options):
    return ["".join(piece for piece, _ in line) for line in picture.drawn(width, **options)]


def test_the_loss_stands_above_the_layers_and_the_steps_below():
    lines = plain_lines(drawing_of())
    names = [line[:5].strip() for line in lines]
    assert names[:10] == ["loss", "1", "2", "3", "4", "5", "6", "7", "8", ""]
    assert names[10] == "step"
    assert lines[10].split() == ["step", "1", "296", "590"]
    assert lines[11].endswith("logarithmic")


def test_without_colour_a_row_is_a_line_of_bars_on_one_scale():
    values = np.array([[1.0] * 7 + [2.0], [128.0] * 8])
    picture = HeatDrawing(group_of(values, quantity=NORM), loss=None)
    lines = plain_lines(picture, width=21)
    assert lines[0] == "   0 ▁▁▁▁▁▁▁▁▁▁▁▁▁▁▂▂"
    assert lines[1] == "   1 ████████████████"


def test_the_legend_of_a_logarithmic_map_tells_of_zeros():
    def legend(values):
        picture = HeatDrawing(group_of(np.array(values), quantity=NORM), loss=None)
        return plain_lines(picture, width=60)[-1].strip()

    assert legend([[0.0] * 8]) == "every value is 0"
    assert legend([[0.0] * 4 + [1.0, 8.0, 8.0, 8.0]]).startswith("0, 1 ▁▂▃▄▅▆▇█ 8, logarithmic")
    assert legend([[1.0] * 4 + [8.0] * 4]).startswith("1 ▁▂▃▄▅▆▇█ 8")


@pytest.mark.parametrize("relative", [False, True])
@pytest.mark.parametrize("low", [5e-324, 1e-300])
def test_values_that_only_float64_reaches_are_drawn(low, relative):
    values = np.array([[low, 1.0, 1e300, 1.7e308] * 3])
    for quantity in (NORM, None):
        group = group_of(values) if quantity is None else group_of(values, quantity=quantity)
        for colours in (None, "truecolor"):
            picture = HeatDrawing(group, loss=None, relative=relative)
            assert plain_lines(picture, width=60, colours=colours)


def test_no_line_is_wider_than_the_terminal():
    for width in (30, 40, 80, 120):
        for colours in (None, "truecolor"):
            lines = plain_lines(drawing_of(lines=4), width=width, colours=colours)
            assert max(map(len, lines)) <= width, (width, colours)


def test_the_layer_that_departs_most_is_named_beside_its_row_with_its_factor():
    [line] = [line for line in plain_lines(drawing_of()) if "×" in line]
    assert line.startswith("   6 ")
    series = drawing_of().group.series[5].values
    factor = series[-1] / np.median(series[:54])
    assert line.endswith(f"  6: {series[-1]:.1f} ×{factor:.0f}")


def test_in_a_narrow_terminal_the_name_gives_way():
    assert not any("×" in line for line in plain_lines(drawing_of(), width=24))


def test_a_warning_is_marked_where_it_began():
    lines = plain_lines(drawing_of())
    marks = lines[9]
    assert "G90" in marks
    width = lines[10].rindex("0") + 1 - 5  # of the map
    began = (530 - 1) / 590
    assert abs((marks.index("▲") - 5) / width - began) < 2 / width


def test_marks_that_are_near_each_other_do_not_cover_each_other():
    record = watch_record(SMALL)
    [group] = chosen_series(layer_series(History.of(record)), "stream.norm")

    def marks(*steps):
        findings = [
            Finding("v", code=f"G{at}0", details={"since": s}) for at, s in enumerate(steps)
        ]
        lines = plain_lines(HeatDrawing(group, loss=None, findings=tuple(findings)), width=66)
        return lines[-3]

    assert marks(100, 400).split() == ["▲G00", "▲G10"]
    assert marks(550, 570).split() == ["G00▲", "▲"]
    assert marks(530, 550, 570).replace(" ", "") == "G00▲▲▲"
    assert marks(590).strip() == "G00▲"
    assert marks(10, 30, 570).split() == ["▲", "▲G10", "G20▲"]


def test_with_colour_a_cell_is_a_field_of_its_shade():
    values = np.array([[1.0, 1.0], [1000.0, 1000.0]])
    picture = HeatDrawing(group_of(values, quantity=NORM), loss=None)
    first, second = picture.drawn(15, colours="truecolor")[:2]
    shades = ramp(drawing.COLOURS, "dark")
    assert drawing.COLOURS == 16
    assert first[1] == (" " * 10, f"on {shades[0]}")
    assert second[1] == (" " * 10, f"on {shades[-1]}")


def test_a_terminal_of_256_colours_gets_its_own():
    values = np.array([[1.0, 1.0], [1000.0, 1000.0]])
    picture = HeatDrawing(group_of(values, quantity=NORM), loss=None)
    first = picture.drawn(15, colours="256")[0]
    assert first[1][1] == f"on {as_terminal_colours(ramp(16, 'dark'))[0]}"


def test_two_layers_share_a_line_where_not_all_fit():
    values = np.array([[1.0, 1.0], [1000.0, 1000.0], [1.0, 1.0]])
    picture = HeatDrawing(group_of(values, quantity=NORM), lines=2, loss=None)
    shades = ramp(16, "dark")
    lines = picture.drawn(15, colours="truecolor")
    assert lines[0][0][0].strip() == "0-1"
    assert lines[0][1] == ("▀" * 10, f"{shades[0]} on {shades[-1]}")
    assert lines[1][0][0].strip() == "2"
    assert lines[1][1] == ("▀" * 10, shades[0])


def test_a_value_that_is_not_finite_is_a_sign_of_its_own():
    values = [[1.0, math.nan, math.inf, 2.0] * 3]
    picture = HeatDrawing(group_of(values, quantity=NORM), loss=None)
    line = plain_lines(picture, width=17)[0]
    assert line[5:].count("×") == 6
    assert "x" in plain_lines(picture, width=17, plain=True)[0]


def test_tensors_outside_of_the_blocks_have_their_names():
    lines = plain_lines(drawing_of("model/weights.update_ratio"))
    assert lines[1].startswith("transformer.wte.weight ")


def test_a_name_cannot_command_the_terminal():
    group = group_of([[1.0, 2.0]])
    site = group.series[0].site
    object.__setattr__(site, "stack", "model")
    object.__setattr__(site, "point", "evil\x1b[2Jname")
    from dataclasses import replace

    from leadline.record.rows.address import Address

    outside = replace(group, address=Address("stream.mean", "model"))
    assert "\x1b" not in HeatDrawing(outside, loss=None).text()


def test_a_console_without_unicode_gets_plain_signs():
    paper = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    console = Console(file=paper, width=80, force_terminal=True, color_system="truecolor")
    drawing_of().show(console)
    paper.flush()
    text = paper.buffer.getvalue().decode("ascii")
    assert "G90^" in text
    assert "@" in text


def test_a_pipe_gets_bars_and_no_colour():
    console = Console(file=io.StringIO(), width=80)
    drawing_of().show(console)
    text = console.file.getvalue()
    assert "\x1b" not in text
    assert max(map(len, text.split("\n"))) == drawing.TEXT_WIDTH == 100


def test_relative_shades_say_so():
    lines = plain_lines(drawing_of(relative=True))
    assert lines[-1].endswith("against each layer's median")
    assert "×" in lines[-1]


@pytest.mark.parametrize("lines", [1, 3])
def test_a_curve_in_several_lines_fills_them_from_below(lines):
    values = np.exp(np.linspace(0.0, 3.0, 40))
    drawn = bar_lines(values, lines)
    assert len(drawn) == lines
    heights = [
        sum(BARS.index(line[at]) + 1 for line in drawn if line[at] != " ") for at in range(40)
    ]
    assert heights == sorted(heights)
    assert heights[-1] == 8 * lines
    assert all(line.strip() == "" or line[-1] == BARS[-1] for line in drawn)


def test_a_gap_of_a_curve_is_a_dot_in_its_lowest_line():
    drawn = bar_lines(np.array([1.0, math.nan, 3.0]), 2)
    assert drawn[0][1] == " "
    assert drawn[1][1] == "·"


def test_the_html_is_a_figure_that_brings_its_style():
    html = drawing_of().html()
    assert html.startswith('<div class="leadline-heat"><style>')
    assert html.count("<figure") == 1


def test_the_loss_has_its_own_points_where_layers_were_read_at_few_steps():
    history = History.of(watch_record(Course(layers=3, samples=2, every=60, trouble=False)))
    [group] = chosen_series(layer_series(history), "stream.norm")
    lines = plain_lines(HeatDrawing(group, loss=loss_of(history)), width=80)
    assert len(set(lines[0][5:60])) > 4  # bars that fall, not the two columns of the map
    assert max(map(len, lines)) <= 80
