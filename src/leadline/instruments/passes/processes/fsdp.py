"""Passes through a model that FSDP2 has sharded, which leave nothing of them behind.

A loop may have set its gradients to be kept unsharded between micro-batches, or divided by a number of
its own. Both are set aside. A pass that ended in an error leaves the states of FSDP2 in the middle of
it; they are put back to those between two steps. torch has no public way to do either.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn

from leadline.instruments.passes.processes.sharding import fsdp_modules

__all__ = ["between_steps"]

_SETTINGS = {
    "reduce_grads": True,
    "all_reduce_grads": True,
    "reshard_after_backward": True,
    "gradient_divide_factor": None,
    "_partial_reduce_output": None,
}
"""What a parameter group is told for the passes; put back afterwards."""
_NOTHING = object()


@contextmanager
def between_steps(module: nn.Module) -> Iterator[None]:
    """Begin and end with all parameters sharded, as between two steps of a training loop."""
    states: list[Any] = [part._get_fsdp_state() for part in fsdp_modules(module)]
    groups = [group for state in states for group in state._fsdp_param_groups]
    settings = [{name: getattr(group, name) for name in _SETTINGS} for group in groups]
    parameters = [one for group in groups for one in group.fsdp_params]
    kept = [
        (
            one,
            getattr(one, "unsharded_accumulated_grad", None),
            getattr(getattr(one, "_unsharded_param", None), "grad", None),
        )
        for one in parameters
    ]
    for group in groups:
        group.reshard()
        for name, value in _SETTINGS.items():
            setattr(group, name, value)
    _forget_gradients(parameters)
    last = [state._state_ctx.is_last_backward for state in states]
    for state in states:
        state._state_ctx.is_last_backward = True
    try:
        yield
    finally:
        for state in states:
            _end_pass(state)
        _forget_gradients(parameters)
        for group, before in zip(groups, settings, strict=True):
            for name, value in before.items():
                setattr(group, name, value)
        for one, accumulated, gradient in kept:
            one.unsharded_accumulated_grad = accumulated
            if gradient is not None:
                one._unsharded_param.grad = gradient
        for state, was_last in zip(states, last, strict=True):
            state._state_ctx.is_last_backward = was_last


def _forget_gradients(parameters: list[Any]) -> None:
    for one in parameters:
        one.unsharded_accumulated_grad = None
        unsharded = getattr(one, "_unsharded_param", None)
        if unsharded is not None:
            unsharded.grad = None


def _end_pass(state: Any) -> None:
    """Put one state back to where it is between two steps, wherever its pass has ended."""
    idle = type(state._training_state).IDLE
    state._training_state = idle
    state._modules_to_run_forward.clear()
    context, traffic = state._state_ctx, state._comm_ctx
    context.iter_forward_root = None
    context.post_backward_final_callback_queued = False
    for group in state._fsdp_param_groups:
        result, group._all_gather_result = group._all_gather_result, None
        work = getattr(result, "all_gather_work", None)
        if work is not None and hasattr(work, "wait"):
            work.wait()
        group._training_state = idle
        group._post_forward_indices.clear()
        group._post_reduce_event = group._all_reduce_state = None
        group.reshard()
    for name in ("post_forward_order", "reduce_scatter_states"):
        getattr(traffic, name, []).clear()
    if getattr(traffic, "all_gather_state", _NOTHING) is not _NOTHING:
        traffic.all_gather_state = None
