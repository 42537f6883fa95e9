"""What is shown of `jacobian` and `lyapunov`: the answer in sentences, then the numbers."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from leadline.record.words.numbers import format_number, sparkline
from leadline.record.words.screen import Screen, Sentence
from leadline.record.words.table import Row, TableColumn, TextTable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from leadline.instruments.jacobian.result import Direction, Jacobian, Lyapunov

    Floats = NDArray[np.float64]

__all__ = ["jacobian_answer", "jacobian_screen", "lyapunov_answer", "lyapunov_screen"]

HARDLY = math.log(1.5)
"""Below this logarithm of the factor of all layers directions neither grow nor fade."""
REST = 0.1
"""Which share of the logarithm all other layers may give where one layer gives nearly all of it."""


def jacobian_screen(result: Jacobian) -> Screen:
    """Return the answer, a row per number, and what is remarkable."""
    above = (" ".join(jacobian_answer(result)), _title(result), _facts(result))
    return _screen(above, _table(result), _below(result))


def lyapunov_screen(result: Lyapunov) -> Screen:
    """Return the answer, a row per exponent, and the whole product."""
    above = (" ".join(lyapunov_answer(result)), _lyapunov_title(result), _facts(result))
    return _screen(above, _exponents(result), _lyapunov_below(result))


def _screen(above: tuple[str, str, str], table: TextTable, below: Sequence[str]) -> Screen:
    answer, title, facts = above
    return Screen(
        (
            Sentence(answer, "bold"),
            Sentence(),
            Sentence(title),
            Sentence(facts, "dim"),
            Sentence(),
            table,
            Sentence(),
            *map(Sentence, below),
        )
    )


def jacobian_answer(result: Jacobian) -> list[str]:
    """Say how much a change of the stream is stretched, and how far J is from the identity."""
    single = "The block" if result.sublayer is None else "The write"
    where = single if result.end == result.start + 1 else "The stretch"
    norm, distance = (format_number(float(one.mean())) for one in (result.norm, result.distance))
    sentences = [
        f"{where} multiplies a random small change of the stream by {norm} and is {distance} away "
        "from the identity (root mean squares over all directions)."
    ]
    if result.values.shape[1]:
        most = format_number(float(result.values[:, 0].max()))
        sentences.append(f"No change comes out more than {most} times as large.")
    return sentences


def lyapunov_answer(result: Lyapunov) -> list[str]:
    """Say by what factor the strongest direction changes in all layers, and where most of it is."""
    what = "Gradients" if result.backward else "Small changes of the stream"
    dead = int(np.isneginf(result.exponents[:, 0]).sum())
    if dead:
        examples = len(result.exponents)
        where = f" in {dead} of {examples} examples" if dead < examples else ""
        return [f"{what} die out{where}: no direction passes all layers."]
    exponent = float(result.exponents[:, 0].mean())
    total = exponent * result.depth
    change = "hardly change" if abs(total) < HARDLY else "grow" if total > 0 else "fade"
    factor = f"the strongest direction is multiplied by {_factor(total)}"
    if result.depth == 1:
        return [f"{what} {change}: on their way through the layer {factor}."]
    by_layer = _growth_by_rank(result)[:, :, 0].mean(1)
    main = int(np.argmax(by_layer * np.sign(total)))
    sentence = f"{what} {change}: on their way through all {result.depth} layers {factor}"
    if change != "hardly change" and abs(total - by_layer[main]) <= REST * abs(total):
        sentence += f", nearly all of it in layer {main + 1} ({_factor(float(by_layer[main]))})"
    else:
        sentence += f", by {math.exp(exponent):.4g} per layer in the geometric mean"
    return [f"{sentence}."]


def _factor(log: float) -> str:
    """Write a factor of which the natural logarithm is known."""
    log10 = log / math.log(10)
    return f"{10**log10:.3g}" if abs(log10) < 3 else f"10^{log10:.1f}"


def _growth_by_rank(result: Lyapunov) -> Floats:
    """Return the growth [layer, example, k] in the order of the exponents of each example."""
    order = np.argsort(-result.growth.sum(0), axis=1, kind="stable")
    return np.take_along_axis(result.growth, order[None], axis=2)


def _title(result: Jacobian) -> str:
    if result.end == result.start + 1:
        where = f"layer {result.end}"
        if result.sublayer is not None:
            where += f", sublayer {result.sublayer}"
    else:
        where = (
            f"from site {result.start} to site {result.end} ({result.end - result.start} layers)"
        )
    return f"Jacobian of {result.model}: {result.stack} {where}"


def _facts(result: Jacobian | Lyapunov) -> str:
    examples, tokens, width = result.shape
    one = "example" if examples == 1 else "examples"
    words = "token" if tokens == 1 else "tokens"
    return (
        f"{examples} {one}, {tokens} {words}, width {width}, N = {result.size}; "
        f"{result.precision}; attention: {result.kernel}"
    )


def _table(result: Jacobian) -> TextTable:
    """A row per quantity: its mean over the examples, the range, the largest error."""
    rows: list[Row] = []
    for i in range(result.values.shape[1]):
        rows.append(_row(f"sigma_{i + 1}", result.values[:, i], result.errors[:, i]))
    for i in reversed(range(result.smallest.shape[1])):
        name = "smallest sigma" if i == 0 else f"smallest sigma but {i}"
        rows.append(_row(name, result.smallest[:, i], result.smallest_errors[:, i]))
    rows.append(_row("|J|_F / sqrt N", result.norm, result.norm_error))
    rows.append(_row("|J - I|_F / sqrt N", result.distance, result.distance_error))
    if not np.isnan(result.branch).all():
        rows.append(_row("sigma_1(J - I)", result.branch, result.branch_error))
    if result.values.shape[1]:
        bound = "1 + sigma_1(J - I)" if result.blocks is None else "product of the blocks' sigma_1"
        rows.append(_row(bound, result.lipschitz, None))
        rows.append(_row("that over sigma_1", result.looseness, None))
    titles = ("", "mean", "lowest", "highest", "error")
    columns = tuple(TableColumn(title, right=bool(title)) for title in titles)
    return TextTable(columns, tuple(rows)).without_empty_columns()


def _row(name: str, values: Floats, errors: Floats | None) -> Row:
    several = len(values) > 1
    return Row(
        (
            name,
            format_number(float(values.mean()), digits=6),
            format_number(float(values.min()), digits=6) if several else "",
            format_number(float(values.max()), digits=6) if several else "",
            "" if errors is None else f"{float(errors.max()):.1e}",
        )
    )


def _below(result: Jacobian) -> list[str]:
    lines = [
        "Errors: estimates of |value - truth| for singular values, one standard error over "
        f"{result.probes} probes for the two norms; the largest of all examples."
    ]
    if result.causal is not None:
        text = "no token is moved by a later one" if result.causal else "tokens see later ones"
        lines.append(f"Causality: {text} (leak {result.leak:.1e}).")
    zero = result.strongest is not None and result.strongest.value[0] == 0
    for name, path in (("Strongest", result.strongest), ("Weakest", result.weakest)):
        if path is not None:
            lines.append(f"{name} path: {_path(path, zero=zero)}")
    return [*lines, *result.remarks]


def _path(path: Direction, *, zero: bool) -> str:
    """The first example in words; of a `zero` matrix any vector is a singular one."""
    enters, leaves = int(path.entry[0].argmax()), int(path.exit[0].argmax())
    first = " of example 1" if len(path.entry) > 1 else ""
    if zero:
        return f"none, the Jacobian{first} is 0."
    begins = f"enters most at token {enters + 1} ({path.entry[0, enters]:.0%})"
    if path.value[0] == 0:
        return f"{begins}{first}, and nothing of it leaves."
    return (
        f"{begins} and leaves most at "
        f"token {leaves + 1} ({path.exit[0, leaves]:.0%}){first}, <u, v> = {path.overlap[0]:.3f}."
    )


def _lyapunov_title(result: Lyapunov) -> str:
    way = "from the last site to the first (J')" if result.backward else "from first to last (J)"
    layers = "layer" if result.depth == 1 else "layers"
    return f"Lyapunov exponents of {result.model}: {result.stack}, {result.depth} {layers}, {way}"


def _exponents(result: Lyapunov) -> TextTable:
    """A row per exponent: its mean over the examples, the range, and what each layer gave."""
    columns = (
        TableColumn(),
        TableColumn("exponent", right=True),
        TableColumn("lowest", right=True),
        TableColumn("highest", right=True),
        TableColumn("factor per layer", right=True),
        TableColumn("growth by layer", style="cyan", gives_way=(1,)),
    )
    rows: list[Row] = []
    growth = _growth_by_rank(result)
    for i in range(result.exponents.shape[1]):
        values = result.exponents[:, i]
        several = len(values) > 1
        cells = (
            str(i + 1),
            f"{values.mean():.5f}",
            f"{values.min():.5f}" if several else "",
            f"{values.max():.5f}" if several else "",
            f"{np.exp(values.mean()):.5f}",
            sparkline(growth[:, :, i].mean(1), scale="linear"),
        )
        rows.append(Row(cells))
    return TextTable(columns, tuple(rows)).without_empty_columns()


def _lyapunov_below(result: Lyapunov) -> list[str]:
    site = 0 if result.backward else result.depth
    value, error = result.log10_norm[site], result.log10_norm_error[site]
    dead: NDArray[np.bool_] = np.equal(value, -np.inf)
    line = "Exponents: natural logarithm of the growth per layer. Whole product: "
    if dead.all():
        return [f"{line}0, no direction arrives.", *result.remarks]
    value, error = value[~dead], error[~dead]
    # One direction has no spread.
    open_to = "" if np.isnan(error).all() else f" +- {error.max():.3f} (one standard error)"
    line += f"log10 of |J|_F / sqrt N is {value.mean():.3f}{open_to}"
    if dead.any():
        line += f" in {len(value)} of {len(dead)} examples; in the others it is 0"
    return [f"{line}.", *result.remarks]
