"""The results of `jacobian` and `lyapunov`, as data.

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
from typing import TYPE_CHECKING, Any

import numpy as np

from leadline.record.provenance import strict_json
from leadline.record.words.screen import Showable

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from leadline.record.words.screen import Screen

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
class Jacobian(Showable):
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
        """Return the answer and everything but the vectors as strict JSON."""
        from leadline.instruments.jacobian.text import jacobian_answer

        arrays = {name: getattr(self, name).tolist() for name in _ARRAYS}
        return strict_json(
            {
                "schema": 1,
                "model": self.model,
                "answer": jacobian_answer(self),
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

    def screen(self, *, everything: bool = True) -> Screen:
        """Return the answer, a row per number, and what is remarkable; it is short in any case."""
        from leadline.instruments.jacobian.text import jacobian_screen

        return jacobian_screen(self)


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
class Lyapunov(Showable):
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
        """Return the answer and everything else as strict JSON."""
        from leadline.instruments.jacobian.text import lyapunov_answer

        return strict_json(
            {
                "schema": 1,
                "model": self.model,
                "answer": lyapunov_answer(self),
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

    def screen(self, *, everything: bool = True) -> Screen:
        """Return the answer, a row per exponent, and the whole product; short in any case."""
        from leadline.instruments.jacobian.text import lyapunov_screen

        return lyapunov_screen(self)
