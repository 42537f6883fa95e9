"""What an optimizer is about to do and has done, by groups of parameters.

    gradient        |g| over the parameters of a group, as the optimizer takes it
    surprise        RMS(g / sqrt(v)), v the second moment before this update, bias-corrected where
                    the optimizer corrects it (Wortsman et al. 2023, arXiv 2304.13013)
    update ratio    RMS(W after - W before) / RMS(W before)

The norm of the gradient is taken of every number. Of the other two, tensors with more than
`MOST_NUMBERS` numbers give evenly spaced ones: with n of them the ratio of two root mean squares is
off by about 1 / sqrt(n), 1.6 % for one tensor. A group is what serves one write to the stream, and
otherwise a tensor on its own.

Of a DTensor every process has its own part; sums of squares add up over processes. The evenly
spaced numbers are counted in the whole tensor, so that all parts together give those of one process.
A part that several processes hold is counted by the first of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from leadline.anatomy import Anatomy
from leadline.errors import InputError, shown
from leadline.lab.watch.processes.spread import (
    indices_of_part,
    is_addend,
    is_counted,
    is_spread,
    local_part,
)
from leadline.lab.watch.tracer import scale_left
from leadline.record import Site
from leadline.record.rows.site import OUTSIDE

__all__ = [
    "MOST_NUMBERS",
    "GroupSums",
    "ParameterGroups",
    "StepReading",
    "WeightReading",
    "readings_of",
    "torch_optimizers",
]

MOST_NUMBERS = 4096
"""Of a larger tensor so many evenly spaced numbers are read."""
SECOND_MOMENTS = ("exp_avg_sq", "square_avg")
"""Under these names Adam and its kin, and RMSprop, keep their second moments."""
_NUMBERED = re.compile(r"^(.*?)\.(\d+)\.")


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


def _step(count: int) -> int:
    """Of so many numbers, every how many-th is read."""
    # An odd step is no multiple of the usual widths, so that all columns are met.
    return 1 if count <= MOST_NUMBERS else -(-count // MOST_NUMBERS) | 1


def _picked(tensor: Tensor) -> Tensor:
    """Evenly spaced numbers of a tensor, at most `MOST_NUMBERS`, in a copy of its own."""
    flat = local_part(tensor.detach()).reshape(-1)
    step = _step(tensor.numel())
    if step > 1:
        flat = flat[::step] if not is_spread(tensor) else flat[indices_of_part(tensor, step)]
    return flat.float().clone()


@dataclass
class GroupSums:
    """Sums of squares over the parameters of one group; they add up over processes."""

    gradient: float = 0.0
    surprise: float = 0.0
    surprised: float = 0.0
    """How many numbers the surprise is the sum of."""
    change: float = 0.0
    weight: float = 0.0


@dataclass(frozen=True)
class WeightReading:
    """What one update says about one group; None where the optimizer does not tell."""

    site: Site
    gradient: float
    surprise: float | None
    update_ratio: float | None


class ParameterGroups:
    """The parameters of a model by the write that they serve, by block, or one by one."""

    def __init__(
        self,
        module: nn.Module,
        anatomy: Anatomy | None,
        parameters: Mapping[str, nn.Parameter] | None = None,
    ) -> None:
        named = dict(module.named_parameters()) if parameters is None else parameters
        self.anatomy = anatomy
        self.sites: dict[str, Site] = _sites(list(named), anatomy)
        self._names = {
            id(parameter): name
            for name, parameter in named.items()
            if name in self.sites  # what is frozen now may be trained later
        }
        self._parameters = {
            name: parameter for name, parameter in named.items() if id(parameter) in self._names
        }

    def __iter__(self) -> Iterator[Site]:
        return iter(dict.fromkeys(self.sites.values()))

    def of(
        self, optimizer: torch.optim.Optimizer
    ) -> list[tuple[str, nn.Parameter, dict[str, Any]]]:
        """The parameters that an optimizer steps: name, parameter, its settings."""
        return [
            (self._names[id(parameter)], parameter, group)
            for group in optimizer.param_groups
            for parameter in group["params"]
            if id(parameter) in self._names
        ]


class StepReading:
    """One update of one or several optimizers: each begins before its step; all end together."""

    def __init__(self, groups: ParameterGroups, *, first: bool = True) -> None:
        self.groups = groups
        self._first = first
        """Whether this process counts the parameters that are not spread."""
        self.left_out: set[str] = set()
        """Parameters whose gradient the processes have not added up yet: it cannot be read."""
        self._before: list[tuple[Site, nn.Parameter, Tensor]] = []
        self._entries: list[tuple[Site, str, Tensor]] = []
        """Sums that are still on their device: what of which group."""

    @torch.no_grad()
    def begin(self, optimizer: torch.optim.Optimizer, *, weights: bool = True) -> None:
        """Read gradients and, with `weights`, second moments; keep some of the weights."""
        taken: list[tuple[Site, nn.Parameter, Tensor, dict[str, Any]]] = []
        for name, parameter, settings in self.groups.of(optimizer):
            gradient = parameter.grad
            if gradient is None or not is_counted(gradient, first=self._first):
                continue
            if is_addend(gradient):
                self.left_out.add(name)
                continue
            taken.append((self.groups.sites[name], parameter, gradient, settings))
        if not taken:
            return
        scale = scale_left(optimizer)
        gradients = [local_part(gradient) for _, _, gradient, _ in taken]
        # A norm in half precision would be rounded, or infinite.
        half = any(one.dtype in (torch.float16, torch.bfloat16) for one in gradients)
        kind = torch.float32 if half else None
        norms = torch._foreach_norm(gradients, 2, kind)  # pyright: ignore[reportPrivateImportUsage]
        for (site, parameter, gradient, settings), norm in zip(taken, norms, strict=True):
            self._entries.append((site, "gradient", (norm.double() / scale).square()))
            if not weights:
                continue
            second = _second_moment(optimizer, parameter, settings)
            if second is not None and _lie_alike(gradient, second[0]):
                v, correction = second
                squares, moments = (_picked(gradient) / scale).square(), _picked(v) / correction
                # Where nothing was ever seen there is nothing to compare with.
                ratios = torch.where(moments > 0, squares / moments, 0.0)
                self._entries.append((site, "surprise", ratios.sum(dtype=torch.float64)))
                self._entries.append((site, "surprised", (moments > 0).sum(dtype=torch.float64)))
            self._before.append((site, parameter, _picked(parameter)))

    def gradient_squares(self) -> dict[Site, float]:
        """The squared norm of the gradient of every group that has begun, of this process."""
        squares: dict[Site, float] = {}
        entries = [(site, value) for site, kind, value in self._entries if kind == "gradient"]
        if entries:
            values = torch.stack([value.to(entries[0][1].device) for _, value in entries]).tolist()
            for (site, _), value in zip(entries, values, strict=True):
                squares[site] = squares.get(site, 0.0) + value
        return squares

    @torch.no_grad()
    def end(self) -> dict[Site, GroupSums]:
        """Compare the weights with those of before, and return the sums of this process."""
        for site, parameter, before in self._before:
            change = (_picked(parameter) - before).square().sum(dtype=torch.float64)
            # Of tensors of which a part is read, the sums stand for the whole.
            share = parameter.numel() / max(1, -(-parameter.numel() // _step(parameter.numel())))
            self._entries.append((site, "change", share * change))
            self._entries.append((site, "weight", share * before.square().sum(dtype=torch.float64)))
        sums: dict[Site, GroupSums] = {}
        if self._entries:
            device = self._entries[0][2].device  # one transfer for all of them
            values = torch.stack([value.to(device) for _, _, value in self._entries]).tolist()
            for (site, kind, _), value in zip(self._entries, values, strict=True):
                one = sums.setdefault(site, GroupSums())
                setattr(one, kind, getattr(one, kind) + value)
        self._before.clear()
        self._entries.clear()
        return sums


def readings_of(sums: Mapping[Site, GroupSums]) -> list[WeightReading]:
    """Return what the sums over all processes say about each group."""
    return [
        WeightReading(
            site,
            gradient=one.gradient**0.5,
            surprise=(one.surprise / one.surprised) ** 0.5 if one.surprised else None,
            update_ratio=(one.change / one.weight) ** 0.5 if one.weight else None,
        )
        for site, one in sums.items()
    ]


def _second_moment(
    optimizer: torch.optim.Optimizer, parameter: nn.Parameter, settings: Mapping[str, Any]
) -> tuple[Tensor, float] | None:
    """The second moment that the optimizer holds, and what it is divided by; None without one."""
    state = optimizer.state.get(parameter)
    if not state:
        return None
    for name in SECOND_MOMENTS:
        v = state.get(name)
        if isinstance(v, Tensor) and v.shape == parameter.shape:
            break
    else:
        return None
    steps = state.get("step")
    betas = settings.get("betas")
    if name != "exp_avg_sq" or steps is None or betas is None:
        return v, 1.0
    correction = 1.0 - float(betas[1]) ** float(steps)
    return None if correction <= 0.0 else (v, correction)


def _lie_alike(one: Tensor, other: Tensor) -> bool:
    """Whether this process holds the same part of two tensors."""
    return local_part(one).shape == local_part(other).shape


def _sites(names: Sequence[str], anatomy: Anatomy | None) -> dict[str, Site]:
    """Every parameter's site: its write where the anatomy knows it, else its block, else itself."""
    sites: dict[str, Site] = {}
    if anatomy is not None:
        served: dict[str, set[Site]] = {}
        for stack in anatomy.stacks:
            for block in stack.blocks:
                for write in block.sublayers:
                    site = Site(stack.name, block.layer, write.sublayer, write.role)
                    for name in write.parameters:
                        served.setdefault(name, set()).add(site)
        # Weights that serve several writes cannot be split between them.
        sites = {name: next(iter(places)) for name, places in served.items() if len(places) == 1}
    rows = set() if anatomy is not None else _rows(names)
    for name in names:
        if name in sites:
            continue
        match = _NUMBERED.match(name)
        if match is not None and match[1] in rows:
            sites[name] = Site(match[1], int(match[2]) + 1, point="block")
        else:
            sites[name] = Site(OUTSIDE, 0, point=name)
    return sites


def _rows(names: Iterable[str]) -> set[str]:
    """The containers with numbered children that look like a stack of blocks: two or more."""
    children: dict[str, set[int]] = {}
    for name in names:
        match = _NUMBERED.match(name)
        if match is not None:
            children.setdefault(match[1], set()).add(int(match[2]))
    return {path for path, numbers in children.items() if len(numbers) > 1}
