"""The results of `jacobian` and `lyapunov`, as data, as text and as HTML.

J is the Jacobian of a stretch of blocks at one input: an N x N matrix per example, N = tokens x
width. What is kept of it:

    values      the largest singular values sigma_1 >= sigma_2 >= ...
    norm        |J|_F / sqrt(N): 1 for the identity, the root mean square of all singular values
    distance    |J - I|_F / sqrt(N): 0 for the identity
    branch      sigma_1(J - I): what the blocks add to the identity, at most
    leak        the largest |J' u| at tokens later than those u stands on; 0 where it is causal

A Lipschitz argument bounds sigma_1(J) of a product by the product of the blocks' sigma_1, and that
of one block by 1 + sigma_1(J - I). `looseness` is the bound over the truth: from 1 on.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from leadline.record.provenance import strict_json
from leadline.record.words.notebook import html_table
from leadline.record.words.numbers import align, format_number, sparkline

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

__all__ = ["Direction", "Jacobian", "Lyapunov"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Direction:
    """One singular path: J v = sigma u with unit vectors v (at the entry) and u (at the exit).

    `entry` and `exit` [example, token] are the shares of |v|^2 and |u|^2 by token, `overlap`
    [example] is <u, v>: 1 where the path only stretches, 0 where it turns into something else.
    Where `value` is 0 nothing arrives, and u is one of many that would do.
    """

    value: Floats
    entry: Floats
    exit: Floats
    overlap: Floats

    def to_json(self) -> dict[str, Any]:
        """Return the numbers as JSON."""
        return strict_json(
            {
                "value": self.value.tolist(),
                "entry": self.entry.tolist(),
                "exit": self.exit.tolist(),
                "overlap": self.overlap.tolist(),
            }
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class Jacobian:
    """The Jacobian of a stretch of blocks: what `leadline.jacobian` returns.

    Arrays are [example] or [example, k]. `start` and `end` are sites; `sublayer` is None or the
    number of one write of block `end`. `errors` estimate |value - truth|; `norm_error` and
    `distance_error` are one standard error over `probes` random vectors. `values`, `branch` and
    what follows from them are empty or NaN where products J v are impossible; `remarks` say why.
    `blocks` [block, example] are the sigma_1 of the single blocks of a longer stretch. `causal` is
    None for a single token, and where no leak was seen at some of the places of a long text.
    """

    model: str
    stack: str
    start: int
    end: int
    sublayer: int | None = None
    shape: tuple[int, int, int]
    values: Floats
    errors: Floats
    smallest: Floats
    smallest_errors: Floats
    norm: Floats
    norm_error: Floats
    distance: Floats
    distance_error: Floats
    branch: Floats
    branch_error: Floats
    blocks: Floats | None = None
    leak: float = 0.0
    causal: bool | None = None
    strongest: Direction | None = None
    weakest: Direction | None = None
    left: Floats | None = field(default=None, repr=False)
    right: Floats | None = field(default=None, repr=False)
    probes: int = 0
    products: int = 0
    precision: str = ""
    kernel: str = ""
    remarks: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        """N: the number of rows of J."""
        return self.shape[1] * self.shape[2]

    @property
    def lipschitz(self) -> Floats:
        """[example] the bound on sigma_1: the product of the blocks' sigma_1, or 1 + `branch`."""
        if self.blocks is None:
            return 1.0 + self.branch
        with np.errstate(over="ignore"):
            return np.prod(self.blocks, axis=0)

    @property
    def looseness(self) -> Floats:
        """[example] the Lipschitz bound over sigma_1; NaN without singular values."""
        if not self.values.shape[1]:
            return np.full(self.shape[0], np.nan)
        with np.errstate(divide="ignore", invalid="ignore"):
            return self.lipschitz / self.values[:, 0]

    def to_json(self) -> dict[str, Any]:
        """Return everything but the vectors as strict JSON."""
        arrays = {name: getattr(self, name).tolist() for name in _ARRAYS}
        return strict_json(
            {
                "schema": 1,
                "model": self.model,
                "stack": self.stack,
                "start": self.start,
                "end": self.end,
                "sublayer": self.sublayer,
                "shape": list(self.shape),
                **arrays,
                "blocks": None if self.blocks is None else self.blocks.tolist(),
                "leak": self.leak,
                "causal": self.causal,
                "strongest": None if self.strongest is None else self.strongest.to_json(),
                "weakest": None if self.weakest is None else self.weakest.to_json(),
                "probes": self.probes,
                "products": self.products,
                "precision": self.precision,
                "kernel": self.kernel,
                "remarks": list(self.remarks),
            }
        )

    def __str__(self) -> str:
        headers, rows = _table(self)
        lines = [_title(self), _facts(self), "", *align([headers, *rows], right=range(1, 5)), ""]
        return "\n".join([*lines, *_below(self)])

    def _repr_html_(self) -> str:
        headers, rows = _table(self)
        table = html_table(headers, [[escape(cell) for cell in row] for row in rows])
        below = "".join(f"<li>{escape(line)}</li>" for line in _below(self))
        title, facts = escape(_title(self)), escape(_facts(self))
        return f"<div><strong>{title}</strong><div>{facts}</div>{table}<ul>{below}</ul></div>"


_ARRAYS = (
    "values",
    "errors",
    "smallest",
    "smallest_errors",
    "norm",
    "norm_error",
    "distance",
    "distance_error",
    "branch",
    "branch_error",
    "lipschitz",
    "looseness",
)


@dataclass(frozen=True, kw_only=True, eq=False)
class Lyapunov:
    """How k directions grow through depth: what `leadline.lyapunov` returns.

    `exponents` [example, k] are natural logarithms per layer, largest first; `growth` [layer,
    example, k] what each layer gave, layer 1 first, in the order of the frame. `log10_norm` [site,
    example] is log10 of |J|_F / sqrt(N) of the product from that site to the last one (backward) or
    from the first one to that site, estimated from the k random directions, and `log10_norm_error`
    one standard error.
    """

    model: str
    stack: str
    backward: bool
    shape: tuple[int, int, int]
    exponents: Floats
    growth: Floats
    log10_norm: Floats
    log10_norm_error: Floats
    precision: str = ""
    kernel: str = ""
    remarks: tuple[str, ...] = ()

    @property
    def depth(self) -> int:
        """The number of blocks."""
        return self.growth.shape[0]

    @property
    def size(self) -> int:
        """N: the number of rows of J."""
        return self.shape[1] * self.shape[2]

    def to_json(self) -> dict[str, Any]:
        """Return everything as strict JSON."""
        return strict_json(
            {
                "schema": 1,
                "model": self.model,
                "stack": self.stack,
                "depth": self.depth,
                "backward": self.backward,
                "shape": list(self.shape),
                "exponents": self.exponents.tolist(),
                "growth": self.growth.tolist(),
                "log10_norm": self.log10_norm.tolist(),
                "log10_norm_error": self.log10_norm_error.tolist(),
                "precision": self.precision,
                "kernel": self.kernel,
                "remarks": list(self.remarks),
            }
        )

    def __str__(self) -> str:
        headers, rows = _exponents(self)
        right = range(1, len(headers) - 1)
        lines = [*_lyapunov_heading(self), "", *align([headers, *rows], right=right), ""]
        return "\n".join([*lines, *_lyapunov_below(self)])

    def _repr_html_(self) -> str:
        headers, rows = _exponents(self)
        title, *rest = _lyapunov_heading(self)
        table = html_table(headers, [[escape(cell) for cell in row] for row in rows])
        below = "".join(f"<li>{escape(line)}</li>" for line in [*rest, *_lyapunov_below(self)])
        return f"<div><strong>{escape(title)}</strong>{table}<ul>{below}</ul></div>"


# --- words ----------------------------------------------------------------------------------------


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


def _facts(result: Jacobian) -> str:
    return (
        f"{_sizes(result.shape)}, N = {result.size}; {result.precision}; attention: {result.kernel}"
    )


def _sizes(shape: tuple[int, int, int]) -> str:
    examples, tokens, width = shape
    one = "example" if examples == 1 else "examples"
    words = "token" if tokens == 1 else "tokens"
    return f"{examples} {one}, {tokens} {words}, width {width}"


def _table(result: Jacobian) -> tuple[list[str], list[list[str]]]:
    """A row per quantity: its mean over the examples, the range, the largest error."""
    rows: list[list[str]] = []
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
    return ["", "mean", "lowest", "highest", "error"], rows


def _row(name: str, values: Floats, errors: Floats | None) -> list[str]:
    several = len(values) > 1
    return [
        name,
        format_number(float(values.mean()), digits=6),
        format_number(float(values.min()), digits=6) if several else "",
        format_number(float(values.max()), digits=6) if several else "",
        "" if errors is None else f"{float(errors.max()):.1e}",
    ]


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


def _lyapunov_heading(result: Lyapunov) -> list[str]:
    way = "from the last site to the first (J')" if result.backward else "from first to last (J)"
    layers = "layer" if result.depth == 1 else "layers"
    return [
        f"Lyapunov exponents of {result.model}: {result.stack}, {result.depth} {layers}, {way}",
        f"{_sizes(result.shape)}, N = {result.size}; {result.precision}; attention: {result.kernel}",
    ]


def _exponents(result: Lyapunov) -> tuple[list[str], list[list[str]]]:
    headers = ["", "exponent", "lowest", "highest", "factor per layer", "growth by layer"]
    rows: list[list[str]] = []
    for i in range(result.exponents.shape[1]):
        values = result.exponents[:, i]
        several = len(values) > 1
        rows.append(
            [
                str(i + 1),
                f"{values.mean():.5f}",
                f"{values.min():.5f}" if several else "",
                f"{values.max():.5f}" if several else "",
                f"{np.exp(values.mean()):.5f}",
                sparkline(result.growth[:, :, i].mean(1), scale="linear"),
            ]
        )
    return headers, rows


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
