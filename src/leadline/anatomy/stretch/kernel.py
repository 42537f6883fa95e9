"""Whether a forward pass runs any attention of torch.

    with attention_watched() as attention: forward()        attention.ran

Models reach torch's attention in several ways: by the function itself, by `nn.MultiheadAttention`,
whose function hides the call from a function mode, and by fused layers (`nn.TransformerEncoderLayer`
without gradients). So both functions and operations are watched. Operations alone are not enough:
where torch chooses its plain attention, a dispatch mode sees only matrix products.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from leadline.anatomy.eager import EagerMode

__all__ = ["AttentionWatch", "attention_watched"]

_PARTS = (
    "scaled_dot_product",
    "flash_attention",
    "efficient_attention",
    "multi_head_attention",
    "transformer_encoder_layer",
)
"""Parts of the names of torch's operations that are attention, or hold one."""


@dataclass(eq=False)
class AttentionWatch:
    """Whether any attention of torch has run since the watch began."""

    ran: bool = False


@contextmanager
def attention_watched() -> Iterator[AttentionWatch]:
    """Watch all functions and operations of torch inside the `with` block."""
    watch = AttentionWatch()
    with _Functions(watch), _Operations(watch):
        yield watch


class _Functions(TorchFunctionMode):
    def __init__(self, watch: AttentionWatch) -> None:
        super().__init__()
        self.watch = watch

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.nn.functional.scaled_dot_product_attention:
            self.watch.ran = True
        return func(*args, **(kwargs or {}))


class _Operations(EagerMode):
    # Operators with functions as arguments (flex attention) fail under a mode that does not say so.
    supports_higher_order_operators = True

    def __init__(self, watch: AttentionWatch) -> None:
        super().__init__()
        self.watch = watch

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.name()
        if any(part in name for part in _PARTS):
            self.watch.ran = True
        return func(*args, **(kwargs or {}))
