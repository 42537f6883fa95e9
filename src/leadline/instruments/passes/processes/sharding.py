"""How the parameters of a model lie in the processes of a run.

replicated   each has all of them (data parallelism, or one process)
fsdp         FSDP2: each has a part, and gathers the whole by itself when a layer runs
tensor       tensor parallelism: each has a part, and every pass needs all processes
foreign      FSDP1 or ZeRO-3: each has a part, in a form that is not read here
"""

from __future__ import annotations

import sys
from typing import Any, Literal

from torch import nn

__all__ = ["Sharding", "fsdp_modules", "plain_class", "sharding_of"]

Sharding = Literal["replicated", "fsdp", "tensor", "foreign"]


def sharding_of(module: nn.Module) -> Sharding:
    """How the parameters of a model lie in the processes."""
    fsdp = sys.modules.get("torch.distributed.fsdp")
    tensors = sys.modules.get("torch.distributed.tensor")
    if fsdp is not None and any(
        isinstance(one, fsdp.FullyShardedDataParallel) for one in module.modules()
    ):
        return "foreign"
    parameters = list(module.parameters())
    if any(hasattr(one, "ds_id") and hasattr(one, "ds_status") for one in parameters):
        return "foreign"
    spread: list[Any] = [
        one for one in parameters if tensors is not None and isinstance(one, tensors.DTensor)
    ]
    if not spread and not fsdp_modules(module):
        return "replicated"
    shards = [sum(not place.is_replicate() for place in one.placements) for one in spread]
    return "fsdp" if fsdp_modules(module) and max(shards, default=0) < 2 else "tensor"


def fsdp_modules(module: nn.Module) -> list[Any]:
    """The modules that fully_shard was called on."""
    fsdp = sys.modules.get("torch.distributed.fsdp")
    if fsdp is None:
        return []
    return [one for one in module.modules() if isinstance(one, fsdp.FSDPModule)]


def plain_class(module: nn.Module) -> type[nn.Module]:
    """The class of a module before fully_shard put its own in front."""
    fsdp = sys.modules.get("torch.distributed.fsdp")
    is_sharded = fsdp is not None and isinstance(module, fsdp.FSDPModule)
    # As FSDP2 itself finds it.
    return type(module).__mro__[2] if is_sharded else type(module)
