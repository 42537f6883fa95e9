"""One forward and one backward pass through one of our models, everything kept.

The tap of the instruments reduces tensors while they stream by, because it reads models of any size.
What a page shows is small: streams, updates, gradients and the attention of all layers fit into a
few megabytes, so they are kept here and reduced together at the end.

The sites are those of the instruments: site l is what leaves block l, site 0 what enters block 1;
lanes stand side by side in the width. The update is what is added, by the connection's own account.
The equation is that of `leadline.parts.sublayer`, run step by step.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from leadline.models.inputs import choose_loss
from leadline.parts.branches import Run
from leadline.parts.branches.joined import Joined
from leadline.parts.masking import mask_of

if TYPE_CHECKING:
    from leadline.models.inputs import Inputs
    from leadline.parts import Transformer
    from leadline.parts.sublayer import Sublayer

__all__ = ["SeenCall", "Walk", "Write", "swap_stream", "tensors_of", "walk"]

Tensor = torch.Tensor


@dataclass(frozen=True)
class Write:
    """What one write adds to the stream, and the stream before: [example, token, width]."""

    layer: int
    role: str
    update: Tensor
    before: Tensor


@dataclass(frozen=True)
class SeenCall:
    """One call of attention: queries and keys [example, head, token, head width]."""

    query: Tensor
    key: Tensor
    causal: bool
    scale: float | None


@dataclass
class Walk:
    """Everything that went by, layer by layer.

    `states` are what entered the blocks, streams with all that a connection keeps beside them.
    """

    run: Run
    loss: float = float("nan")
    streams: list[Tensor] = field(default_factory=list[Tensor])
    gradients: list[Tensor | None] = field(default_factory=list["Tensor | None"])
    states: list[Any] = field(default_factory=list[Any])
    writes: list[Write] = field(default_factory=list[Write])
    parameter_gradients: list[float] = field(default_factory=list[float])
    """Norm over the parameters of every write, in the order of `writes`."""
    attention: list[SeenCall] = field(default_factory=list[SeenCall])


def walk(model: Transformer, inputs: Inputs) -> Walk:
    """Run the model forward and backward, with the loss that `measure` chooses by itself."""
    loss, batch = choose_loss(model, inputs)
    ids = batch.main
    positions = torch.arange(ids.shape[1])
    with torch.no_grad():
        embedded = model.embedding(ids, positions, None)
    run = Run(rotate=model.embedding.positions.rotation(positions, embedded.dtype))
    run.mask, run.causal = mask_of(
        None, tokens=ids.shape[1], start=0, causal=bool(model.causal), device=ids.device
    )
    record = Walk(run)
    live: list[Tensor] = []
    owned = _owned_parameters(model)
    with torch.enable_grad(), _Spy(record.attention), _trainable(model):
        state = model.first.open(embedded)
        # Site 0 is what enters the first block, be it the embedding itself or lanes made of it.
        leaf = model.first.stream(state).detach().requires_grad_(True)
        state = swap_stream(state, leaf)
        live.append(leaf)
        for layer, block in enumerate(model.blocks, 1):
            record.states.append(state)
            for name in block.order:  # pyright: ignore[reportGeneralTypeIssues]
                state = _step(record, layer, name, block.get_submodule(name), state)  # pyright: ignore[reportArgumentType]
            live.append(model.first.stream(state))
        x = model.last.close(state)
        x = x if model.norm is None else model.norm(x)
        output = model.head(x, model.embedding.get_submodule("tokens").weight)  # pyright: ignore[reportArgumentType]
        value = loss.compute(output, batch)
        record.loss = float(value.detach())
        every = [parameter for parameters in owned for parameter in parameters]
        gradients = torch.autograd.grad(value, [*live, *every], allow_unused=True)
    record.streams = [one.detach().flatten(2) for one in live]
    record.gradients = [None if one is None else one.flatten(2) for one in gradients[: len(live)]]
    record.parameter_gradients = _norms_of(owned, gradients[len(live) :])
    return record


@contextmanager
def _trainable(model: Transformer) -> Iterator[None]:
    """Let all parameters require gradients, and put back which of them did."""
    before = [(parameter, parameter.requires_grad) for parameter in model.parameters()]
    try:
        model.requires_grad_(True)
        yield
    finally:
        for parameter, required in before:
            parameter.requires_grad_(required)


def _owned_parameters(model: Transformer) -> list[list[Tensor]]:
    """The parameters of every write; those of a joined branch that is two writes are divided."""
    owned: list[list[Tensor]] = []
    for sublayer in model.sublayers():
        if not isinstance(sublayer.branch, Joined) or not _two_writes(sublayer):
            owned.append(list(sublayer.parameters()))
            continue
        mlp: dict[int, Tensor] = {id(one): one for one in sublayer.branch.mlp.parameters()}
        owned += [[p for p in sublayer.parameters() if id(p) not in mlp], list(mlp.values())]
    return owned


def _norms_of(owned: list[list[Tensor]], gradients: Sequence[Tensor | None]) -> list[float]:
    remaining = iter(gradients)
    parts = [[next(remaining) for _ in parameters] for parameters in owned]
    known = [[one for one in part if one is not None] for part in parts]
    totals = [
        torch.stack([torch.linalg.vector_norm(one) for one in part]).norm()
        if part
        else torch.zeros(())
        for part in known
    ]
    return torch.stack(totals).tolist()


def _two_writes(sublayer: Sublayer) -> bool:
    """Whether attention and MLP side by side reach the stream as they are, each a write."""
    connection = sublayer.connection
    return sublayer.exit is None and connection.keep is not None and connection.gain is not None


def _step(record: Walk, layer: int, name: str, sublayer: Sublayer, state: Any) -> Any:
    """One sublayer; its update is noted on the way."""
    connection, branch = sublayer.connection, sublayer.branch
    x = connection.read(state)
    entered = x if sublayer.enter is None else sublayer.enter(x)
    separate: tuple[Tensor, Tensor] | None = None
    if isinstance(branch, Joined):
        # The parts of the sum, which are two writes where nothing stands between them and the stream.
        separate = _parts_of(branch, entered, record.run)
        u = separate[0] + separate[1]
    else:
        u = branch(entered, record.run)
    u = u if sublayer.exit is None else sublayer.exit(u)
    with torch.no_grad():
        before = connection.stream(state).flatten(2)
        fixed = connection.keep is not None and connection.gain is not None
        if separate is not None and _two_writes(sublayer):
            updates = [("attention", separate[0]), ("mlp", separate[1])]
        else:
            # The roles are those of the declared anatomy.
            updates = [(name if name in ("attention", "mlp") else "branch", u)]
        for role, returned in updates:
            update = (
                _gained(connection, returned) if fixed else connection.split(state, returned)[1]
            )
            record.writes.append(Write(layer, role, update.detach().flatten(2), before.detach()))
    state = connection.write(state, u)
    return state if sublayer.settle is None else connection.settle(state, sublayer.settle)


def _parts_of(branch: Joined, x: Tensor, run: Run) -> tuple[Tensor, Tensor]:
    first = x if branch.attention_norm is None else branch.attention_norm(x)
    second = x if branch.mlp_norm is None else branch.mlp_norm(x)
    return branch.attention(first, run), branch.mlp(second, run)


def _gained(connection: Any, returned: Tensor) -> Tensor:
    gain = connection.gain
    if isinstance(gain, str):
        return returned * connection.get_parameter(gain)
    return returned if gain == 1.0 else returned * gain


def swap_stream(state: Any, stream: Tensor) -> Any:
    """The state with another stream, wherever the present one stands in it."""
    present = next(tensors_of(state))

    def swapped(part: Any) -> Any:
        if isinstance(part, tuple):
            return tuple(swapped(one) for one in part)
        return stream if part is present else part

    return swapped(state)


def tensors_of(state: Any) -> Iterator[Tensor]:
    """The tensors of a state, the stream first."""
    for part in state if isinstance(state, tuple) else (state,):
        if isinstance(part, tuple):
            yield from tensors_of(part)
        else:
            yield part


class _Spy(TorchFunctionMode):
    """Notes queries and keys of every call of torch's attention."""

    def __init__(self, calls: list[SeenCall]) -> None:
        super().__init__()
        self.calls = calls

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is F.scaled_dot_product_attention:
            options = kwargs or {}
            self.calls.append(
                SeenCall(args[0].detach(), args[1].detach(), options["is_causal"], options["scale"])
            )
        return func(*args, **(kwargs or {}))
