"""Take a model out of its wrappers: torch.compile, data parallelism, adapters, sharding.

A wrapper that only passes its arguments on is taken off, so that hooks, configuration, head and
signature are those of the model itself. PEFT has two kinds: adapters inside the model
(LoRA, IA3), whose wrapper passes the arguments on, and those whose wrapper does work of its own
(prefix and prompt tuning, X-LoRA); the second kind is measured with its wrapper on.

A library that was never imported cannot have made a wrapper, so none is imported here.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

from torch import nn

from leadline.anatomy.find.measurable import check_module
from leadline.errors import InputError

__all__ = ["configured_model", "is_compiled", "unsharded", "unwrapped", "wrapper_names"]

_DATA_PARALLEL = (nn.DataParallel, nn.parallel.DistributedDataParallel)


def unwrapped(model: nn.Module) -> nn.Module:
    """The module inside wrappers that pass their arguments on unchanged."""
    while (inner := _inside(model)) is not None and not _works(model):
        model = inner
    return model


def configured_model(model: nn.Module) -> nn.Module:
    """The module that configuration, vocabulary and head belong to, inside every wrapper."""
    while (inner := _inside(model)) is not None:
        model = inner
    return model


def wrapper_names(model: nn.Module) -> list[str]:
    """The classes of the wrappers, outermost first; adapters with their kind."""
    return [_described(wrapper) for wrapper in _wrappers(model)]


def is_compiled(model: nn.Module) -> bool:
    """Whether torch.compile stands around the model."""
    return any(hasattr(wrapper, "_orig_mod") for wrapper in _wrappers(model))


def unsharded(model: nn.Module) -> nn.Module:
    """The module inside its wrappers; what is no module, or spread over processes, is refused.

    `leadline.measure` and `leadline.watch` take what is spread, with all its processes.

    Nothing is touched before the refusal: a shard of a parameter is not the parameter.
    """
    check_module(model)
    refusal = _sharding(model)
    if refusal is not None:
        raise InputError(refusal)
    return unwrapped(model)


def _wrappers(model: nn.Module) -> Iterator[nn.Module]:
    while (inner := _inside(model)) is not None:
        yield model
        model = inner


def _inside(model: nn.Module) -> nn.Module | None:
    inner = getattr(model, "_orig_mod", None)
    if isinstance(model, _DATA_PARALLEL) or _is_a(model, "DeepSpeedEngine", "deepspeed"):
        inner = model.module
    elif _is_a(model, "PeftModel", "peft") or _is_a(model, "PeftMixedModel", "peft"):
        inner = model.get_base_model()  # pyright: ignore[reportCallIssue]
    elif _is_a(model, "BaseTuner", "peft"):
        inner = model.model
    return inner if isinstance(inner, nn.Module) and inner is not model else None


def _is_a(model: nn.Module, name: str, library: str) -> bool:
    """Whether a class of that name and library is among the model's."""
    return any(
        one.__name__ == name and one.__module__.partition(".")[0] == library
        for one in type(model).__mro__
    )


def _works(wrapper: nn.Module) -> bool:
    """Whether a wrapper does more than pass its arguments on."""
    if not _is_a(wrapper, "PeftModel", "peft"):
        return False
    config = getattr(wrapper, "active_peft_config", None)
    # X-LoRA runs the model twice, Poly wants the task, activated LoRA looks for its first token.
    return (
        bool(getattr(config, "is_prompt_learning", False))
        or getattr(config, "peft_type", None) in ("XLORA", "POLY")
        or bool(getattr(config, "alora_invocation_tokens", None))
    )


def _described(wrapper: nn.Module) -> str:
    name = type(wrapper).__name__
    configs = getattr(wrapper, "peft_config", None)
    if not isinstance(configs, dict):
        return name
    kinds = dict.fromkeys(str(getattr(c.peft_type, "value", c.peft_type)) for c in configs.values())
    return f"{name} ({', '.join(kinds)})"


# --- sharded models ------------------------------------------------------------------------------

_GATHER = (
    "gather its weights with torch.distributed.checkpoint.state_dict.get_model_state_dict(model, "
    "options=StateDictOptions(full_state_dict=True)), load them into an unsharded copy and measure "
    "that."
)


def _sharding(model: nn.Module) -> str | None:
    """The refusal of a model whose parameters are spread over processes; None for all others."""
    fsdp = sys.modules.get("torch.distributed.fsdp")
    tensors = sys.modules.get("torch.distributed.tensor")
    for module in model.modules():
        if fsdp is not None and isinstance(module, fsdp.FSDPModule):
            return (
                "The model is sharded by FSDP2 (torch.distributed.fsdp.fully_shard), so each "
                "process holds a part of its parameters only. leadline.measure and leadline.watch "
                "read it where every process calls them; everything else needs the model before "
                f"fully_shard, or {_GATHER}"
            )
        if fsdp is not None and isinstance(module, fsdp.FullyShardedDataParallel):
            return (
                "The model is sharded by FSDP (FullyShardedDataParallel), so each process holds a "
                "part of its parameters only, and a sharded model cannot be measured. Measure it "
                f"before it is wrapped, or {_GATHER}"
            )
    for name, parameter in model.named_parameters():
        if tensors is not None and isinstance(parameter, tensors.DTensor):
            return (
                f"The parameter '{name}' is a DTensor (tensor parallelism or parallelize_module), "
                "of which a process may hold a part only. leadline.measure reads such a model where "
                "every process calls it; everything else needs the model before it is distributed, "
                "or a plain copy with the weights of parameter.full_tensor()."
            )
        if hasattr(parameter, "ds_id") and hasattr(parameter, "ds_status"):
            return (
                f"The parameter '{name}' is partitioned by DeepSpeed (ZeRO-3), so each process "
                "holds a part of it only, and such a model cannot be measured. Measure the model "
                "before deepspeed.initialize, or load the consolidated checkpoint "
                "(zero_to_fp32.py) into a plain copy and measure that."
            )
    return None
