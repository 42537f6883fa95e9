"""The parameters of a model in groups: by the write to the stream that they serve, by block, or each.

A group is what serves one write where the anatomy knows it, else a numbered block, else a tensor on
its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import nn

from leadline.anatomy import Anatomy
from leadline.record import Site
from leadline.record.rows.site import OUTSIDE

__all__ = ["ParameterGroups"]

_NUMBERED = re.compile(r"^(.*?)\.(\d+)\.")


class ParameterGroups:
    """The parameters of a model by the write that they serve, by block, or one by one."""

    def __init__(
        self,
        module: nn.Module,
        anatomy: Anatomy | None,
        parameters: Mapping[str, nn.Parameter] | None = None,
    ) -> None:
        # What is frozen now may be trained later.
        self._named = dict(module.named_parameters()) if parameters is None else dict(parameters)
        self.anatomy = anatomy
        self.sites: dict[str, Site] = _sites(list(self._named), anatomy)
        # They are held above, so that no other parameter can get the number of one of them.
        self._names = {id(parameter): name for name, parameter in self._named.items()}

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

    def exchanged(self, now: Mapping[str, nn.Parameter]) -> list[str]:
        """The names under which the model has other parameters now, new ones or none."""
        names = dict.fromkeys((*self._named, *now))
        return [name for name in names if self._named.get(name) is not now.get(name)]


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
