"""What `paths` refuses before it begins, each with a sentence."""

from __future__ import annotations

from typing import Any

from torch import nn

from leadline.anatomy import Anatomy, Stack
from leadline.errors import ProbeError
from leadline.instruments.paths.carried.model_pass import check_stack

__all__ = ["one_stack"]


def one_stack(anatomy: Anatomy, module: nn.Module) -> Stack:
    """Return the only stack of an anatomy, or say which part to give on its own."""
    stack, *others = anatomy.stacks
    if others:
        names = " and ".join(one.name for one in anatomy.stacks)
        such = ", such as model.get_encoder()" if _has_encoder(module) else ""
        raise ProbeError(
            f"This model has {len(anatomy.stacks)} stacks ({names}) and a path has one stream; "
            f"give the part that you mean on its own{such}."
        )
    check_stack(stack)
    return stack


def _has_encoder(module: Any) -> bool:
    """Whether get_encoder gives a part, and neither the model itself nor an error."""
    try:
        encoder = module.get_encoder()
    except Exception:
        return False
    return isinstance(encoder, nn.Module) and encoder is not module
