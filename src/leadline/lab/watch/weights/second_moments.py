"""The second moment v that an optimizer holds of a gradient, where it holds one that can be read.

    optimizer                           v                 divided by
    Adam, AdamW, NAdam, RAdam           exp_avg_sq        1 - beta2^t, t the updates made
    Adam, AdamW with amsgrad            max_exp_avg_sq    1 - beta2^t
    Adam without bias correction        exp_avg_sq        1
    RMSprop, Adadelta                   square_avg        1
    SGD, Lion, Adagrad, Adamax, Muon    none: nothing there is a mean of squares
    Adafactor                           none for matrices: rows and columns, not read
    in 8 bits                           none: codes, not read

An optimizer of somebody's own that calls a state `exp_avg_sq` and has two betas is taken for Adam.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import torch
from torch import Tensor, nn

__all__ = ["SECOND_MOMENTS", "UnreadState", "second_moment", "state_of"]

SECOND_MOMENTS = ("max_exp_avg_sq", "exp_avg_sq", "square_avg")
"""Under these names Adam and its kin, and RMSprop, keep what they divide by; the first counts."""
FACTORED = ("row_var", "exp_avg_sq_row")
"""The names of Adafactor, in torch and in transformers."""
CODED = "state2"
"""The name of bitsandbytes, whose states are codes of 8 bits."""


class UnreadState(Exception):
    """There is a second moment, in a form that is not read; the message says which."""


def state_of(optimizer: torch.optim.Optimizer, parameter: nn.Parameter) -> Mapping[str, Any] | None:
    """What the optimizer keeps of a parameter; empty where it has not stepped it yet.

    None where it keeps something that has no names.
    """
    states: Any = optimizer.state
    state: Any = states.get(parameter) if isinstance(states, Mapping) else None
    if state is None:
        return {}
    return cast("Mapping[str, Any]", state) if isinstance(state, Mapping) else None


def second_moment(
    state: Mapping[str, Any], parameter: nn.Parameter, settings: Mapping[str, Any]
) -> tuple[Tensor, float] | None:
    """The second moment in a state, and what it is divided by; None without one.

    Raise UnreadState where there is one that cannot be read.
    """
    for name in SECOND_MOMENTS:
        v = state.get(name)
        if isinstance(v, Tensor) and v.shape == parameter.shape:
            break
    else:
        if any(name in state for name in FACTORED):
            raise UnreadState("Adafactor keeps it by rows and columns")
        if CODED in state or isinstance(state.get("exp_avg_sq"), Tensor):
            raise UnreadState("its optimizer keeps it in a form of its own")
        return None
    if not (v.is_floating_point() or v.is_complex()):
        raise UnreadState("its optimizer keeps it in a form of its own")
    if "d0" in settings:
        return None  # Prodigy and D-Adaptation scale the gradients in it by a rate that they learn
    steps, betas = state.get("step", settings.get("step")), settings.get("betas")
    corrects = settings.get("bias_correction", settings.get("correct_bias", True))
    if name == "square_avg" or steps is None or betas is None or not corrects:
        return v, 1.0
    if len(betas) != 2:
        return None  # Adan has three, and its second moment is of something else
    correction = 1.0 - float(betas[1]) ** _count(steps)
    return None if correction <= 0.0 else (v, correction)


def _count(steps: Any) -> float:
    if isinstance(steps, Tensor) and steps.numel() != 1:
        raise UnreadState("its optimizer counts the updates in a form of its own")
    return float(steps)
