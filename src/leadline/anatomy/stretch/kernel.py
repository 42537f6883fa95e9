"""Whether a forward pass runs any attention of torch.

    with attention_watched() as attention: forward()        attention.seen

Models reach torch's attention by several ways: the function itself, `nn.MultiheadAttention`, whose
function hides it from whoever watches functions, and fused layers (`nn.TransformerEncoderLayer`
without gradients). So functions and operations are watched both. The operations alone would not do:
where torch chooses its plain attention by itself, only matrix products are seen of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

__all__ = ["Attention", "attention_watched"]

_PARTS = (
    "scaled_dot_product",
    "flash_attention",
    "efficient_attention",
    "multi_head_attention",
    "transformer_encoder_layer",
)
"""Parts of the names of torch's operations that are attention, or hold one."""


@dataclass(eq=False)
class Attention:
    """What was seen."""

    seen: bool = False


@contextmanager
def attention_watched() -> Iterator[Attention]:
    """Watch all functions and operations while it lasts."""
    found = Attention()
    with _Functions(found), _Operations(found):
        yield found


class _Functions(TorchFunctionMode):
    def __init__(self, found: Attention) -> None:
        super().__init__()
        self.found = found

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.nn.functional.scaled_dot_product_attention:
            self.found.seen = True
        return func(*args, **(kwargs or {}))


class _Operations(TorchDispatchMode):
    # Operators with functions as arguments (flex attention) fail under a mode that does not say so.
    supports_higher_order_operators = True

    def __init__(self, found: Attention) -> None:
        super().__init__()
        self.found = found

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.name()
        if any(part in name for part in _PARTS):
            self.found.seen = True
        return func(*args, **(kwargs or {}))
