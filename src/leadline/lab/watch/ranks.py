"""The processes of a run: who writes, and sums over all of them.

Replicated parameters (data parallelism) are the same everywhere: the first process reads them and
the others do nothing. Of sharded parameters every process has a part, so that all of them read
their part and the sums of squares are added up, never averages of ratios. One exchange per sample,
of a fixed length, in which every process takes part whether its own reading went well or not: if
one of them failed, the sample is left out everywhere, and nobody waits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import astuple, fields

import torch
import torch.distributed as dist
from torch import nn

from leadline.lab.watch.optimizers import GroupSums
from leadline.record import Site

__all__ = ["Ranks"]


class Ranks:
    """Which process this is, and whether parameters are spread over processes."""

    def __init__(self, module: nn.Module) -> None:
        self.several = dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1
        self.main = not self.several or dist.get_rank() == 0
        self.sharded = self.several and any(
            hasattr(parameter, "to_local") for parameter in module.parameters()
        )

    @property
    def takes_part(self) -> bool:
        """Whether this process reads anything."""
        return self.main or self.sharded

    def add_up(
        self, sums: Mapping[Site, GroupSums] | None, sites: Sequence[Site]
    ) -> dict[Site, GroupSums] | None:
        """The sums over all processes; None where one of them has none."""
        if not self.sharded:
            return None if sums is None else dict(sums)
        width = len(fields(GroupSums))
        rows = [astuple((sums or {}).get(site, GroupSums())) for site in sites]
        flat = [float(sums is not None), *(value for row in rows for value in row)]
        table = torch.tensor(flat, dtype=torch.float64)
        if dist.get_backend() == "nccl":
            table = table.cuda()
        dist.all_reduce(table)
        counted, *values = table.tolist()
        if round(counted) != dist.get_world_size():
            return None
        return {
            site: GroupSums(*values[at * width : (at + 1) * width]) for at, site in enumerate(sites)
        }
