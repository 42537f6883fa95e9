"""Count how often code waits for the device: every number, list or shape that it asks a tensor for.

On a GPU each such question stops the program until all the work before it is done. On a CPU it costs
next to nothing, so it is not noticed there; this counts them wherever the tensors are. What looks at
its values on a CPU alone (`leadline.numerics.devices.is_far`) goes the way of a GPU meanwhile:

    one number      item, float, int, bool, `if tensor:`, equal
    many            tolist, numpy, and cpu of whatever stands elsewhere
    a shape         nonzero, masked_select, an index by truth values, unique

    with Synchronisations() as waits:
        model(x)
    assert not waits.places

What `cpu` has brought is asked for nothing, and neither is what is computed of it: it stands on the
host. On a machine whose tensors all stand there, this is known by the storage, which is followed from
`cpu` on; an operation with one such tensor has only such tensors, or torch would refuse it on a GPU.

What a kernel asks inside is not seen: `torch.linalg.eigvalsh` and `solve` look at an error code. What
other threads ask is not seen either.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from typing_extensions import override

from leadline.numerics.devices import as_on_a_gpu

__all__ = ["Synchronisations"]

_QUESTIONS = frozenset(
    {
        "_local_scalar_dense",
        "bincount",
        "equal",
        "histc",
        "is_nonzero",
        "item",
        "masked_select",
        "nonzero",
        "unique_consecutive",
        "unique_dim",
        "_unique",
        "_unique2",
    }
)
"""Operations whose answer, or the shape of it, has to be known before the program can go on."""
_METHODS = ("tolist", "numpy", "__array__", "cpu")
"""Methods that read memory without an operation of torch, where the tensor stands on the CPU."""


class Synchronisations(TorchDispatchMode):
    """Counts questions to the device inside of `with`, by the lines of code that ask.

    `places` counts "operation at file:line" of the innermost frame outside of torch.
    """

    def __init__(self) -> None:
        super().__init__()
        self.places: Counter[str] = Counter()
        self._inside = False
        self._methods: dict[str, Any] = {}
        self._pretence = as_on_a_gpu()
        # Kept alive, so that no other tensor gets the address.
        self._brought: dict[int, torch.Tensor] = {}

    @property
    def count(self) -> int:
        """How many there were."""
        return self.places.total()

    @override
    def __enter__(self) -> Synchronisations:
        self._methods = {name: getattr(torch.Tensor, name) for name in _METHODS}
        for name, method in self._methods.items():
            setattr(torch.Tensor, name, self._counted(name, method))
        self._pretence = as_on_a_gpu()
        self._pretence.__enter__()
        return super().__enter__()

    @override
    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        for name, method in self._methods.items():
            setattr(torch.Tensor, name, method)
        self._pretence.__exit__(None, None, None)

    @override
    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        name = func.overloadpacket.__name__
        operands = [one for one in _tensors(args) if one.ndim or len(args) == 1]
        on_host = any(self._is_brought(one) for one in operands)
        asks = name in _QUESTIONS or _asks_by_index(name, args)
        if (asks and not on_host) or _asks_by_copy(name, args, kwargs):
            self._note(name)
        out = func(*args, **(kwargs or {}))
        if on_host and name != "copy_":  # which may take numbers from the host to the device
            for one in _tensors([out]):
                self._bring(one)
        return out

    def _bring(self, tensor: torch.Tensor) -> None:
        self._brought[tensor.untyped_storage().data_ptr()] = tensor

    def _is_brought(self, tensor: torch.Tensor) -> bool:
        return tensor.device.type == "cpu" and tensor.untyped_storage().data_ptr() in self._brought

    def _counted(self, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        def counted(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
            if self._inside or self._is_brought(tensor):
                return method(tensor, *args, **kwargs)
            self._note(name)
            self._inside = True
            try:
                answer = method(tensor, *args, **kwargs)
                if name == "cpu":
                    answer = answer.clone()  # as a GPU's would be: memory of its own
                    self._bring(answer)
                return answer
            finally:
                self._inside = False

        return counted

    def _note(self, name: str) -> None:
        if not self._inside:
            self.places[f"{name} at {_line_that_asks()}"] += 1


def _tensors(values: Any) -> list[torch.Tensor]:
    """The tensors among arguments, and in lists of them."""
    nested = [one if isinstance(one, list | tuple) else [one] for one in values]
    return [one for part in nested for one in part if isinstance(one, torch.Tensor)]


def _asks_by_index(name: str, args: Any) -> bool:
    """Whether truth values choose the rows: then their number is asked for."""
    if name not in ("index", "index_put", "index_put_", "_index_put_impl_", "_unsafe_index"):
        return False
    indices = [one for one in args[1] if isinstance(one, torch.Tensor)]
    return any(one.dtype in (torch.bool, torch.uint8) for one in indices)


def _asks_by_copy(name: str, args: Any, kwargs: dict[str, Any] | None) -> bool:
    """Whether a tensor comes to the CPU from elsewhere."""
    if name != "_to_copy":
        return False
    target = (kwargs or {}).get("device")
    return (
        target is not None
        and torch.device(target).type == "cpu"
        and args[0].device.type not in ("cpu", "meta")
    )


def _line_that_asks() -> str:
    frame = sys._getframe(2)
    while frame is not None:
        file = frame.f_code.co_filename
        if file != __file__ and "/torch/" not in file.replace("\\", "/"):
            return f"{file}:{frame.f_lineno}"
        frame = frame.f_back
    return "torch"
