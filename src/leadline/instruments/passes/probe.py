"""What a probe is: a class that declares what it sees and gives, with one method for each sight.

    stream(at, x, start)    at every stream site; `start` is the stream that entered the stack
    update(at, u, x)        at every write; `x` is the stream before it
    block(at, before, after)        around every block
    gradient(at, g)         the loss gradient at every stream site (asks for a backward pass)
    parameters(at, norm)    norm of the loss gradient of a sublayer's parameters (likewise)
    attention(at, patterns) the attention matrices of every sublayer that has them
    heads(at, heads)        the same once they have been written, with what they are multiplied by
    perceptron(at, maps)    the two maps of every MLP, or a sentence that says why it has none

Three more see a block as the linear map of small changes of the stream. They run after the passes
above, one block at a time, and an interrupted measurement continues between two of them:

    linear(at, map, tell)   the map of every block, and of every sublayer if `steps` says so
    chain(at, links, tell)  pairs of layer and map, from the last block to the first
    product(at, map, tell)  the map from what entered the stack to every later site

A probe with any of these is a `LinearProbe`. `sees` names the methods: the plan reads off it how many
passes are run. `tell(step, products)` says which step begins.

A method yields `PerToken`, `PerHead`, `Each`, `Single` or `Refused` results; all tensors are reduced on
the device, and `Tokens` computes every shared statistic once. The last
three yield `Single` and `Refused` only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol, get_args

import torch

from leadline.anatomy import Stack
from leadline.catalog import Catalog
from leadline.numerics.devices import widest_float
from leadline.numerics.tokens import PerExample
from leadline.record import Quantity, Site

__all__ = [
    "LINEAR",
    "PROBES",
    "SIGHTS",
    "At",
    "Each",
    "Join",
    "Kind",
    "Later",
    "LinearProbe",
    "PerHead",
    "PerToken",
    "Probe",
    "Refused",
    "Result",
    "Sight",
    "Single",
    "settled",
]

Sight = Literal[
    "stream", "update", "block", "gradient", "parameters", "attention", "heads", "perceptron",
    "linear", "chain", "product",
]  # fmt: skip
SIGHTS: tuple[Sight, ...] = get_args(Sight)
"""What there is to see, each with the method of its name."""
LINEAR: tuple[Sight, ...] = ("linear", "chain", "product")
"""Sights of blocks as linear maps, after the passes."""
Kind = Literal["block", "sublayer", "chain", "product"]
"""The kind of map that a probe of linear maps gets."""


class Probe(Protocol):
    """What every probe declares; it has one method for each of the things that it sees."""

    sees: tuple[Sight, ...]
    """What it wants to see."""
    quantities: tuple[Quantity, ...]
    """What it measures."""


class LinearProbe(Probe, Protocol):
    """A probe of linear maps; its class inherits from this what it does not need itself."""

    across: tuple[Quantity, ...] = ()
    """The quantities that speak of several blocks, though they are given block by block."""

    def steps(self, kind: Kind, stack: Stack) -> tuple[str, ...]:
        """The steps of one map of this kind in their order; none where it is not wanted."""
        ...

    def gives(self, kind: Kind) -> tuple[Quantity, ...]:
        """The quantities that come of one: what does not come is refused by name."""
        ...

    def carried(self) -> Mapping[str, Any]:
        """What later blocks need to know of earlier ones, as JSON."""
        return {}

    def carry_on(self, known: Any) -> None:
        """Take up what `carried` handed over before the measurement was interrupted."""


PROBES: Catalog[Any] = Catalog(
    "probe", package="leadline.instruments", folders="probes", group="leadline.probes"
)
"""Every entry is a class of `Probe` or `LinearProbe`."""


@dataclass(frozen=True)
class At:
    """Where a tensor was read: the stack, and the site's address in the record."""

    stack: Stack
    site: Site
    eps: float = torch.finfo(torch.float32).eps
    """Of the precision that the tensor was in."""


@dataclass(frozen=True)
class PerToken:
    """[example, token] numbers; mean and median, with and without the first token, are kept."""

    quantity: Quantity
    values: torch.Tensor
    site: Site | None = None


@dataclass(frozen=True)
class Each:
    """One number per example, over all tokens and over all but the first; the mean is kept.

    With an interval around each number, the mean of its ends is kept too.
    """

    quantity: Quantity
    values: PerExample
    site: Site | None = None
    lower: PerExample | None = None
    upper: PerExample | None = None


@dataclass(frozen=True)
class PerHead:
    """[example, head] numbers; per head and over all heads, mean and largest are kept.

    With a certified interval the smallest is kept too. Examples that have no such number (a
    second singular value of one token) are left out before.
    """

    quantity: Quantity
    values: torch.Tensor
    lower: torch.Tensor | None = None
    upper: torch.Tensor | None = None


Join = Literal["same", "largest", "beside largest", "smallest", "root of squares", "sum"]
"""How one number of each part of a batch becomes that of the whole batch."""


@dataclass(frozen=True)
class Single:
    """One number for the site, with an interval around it where there is one.

    Where several processes measure parts of one batch, `join` says how their numbers become that of
    the whole; "beside largest" takes it from the part with the largest value of the same quantity.
    A ratio, such as a mean, gives its `parts` instead, numerator and denominator, which are added up.
    Without either it is left out there.

    A site may turn out to have no such number (a ratio to zero). That is known on the device only:
    `exists` is a tensor with one truth value, which is fetched with all numbers, and `otherwise`
    says for the coverage why there is none.
    """

    quantity: Quantity
    value: torch.Tensor
    statistic: str = "value"
    site: Site | None = None
    lower: torch.Tensor | None = None
    upper: torch.Tensor | None = None
    join: Join | None = None
    parts: tuple[torch.Tensor, torch.Tensor] | None = None
    exists: torch.Tensor | None = None
    otherwise: str = ""

    @classmethod
    def mean(
        cls, quantity: Quantity, values: torch.Tensor, statistic: str, site: Site | None = None
    ) -> Single:
        """The mean of numbers."""
        wide = widest_float(values.device)
        total, count = values.to(wide).sum(), values.new_tensor(values.numel(), dtype=wide)
        return cls(quantity, values.mean(), statistic, site, parts=(total, count))


@dataclass(frozen=True)
class Refused:
    """Quantities that this site has no number of, and why: it stands in the coverage."""

    quantities: tuple[Quantity, ...]
    why: str


@dataclass(frozen=True)
class Later:
    """Results that are made when the pass is over, of numbers that are found for all layers at once.

    A probe of attention gives its results so if its class has `later = True`: then it is called
    before the proof of the matrices has been read, and what it gave is dropped where that fails.
    """

    results: Callable[[], Iterable[Result]]


Result = PerToken | PerHead | Each | Single | Refused


def settled(results: Iterable[Result | Later]) -> Iterator[Result]:
    """The results, with those that were put off in their places."""
    for result in results:
        if isinstance(result, Later):
            yield from result.results()
        else:
            yield result
