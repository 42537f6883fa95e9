"""Check what is to be measured: the model inside its wrappers, and an anatomy that is known already."""

from __future__ import annotations

from typing import Any

from torch import nn

from leadline.anatomy import Anatomy, Declaration, check_measurable, unsharded, unwrapped
from leadline.errors import AnatomyError, shown
from leadline.models.loading import LoadedModel
from leadline.numerics.half_precision import half_route

__all__ = ["known_anatomy", "modules_of", "tokenizer_for"]


def modules_of(
    model: nn.Module | LoadedModel, *, spread: bool = False
) -> tuple[nn.Module, nn.Module]:
    """The module with its wrappers, and the one inside them, made safe for half precision.

    Parameters that are spread over processes are refused, unless `spread` allows them.
    """
    wrapped = model.model if isinstance(model, LoadedModel) else model
    module = unwrapped(wrapped) if spread else unsharded(wrapped)
    check_measurable(module)
    half_route(module)
    return wrapped, module


def known_anatomy(module: nn.Module, anatomy: Anatomy | Declaration | None) -> Anatomy | None:
    """The anatomy of the caller where it is proved already, None where it must be read.

    An anatomy that names modules or parameters of another model is refused.
    """
    if anatomy is None or isinstance(anatomy, Declaration):
        return None
    if not isinstance(anatomy, Anatomy):
        raise AnatomyError(
            f"anatomy is {shown(anatomy)}; give what leadline.declare(...) or "
            "leadline.anatomy_of(...) returns."
        )
    if anatomy.balance is None:
        return None
    names_in_model = {name for name, _ in module.named_modules(remove_duplicate=False)}
    names_in_model |= {name for name, _ in module.named_parameters(remove_duplicate=False)}
    for stack in anatomy.stacks:
        for block in stack.blocks:
            for s in block.sublayers:
                for name in (block.module, s.module, *s.parameters):
                    if name not in names_in_model:
                        raise AnatomyError(
                            f"The given anatomy is that of another model: "
                            f"{type(module).__name__} has no '{name}'."
                        )
    return anatomy


def tokenizer_for(model: nn.Module | LoadedModel, inputs: Any) -> Any:
    """The tokenizer of a loaded model where the inputs are texts, otherwise None."""
    texts = isinstance(inputs, str) or (
        isinstance(inputs, list) and any(isinstance(item, str) for item in inputs)
    )
    return model.tokenizer if texts and isinstance(model, LoadedModel) else None
