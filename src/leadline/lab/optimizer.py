"""AdamW over one buffer: all parameters of a kind stand in one tensor, their gradients in another.

A deep narrow model has hundreds of small tensors, and an optimizer that visits them one by one
spends its time on calls. The parameters become views of two buffers, those that decay (matrices and
tables) and those that do not (biases, norms, gains); fused AdamW then sees two tensors. The
numbers are those of `torch.optim.AdamW` over the same groups.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn

from leadline.errors import LabError

__all__ = ["BETAS", "EPS", "FlatAdamW"]

BETAS = (0.9, 0.999)
EPS = 1e-8


class FlatAdamW:
    """Fused AdamW on the parameters of a model that require a gradient."""

    def __init__(self, model: nn.Module, *, decay: float) -> None:
        trained = [p for p in model.parameters() if p.requires_grad]
        kinds: dict[tuple[bool, torch.dtype], list[nn.Parameter]] = {}
        for parameter in trained:
            kinds.setdefault((parameter.ndim >= 2, parameter.dtype), []).append(parameter)
        if not kinds:
            raise LabError("No parameter of the model requires a gradient: nothing can be trained.")
        self.buffers = [_Buffer(kind) for kind in kinds.values()]
        groups = [
            {"params": [buffer.values], "weight_decay": decay if buffer.matrices else 0.0}
            for buffer in self.buffers
        ]
        self.adamw = torch.optim.AdamW(groups, lr=0.0, betas=BETAS, eps=EPS, fused=True)

    def zero(self) -> None:
        """Set all gradients to zero."""
        for buffer in self.buffers:
            buffer.gradients.zero_()

    def norm(self) -> Tensor:
        """The norm of the gradient over all parameters."""
        return torch.linalg.vector_norm(
            torch.stack([torch.linalg.vector_norm(b.gradients) for b in self.buffers])
        )

    def scale(self, factor: Tensor | float) -> None:
        """Multiply all gradients."""
        for buffer in self.buffers:
            buffer.gradients.mul_(factor)

    def step(self, rate: float) -> None:
        """One update with this learning rate."""
        for group in self.adamw.param_groups:
            group["lr"] = rate
        self.adamw.step()

    def by_parameter(self) -> torch.optim.AdamW:
        """The same over the parameters one by one, for readers of its state; it is never stepped."""
        settings = self.adamw.param_groups
        groups = [
            {**group, "params": buffer.parameters, "fused": None}
            for buffer, group in zip(self.buffers, settings, strict=True)
        ]
        plain = torch.optim.AdamW(groups)
        for buffer in self.buffers:
            kept = self.adamw.state.get(buffer.values, {})
            for parameter, part in buffer.parts() if kept else ():
                plain.state[parameter] = {
                    name: value if name == "step" else value[part].view_as(parameter)
                    for name, value in kept.items()
                }
        return plain

    def state(self) -> dict[str, Tensor]:
        """What a checkpoint needs: weights and both moments of each buffer, and the count."""
        state: dict[str, Tensor] = {}
        for index, buffer in enumerate(self.buffers):
            state[f"{index}.values"] = buffer.values.detach()
            for name, value in self.adamw.state.get(buffer.values, {}).items():
                state[f"{index}.{name}"] = value
        return state

    def load(self, state: dict[str, Tensor]) -> None:
        """Put back what `state` gave, into the same buffers."""
        with torch.no_grad():
            for index, buffer in enumerate(self.buffers):
                buffer.values.copy_(state[f"{index}.values"])
                moments = {
                    name.partition(".")[2]: value.clone()
                    for name, value in state.items()
                    if name.startswith(f"{index}.") and not name.endswith(".values")
                }
                if moments:
                    self.adamw.state[buffer.values] = moments


class _Buffer:
    """Parameters of one kind in one tensor."""

    def __init__(self, parameters: Sequence[nn.Parameter]) -> None:
        self.matrices = parameters[0].ndim >= 2
        self.parameters = list(parameters)
        self.values = nn.Parameter(torch.cat([p.detach().flatten() for p in parameters]))
        self.gradients = torch.zeros_like(self.values)
        self.values.grad = self.gradients
        for p, part in self.parts():
            p.data = self.values.data[part].view_as(p)
            p.grad = self.gradients[part].view_as(p)

    def parts(self) -> Iterator[tuple[nn.Parameter, slice]]:
        """Every parameter, and where it stands in the buffer."""
        start = 0
        for p in self.parameters:
            yield p, slice(start, start + p.numel())
            start += p.numel()
