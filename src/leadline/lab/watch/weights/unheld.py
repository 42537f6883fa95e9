"""Parameters that require a gradient and that no optimizer holds: nobody trains them, it seems.

Whether they move is looked at, and not concluded: a wrapper may train copies in float32 and write
them back, another optimizer may step rarely, or a loop may change weights by hand. Some numbers of
each are kept from the first look on. Those that have not moved since have an update ratio of 0.

A sample can be too early to tell. Where all optimizers are known and hold nothing but parameters of
the model, the first one tells; elsewhere the second.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from leadline.anatomy.spread import is_counted
from leadline.lab.watch.fence import Fence
from leadline.lab.watch.weights.picked import picked, share_of
from leadline.lab.watch.wording import said_of

__all__ = ["Unheld"]


class Unheld:
    """Looks after the parameters that are in no optimizer."""

    def __init__(
        self,
        module: nn.Module,
        optimizers: Sequence[torch.optim.Optimizer] | None,
        fence: Fence,
        *,
        first: bool = True,
    ) -> None:
        self._module = module
        self._known = list(optimizers or ())
        self._all_known = optimizers is not None
        self._fence = fence
        self._first = first
        self._kept: dict[str, tuple[nn.Parameter, Tensor]] = {}
        self._sure: set[str] = set()
        """Those that were kept a whole sample ago."""
        self._moved: set[str] = set()
        self._samples = 0

    def stepped(self, optimizer: torch.optim.Optimizer) -> None:
        """Take note of an optimizer that steps."""
        if all(optimizer is not one for one in self._known):
            self._known.append(optimizer)

    def arm(self) -> None:
        """Keep some numbers ahead of the first update, where the optimizers are known by then."""
        if self._all_known and not self._samples:
            self._keep()

    @torch.no_grad()
    def squares(self) -> dict[str, float]:
        """The sum of squares of every such parameter that stays as it is, at the end of a sample."""
        self._keep()
        self._samples += 1
        if not self._kept:
            return {}
        strangers = self._strangers()
        still: dict[str, Tensor] = {}
        for name, (parameter, before) in self._kept.items():
            if not torch.equal(picked(parameter), before):
                self._moved.add(name)
            is_sure = name in self._sure or (self._all_known and not strangers)
            if is_sure and name not in self._moved:
                still[name] = share_of(parameter) * before.square().sum(dtype=torch.float64)
        self._say(sorted(still), strangers)
        self._sure = set(self._kept)
        return {
            name: float(square)
            for name, square in still.items()
            if is_counted(self._kept[name][0], first=self._first)
        }

    def _keep(self) -> None:
        held = self._held()
        trained = {name: one for name, one in self._module.named_parameters() if one.requires_grad}
        kept: dict[str, tuple[nn.Parameter, Tensor]] = {}
        for name, one in trained.items():
            if id(one) in held or one.is_meta:
                continue
            former = self._kept.get(name)
            is_same = former is not None and former[0] is one
            kept[name] = former if former and is_same else (one, picked(one))
            if not is_same:  # new, or another one in its place
                self._sure.discard(name)
                self._moved.discard(name)
        self._kept = kept
        self._sure &= set(kept)

    def _held(self) -> dict[int, Tensor]:
        return {
            id(one): one
            for optimizer in self._known
            for group in optimizer.param_groups
            for one in group["params"]
        }

    def _strangers(self) -> list[Tensor]:
        """What the optimizers hold and the model does not."""
        ours = {id(one) for one in self._module.parameters()}
        return [one for key, one in self._held().items() if key not in ours]

    def _say(self, still: Sequence[str], strangers: Sequence[Tensor]) -> None:
        trained = sum(one.requires_grad for one in self._module.parameters())
        if still and len(self._kept) == trained:
            self._fence.note(
                "The optimizer holds none of the model's parameters that require a gradient, and "
                "they do not move: build the optimizer from model.parameters() after the model has "
                "its final form.",
                about="an optimizer of something else",
            )
        elif still:
            self._fence.note(
                said_of(
                    still,
                    "The parameter '{name}' requires a gradient, is in no optimizer that stepped so "
                    "far, and does not move: nothing trains it.",
                    "{count} parameters that require a gradient, such as '{name}', are in no "
                    "optimizer that stepped so far, and do not move: nothing trains them.",
                ),
                about="parameters in no optimizer",
            )
        elif self._are_copies(strangers):
            of = said_of(
                self._kept, "the parameter '{name}'", "{count} parameters, such as '{name}'"
            )
            self._fence.note(
                f"The optimizer holds copies in float32, and not what the model has: {of}. "
                "Gradients, surprise and updates of the model's own are not read.",
                about="copies of parameters",
            )
        elif self._moved:
            self._fence.note(
                said_of(
                    self._moved,
                    "The parameter '{name}' is in no optimizer that stepped, and moves all the same",
                    "{count} parameters, such as '{name}', are in no optimizer that stepped, and "
                    "move all the same",
                )
                + ": something else trains them, so gradients, surprise and updates are not read "
                "there.",
                about="parameters that move on their own",
            )

    def _are_copies(self, strangers: Sequence[Tensor]) -> bool:
        """Whether there is a copy in float32 of every parameter in half precision."""
        kept = [one for one, _ in self._kept.values()]
        wanted = Counter(one.shape for one in kept)
        copies = [one for one in strangers if one.dtype == torch.float32]
        there = Counter(one.shape for one in copies)
        in_half = all(one.dtype in (torch.float16, torch.bfloat16) for one in kept)
        flat = sum(one.numel() for one in copies) >= sum(one.numel() for one in kept)
        return in_half and (wanted <= there or (flat and all(one.ndim == 1 for one in copies)))
