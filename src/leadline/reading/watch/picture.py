"""The map of layers by steps as a figure of a page: the loss above it, warnings marked on its axis.

Cells are strokes of an SVG that stretches with the page, one path for each shade: along a row only
the lengths of stretches of one shade are written, so that 24 layers by 100 columns take a few
kilobytes. Letters stand beside the SVG as HTML, so that they keep their size on a phone. Shades are
classes, so that the page's theme chooses the colours; lightness alone tells their order, and what
is not finite is crossed out. Every path has a title, and the figure a sentence for who cannot see
it; the numbers of every layer are in a table below.
"""

from __future__ import annotations

import math
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from leadline.reading.show.markup import formula, safe
from leadline.reading.show.ramp import ramp
from leadline.reading.show.svg import PictureAxis, short
from leadline.reading.show.wording import number
from leadline.reading.watch.gauge_rows import gauge_of, warned
from leadline.reading.watch.heat import heat_map, series_by_column
from leadline.reading.watch.shading import LOST, shade
from leadline.record.words.numbers import heights

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from leadline.reading.watch.heat import HeatMap, LayerSeries
    from leadline.reading.watch.history import Series
    from leadline.reading.watch.shading import Shading
    from leadline.record import Finding

__all__ = ["HeatFigure", "heat_picture", "heat_style", "loss_symbol"]

COLUMNS = 100
"""So many columns a map has at most: each is some pixels wide even on a small screen."""
SHADES = 9
"""So many shades; more of them cannot be told apart, and make shorter stretches."""
LEAST_APART = 14
"""Two names of rows are at least so many pixels apart."""
_TICKS = 5
_CODE = 0.13
"""The share of the width that the code of a warning takes on a phone."""


@dataclass(frozen=True, eq=False)
class HeatFigure:
    """What a figure is made of. `span` are the steps of its axis, which all figures of a run share.

    `loss` is the identifier of the symbol that draws the loss; `anchors` are the identifiers of
    the cards of the findings, where the page has cards.
    """

    group: LayerSeries
    key: str
    span: tuple[int, int]
    loss: str = ""
    findings: tuple[Finding, ...] = ()
    anchors: tuple[str, ...] = ()

    @property
    def is_warned(self) -> bool:
        """Whether a finding speaks of it."""
        return warned(self.group, self.findings) is not None

    def to_html(self) -> str:
        """Return the figure."""
        group = self.group
        heat = heat_map(group, columns=COLUMNS, span=self.span)
        shading = shade(heat, SHADES, steady=True)
        unit = f' <span class="soft small">in {safe(group.quantity.unit)}</span>'
        title = (
            f'<h4 id="{self.key}-title">{safe(group.title)}</h4> '
            f'<span class="symbol">{formula(group.quantity.symbol)}</span>'
            f"{unit if group.quantity.unit else ''}{_legend(shading)}"
        )
        outside = " outside" if group.outside else ""
        marked = " marked" if _since(self.findings) else ""
        loss = (
            '<span class="losslabel">loss</span>'
            f'<svg class="curve" aria-hidden="true"><use href="#{self.loss}"/></svg>'
        )
        return (
            f'<figure class="card heat{outside}" id="{self.key}" aria-labelledby="{self.key}-title">'
            f'<figcaption>{title}</figcaption><div class="heatplot">'
            f"{loss if self.loss else ''}"
            f'<div class="layers" aria-hidden="true">{_row_names(group)}</div>'
            f"{self._field(heat, shading)}"
            f'<div class="steps{marked}" aria-hidden="true">{self._steps()}{self._codes()}</div></div>'
            f'<p class="readout soft small" role="status"></p>{self._warning()}{_numbers(group)}'
            "</figure>"
        )

    def _field(self, heat: HeatMap, shading: Shading) -> str:
        rows, columns = heat.values.shape
        spoken = safe(_spoken(self.group, self.findings))
        names = safe("|".join(self.group.labels))
        return (
            f'<div class="field" role="img" tabindex="0" aria-label="{spoken}" '
            f'data-names="{names}" data-steps="{self.span[0]},{self.span[1]}">'
            f'<svg viewBox="0 0 {columns} {2 * rows}" preserveAspectRatio="none" '
            f'style="height:{_high(rows)}px">{_cells(shading)}{self._frame(heat)}</svg>'
            f"{self._lines()}</div>"
        )

    def _frame(self, heat: HeatMap) -> str:
        """A frame round the layers that a warning speaks of, from its beginning on."""
        finding = warned(self.group, self.findings)
        since = None if finding is None else finding.details.get("since")
        if finding is None or not isinstance(since, int):
            return ""
        labels = self.group.labels
        rows = sorted(labels.index(str(one)) for one in finding.layers if str(one) in labels)
        columns = heat.values.shape[1]
        left = heat.column_of(since)
        paths = "".join(
            f"M{left} {2 * first}H{columns}V{2 * last + 2}H{left}z"
            for first, last in _neighbours(rows)
        )
        return f'<path class="warned" d="{paths}"/>' if paths else ""

    def _share(self, step: float) -> float:
        first, last = self.span
        return min(max((step - first) / max(1, last + 1 - first), 0.0), 1.0)

    def _lines(self) -> str:
        return "".join(
            f'<i class="since" style="left:{_percent(self._share(since))}"></i>'
            for _, since in _since(self.findings)
        )

    def _steps(self) -> str:
        first, last = self.span
        axis = PictureAxis(first, last + 1, 0.0, 1.0)
        ticks = [tick for tick, _ in axis.ticks(_TICKS) if tick == round(tick)]
        return "".join(
            f'<span style="left:{_percent(self._share(tick))}">{tick:,.0f}</span>'
            for tick in ticks
            if self._share(tick) < 0.97
        )

    def _codes(self) -> str:
        """The codes of the warnings below the axis; one without room on either side is a sign alone."""
        marks = [(self._share(since), safe(one.code)) for one, since in _since(self.findings)]
        pieces: list[str] = []
        taken = 0.0
        for at, (place, code) in enumerate(marks):
            following = marks[at + 1][0] if at + 1 < len(marks) else 1.0
            side, text = "", f"▲{code}"
            if following - place >= _CODE:
                taken = place + _CODE
            elif place - taken >= _CODE:
                side, text, taken = ' class="left"', f"{code}▲", place
            else:
                text, taken = "▲", max(taken, place)
            pieces.append(f'<b{side} style="left:{_percent(place)}">{text}</b>')
        return "".join(pieces)

    def _warning(self) -> str:
        finding = warned(self.group, self.findings)
        if finding is None:
            return ""
        at = self.findings.index(finding)
        code = safe(finding.code)
        link = f'<a href="#{self.anchors[at]}">{code}</a>' if self.anchors and code else code
        return (
            f'<p class="small"><b>{safe(finding.severity)}</b> {link} {safe(finding.verdict)}</p>'
        )


def heat_picture(
    group: LayerSeries, *, loss: Series | None = None, findings: Sequence[Finding] = ()
) -> str:
    """Return one figure with its own style, for a notebook."""
    span = group.first, group.last
    if loss is not None:
        span = min(span[0], int(loss.steps[0])), max(span[1], loss.last_step)
    # Two figures of one notebook must not share a name, and a figure keeps its own.
    key = f"heat-{zlib.crc32(f'{group.address}{span}{len(findings)}'.encode()):x}"
    symbol = "" if loss is None else loss_symbol(loss, span, f"{key}-loss")
    figure = HeatFigure(group, key, span, f"{key}-loss" if symbol else "", tuple(findings))
    return (
        f'<div class="leadline-heat"><style>{heat_style()}</style>{symbol}{figure.to_html()}</div>'
    )


def heat_style() -> str:
    """Return the style of figures that stand alone, in the colours of a light page."""
    shades = "".join(f".h{at}{{stroke:{colour};background:{colour}}}"
                     for at, colour in enumerate(ramp(SHADES)))  # fmt: skip
    return (
        f".leadline-heat{{max-width:46rem}}.leadline-heat .readout{{display:none}}{shades}{_ALONE}"
    )


_ALONE = (
    ".heat{margin:0}.heat h4{display:inline;margin:0 .4em 0 0}.heatplot{display:grid;"
    "grid-template-columns:2.6rem minmax(0,1fr);gap:.2rem .4rem;margin-top:.4rem;font-size:11px}"
    ".heat .curve{width:100%;height:34px;grid-column:2}.heat .curve path,.heat symbol path{fill:none;"
    "stroke:#0072b2;stroke-width:1.5;vector-effect:non-scaling-stroke}"
    ".heat .layers{position:relative}.heat .layers span{position:absolute;right:0;"
    "transform:translateY(-50%)}.heat .field{position:relative}.heat .field svg{display:block;"
    "width:100%}.heat .field path{fill:none;stroke-width:2;shape-rendering:crispEdges}"
    ".heat .field path.warned,.heat .field path.cross{stroke:#a8321a;stroke-width:1.5;"
    "vector-effect:non-scaling-stroke}.heat .since{position:absolute;top:0;bottom:0;"
    "border-left:1px dashed #8a5a00}.heat .steps{position:relative;grid-column:2;height:2.4em}"
    ".heat .steps span,.heat .steps b{position:absolute;transform:translateX(-50%)}"
    ".heat .steps span:first-child{transform:none}.heat .steps b{top:1.2em;color:#8a5a00}"
    ".ramp i{display:inline-block;width:.8em;height:.7em}.heat .losslabel{text-align:right}"
)


def loss_symbol(loss: Series, span: tuple[int, int], key: str) -> str:
    """Return the curve of the loss as a symbol, which every figure of the run draws again."""
    edges = np.linspace(span[0], span[1] + 1, 2 * COLUMNS + 1)
    values = series_by_column(loss, edges)
    level, (bottom, top) = heights(values, scale="log")
    path, pen = "", "M"
    for at, one in enumerate(level):
        if not math.isfinite(one):
            pen = "M"
            continue
        x, y = 1000 * (at + 0.5) / len(level), 97 - 94 * (one - bottom) / (top - bottom)
        path += f"{pen}{short(x)} {short(y)}"
        pen = "L"
    return (
        '<svg width="0" height="0" aria-hidden="true" style="position:absolute">'
        f'<symbol id="{key}" viewBox="0 0 1000 100" preserveAspectRatio="none">'
        f'<path vector-effect="non-scaling-stroke" d="{path}"/></symbol></svg>'
    )


def _cells(shading: Shading) -> str:
    """A path for each shade, along whose rows stretches of cells are drawn."""
    paths = [
        f'<path class="h{one}" d="{stretches}"><title>{safe(shading.words(one))}</title></path>'
        for one in range(shading.count)
        if (stretches := _stretches(shading.shades == one))
    ]
    lost = shading.shades == LOST
    if bool(lost.any()):
        crosses = "".join(
            f"M{column} {2 * row}l1 2m-1 0l1 -2"
            for row, column in zip(*np.nonzero(lost), strict=True)
        )
        paths.append(f'<path class="cross" d="{crosses}"><title>not finite</title></path>')
    return "".join(paths)


def _stretches(cells: NDArray[np.bool_]) -> str:
    """Horizontal strokes along the rows of cells: `M0 1h12m3 0h2`."""
    path = ""
    for row, line in enumerate(cells):
        padded = np.concatenate(([False], line, [False])).astype(np.int8)
        turns = np.flatnonzero(np.diff(padded))
        here = None
        for start, end in zip(turns[::2].tolist(), turns[1::2].tolist(), strict=True):
            path += f"M{start} {2 * row + 1}" if here is None else f"m{start - here} 0"
            path += f"h{end - start}"
            here = end
    return path


def _high(rows: int) -> int:
    """How many pixels a map is high."""
    return min(max(9 * rows, 64), 260)


def _row_names(group: LayerSeries) -> str:
    """The names of rows that have room; the first and the last always."""
    count = len(group.labels)
    every = max(1, math.ceil(LEAST_APART * count / _high(count)))
    shown = [at for at in range(0, count, every) if at == 0 or count - 1 - at >= every]
    shown = [*shown, count - 1] if count > 1 else shown
    return "".join(
        f'<span style="top:{_percent((at + 0.5) / count)}">{safe(group.labels[at])}</span>'
        for at in dict.fromkeys(shown)
    )


def _legend(shading: Shading) -> str:
    cells = "".join(f'<i class="h{at}"></i>' for at in range(shading.count))
    scale = "logarithmic" if shading.logarithmic else "linear"
    return (
        f'<span class="ramp small soft" title="{scale} scale">{safe(shading.number(shading.low))} '
        f"{cells} {safe(shading.number(shading.high))}</span>"
    )


def _numbers(group: LayerSeries) -> str:
    """The numbers of every layer, folded; the page's script makes a table of them when it opens."""
    rows = "|".join(_row_numbers(series) for series in group.series)
    return (
        f'<details class="layered with" data-numbers="{safe(rows)}"><summary>Numbers</summary>'
        '<div class="numbers" tabindex="0" role="region" aria-label="Numbers"></div></details>'
    )


def _row_numbers(series: Series) -> str:
    """The first value of a series, its lowest and its highest with their steps, and the last."""
    values, steps = series.values, series.steps
    finite = np.isfinite(values)
    texts = [number(float(values[0]))]
    for pick, worse in ((np.argmin, np.inf), (np.argmax, -np.inf)):
        at = int(pick(np.where(finite, values, worse)))
        texts.append(f"{number(float(values[at]))} @{int(steps[at])}")
    texts.append(number(float(values[-1])))
    return ";".join(texts)


def _spoken(group: LayerSeries, findings: Sequence[Finding]) -> str:
    """Say what the map shows, for who cannot see it."""
    rows = "tensors" if group.outside else "layers"
    sentence = (
        f"{group.title} of {len(group.series)} {rows} over steps {group.first:,} to {group.last:,}."
    )
    row = gauge_of(group)
    worst = row.worst
    if worst is not None and not math.isnan(worst.past):
        name = worst.label if group.outside else f"layer {worst.label}"
        sentence += (
            f" {name[:1].upper()}{name[1:]} has departed most from its past: {number(worst.value)} "
            f"now, {number(worst.past)} before."
        )
    finding = warned(group, findings)
    return sentence if finding is None else f"{sentence} {finding.verdict}"


def _since(findings: Sequence[Finding]) -> list[tuple[Finding, int]]:
    """Findings with the step since which they hold, in the order of these."""
    pairs = [(finding, finding.details.get("since")) for finding in findings]
    known = [(finding, since) for finding, since in pairs if isinstance(since, int)]
    return sorted(known, key=lambda pair: pair[1])


def _neighbours(rows: Sequence[int]) -> list[tuple[int, int]]:
    """Rows as stretches of neighbours, each with its first and its last."""
    stretches: list[tuple[int, int]] = []
    for row in rows:
        if stretches and row == stretches[-1][1] + 1:
            stretches[-1] = stretches[-1][0], row
        else:
            stretches.append((row, row))
    return stretches


def _percent(share: float) -> str:
    return f"{100 * share:.4g}%"
