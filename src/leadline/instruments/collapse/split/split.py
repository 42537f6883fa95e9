"""Tokens as one vector and what sets them apart, so that collapse costs no digits.

    X = 1 x' + R,    x = 2^m b,    R = 2^k r,    m and k exact integers

x is the reference: the mean of the tokens, or with a causal mask the first token, which sees
nothing but itself. In float32 tokens that differ by less than 1e-7 of their size are equal; here
R keeps its sixteen digits however small it is. `Split` stands in for a tensor [run, token, width]:
modules run on it, because torch asks it how to do a linear map, a norm, an activation, attention
(`rules`), and none of these forms is a difference of nearly equal numbers.

Run 0 is the answer. The others are rounded once more at random after every operation, in the last
digit; how far they drift apart shows how much rounding has done (after Vignes 1993, stochastic
arithmetic). An estimate, no bound.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch

from leadline.errors import InputError
from leadline.instruments.collapse.split.scaled import Scaled, added, refuse_loss, scaled, times

__all__ = ["RULES", "Rounding", "Split", "rule", "split_tokens"]

Tensor = torch.Tensor
Rule = Callable[..., Any]
RULES: dict[Any, Rule] = {}
"""Torch functions and how a Split does them."""
RUNS = 3
"""The answer and two perturbed runs beside it."""
LAST_DIGIT = 2.0**-53
SAFETY = 16.0
"""The drift of two perturbed runs is multiplied by this."""


def rule(*functions: Any) -> Callable[[Rule], Rule]:
    """A decorator that registers how a Split does some torch functions."""

    def enter(how: Rule) -> Rule:
        RULES.update(dict.fromkeys(functions, how))
        return how

    return enter


class Rounding:
    """Rounds all runs but the first once more, at random, and knows by how much they drifted."""

    def __init__(self, seed: int = 0) -> None:
        self._generator = torch.Generator().manual_seed(seed)
        self._signs = torch.zeros(0, dtype=torch.float64)
        self._next = 0
        self.magnified = 1.0

    def __call__(self, number: Scaled) -> Scaled:
        if number.is_zero:
            return number
        values = number.values
        perturbed = values[1:]
        noise = self._draw(perturbed.numel()).view(perturbed.shape)
        return Scaled(torch.cat((values[:1], perturbed * noise)), number.exponent)

    def _draw(self, count: int) -> Tensor:
        """Numbers 1 +- 1 last digit. A long row of them is drawn once and used in pieces."""
        if self._next + count > len(self._signs):
            length = max(count, 1 << 16)
            signs = torch.randint(0, 2, (length,), generator=self._generator)
            self._signs = 1.0 + (2.0 * signs.double() - 1.0) * 2 * LAST_DIGIT
            self._next = 0
        drawn = self._signs[self._next : self._next + count]
        self._next += count
        return drawn

    def drift(self, sizes: Tensor) -> float:
        """The estimated relative error of a number [run] that all runs have; 0 of exact zero."""
        if float(sizes[0]) == 0.0:
            return math.inf if bool((sizes != 0).any()) else 0.0
        apart = float((sizes[1:] / sizes[0] - 1.0).abs().max())
        # The norm itself is rounded too.
        return self.magnified * SAFETY * (apart + 2 * LAST_DIGIT)


@dataclass(frozen=True)
class Split:
    """Tokens X = 1 x' + R as a reference and a rest, which torch treats like a tensor.

    `base` is x, `rest` is R, and `axis` their token axis.
    `first` means that the reference is the first token, whose row of the rest is zero.
    """

    base: Scaled
    rest: Scaled
    axis: int
    first: bool
    rounding: Rounding

    # --- what torch sees -------------------------------------------------------------------

    @property
    def shape(self) -> torch.Size:
        return self.rest.values.shape

    @property
    def ndim(self) -> int:
        return self.rest.values.ndim

    @property
    def dtype(self) -> torch.dtype:
        return torch.float64

    @property
    def device(self) -> torch.device:
        return self.rest.values.device

    @property
    def tokens(self) -> int:
        return self.shape[self.axis]

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        how = RULES.get(func)
        if how is None:
            name = getattr(func, "__name__", str(func))
            raise InputError(
                f"torch's {name!r} cannot be followed without cancellation; known are linear maps, "
                "sums and products, LayerNorm, RMSNorm, the usual activations and attention."
            )
        return how(*args, **(kwargs or {}))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        method = getattr(torch.Tensor, name, None)
        if method is None:
            raise AttributeError(f"A tensor has no {name!r}.")
        how = RULES.get(method)
        if how is None:
            raise InputError(
                f"A tensor's {name!r} cannot be followed without cancellation; known are linear "
                "maps, sums and products, LayerNorm, RMSNorm, the usual activations and attention."
            )
        return lambda *args, **options: how(self, *args, **options)

    def __add__(self, other: Any) -> Split:
        return RULES[torch.add](self, other)

    __radd__ = __add__

    def __mul__(self, other: Any) -> Split:
        return RULES[torch.mul](self, other)

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> Split:
        return RULES[torch.div](self, other)

    def __neg__(self) -> Split:
        return self.linear(lambda values: -values)

    def __sub__(self, other: Any) -> Split:
        return self + -other

    def __rsub__(self, other: Any) -> Split:
        return -self + other

    def __getitem__(self, key: Any) -> Split:
        return RULES[torch.Tensor.__getitem__](self, key)

    # --- making others ---------------------------------------------------------------------

    def linear(self, how: Callable[[Tensor], Tensor], *, axis: int | None = None) -> Split:
        """A linear map of the features, or a change of shape, done on both parts alike."""
        return replace(
            self,
            base=self.rounding(self.base.map(how(self.base.values))),
            rest=self.rounding(self.rest.map(how(self.rest.values))),
            axis=self.axis if axis is None else axis,
        )

    def through(self, matrix: Tensor) -> Split:
        """The features times a matrix [in, out]."""
        rest = self.rest.values @ matrix
        if not self.rest.is_zero:
            leading = tuple(range(rest.ndim - 1))
            heard = (self.rest.values.abs().amax(leading) > 0).double() @ (matrix != 0).double()
            refuse_loss(rest.abs().amax(leading), heard > 0)
        return replace(
            self,
            base=self.rounding(self.base.map(self.base.values @ matrix)),
            rest=self.rounding(self.rest.map(rest)),
        )

    def reshaped(self, how: Callable[[Tensor], Tensor], *, axis: int | None = None) -> Split:
        """A change of shape alone: nothing is rounded."""
        return replace(
            self,
            base=Scaled(how(self.base.values), self.base.exponent),
            rest=Scaled(how(self.rest.values), self.rest.exponent),
            axis=self.axis if axis is None else axis,
        )

    def raised(self, addend: Scaled) -> Split:
        """The same vector added to every token."""
        return replace(self, base=self.rounding(added(self.base, addend)))

    def settled(self, base: Scaled, rest: Scaled) -> Split:
        """Other parts; whatever all tokens share goes from the rest to the reference."""
        shared = self.reference(rest.values)
        apart = rest.map(rest.values - shared)
        return replace(
            self,
            base=self.rounding(added(base, rest.map(shared))),
            rest=self.rounding(apart),
        )

    def reference(self, values: Tensor) -> Tensor:
        """The mean over the tokens, or the first of them."""
        if self.first:
            return values.narrow(self.axis, 0, 1)
        return values.mean(self.axis, keepdim=True)

    def constant(self, value: Any) -> Scaled:
        """A number or a tensor that is the same for every token."""
        return constant(value, like=self)

    def product(self, other: Split) -> Split:
        """(a + A)(b + B) = ab + (aB + Ab + AB), feature by feature."""
        apart = added(
            added(times(self.base, other.rest), times(self.rest, other.base)),
            times(self.rest, other.rest),
        )
        return self.settled(times(self.base, other.base), apart)

    # --- measures --------------------------------------------------------------------------

    def centred(self) -> Scaled:
        """What is left of the tokens without their mean."""
        if not self.first:
            return self.rest
        values = self.rest.values
        return self.rest.map(values - values.mean(self.axis, keepdim=True))

    def residual(self) -> tuple[Tensor, int | None]:
        """Frobenius norm of the tokens minus their mean: [run], and the exponent of two."""
        apart = self.centred()
        return apart.values.flatten(1).norm(dim=1), apart.exponent

    def norm(self) -> tuple[Tensor, int | None]:
        """Frobenius norm of all tokens: [run], and the exponent of two."""
        exponents = [e for e in (self.base.exponent, self.rest.exponent) if e is not None]
        if not exponents:
            return self.rest.values.flatten(1).norm(dim=1), None
        top = max(exponents)
        tokens = self.base.at(top) + self.rest.at(top)
        return tokens.flatten(1).norm(dim=1), top

    def gathered(self) -> Split:
        """The perturbed runs drawn closer to the first, before their drift stops being small."""
        drifted = float(_apart(self.rest.values)), float(_apart(self.base.values))
        if max(drifted) < CLOSE:
            return self
        self.rounding.magnified *= 1.0 / CLOSER
        return replace(self, base=_drawn_in(self.base), rest=_drawn_in(self.rest))


FARTHEST = 10**300
"""Exponents beyond this have no logarithm in float64."""
CLOSE = 2.0**-20
"""Runs that have drifted apart by more are gathered, while their drift is still proportional."""
CLOSER = 2.0**-20
"""The factor by which gathering shrinks the drift."""


def _apart(values: Tensor) -> Tensor:
    size = values[:1].norm()
    return (values[1:] - values[:1]).flatten(1).norm(dim=1).max() / size.clamp_min(2.0**-1000)


def _drawn_in(number: Scaled) -> Scaled:
    values = number.values
    middle = values[:1]
    return Scaled(torch.cat((middle, middle + CLOSER * (values[1:] - middle))), number.exponent)


def constant(value: Any, *, like: Split) -> Scaled:
    """A number or tensor as `Scaled`."""
    if isinstance(value, Tensor):
        return scaled(value.detach().to(dtype=torch.float64, device=like.device))
    return scaled(torch.tensor(float(value), dtype=torch.float64, device=like.device))


def split_tokens(stream: Tensor, *, first: bool, rounding: Rounding) -> Split:
    """[token, width] as a Split, without loss: the difference of close numbers is exact."""
    x = stream.double()
    coarse = x[:1] if first else x.mean(0, keepdim=True)
    apart = x - coarse
    fine = apart[:1] if first else apart.mean(0, keepdim=True)
    base, rest = scaled(coarse + fine), scaled(apart - fine)
    runs = (RUNS, 1, 1)
    return Split(
        base=rounding(Scaled(base.values.repeat(runs), base.exponent)),
        rest=Scaled(rest.values.repeat(runs), rest.exponent),
        axis=1,
        first=first,
        rounding=rounding,
    )


def log10_of(sizes: Tensor, exponent: int | None) -> float:
    """log10 of the first run's number; minus infinity for zero."""
    size = float(sizes[0])
    if exponent is None or size == 0.0:
        return -math.inf
    if abs(exponent) > FARTHEST:
        raise InputError(
            "Even the logarithm of the residual is beyond float64 here; take fewer layers."
        )
    return math.log10(size) + exponent * math.log10(2.0)
