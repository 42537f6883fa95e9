"""What backward and the loop do to gradients, told by their identities and versions alone.

Backward adds to a gradient in place, or makes one. `optimizer.zero_grad()` takes gradients away, or
sets them to zero in place: then it takes a look at numbers to tell it from clipping, and that is
made only where gradients were changed between two backward passes of one update.
"""

from __future__ import annotations

from collections.abc import Iterable

from torch import Tensor, nn

from leadline.anatomy.spread import local_part

__all__ = ["Mark", "Witnesses"]

WITNESSES = 2048
"""So many parameters are followed, evenly spaced. All of them, as a rule: an auxiliary loss may reach
a single adapter."""
MOST_LOOKS = 8
"""Reading a number makes the loop wait for its device. Where gradients are changed between backward
passes so often in a row, and never set to zero, that is how the loop is, and nobody looks again."""

Mark = tuple[int, int] | None
"""What changes when somebody writes into a tensor, or puts another one in its place."""


class Witnesses:
    """The parameters of a model whose gradients tell what reached them."""

    def __init__(self, module: nn.Module | None) -> None:
        self._module = module
        self._parameters: list[nn.Parameter] = []
        self._looks = MOST_LOOKS
        self.call_again()

    def __len__(self) -> int:
        return len(self._parameters)

    def call_again(self) -> bool:
        """Follow the parameters that the model has now; say whether they are other ones."""
        parameters = [] if self._module is None else list(self._module.parameters())
        before = self._parameters
        self._parameters = parameters[:: max(1, -(-len(parameters) // WITNESSES))]
        self._spread = any(hasattr(one, "_local_tensor") for one in self._parameters)
        return list(map(id, before)) != list(map(id, self._parameters))

    def gradients(self) -> list[Mark]:
        """The marks of all gradients."""
        gradients = [one.grad for one in self._parameters]
        if self._spread:
            return [None if one is None else _mark(one) for one in gradients]
        # At every update of every loop, so without a call for each of them.
        return [None if one is None else (id(one), one._version) for one in gradients]

    def weights(self) -> list[Mark]:
        """The marks of the parameters themselves."""
        if self._spread:
            return [_mark(one) for one in self._parameters]
        return [(0, one._version) for one in self._parameters]

    def zeroed(self, changed: Iterable[int]) -> set[int]:
        """Which of these gradients, changed in place, are all zero now."""
        gradients = {at: self._parameters[at].grad for at in changed}
        waits = any(one is not None and _waits(one) for one in gradients.values())
        if waits and not self._looks:
            return set()
        zero = {at for at, one in gradients.items() if one is not None and _is_zero(one)}
        if waits:
            self._looks = MOST_LOOKS if zero else self._looks - 1
        return zero


def _mark(tensor: Tensor) -> Mark:
    part = getattr(tensor, "_local_tensor", tensor)  # of a DTensor its own part changes
    return id(part), part._version


def _waits(gradient: Tensor) -> bool:
    return gradient.device.type != "cpu"


def _is_zero(gradient: Tensor) -> bool:
    part = local_part(gradient.detach())
    try:
        return not bool((part._values() if part.is_sparse else part).any())
    except (RuntimeError, NotImplementedError):  # some number formats know no `any`
        return False
