"""Training loops that tests run in one process or in several, with and without a watch.

As a script this is one process of several: `watched_processes.py FOLDER RANK COUNT PORT` runs the loops
of FOLDER/loops.json one after the other, over gloo on this machine, and leaves what it saw in
FOLDER/RANK.json. All loops see the same batches: process r of P has the r-th part of each.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional as F

import leadline as ll
from leadline.errors import TrainingStopped
from tests.plain_gpt import PlainGPT

__all__ = ["FAULTS", "built", "run_loop"]

EXAMPLES, TOKENS = 6, 12
FAULTS = {
    "beginning": "leadline.lab.watch.beginning.WeightReader.__init__",
    "arming": "leadline.lab.watch.layers.LayerReader.arm",
    "forward": "leadline.lab.watch.layers.LayerReader._begin",
    "proof": "leadline.lab.watch.layers.prove_anatomy",
    "tap": "leadline.lab.watch.sampling.sample.Sample.begin",
    "probe": "leadline.lab.watch.gauges.LayerGauges.stream",
    "gradient": "leadline.lab.watch.gauges.LayerGauges.gradient",
    "losses": "leadline.lab.watch.losses.keeper.LossKeeper.hear",
    "optimizer": "leadline.lab.watch.weights.optimizers.StepReading.begin",
    "weights": "leadline.lab.watch.weights.optimizers.StepReading.end",
    "reading": "leadline.lab.watch.sampling.sample.Sample.readings",
    "sending": "leadline.lab.watch.processes.parts.RankPart.message",
    "joining": "leadline.lab.watch.processes.ranks.joined_layers",
    "collecting": "leadline.instruments.passes.processes.mailbox.Mailbox.collect",
    "store": "leadline.instruments.passes.processes.mailbox.Mailbox.send",
    "writing": "leadline.lab.watch.writer.RunWriter.write",
    "alarms": "leadline.lab.watch.bell.Bell.ask",
    "closing": "leadline.lab.watch.course.WatchCourse._close_record",
    "leaving": "leadline.instruments.passes.processes.mailbox.Mailbox.leave",
}
"""Where a monitor may fail, by what is made to fail."""
PATIENCE = (
    "leadline.lab.watch.processes.ranks.PATIENCE",
    "leadline.lab.watch.processes.ranks.LONGEST",
    "leadline.instruments.passes.processes.gathered.LATEST",
    "leadline.instruments.passes.processes.gathered.LONGEST",
)
"""How long processes wait for each other."""


class Unused(nn.Module):
    """A model with a head that no loss depends on."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model, self.spare = model, nn.Linear(8, 8)

    def forward(self, ids: Tensor) -> Tensor:
        return self.model(ids)


def run_loop(loop: dict[str, Any], folder: Path, rank: int = 0, count: int = 1) -> dict[str, Any]:
    """Run one loop in this process, as its facts say, and return what was seen."""
    model, called, anatomy = built(loop, rank, count)
    optimizer = torch.optim.AdamW(called.parameters(), lr=0.01, weight_decay=0.1)
    seen: dict[str, Any] = {"losses": [], "gradients": [], "stopped": None, "should_stop": []}
    watched: Any = None
    with ExitStack() as stack:
        if loop.get("fault") and rank in loop.get("faulty", [rank]):
            stack.enter_context(_fault(loop["fault"]))
        if loop.get("patience"):
            for name in PATIENCE:
                stack.enter_context(mock.patch(name, loop["patience"]))
        if loop.get("watch") is not None and rank in loop.get("watching", [rank]):
            options = dict(loop["watch"])
            options["every"] = options.get("every", 2) + loop.get("later", 0) * rank
            if rank and loop.get("own"):  # only the first process is asked for it
                del options[loop["own"]]
            given = model if loop.get("given") == "inner" else called
            watched = ll.watch(
                given,
                None if loop.get("nameless") else optimizer,
                folder / f"{loop['name']}.leadline",
                quiet=True,
                anatomy=anatomy if rank in loop.get("anatomy", ()) else None,
                **options,
            )
            stack.callback(watched.close)
        try:
            _steps(loop, called, optimizer, watched, seen, rank=rank, count=count)
        except TrainingStopped as error:
            seen["stopped"] = str(error)
    seen["weights"] = _digest(called.parameters())
    if watched is not None:
        watched.close()
        seen |= {
            "notes": watched.notes,
            "step": watched.step,
            "every": getattr(watched, "every", 0),
        }
    return seen


def built(loop: dict[str, Any], rank: int, count: int) -> tuple[nn.Module, nn.Module, Any]:
    """The model, what the loop calls, and the anatomy from before, where one is asked for."""
    torch.manual_seed(rank if loop.get("seeds") else 0)
    model: nn.Module = _llama() if loop.get("model") == "llama" else PlainGPT(["", "", ""])
    if isinstance(model, PlainGPT):
        for block in model.h:
            # It moves nothing: its gradient is rounding, and so would be what the optimizer makes
            # of it.
            block.attn.k.bias.requires_grad_(False)
    if loop.get("double"):
        model = model.double()
    if loop.get("unused"):
        model = Unused(model)
    anatomy = ll.anatomy_of(model, _ids(999)) if loop.get("anatomy") else None
    kind = loop["kind"]
    called = model
    if kind == "ddp":
        options = dict(loop.get("ddp", {}))
        if options.pop("compiled", False):
            model = torch.compile(model, backend="eager")  # type: ignore[assignment]
        called = nn.parallel.DistributedDataParallel(model, **options)
    elif kind == "fsdp":
        _shard(model, loop, count)
    elif kind == "tensor":
        _split(model)
    elif kind == "old fsdp":
        from torch.distributed.fsdp import FullyShardedDataParallel

        called = FullyShardedDataParallel(
            model, device_id=torch.device("cpu"), use_orig_params=True
        )
    return model, called, anatomy


def _shard(model: Any, loop: dict[str, Any], count: int) -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    mesh = init_device_mesh("cpu", (count,))
    if loop.get("replicas"):
        mesh = init_device_mesh("cpu", (count, 1), mesh_dim_names=("replicas", "parts"))
    options: dict[str, Any] = {"mesh": mesh, **loop.get("fsdp", {})}
    if loop.get("half"):
        options["mp_policy"] = MixedPrecisionPolicy(param_dtype=torch.bfloat16)
    for block in model.h:
        fully_shard(block, **options)
    fully_shard(model, **options)


def _llama() -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=97,
            hidden_size=32,
            intermediate_size=160,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=64,
            attn_implementation="eager",
        )
    )


def _split(model: Any) -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        RowwiseParallel,
        parallelize_module,
    )

    plan: dict[str, Any] = {}
    for layer in range(len(model.model.layers)):
        for name in ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"):
            plan[f"model.layers.{layer}.{name}"] = ColwiseParallel()
        for name in ("mlp.gate_proj", "mlp.up_proj"):
            plan[f"model.layers.{layer}.{name}"] = ColwiseParallel()
        for name in ("self_attn.o_proj", "mlp.down_proj"):
            plan[f"model.layers.{layer}.{name}"] = RowwiseParallel()
    parallelize_module(model, init_device_mesh("cpu", (dist.get_world_size(),)), plan)


def _ids(step: int) -> Tensor:
    generator = torch.Generator().manual_seed(step)
    return torch.randint(97, (EXAMPLES, TOKENS + 1), generator=generator)


def _part(loop: dict[str, Any], step: int, rank: int, count: int) -> Tensor:
    ids = _ids(step)
    if loop["kind"] == "tensor":
        return ids
    if loop.get("uneven"):
        return ids[:1] if rank else ids[1:]
    return ids.chunk(count)[rank]


def _loss(model: nn.Module, ids: Tensor) -> Tensor:
    output = model(ids[:, :-1])
    logits = getattr(output, "logits", output)
    return F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())


def _steps(
    loop: dict[str, Any],
    model: Any,
    optimizer: Any,
    watched: Any,
    seen: dict[str, Any],
    *,
    rank: int,
    count: int,
) -> None:
    for step in range(1, loop.get("steps", 5) + 1):
        if step == loop.get("raises") and rank == 1:
            raise RuntimeError("the loop of the second process fails")
        if loop.get("meets"):
            dist.barrier()
        if step == loop.get("breaks"):
            with torch.no_grad():
                next(model.parameters()).mul_(float("nan"))
        parts = _part(loop, step, rank, count).chunk(loop.get("micro", 1))
        for number, ids in enumerate(parts):
            last = number == len(parts) - 1
            with _unsynchronised(loop, model) if not last else nullcontext():
                loss = _loss(model, ids) / len(parts)
                loss.backward()
            seen["losses"].append(loss.item())
        if loop.get("clip"):
            nn.utils.clip_grad_norm_(model.parameters(), loop["clip"])
        seen["gradients"].append(_digest(one.grad for one in model.parameters()))
        optimizer.step()
        optimizer.zero_grad()
        if loop.get("asks") and watched is not None:
            seen["should_stop"].append(watched.should_stop)
            if seen["should_stop"][-1]:
                break


@contextmanager
def _unsynchronised(loop: dict[str, Any], model: Any) -> Iterator[None]:
    if loop["kind"] == "ddp":
        with model.no_sync():
            yield
    elif loop["kind"] == "fsdp":
        model.set_requires_gradient_sync(False)
        yield
        model.set_requires_gradient_sync(True)
    else:
        yield


def _digest(tensors: Any) -> str:
    digest = hashlib.sha256()
    for tensor in tensors:
        part = getattr(tensor, "_local_tensor", tensor)
        digest.update(b"none" if part is None else part.detach().contiguous().numpy().tobytes())
    return digest.hexdigest()


@contextmanager
def _fault(name: str) -> Iterator[None]:
    def fail(*_: Any, **__: Any) -> Any:
        raise RuntimeError(f"a fault in {name}")

    with mock.patch(FAULTS[name], fail):
        yield


def main(folder: Path, rank: int, count: int, port: int) -> None:
    """Run the loops of the folder one after the other."""
    torch.set_num_threads(1)
    loops = json.loads((folder / "loops.json").read_text())
    store = None if port else dist.FileStore(str(folder / "store"), count)
    where: dict[str, Any] = {"init_method": f"tcp://127.0.0.1:{port}"} if port else {"store": store}
    dist.init_process_group(
        "gloo", rank=rank, world_size=count, timeout=timedelta(seconds=60), **where
    )
    seen: dict[str, Any] = {}
    for loop in loops:
        seen[loop["name"]] = run_loop(loop, folder, rank, count)
        (folder / f"{rank}.json").write_text(json.dumps(seen))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
