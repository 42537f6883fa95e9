"""The anatomy as the user knows it: where the blocks are and which of their modules write.

    declare(blocks="transformer.h", writes=["attn", "mlp"])                       pre-norm
    declare(blocks="encoder.layer", writes=["attention.output.dense", "output.dense"],
            settle=["attention.output.LayerNorm", "output.LayerNorm"])            post-norm

A declaration is judged by the balance like any other anatomy.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import nn

from leadline.anatomy.find.discover import parameters_of
from leadline.anatomy.find.fit import FittedWrite
from leadline.anatomy.find.replay import UNRUNNABLE, capture_arguments, replay_block, sleeps
from leadline.anatomy.find.sublayer_roles import Mixing, mixing, placement_of, role_of
from leadline.anatomy.find.trace import ModuleCall, trace_calls
from leadline.anatomy.structure import Anatomy, Block, Port, Stack, Sublayer
from leadline.errors import AnatomyError, check_text, nearest_names, shown

__all__ = ["Declaration", "declare"]

_Roles = tuple[tuple[str, ...], list[Mixing], list[tuple[str, ...]], list[str]]
"""By sublayer: its role, the mixing of tokens, its parameters, where its norms stand."""


@dataclass(frozen=True)
class Declaration:
    """What `declare` returns; `resolve` turns it into an anatomy of one model."""

    blocks: str | tuple[str, ...]
    writes: tuple[str, ...]
    settle: tuple[str | None, ...]
    gains: tuple[float, ...]
    keeps: tuple[float, ...]
    parallel: bool
    name: str | None

    def resolve(self, model: nn.Module, forward: Callable[[], object]) -> Anatomy:
        paths = self._paths(model)
        calls = [call for call in trace_calls(model, forward) if call.path in set(paths)]
        if not calls or calls[0].returned is None:
            raise AnatomyError(f"None of the declared blocks {paths} ran in the forward pass.")
        shape = calls[0].returned.shape
        roles, mixes, owned, norms = self._roles(model, forward, calls[0], shape)
        causal = next((m.causal for m in mixes if m.causal is not None), None)
        swapped = any(m.first_axis and not m.second_axis for m in mixes)
        blocks = tuple(
            self._block(model, call, i + 1, roles, owned, norms) for i, call in enumerate(calls)
        )
        stack = Stack(
            name=self.name or ("decoder" if causal else "encoder"),
            blocks=blocks,
            width=shape[-1],
            lanes=shape[2] if len(shape) == 4 else 1,
            token_axis=0 if swapped or len(shape) == 2 else 1,
            causal=causal,
        )
        return Anatomy((stack,), "user")

    def _paths(self, model: nn.Module) -> list[str]:
        if not isinstance(self.blocks, str):
            return [_existing_path(model, path) for path in self.blocks]
        container = model.get_submodule(_existing_path(model, self.blocks))
        paths = [f"{self.blocks}.{name}" for name, _ in container.named_children()]
        if not paths:
            raise AnatomyError(f"'{self.blocks}' holds no modules that could be blocks.")
        return paths

    def _block(
        self,
        model: nn.Module,
        call: ModuleCall,
        layer: int,
        roles: tuple[str, ...],
        owned: list[tuple[str, ...]],
        norms: list[str],
    ) -> Block:
        path = call.path
        sublayers = tuple(
            Sublayer(
                sublayer=i + 1,
                role=roles[i],
                module=_existing_path(model, f"{path}.{name}"),
                gain=self.gains[i],
                keep=self.keeps[i],
                settle=None if s is None else _existing_path(model, f"{path}.{s}"),
                parallel=self.parallel and i > 0,
                placement=norms[i] if norms else "post" if s is not None else "declared",
                parameters=tuple(f"{path}.{n}" for n in owned[i]) if owned else (),
            )
            for i, (name, s) in enumerate(zip(self.writes, self.settle, strict=True))
        )
        return Block(
            layer, path, Port(path, "input"), Port(path, "output"), sublayers, None, call.in_place
        )

    def _roles(
        self, model: nn.Module, forward: Callable[[], object], call: ModuleCall, shape: torch.Size
    ) -> _Roles:
        """Read the roles off the token mixing, on an awake copy where weights are zero."""
        roles = self._roles_in(model, forward, call, shape, awake=False)
        if "branch" in roles[0] and sleeps(call.module):
            woken = self._roles_in(model, forward, call, shape, awake=True)
            return woken if woken[1] else roles
        return roles

    def _roles_in(
        self,
        model: nn.Module,
        forward: Callable[[], object],
        call: ModuleCall,
        shape: torch.Size,
        *,
        awake: bool,
    ) -> _Roles:
        """Roles and placements from one replay; `branch` where the block cannot run on its own."""
        unknown = tuple("branch" for _ in self.writes)
        try:
            key = (call.path, call.number)
            arguments = capture_arguments(model, forward, {key})[key]
            replay = replay_block(call.path, call.module, arguments, shape, awake=awake)
        except UNRUNNABLE:
            return unknown, [], [], []
        calls_by_path = {s.path: s for s in replay.calls}
        roles: list[str] = []
        mixes: list[Mixing] = []
        writes: list[FittedWrite] = []
        placements: list[str] = []
        state, entered, earlier = replay.stream, replay.before, -1
        for i, (name, settle) in enumerate(zip(self.writes, self.settle, strict=True)):
            update = calls_by_path.get(f"{call.path}.{name}")
            if update is None or update.live is None or update.live.numel() != entered.numel():
                return unknown, [], [], []
            settled = calls_by_path.get(f"{call.path}.{settle}") if settle else None
            write = FittedWrite(
                update,
                1.0,
                1.0,
                settled,
                state=state,
                sources=((1.0, state),),
                entered=entered,
                parallel=self.parallel and i > 0,
            )
            writes.append(write)
            try:
                mix = mixing(replay, write)
            except RuntimeError:  # the block works in place and autograd refuses it
                return unknown, [], [], []
            mixes.append(mix)
            roles.append(role_of(mix, replay, write, earlier))
            placements.append(placement_of(replay, write, earlier))
            if settled is not None and settled.returned is not None:
                entered = settled.returned
            elif not self.parallel and update.returned is not None:
                returned = update.returned.reshape(entered.shape)
                entered = self.keeps[i] * entered + self.gains[i] * returned
            after = settled if settle else update
            if not self.parallel and after is not None and after.live is not None:
                state = after.live
            earlier = update.order
        start = len(call.path) + 1
        owned = [tuple(n[start:] for n in names) for names in parameters_of(replay, writes)]
        return tuple(roles), mixes, owned, placements


def declare(
    *,
    blocks: str | Sequence[str],
    writes: Sequence[str],
    settle: Sequence[str | None] | None = None,
    gains: Sequence[float] | None = None,
    keeps: Sequence[float] | None = None,
    parallel: bool = False,
    name: str | None = None,
) -> Declaration:
    """Declare which modules write to the stream. Paths in `writes` and `settle` start at a block.

    `blocks` is the path of the list of blocks, or the paths of the blocks. `settle` names the
    norm after each addition (post-norm), `gains` and `keeps` the factors of
    keep * stream + gain * update, `parallel` that all branches read what enters the block.
    """
    if isinstance(writes, str):
        writes = [writes]
    for label, values, of_text in (
        ("blocks", [blocks] if isinstance(blocks, str) else blocks, True),
        ("writes", writes, True),
        ("settle", settle, False),
        ("gains", gains, False),
        ("keeps", keeps, False),
    ):
        if values is None and not of_text:
            continue
        if not isinstance(values, list | tuple) or (of_text and not values):
            raise AnatomyError(f"{label} is {shown(values)}; give a list with at least one entry.")
        for entry in values:
            if label in ("gains", "keeps"):
                if (
                    isinstance(entry, bool)
                    or not isinstance(entry, int | float)
                    or not abs(entry) <= sys.float_info.max
                ):
                    raise AnatomyError(f"An entry of {label} is {shown(entry)}; give a number.")
            elif of_text or entry is not None:
                check_text(entry, f"An entry of {label}", error=AnatomyError)
    count = len(writes)
    for label, values in (("settle", settle), ("gains", gains), ("keeps", keeps)):
        if values is not None and len(values) != count:
            raise AnatomyError(
                f"{count} writes were declared but {len(values)} {label}; give one for each write."
            )
    return Declaration(
        blocks=blocks if isinstance(blocks, str) else tuple(blocks),
        writes=tuple(writes),
        settle=tuple(settle) if settle is not None else (None,) * count,
        gains=tuple(map(float, gains)) if gains is not None else (1.0,) * count,
        keeps=tuple(map(float, keeps)) if keeps is not None else (1.0,) * count,
        parallel=parallel,
        name=name,
    )


def _existing_path(model: nn.Module, path: str) -> str:
    names = [name for name, _ in model.named_modules() if name]
    if path in names:
        return path
    near = nearest_names(path, names)
    hint = f" Did you mean {', '.join(repr(n) for n in near)}?" if near else ""
    raise AnatomyError(f"{type(model).__name__} has no module '{path}'.{hint}")
