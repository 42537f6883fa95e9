"""Prove the anatomy of a model that FSDP2 has sharded, without a pass that needs all processes.

The proof runs blocks again and takes gradients inside, as often as the model needs; were every pass
to gather weights, a process that fails on the way would leave the others waiting. So the weights are
gathered once, by all processes, after all of them have said that they are ready. Then the first
process proves alone: the hooks of FSDP2 are off meanwhile and nothing is exchanged. The others let
the weights go at once and wait for the anatomy.

Nobody waits forever: a process that is ready and hears nothing takes its word back, and the first
process counts on nobody whose word it could not exchange for its own.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import nn

from leadline.anatomy import Anatomy, Block, Stack, Sublayer
from leadline.anatomy.structure import Port
from leadline.errors import AnatomyError
from leadline.instruments.passes.processes.mailbox import Mailbox, Message, waiting_time
from leadline.instruments.passes.processes.sharding import fsdp_modules, plain_class

__all__ = [
    "anatomy_facts",
    "anatomy_from_facts",
    "decline",
    "gathered",
    "memory_hindrance",
    "prove_gathered",
]

LATEST = 120.0
"""Seconds that a process may come later than the first one to its first pass."""
LONGEST = 1800.0
"""Seconds that the others wait for the first process to end a proof or a sample."""
SHARE = 0.5
"""Of the free memory so much may be filled with gathered weights."""
READY, GONE, COUNTED_ON = "ready", "gone", "counted on"
"""What a process says about a proof, takes back, or is held to."""
_ANSWER, _VERDICT, _ANATOMY = "answer", "verdict", "anatomy"
_GIVE = "give anatomy=leadline.anatomy_of(model, inputs), made before fully_shard"


def prove_gathered(module: nn.Module, prove: Callable[[], Anatomy], mailbox: Mailbox) -> Anatomy:
    """The anatomy that the first process proves on gathered weights; the same in all processes."""
    if mailbox.rank == 0:
        return _prove_for_all(module, prove, mailbox)
    if not mailbox.join(until=time.monotonic() + waiting_time(LATEST)):
        raise AnatomyError("The first process does not watch; put the line into every process.")
    if mailbox.has(_ANSWER, mailbox.rank):
        raise AnatomyError("This process has declined a proof before.")
    mailbox.mark(_ANSWER, READY)
    verdict = mailbox.read(_VERDICT, 0, until=time.monotonic() + waiting_time(LATEST))
    if verdict is None and not mailbox.exchange(_ANSWER, mailbox.rank, READY, GONE):
        # The first process counts on this one, and its verdict is on its way.
        verdict = mailbox.read(_VERDICT, 0, until=time.monotonic() + waiting_time(LATEST))
    if verdict is None or verdict.facts["why"]:
        raise AnatomyError(_no_verdict() if verdict is None else verdict.facts["why"])
    for part in fsdp_modules(module):
        part.unshard()
        part.reshard()
    answer = mailbox.read(_ANATOMY, 0, until=time.monotonic() + waiting_time(LONGEST))
    if answer is None or answer.facts["why"]:
        raise AnatomyError(_no_verdict() if answer is None else answer.facts["why"])
    return anatomy_from_facts(answer.facts["anatomy"])


def decline(mailbox: Mailbox, why: str) -> None:
    """Tell the others that this process will not take part in a proof, if there has been none."""
    if mailbox.rank == 0:
        if not mailbox.has(_VERDICT, 0):
            mailbox.send(_VERDICT, Message({"why": f"The first process declined: {why}."}))
    elif not mailbox.has(_ANSWER, mailbox.rank):
        mailbox.mark(_ANSWER, why)


def _prove_for_all(module: nn.Module, prove: Callable[[], Anatomy], mailbox: Mailbox) -> Anatomy:
    if mailbox.has(_VERDICT, 0):
        raise AnatomyError("The proof was tried before, and the processes gather once only.")
    why = "The first process failed before the proof."
    try:
        why = _hindrance(module, mailbox)
    finally:
        mailbox.send(_VERDICT, Message({"why": why}))
    if why:
        raise AnatomyError(why)
    answer: dict[str, Any] = {"why": "The proof failed in the first process."}
    try:
        with gathered(module):
            anatomy = prove()
        answer = {"why": "", "anatomy": anatomy_facts(anatomy)}
        return anatomy
    except Exception as error:
        answer["why"] = str(error)
        raise error if isinstance(error, AnatomyError) else AnatomyError(str(error)) from error
    finally:
        mailbox.send(_ANATOMY, Message(answer))


def _hindrance(module: nn.Module, mailbox: Mailbox) -> str:
    """Why the weights are not gathered; empty where nothing is in the way."""
    if why := memory_hindrance(module):
        return why
    until = time.monotonic() + waiting_time(LATEST)
    for sender in range(1, mailbox.count):
        answer = mailbox.word(_ANSWER, sender, until=until)
        if answer is None or answer == GONE:
            return (
                f"Process {sender} did not take part in the proof, which gathers all weights; put "
                f"the same line into every process, or {_GIVE}."
            )
        if answer != READY:
            return f"Process {sender} did not take part in the proof: {answer}."
    for sender in range(1, mailbox.count):
        if not mailbox.exchange(_ANSWER, sender, READY, COUNTED_ON):
            return f"Process {sender} waited too long for the proof; {_GIVE}."
    return ""


def memory_hindrance(module: nn.Module) -> str:
    """Why the weights do not fit into the free memory; empty where they do."""
    needed = sum(one.numel() * one.element_size() for one in module.parameters())
    free = _free_memory(next(module.parameters()).device)
    if free is None or needed <= SHARE * free:
        return ""
    return (
        f"The proof gathers all weights, {needed / 1e9:.1f} GB, and {free / 1e9:.1f} GB are "
        f"free; {_GIVE}."
    )


def anatomy_facts(anatomy: Anatomy) -> dict[str, Any]:
    """What the other processes need of an anatomy: its equations, without the balance."""
    writes = [w for stack in anatomy.stacks for block in stack.blocks for w in block.sublayers]
    if any(write.law is not None for write in writes):
        raise AnatomyError(f"Its writes follow laws of its own modules; {_GIVE}.")
    return {"source": anatomy.source, "stacks": [asdict(stack) for stack in anatomy.stacks]}


def anatomy_from_facts(facts: dict[str, Any]) -> Anatomy:
    """The anatomy of what `anatomy_facts` said."""

    def block(one: dict[str, Any]) -> Block:
        writes = tuple(
            Sublayer(**{**write, "parameters": tuple(write["parameters"])})
            for write in one["sublayers"]
        )
        ports = {side: Port(**one[side]) for side in ("entry", "exit")}
        return Block(**{**one, **ports, "sublayers": writes})

    stacks = [
        Stack(**{**stack, "blocks": tuple(map(block, stack["blocks"]))})
        for stack in facts["stacks"]
    ]
    return Anatomy(tuple(stacks), facts["source"])


def _no_verdict() -> str:
    return "The first process said nothing about the anatomy."


@contextmanager
def gathered(module: nn.Module) -> Iterator[None]:
    """Hold the whole weights in this process, and none of the hooks of FSDP2.

    All processes have to gather; from then on nothing in here is exchanged between them.
    """
    parts = fsdp_modules(module)
    with ExitStack() as stack:
        for part in parts:
            stack.callback(part.reshard)
            part.unshard()
        for part in parts:
            _undress(part, stack)
        yield


def _undress(part: nn.Module, stack: ExitStack) -> None:
    """Take hooks and class of FSDP2 off one module; casts of mixed precision stay."""
    state: Any = None
    for hooks in (part._forward_pre_hooks, part._forward_hooks):
        ours = [key for key, hook in hooks.items() if _is_of_fsdp(hook)]
        before = dict(hooks)
        stack.callback(hooks.update, before)
        stack.callback(hooks.clear)
        for key in ours:
            state = state or getattr(hooks[key], "__self__", None)
            del hooks[key]
    # Where composable wrappers of torch keep their state; a block is copied to run in float32.
    kept = {name: value for name, value in vars(part).items() if _is_kept_by_torch(value)}
    stack.callback(vars(part).update, kept)
    for name in kept:
        del vars(part)[name]
    stack.callback(setattr, part, "__class__", type(part))
    part.__class__ = plain_class(part)
    if state is None:
        return
    policy = getattr(state, "_mp_policy", None)
    if getattr(policy, "param_dtype", None) is not None:
        cast = _Cast(state._cast_forward_inputs)
        handle = part.register_forward_pre_hook(cast, prepend=True, with_kwargs=True)
        stack.callback(handle.remove)
    if getattr(policy, "output_dtype", None) is not None:
        cast = _Cast(lambda _, output: state._cast_output_dtype(output))
        stack.callback(part.register_forward_hook(cast).remove)


class _Cast:
    """A hook that casts what enters or leaves a module; a copy of the module has it no more.

    A block in half precision is fitted on a float32 copy.
    """

    def __init__(self, cast: Callable[[Any, Any], Any]) -> None:
        self._cast = cast

    def __call__(self, _: nn.Module, first: Any, second: Any) -> Any:
        return self._cast(first, second)

    def __deepcopy__(self, memo: dict[int, Any]) -> Callable[..., None]:
        return _nothing


def _nothing(*_: Any) -> None:
    pass


def _is_of_fsdp(hook: Any) -> bool:
    return _is_from("torch.distributed.fsdp", getattr(hook, "__self__", None))


def _is_kept_by_torch(value: Any) -> bool:
    return isinstance(value, dict) and any(
        _is_from("torch.distributed", one) for one in value.values()
    )


def _is_from(package: str, value: object) -> bool:
    return any(one.__module__.startswith(package) for one in type(value).__mro__)


def _free_memory(device: torch.device) -> int | None:
    """Free bytes where weights are gathered; None where nobody knows."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    found = [line.split()[1] for line in lines if line.startswith("MemAvailable:")]
    return int(found[0]) * 1024 if device.type == "cpu" and found else None
