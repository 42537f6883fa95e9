"""Charts over depth: the stream and its gradients in the open, all others folded by topic."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leadline.reading.page.drawing import sparkline
from leadline.reading.page.figures import row_name
from leadline.reading.page.section import SECTIONS, PagePart, has_depth
from leadline.reading.show.card import chart_card, controls
from leadline.reading.show.markup import law, marker, safe
from leadline.reading.show.palette import css_colour
from leadline.reading.show.wording import axes_in_words, number
from leadline.record.words.shape import shape_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leadline.reading.page.section import PageSubject
    from leadline.reading.show.chart import Chart
    from leadline.record import Record
    from leadline.record.rows.quantity import Over

__all__ = ["GlanceSection", "StreamSection", "TopicsSection"]

_OPEN = ("stream", "gradient")
"""The topics of the picture that everybody sees."""


@SECTIONS.register("stream")
class StreamSection:
    """The charts that lead the topics of the stream and of its gradients, never folded."""

    place = 10

    def reads(self, record: Record) -> bool:
        """Look for readings over depth."""
        return has_depth(record)

    def write(self, subject: PageSubject) -> list[PagePart]:
        """Return the picture, with the switches of all charts."""
        leading = _leading(subject.charts)
        if not leading:
            return []
        depths = {r.depth(stack) for r in subject.records for stack in r.stacks}
        content = (
            "<noscript><p>The charts need JavaScript; the rest of the page does not.</p></noscript>"
            f"{controls(subject.charts, depths_differ=len(depths) > 1)}{_cards(leading)}"
        )
        return [PagePart("charts", _over(leading), content, tuple(leading), folded=False)]


@SECTIONS.register("glance")
class GlanceSection:
    """A table with one row per line: its shape, where it starts and ends, its law of growth."""

    place = 15

    def reads(self, record: Record) -> bool:
        """Look for readings over depth."""
        return has_depth(record)

    def write(self, subject: PageSubject) -> list[PagePart]:
        """Return the table of all charts over depth."""
        rows: list[str] = []
        for topic, charts in _topics(subject.charts):
            head = f'<th colspan="5" scope="colgroup">{safe(topic)}</th>'
            rows.append(f'<tr class="group">{head}</tr>')
            rows += [_glance(chart, at) for chart in charts for at in range(len(chart.rows))]
        content = (
            '<div class="card glance scroll"><table>'
            '<thead><tr><th scope="col">Quantity</th><th scope="col">Line</th>'
            f'<th scope="col">{_over(subject.charts)}</th>'
            '<th scope="col" class="number">First → last</th>'
            '<th scope="col">Shape</th></tr></thead>'
            f"<tbody>{''.join(rows)}</tbody></table></div>"
        )
        count = len(subject.charts)
        remark = f"{count} {'quantity' if count == 1 else 'quantities'}, first to last value"
        return [PagePart("glance", "At a glance", content, remark=remark)] if rows else []


@SECTIONS.register("topics")
class TopicsSection:
    """All other charts over depth, a folded part per topic."""

    place = 40

    def reads(self, record: Record) -> bool:
        """Look for readings over depth."""
        return has_depth(record)

    def write(self, subject: PageSubject) -> list[PagePart]:
        """Return a part for every topic that has charts besides those in the open."""
        leading = {chart.key for chart in _leading(subject.charts)}
        parts: list[PagePart] = []
        for topic, charts in _topics(subject.charts):
            rest = [chart for chart in charts if chart.key not in leading]
            if rest:
                remark = ", ".join(dict.fromkeys(chart.title for chart in rest))
                key = f"topic-{len(parts) + 1}"
                parts.append(PagePart(key, topic, _cards(rest), tuple(rest), remark=remark))
        return parts


def _leading(charts: Sequence[Chart]) -> list[Chart]:
    """The chart that leads each open topic, or its first; the first of all where none is open."""
    groups = [[chart for chart in charts if chart.topic == topic] for topic in _OPEN]
    leading = [max(group, key=lambda chart: chart.leads) for group in groups if group]
    return leading or list(charts[:1])


def _over(charts: Sequence[Chart]) -> str:
    """Say what charts are drawn over, as a title; one of single values is drawn over nothing."""
    axes: list[Over] = [
        chart.across for chart in charts if any(len(line.x) > 1 for line in chart.lines)
    ]
    return f"Over {axes_in_words(axes)}"


def _topics(charts: Sequence[Chart]) -> list[tuple[str, list[Chart]]]:
    """Group charts by topic, in the order in which topics first come."""
    groups: dict[str, list[Chart]] = {}
    for chart in charts:
        title = chart.topic.replace("_", " ")
        groups.setdefault(title[:1].upper() + title[1:], []).append(chart)
    return list(groups.items())


def _cards(charts: Sequence[Chart]) -> str:
    return f'<div class="charts">{"".join(map(chart_card, charts))}</div>'


def _glance(chart: Chart, at: int) -> str:
    row = chart.rows[at]
    line = row.headline
    link = "" if at else f'<a href="#{chart.key}">{safe(chart.title)}</a>'
    values = [float(value) for value in line.values]
    spark = sparkline(values, log=chart.scale == "log") if len(values) > 1 else ""
    ends = f"{number(line.first)} → {number(line.last)}" if len(values) > 1 else number(line.first)
    shape = shape_text(line, scale=chart.scale, logarithm=chart.logarithm)
    return (
        f'<tr style="--c:{css_colour(row.colour)}"><th scope="row">{link}</th>'
        f"<td>{marker(row.symbol)}{safe(row_name(row, chart.panels))}</td><td>{spark}</td>"
        f'<td class="number">{ends}</td><td class="soft wide">{law(shape)}</td></tr>'
    )
