"""What a probe is: a class with quantities and one method per thing that it wants to see.

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

A probe with any of these has `steps(kind, stack)`: the steps of one "block", "sublayer", "chain" or
"product" in their order, none where it is not wanted. `tell(step, products)` says which begins.
`gives(kind)` are the quantities that come of one: what does not come is refused by name.
`carried()` and `carry_on(known)`, where a probe has them, hand over what later blocks need to know
of earlier ones, as JSON.

A method yields `PerToken`, `PerHead`, `Each`, `Single` or `Refused` results; all tensors are reduced on
the device, and `Tokens` computes every shared statistic once. A probe has only the methods that it needs:
the plan reads off them how many passes are run. The last three yield `Single` and `Refused` only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from leadline.anatomy import Stack
from leadline.catalog import Catalog
from leadline.numerics.tokens import PerExample
from leadline.record import Quantity, Site

__all__ = ["PROBES", "At", "Each", "PerHead", "PerToken", "Refused", "Result", "Single"]

PROBES: Catalog[Any] = Catalog(
    "probe", package="leadline.instruments", folders="probes", group="leadline.probes"
)


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


@dataclass(frozen=True)
class Single:
    """One number for the site, with an interval around it where there is one."""

    quantity: Quantity
    value: torch.Tensor
    statistic: str = "value"
    site: Site | None = None
    lower: torch.Tensor | None = None
    upper: torch.Tensor | None = None


@dataclass(frozen=True)
class Refused:
    """Quantities that this site has no number of, and why: it stands in the coverage."""

    quantities: tuple[Quantity, ...]
    why: str


Result = PerToken | PerHead | Each | Single | Refused
