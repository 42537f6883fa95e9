"""One pass over the rows of variants: which tokens of which module move, and through what.

Of every attention module (or other mixer of tokens) the local rows say what it does alone: which
outputs a token reaches, and whether exchanged tokens change anything but their own places. Of the
modules as a whole, the first whose output moves before the changed token while nothing that
entered it did is where the future leaks in.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from leadline.anatomy import AttentionSpy, SeenAttention
from leadline.instruments.passes.running import call
from leadline.instruments.visit.tokens.places import places
from leadline.instruments.visit.tokens.rows import (
    ROWS,
    TokenRows,
    by_row,
    moved,
)
from leadline.models.inputs.logits import find_logits, real_tensors

__all__ = ["Panel", "order_told", "run_local", "run_panel"]

REMEMBERED = 12
"""So many tensors are remembered with what moved in them."""


@dataclass
class Panel:
    """What moved, as strings of 0 and 1 over the tokens, by row; JSON."""

    output: dict[str, str] | None = None
    """Of the main output; None where it has no tokens."""
    rows_differ: bool = False
    """Whether the copy of the base differs from it: the place in the batch matters."""
    leak: str | None = None
    """The module through which the future enters first; "" for the model outside of its modules."""
    order: str | None = None
    """The module whose output first tells exchanged tokens apart by more than their places."""
    swapped: bool | None = None
    """Whether the tokens that changed places entered the first mixer as each other: then nothing had
    told them their places before."""
    mixers: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    """What every mixer of tokens does by itself."""

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON."""
        return {
            "output": self.output,
            "rows_differ": self.rows_differ,
            "leak": self.leak,
            "order": self.order,
            "swapped": self.swapped,
            "mixers": self.mixers,
        }


def run_panel(model: nn.Module, rows: TokenRows, mixers: Sequence[str]) -> Panel:
    """Run the variants once. `mixers` are paths of modules that get the local changes."""
    panel = Panel()
    watch = _Watch(rows, panel)
    modules = dict(model.named_modules(remove_duplicate=False))
    with torch.no_grad(), ExitStack() as stack:
        spy = AttentionSpy(model, watch.attention, examples=lambda: rows.count, projections=False)
        for path in mixers:
            if path in modules:
                stack.enter_context(_altered(modules[path], rows, watch))
        stack.enter_context(_hooked(modules, watch))
        for path in mixers:
            if path in modules:
                stack.enter_context(_heard(modules[path], path, watch))
        stack.enter_context(spy)
        result = call(model, rows.inputs)
    output = find_logits(result, model, (rows.count, rows.tokens))
    if output is None:
        output = next((t for _, t in real_tensors(result) if _has(t, rows)), None)
    where = None if output is None else watch.moved(output)
    if where is not None:
        panel.output = {name: bits(where[at]) for at, name in enumerate(ROWS[:6]) if at}
        panel.rows_differ = bool(where[1].any())
    return panel


def run_local(model: nn.Module, rows: TokenRows, mixers: Sequence[str]) -> Panel:
    """Only what the mixers do alone: the pass ends where the last of them has returned."""
    panel = Panel()
    rows = rows.local()
    watch = _Watch(rows, panel)
    modules = dict(model.named_modules(remove_duplicate=False))
    waiting = {path for path in mixers if path in modules}

    def heard(path: str) -> None:
        if "first" in panel.mixers.get(path, {}):
            waiting.discard(path)
        if not waiting:
            raise _AllHeard

    with torch.no_grad(), ExitStack() as stack:
        for path in mixers:
            if path in modules:
                stack.enter_context(_altered(modules[path], rows, watch))
                stack.enter_context(_heard(modules[path], path, watch, heard))
        with suppress(_AllHeard):
            call(model, rows.inputs)
    return panel


class _AllHeard(BaseException):
    """Ends a pass; no handler of the model's errors takes it for one."""


def order_told(model: nn.Module, rows: TokenRows) -> bool | None:
    """Whether exchanged tokens change more than their own places, by two passes of equal rows.

    For models whose output depends on the place in the batch: there rows cannot be compared.
    """
    outputs: list[Tensor] = []
    for at in (0, ROWS.index("swap")):
        values = rows.inputs.tensors[rows.name]
        same = values[at : at + 1].expand_as(values)
        inputs = replace(rows.inputs, tensors={**rows.inputs.tensors, rows.name: same})
        with torch.no_grad():
            result = call(model, inputs)
        tensor = find_logits(result, model, (rows.count, rows.tokens))
        if tensor is None:
            tensor = next((t for _, t in real_tensors(result) if _has(t, rows)), None)
        if tensor is None:
            return None
        part = by_row(tensor, rows.count, rows.tokens)
        assert part is not None
        outputs.append(part[:1])
    where = moved(torch.cat([outputs[0], outputs[0], outputs[1]]), 3, rows.tokens)
    others = [at for at in range(rows.tokens) if at not in rows.pair]
    return None if where is None else bool(where[2, others].any())


def bits(row: Tensor) -> str:
    """`0011` for tokens that did not move and that did."""
    return "".join("1" if one else "0" for one in row.tolist())


def _has(tensor: Tensor, rows: TokenRows) -> bool:
    return by_row(tensor, rows.count, rows.tokens) is not None


class _Watch:
    """Reduces what the hooks see to what moved."""

    def __init__(self, rows: TokenRows, panel: Panel) -> None:
        self.rows = rows
        self.panel = panel
        self.unmerged: tuple[str, Tensor] | None = None
        """What the heads of the last attention returned for the base, until a module takes it."""
        self.known: OrderedDict[tuple[int, int], tuple[Tensor, Tensor | None]] = OrderedDict()
        """What moved in the tensors that were looked at last, by identity and version: what one
        module returns another takes in, and the module around it returns."""

    def returned(self, path: str, entered: Any, output: Any) -> None:
        """A module of the model returned: did the future enter here, is the order told here?"""
        panel = self.panel
        self._merged(entered)
        if panel.leak is not None and panel.order is not None:
            return
        outs = [where for t in _tensors(output) if (where := self.moved(t)) is not None]
        if not outs:
            return
        ins = [where for t in _tensors(entered) if (where := self.moved(t)) is not None]
        if panel.leak is None and self._earlier(outs) and not self._earlier(ins):
            panel.leak = path
        if panel.order is None and self._tells_order(outs) and not self._tells_order(ins):
            panel.order = path

    def entered_mixer(self, value: Tensor) -> None:
        """Note of the first mixer whether the exchanged tokens enter it as each other."""
        if self.panel.swapped is not None or "swap" not in self.rows.rows:
            return
        part = by_row(value, self.rows.count, self.rows.tokens)
        assert part is not None
        first, second = self.rows.pair
        back = part[self.rows.at("swap")].clone()
        back[[first, second]] = back[[second, first]]
        where = moved(torch.stack([part[0], part[1], back]), 3, self.rows.tokens)
        self.panel.swapped = where is not None and not bool(where[2].any())

    def mixer(self, path: str, output: Any) -> None:
        """A mixer returned: what its local rows moved."""
        where = next((w for t in _tensors(output) if (w := self.moved(t)) is not None), None)
        if where is None or "first" in self.panel.mixers.get(path, {}):
            return
        entry = self.panel.mixers.setdefault(path, {})
        for name in ("middle", "first", "last", "swap"):
            entry[name] = bits(where[self.rows.at(f"local {name}")])

    def attention(self, attention: SeenAttention) -> None:
        """An attention ran: are its queries, keys and values those of one token each?"""
        path = attention.module
        entry = self.panel.mixers.setdefault(path, {})
        if "split" in entry:
            return
        entry["split"] = ""
        output = attention.output
        heads_first = output.ndim == 4 and output.shape[2] == self.rows.tokens != output.shape[1]
        if heads_first and output.shape[0] == self.rows.count and output.shape[1] > 1:
            self.unmerged = path, output[0].clone()
        entry.update(places(attention, self.rows))
        for name in ("query", "key", "value"):
            tensor: Tensor | None = getattr(attention, name)
            if tensor is None or tensor.ndim != 4 or tensor.shape[0] != self.rows.count:
                continue
            entry[f"{name}_shape"] = list(tensor.shape[1:])
            fault = self._split_fault(tensor)
            if fault:
                entry["split"] = fault
                return

    def _split_fault(self, tensor: Tensor) -> str:
        """`view`: the heads were cut from the sequence of numbers without a transpose."""
        heads, tokens = tensor.shape[1], tensor.shape[2]
        if heads < 2 or tokens != self.rows.tokens:
            return ""
        cells = tensor.reshape(self.rows.count, heads * tokens, -1)
        where = moved(cells, self.rows.count, heads * tokens)
        if where is None:
            return ""
        places = set(where[self.rows.at("local middle")].nonzero().flatten().tolist())
        middle = self.rows.middle
        right = {head * tokens + middle for head in range(heads)}
        cut = set(range(middle * heads, (middle + 1) * heads))
        return "view" if places and places <= cut and not places <= right else ""

    def _merged(self, entered: Any) -> None:
        """Compare what a module takes with the heads side by side, and with their plain reshape."""
        if self.unmerged is None:
            return
        path, heads = self.unmerged
        for tensor in _tensors(entered):
            part = by_row(tensor, self.rows.count, self.rows.tokens)
            if part is None or part[0].numel() != heads.numel():
                continue
            taken = part[0].flatten(1)
            if torch.equal(taken, heads.transpose(0, 1).flatten(1)):
                self.unmerged = None
            elif torch.equal(taken, heads.reshape(taken.shape)):
                self.panel.mixers[path]["split"] = "merge"
                self.unmerged = None
            return

    def moved(self, tensor: Tensor) -> Tensor | None:
        """Where each row differs from the base, as `rows.moved` says."""
        key = id(tensor), tensor._version  # pyright: ignore[reportPrivateUsage]
        if key not in self.known:
            # The tensor itself is kept too, so that its identity is not given to another.
            self.known[key] = tensor, moved(tensor, self.rows.count, self.rows.tokens)
            if len(self.known) > REMEMBERED:
                self.known.popitem(last=False)
        return self.known[key][1]

    def _earlier(self, places: list[Tensor]) -> bool:
        rows = self.rows
        return any(
            bool(where[rows.at("middle"), : rows.middle].any())
            or bool(where[rows.at("last"), : rows.last].any())
            for where in places
        )

    def _tells_order(self, places: list[Tensor]) -> bool:
        others = [at for at in range(self.rows.tokens) if at not in self.rows.pair]
        return any(bool(where[self.rows.at("swap"), others].any()) for where in places)


def _tensors(value: Any, depth: int = 0) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        if value.is_floating_point():
            yield value
    elif isinstance(value, Mapping) and depth < 3:
        for one in value.values():
            yield from _tensors(one, depth + 1)
    elif isinstance(value, list | tuple) and depth < 3:
        for one in value:
            yield from _tensors(one, depth + 1)


@contextmanager
def _hooked(modules: Mapping[str, nn.Module], watch: _Watch) -> Iterator[None]:
    """Tell the watch of every module that returns, the inner ones first."""

    def hook(path: str) -> Callable[..., None]:
        return lambda _, args, kwargs, output: watch.returned(path, (args, kwargs), output)

    handles = [
        module.register_forward_hook(hook(path), with_kwargs=True)
        for path, module in modules.items()
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


@contextmanager
def _heard(
    module: nn.Module, path: str, watch: _Watch, then: Callable[[str], None] | None = None
) -> Iterator[None]:
    def hook(_: nn.Module, __: Any, output: Any) -> None:
        watch.mixer(path, output)
        if then is not None:
            then(path)

    handle = module.register_forward_hook(hook)
    try:
        yield
    finally:
        handle.remove()


@contextmanager
def _altered(module: nn.Module, rows: TokenRows, watch: _Watch) -> Iterator[None]:
    """Give a module the local rows: the base's values, but for what each of them changes."""

    def change(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        done = False
        new_args: list[Any] = []
        changed: dict[int, Tensor] = {}

        def altered(value: Any) -> Any:
            nonlocal done
            if isinstance(value, Tensor) and id(value) in changed:
                return changed[id(value)]
            if done or not isinstance(value, Tensor) or not _has(value, rows) or value.ndim < 3:
                return value
            done = True
            watch.entered_mixer(value)
            changed[id(value)] = _with_local_rows(value, rows)
            return changed[id(value)]

        new_args = [altered(value) for value in args]
        new_kwargs = {key: altered(value) for key, value in kwargs.items()}
        return (tuple(new_args), new_kwargs) if done else None

    handle = module.register_forward_pre_hook(change, with_kwargs=True)
    try:
        yield
    finally:
        handle.remove()


def _with_local_rows(value: Tensor, rows: TokenRows) -> Tensor:
    new = value.clone()
    view = by_row(new, rows.count, rows.tokens)
    assert view is not None
    base = view[0].clone()
    generator = torch.Generator().manual_seed(5)
    noise = torch.randn(base.shape[1:], generator=generator).to(base)
    for name in ("middle", "first", "last", "swap"):
        view[rows.at(f"local {name}")] = base
    for name in ("middle", "first", "last"):
        at = getattr(rows, name)
        view[rows.at(f"local {name}"), at] = base[at] + noise * base.std()
    first, second = rows.pair
    view[rows.at("local swap"), first] = base[second]
    view[rows.at("local swap"), second] = base[first]
    return new
