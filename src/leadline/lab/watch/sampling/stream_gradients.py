"""The gradient at every site of the stream in one forward pass, over all backward passes through it.

A loop may go through a graph several times: `loss.backward(retain_graph=True)`, then another loss.
What trains the model is the sum. So gradients are kept as long as their graph is, and what the last
run through it brings is added to them and handed on at once.

What `torch.autograd.grad` brings is kept too, and forgotten when a backward pass comes: only where
none does was it the loop's way to train.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import get_ident

from torch import Tensor, nn

from leadline.anatomy import Stack
from leadline.lab.watch.sampling.engine_runs import failed_runs, run_under_way

__all__ = ["StreamGradients"]


class StreamGradients:
    """Adds up gradients by their sites; `hand_on(stack, layer, None, gradient)` gets the sums.

    `module` is what the loop trains. `own`: the pass is one of ours, and so is the run through it,
    which trains nothing.
    """

    def __init__(
        self,
        hand_on: Callable[[Stack, int, None, Tensor], None],
        module: nn.Module,
        *,
        own: bool = False,
    ) -> None:
        self._hand_on = hand_on
        self._module = module
        self._own = own
        self._thread = get_ident()
        self._kept: dict[tuple[str, int], tuple[Stack, Tensor]] = {}
        self._given: set[tuple[str, int]] = set()
        self._asked: dict[tuple[str, int], tuple[Stack, Tensor]] = {}
        self.trained = False
        """Whether a backward pass has come through."""
        self._failed = failed_runs(self._thread)

    def take(self, stack: Stack, layer: int, gradient: Tensor) -> None:
        """Take what one run brings to one site."""
        run = None if self._own else run_under_way(self._thread)
        site = (stack.name, layer)
        if run is not None and not run.trains(self._module.parameters()):
            if not self.trained:
                self._asked[site] = (stack, gradient.clone())
            return
        self.trained = True
        self._asked.clear()
        if site in self._given:
            return  # of a run that failed before it was over, and is made again
        kept = self._kept.pop(site, None)
        if run is not None and run.keeps_graph:
            self._kept[site] = (stack, gradient.clone() if kept is None else kept[1] + gradient)
            return
        self._given.add(site)
        self._hand_on(stack, layer, None, gradient if kept is None else kept[1] + gradient)

    def end(self) -> None:
        """Hand on what is left: of graphs that were kept to the end of the update."""
        left = {**self._asked, **self._kept}
        self._asked.clear()
        self._kept.clear()
        for (_, layer), (stack, gradient) in left.items():
            self._given.add((stack.name, layer))
            self._hand_on(stack, layer, None, gradient)

    @property
    def came(self) -> bool:
        """Whether any gradient has come and was handed on."""
        return bool(self._given)

    @property
    def of_no_training(self) -> bool:
        """Whether the pass has been differentiated, but not to train, or not to the end."""
        return failed_runs(self._thread) > self._failed or bool(self._asked)
