"""Measurements that tests make in one process or in several.

As a script this is one process of several: `measured_processes.py FOLDER RANK COUNT PORT` makes the
measurements of FOLDER/cases.json one after the other, over gloo on this machine, and leaves what came of
them in FOLDER/RANK.json.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
from torch import Tensor, nn

import leadline as ll
from tests.watched_processes import built

__all__ = ["FAULTS", "measured"]

FAULTS = {
    "inputs": "leadline.instruments.passes.measurement.batch_for",
    "anatomy": "leadline.instruments.passes.measuring.read",
    "loss": "leadline.models.inputs.losses._mean_cross_entropy",
    "probe": "leadline.instruments.passes.probes.stream.StreamProbe.stream",
    "gradient": "leadline.instruments.passes.probes.gradient.GradientProbe.gradient",
    "norms": "leadline.instruments.passes.processes.gradients.gradient_norm",
    "joining": "leadline.instruments.passes.processes.whole.joined_readings",
    "record": "leadline.instruments.passes.processes.measuring.add_facts",
}
"""Where a measurement may fail, by what is made to fail."""


def measured(case: dict[str, Any], folder: Path, rank: int = 0, count: int = 1) -> dict[str, Any]:
    """Make one measurement in this process, as its facts say, and return what came of it."""
    torch.manual_seed(0)
    _, model, anatomy = built(case, rank, count)
    before = {name: one.detach() for name, one in model.named_parameters()}
    facts: dict[str, Any] = {"error": None, "rows": None}
    with ExitStack() as stack:
        if case.get("patience"):
            name = "leadline.instruments.passes.processes.convoy.ARRIVAL"
            stack.enter_context(mock.patch(name, case["patience"]))
        if case.get("fault") and rank in case["faulty"]:
            fault = _end_from_outside if case.get("killed") else _fail(case["fault"])
            stack.enter_context(mock.patch(FAULTS[case["fault"]], fault))
        if case.get("killed"):
            name = "leadline.instruments.passes.processes.pulse.SILENCE"
            stack.enter_context(mock.patch(name, 4.0))
        try:
            if rank in case.get("absent", []):
                raise RuntimeError("absent")
            record = ll.measure(
                model,
                inputs(case, rank, count),
                path=folder / f"{case['name']}.leadline",
                anatomy=anatomy if rank in case.get("anatomy", ()) else None,
                **case.get("measure", {}),
            )
            facts["rows"] = [
                [one.quantity, str(one.site), one.statistic, one.value, one.lower, one.upper]
                for one in record.select()
            ]
            facts["notes"] = record.provenance
        except Exception as error:
            facts["error"] = f"{type(error).__name__}: {error}"
    facts["same"] = all(
        torch.equal(_local(one), _local(before[name])) and one.grad is None
        for name, one in model.named_parameters()
    )
    facts["trains"] = _trains(model, case, rank, count) if case.get("trains") else None
    return facts


def inputs(case: dict[str, Any], rank: int, count: int) -> Tensor | dict[str, Tensor] | None:
    """The part of a process of six examples, the last two shorter than the others."""
    if case.get("inputs") == "none":
        return None
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(97, (6, 12), generator=generator)
    if case.get("masked"):
        mask = torch.ones_like(ids)
        mask[4:, 9:] = 0
        whole = {"input_ids": ids, "attention_mask": mask}
    else:
        whole = {"": ids}
    if case["kind"] != "tensor" and not case.get("shared"):
        first = {True: [0, 4, 6], False: [0, 3, 6]}[bool(case.get("uneven"))]
        rows = slice(0, 6) if count == 1 else slice(first[rank], first[rank + 1])
        whole = {name: tensor[rows] for name, tensor in whole.items()}
    return whole.get("", whole)


def _local(tensor: Any) -> Tensor:
    return getattr(tensor, "_local_tensor", tensor)


def _fail(name: str) -> Any:
    def fail(*_: Any, **__: Any) -> Any:
        raise RuntimeError(f"a fault in {name}")

    return fail


def _end_from_outside(*_: Any, **__: Any) -> Any:
    os.kill(os.getpid(), signal.SIGKILL)


def _trains(model: nn.Module, case: dict[str, Any], rank: int, count: int) -> list[float]:
    """The losses of three steps afterwards: what was left behind would change them."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    ids: Any = inputs(case | {"masked": False, "inputs": ""}, rank, count)
    losses: list[float] = []
    for _ in range(3):
        output = model(ids)
        logits = getattr(output, "logits", output)
        loss = nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


def main(folder: Path, rank: int, count: int, port: int) -> None:
    """Make the measurements of the folder one after the other."""
    torch.set_num_threads(1)
    cases = json.loads((folder / "cases.json").read_text())
    dist.init_process_group(
        "gloo",
        rank=rank,
        world_size=count,
        timeout=timedelta(seconds=60),
        init_method=f"tcp://127.0.0.1:{port}",
    )
    outcomes: dict[str, Any] = {}
    for case in cases:
        outcomes[case["name"]] = measured(case, folder, rank, count)
        (folder / f"{rank}.json").write_text(json.dumps(outcomes))
        if case.get("killed"):
            os._exit(0)  # the others are gone, and torch would wait for them
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
