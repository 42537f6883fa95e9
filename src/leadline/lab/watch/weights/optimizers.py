"""What an optimizer is about to do and has done, by groups of parameters.

    gradient        |g| over the parameters of a group, as the optimizer takes it
    surprise        RMS(g / sqrt(v)), v the second moment before this update, bias-corrected where
                    the optimizer corrects it (Wortsman et al. 2023, arXiv 2304.13013)
    update ratio    RMS(W after - W before) / RMS(W before)

The norm of the gradient is taken of every number, the other two of evenly spaced ones of every
tensor (`picked`), which count for as many as stand behind them.

A parameter without a gradient belongs to the weights of its group, as an expert to which no token was
sent does, but does not speak for a group of which none has one. Of a parameter that several
optimizers step in one update, the first one is read, and how far all of them have moved it.

A parameter that cannot be read takes its group with it and nothing else: `unread` says which, and
why. A group has a surprise where all of its parameters that the optimizer has stepped before have a
second moment.

Of a DTensor every process has its own part; sums of squares add up over processes. The evenly
spaced numbers are counted in the whole tensor, so that all parts together give those of one process.
A part that several processes hold is counted by the first of them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from leadline.anatomy.spread import is_addend, is_counted, local_part
from leadline.errors import InputError, shown
from leadline.lab.watch.weights.parameter_groups import ParameterGroups
from leadline.lab.watch.weights.picked import picked, share_of
from leadline.lab.watch.weights.second_moments import UnreadState, second_moment, state_of
from leadline.lab.watch.weights.tracer import HALVES, scale_left
from leadline.record import Site

__all__ = [
    "GroupSums",
    "StepReading",
    "Unread",
    "WeightReading",
    "rate_of",
    "readings_of",
    "torch_optimizers",
]


def torch_optimizers(optimizer: Any) -> list[torch.optim.Optimizer]:
    """Return the optimizers of torch among what was handed over, out of their wrappers.

    accelerate and Lightning wrap an optimizer and keep it under `optimizer`.
    """
    given = list(optimizer) if isinstance(optimizer, Sequence) else [optimizer]
    inner: list[torch.optim.Optimizer] = []
    for one in given:
        while _is_wrapped(one):
            one = one.optimizer  # noqa: PLW2901 (the next wrapper)
        if not isinstance(one, torch.optim.Optimizer):
            raise InputError(
                f"A watch needs the optimizer whose steps it counts, and got {shown(one)}; give a "
                "torch.optim.Optimizer, several in a list, or None for whichever steps the model."
            )
        if all(one is not other for other in inner):
            inner.append(one)
    if not inner:
        raise InputError("A watch needs an optimizer whose steps it counts, and the list is empty.")
    return inner


def _is_wrapped(optimizer: Any) -> bool:
    inner = getattr(optimizer, "optimizer", None)
    return isinstance(inner, torch.optim.Optimizer) and inner is not optimizer


def rate_of(optimizer: torch.optim.Optimizer) -> float:
    """The learning rate of the first group that has parameters and a rate; NaN where none has."""
    for group in optimizer.param_groups:
        rate: Any = group.get("lr")
        if group["params"] and isinstance(rate, int | float | Tensor):
            return float(rate)
    return math.nan


@dataclass
class GroupSums:
    """Sums of squares over the parameters of one group; they add up over processes."""

    gradient: float = 0.0
    surprise: float = 0.0
    surprised: float = 0.0
    """How many numbers the surprise is the sum of."""
    change: float = 0.0
    weight: float = 0.0
    resting: float = 0.0
    """Of weights that got no gradient and did not move."""
    taken: float = 0.0
    """How many gradients of it an optimizer took, or missed: with none of them there is no norm."""


@dataclass(frozen=True)
class WeightReading:
    """What one update says about one group; None where nothing tells."""

    site: Site
    gradient: float | None
    surprise: float | None
    update_ratio: float | None


Kind = Literal["gradient", "surprise", "weight"]
_SUMS_OF: dict[Kind, tuple[str, ...]] = {
    "gradient": ("gradient", "taken"),
    "surprise": ("surprise", "surprised"),
    "weight": ("change", "weight", "resting"),
}


class Unread(NamedTuple):
    """What of a parameter cannot be read, and why."""

    kind: Kind
    why: str
    name: str


class _Taken(NamedTuple):
    """A parameter that an optimizer is about to step."""

    name: str
    site: Site
    parameter: nn.Parameter
    gradient: Tensor
    settings: dict[str, Any]


class _Kept(NamedTuple):
    """Some of a parameter's numbers before the step."""

    name: str
    site: Site
    parameter: nn.Parameter
    before: Tensor
    has_gradient: bool


class StepReading:
    """One update of one or several optimizers: each begins before its step; all end together."""

    def __init__(self, groups: ParameterGroups, *, first: bool = True) -> None:
        self.groups = groups
        self._first = first
        """Whether this process counts the parameters that are not spread."""
        self.left_out: set[str] = set()
        """Parameters whose gradient the processes have not added up yet: it cannot be read."""
        self.unread: list[Unread] = []
        self._without: set[tuple[Site, Kind]] = set()
        """What is not said of which group, because a parameter of it cannot be read."""
        self._before: list[_Kept] = []
        self._begun: set[int] = set()
        """The parameters that an optimizer is about to step, or has stepped in this update."""
        self._entries: list[tuple[Site, str, Tensor, float]] = []
        """Sums that are still on their device: what of which group, and how many each stands for."""
        self._taken: dict[Site, int] = {}
        """How many gradients of each group were read."""
        self._without_gradient: dict[Site, int] = {}
        """How many trained parameters of each group got none: to them it is zero."""

    @torch.no_grad()
    def begin(self, optimizer: torch.optim.Optimizer, *, weights: bool = True) -> None:
        """Read gradients and, with `weights`, second moments; keep some of the weights."""
        taken: list[_Taken] = []
        for name, parameter, settings in self.groups.of(optimizer):
            gradient, site = parameter.grad, self.groups.sites[name]
            if id(parameter) in self._begun:
                continue
            self._begun.add(id(parameter))
            if gradient is None:
                if parameter.requires_grad and is_counted(parameter, first=self._first):
                    self._without_gradient[site] = self._without_gradient.get(site, 0) + 1
                    if weights:
                        self._keep(name, site, parameter, has_gradient=False)
                continue
            if not is_counted(gradient, first=self._first):
                continue
            if is_addend(gradient):
                self.left_out.add(name)
                continue
            taken.append(_Taken(name, site, parameter, gradient, settings))
        if not taken:
            return
        scale = scale_left(optimizer)
        for one, norm in zip(taken, _norms([each.gradient for each in taken]), strict=True):
            if isinstance(norm, Tensor):
                self._entries.append((one.site, "gradient", (norm.double() / scale).square(), 1.0))
                self._taken[one.site] = self._taken.get(one.site, 0) + 1
            else:
                self._leave_out("gradient", one.name, one.site, norm)
            if not weights:
                continue
            try:
                self._read_surprise(optimizer, one, scale)
            except Exception as error:
                self._leave_out("surprise", one.name, one.site, error)
            self._keep(one.name, one.site, one.parameter, has_gradient=True)

    def _keep(self, name: str, site: Site, parameter: nn.Parameter, *, has_gradient: bool) -> None:
        try:
            before = picked(_present(parameter))
            self._before.append(_Kept(name, site, parameter, before, has_gradient))
        except Exception as error:
            self._leave_out("weight", name, site, error)

    def _read_surprise(self, optimizer: torch.optim.Optimizer, one: _Taken, scale: float) -> None:
        state = state_of(optimizer, one.parameter)
        if state is not None and not state:
            return  # never stepped, like numbers whose second moment is 0
        second = None if state is None else second_moment(state, one.parameter, one.settings)
        if second is None or not _lie_alike(one.gradient, second[0]):
            self._without.add((one.site, "surprise"))
            return
        if one.gradient.layout != torch.strided:
            raise UnreadState("its gradient is sparse")
        v, correction = second
        squares = (picked(_present(one.gradient)) / scale).square()
        moments = picked(_present(v)) / correction
        # Where nothing was ever seen there is nothing to compare with.
        seen = moments > 0
        ratios = torch.where(seen, squares / moments, 0.0)
        share = share_of(one.parameter)
        self._entries += [
            (one.site, "surprise", ratios.sum(dtype=torch.float64), share),
            (one.site, "surprised", seen.sum(dtype=torch.float64), share),
        ]

    @property
    def has_begun(self) -> bool:
        """Whether an optimizer has taken a gradient that could be read."""
        return bool(self._taken)

    def compares(self, site: Site) -> bool:
        """Whether all weights of a group that were to be compared could be."""
        return (site, "weight") not in self._without

    def _leave_out(self, kind: Kind, name: str, site: Site, error: Exception) -> None:
        """Say nothing of this kind about a group, and keep why."""
        lines = str(error).splitlines()
        said = lines[0] if lines else ""
        why = said if isinstance(error, UnreadState) else f"{type(error).__name__}: {said}"
        self.unread.append(Unread(kind, why, name))
        self._without.add((site, kind))

    def gradient_squares(self) -> dict[Site, float]:
        """The squared norm of the gradient of every group that has begun, of this process."""
        squares: dict[Site, float] = {}
        entries = [
            (site, value)
            for site, kind, value, _ in self._entries
            if kind == "gradient" and (site, kind) not in self._without
        ]
        if entries:
            values = torch.stack([value.to(entries[0][1].device) for _, value in entries]).tolist()
            for (site, _), value in zip(entries, values, strict=True):
                squares[site] = squares.get(site, 0.0) + value
        return squares

    @torch.no_grad()
    def end(self) -> dict[Site, GroupSums]:
        """Compare the weights with those of before, and return the sums of this process."""
        for name, site, parameter, before, has_gradient in self._before:
            try:
                change = (picked(_present(parameter)) - before).square().sum(dtype=torch.float64)
            except Exception as error:  # the step itself has exchanged it
                self._leave_out("weight", name, site, error)
                continue
            # Of tensors of which a part is read, the sums stand for the whole.
            share = share_of(parameter)
            weight = before.square().sum(dtype=torch.float64)
            self._entries.append((site, "change", change, share))
            if has_gradient:
                self._entries.append((site, "weight", weight, share))
                continue
            rests = change == 0  # optimizers of the user's own may let it decay all the same
            self._entries += [
                (site, "resting", torch.where(rests, weight, 0.0), share),
                (site, "weight", torch.where(rests, 0.0, weight), share),
            ]
        sums: dict[Site, GroupSums] = {}
        if self._entries:
            device = self._entries[0][2].device  # one transfer for all of them
            values = torch.stack([value.to(device) for _, _, value, _ in self._entries]).tolist()
            for (site, kind, _, share), value in zip(self._entries, values, strict=True):
                one = sums.setdefault(site, GroupSums())
                setattr(one, kind, getattr(one, kind) + share * value)
        for counts in (self._taken, self._without_gradient):
            for site, count in counts.items():
                sums.setdefault(site, GroupSums()).taken += float(count)
        for site, kind in self._without:
            for name in _SUMS_OF[kind] if site in sums else ():
                setattr(sums[site], name, 0.0)
        self._before.clear()
        self._entries.clear()
        self._taken.clear()
        self._without_gradient.clear()
        return {site: one for site, one in sums.items() if any(astuple(one))}


def readings_of(sums: Mapping[Site, GroupSums]) -> list[WeightReading]:
    """Return what the sums over all processes say about each group."""
    return [
        WeightReading(
            site,
            gradient=one.gradient**0.5 if one.taken else None,
            surprise=(one.surprise / one.surprised) ** 0.5 if one.surprised else None,
            update_ratio=(one.change / (one.weight + one.resting)) ** 0.5 if one.weight else None,
        )
        for site, one in sums.items()
    ]


def _norms(gradients: Sequence[Tensor]) -> list[Tensor | Exception]:
    """The norm of every gradient; in place of one that has none, why."""
    parts = [local_part(one) for one in gradients]
    # A norm in half precision would be rounded, or infinite.
    kind = torch.float32 if any(one.dtype in HALVES for one in parts) else None
    if not any(one.is_meta for one in parts):
        try:
            return list(torch._foreach_norm(parts, 2, kind))  # pyright: ignore[reportPrivateImportUsage]
        except (RuntimeError, NotImplementedError):  # sparse ones, or of many kinds
            pass
    return [_norm(one) for one in parts]


def _norm(gradient: Tensor) -> Tensor | Exception:
    try:
        one = _present(gradient)
        if one.layout == torch.sparse_coo:
            one = one.coalesce().values()
        kind = torch.float32 if one.dtype in HALVES else None
        return torch.linalg.vector_norm(one, dtype=kind)
    except Exception as error:
        return error


def _present(tensor: Tensor) -> Tensor:
    """The tensor, where it has numbers at all."""
    if tensor.is_meta:
        raise UnreadState("it is on the device 'meta'")
    return tensor


def _lie_alike(one: Tensor, other: Tensor) -> bool:
    """Whether this process holds the same part of two tensors."""
    return local_part(one).shape == local_part(other).shape
