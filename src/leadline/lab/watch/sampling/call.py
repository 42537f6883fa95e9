"""One call of the model by the loop, and the proof of the anatomy on it.

The anatomy is proved on the first pass that is sampled: fitted on the first half of its examples
and judged on all of them, in evaluation mode and with everything put back afterwards. Every pass
gets copies of the loop's arguments, and the number format that the loop has chosen (autocast).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from leadline.anatomy import Anatomy, Declaration, model_pass, read_anatomy, untouched
from leadline.anatomy.tensors import mapped
from leadline.errors import LeadlineError
from leadline.lab.watch.fence import let_signals_pass
from leadline.lab.watch.sampling.apart import apart
from leadline.lab.watch.sampling.arguments import copied, modules_in

__all__ = ["Call", "prove_anatomy"]


class Call:
    """One call of the model by the loop: the module that was called and its arguments."""

    def __init__(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.module = module
        self.args = args
        self.kwargs = kwargs

    def again(self) -> Any:
        """Call the module with copies of the same arguments."""
        args, kwargs = copied((self.args, self.kwargs))
        with model_pass():
            return self.module(*args, **kwargs)

    @property
    def modules(self) -> list[nn.Module]:
        """The modules among the arguments."""
        return modules_in((self.args, self.kwargs))

    def of_the_first_half(self) -> Call:
        """The same call with the first half of its examples, where the first axis counts them."""
        sizes = [
            tensor.shape[0]
            for tensor in (*self.args, *self.kwargs.values())
            if isinstance(tensor, Tensor) and tensor.ndim > 1
        ]
        if not sizes or max(sizes) < 2:
            return self
        examples = sizes[0]

        def half(tensor: Tensor) -> Tensor:
            cut = tensor.ndim and tensor.shape[0] == examples
            return tensor[: examples // 2] if cut else tensor

        return Call(self.module, mapped(self.args, half), mapped(self.kwargs, half))

    def mask(self, name: str) -> Tensor | None:
        """A mask [example, token] among the arguments."""
        mask = self.kwargs.get(name)
        return mask if isinstance(mask, Tensor) and mask.ndim == 2 else None


def prove_anatomy(
    module: nn.Module, call: Call, *, declared: Anatomy | Declaration | None = None
) -> Anatomy:
    """The anatomy of the module inside what was called, proved on the call's own inputs."""

    def fit() -> Any:
        half = call.of_the_first_half()
        try:
            return half.again()
        except LeadlineError:
            raise
        except Exception as error:  # a cache or the like that belongs to all of the examples
            let_signals_pass(error)
            return call.again()

    with apart(passes=True), torch.enable_grad(), untouched(module, *call.modules, hooks=True):
        return read_anatomy(module, fit, call.again, declared=declared)
