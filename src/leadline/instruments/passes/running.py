"""The passes of a measurement: read the anatomy, then one forward and one backward for all probes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import nn

from leadline.anatomy import (
    MIXING,
    Anatomy,
    AttentionSpy,
    Balance,
    Declaration,
    SeenAttention,
    Sublayer,
    Tap,
    model_pass,
    read_anatomy,
)
from leadline.anatomy.tap.output_projection import BranchProducts
from leadline.errors import InputError
from leadline.instruments.passes.collect import Collector
from leadline.instruments.passes.probe_plan import Plan
from leadline.instruments.passes.processes.gradients import gradient_norm
from leadline.instruments.passes.processes.sharding import fsdp_modules
from leadline.models.inputs import Inputs, Loss, context_limit, random_inputs
from leadline.models.inputs.forward_errors import forward_refusal
from leadline.models.inputs.lookup import lookup_refusal
from leadline.models.inputs.model_facts import forward_names, is_pair
from leadline.models.streaming.recomputing import recomputed

__all__ = ["FIT_LENGTH", "SMALL", "PassOutcome", "call", "few_threads", "fit_batch", "read", "run"]

SMALL = 2**28
"""Weights times tokens below which several threads wait for each other longer than they work."""
FIT_LENGTH = 32
"""Tokens of the random examples on which the anatomy is fitted."""


@dataclass
class PassOutcome:
    """The results of the measuring pass."""

    collector: Collector
    balance: Balance
    loss: float
    without_gradient: set[tuple[str, int]]
    shared_weights: list[str] = field(default_factory=list)
    foreign: dict[tuple[str, int, int], str] = field(
        default_factory=dict[tuple[str, int, int], str]
    )
    """Attention whose matrices do not run over the tokens of the stream, and why."""
    called_paths: set[str] = field(default_factory=set[str])
    """The names of the modules that ran."""


def call(module: nn.Module, batch: Inputs) -> Any:
    """One forward pass, without a key-value cache: it is of no use here and costs memory.

    The model gets copies of the inputs, because some change theirs in place.

    A table of the model that is too short for the inputs becomes an InputError; so does any
    refusal of inputs that were made here. Other exceptions of the model pass through unchanged.
    """
    extra: dict[str, Any] = {}
    if "use_cache" in forward_names(module) and "use_cache" not in batch.tensors:
        extra["use_cache"] = False
    tensors = {name: tensor.clone() for name, tensor in batch.tensors.items()}
    try:
        with model_pass():
            return module(**tensors, **extra)
    except Exception as error:
        refusal = lookup_refusal(error, module, batch) or forward_refusal(module, batch, error)
        if refusal is None:
            raise
        raise refusal from error


@contextmanager
def few_threads(module: nn.Module, batch: Inputs) -> Iterator[None]:
    """One thread for small work: many small products, each too short to be shared out."""
    threads = torch.get_num_threads()
    if sum(p.numel() for p in module.parameters()) * batch.main.numel() < SMALL:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def read(
    module: nn.Module,
    batch: Inputs,
    *,
    declared: Anatomy | Declaration | None,
    families: bool,
    seed: int,
) -> tuple[Anatomy, int]:
    """The anatomy, fitted on a small random batch and judged on the real inputs, and its passes.

    Where the model refuses random inputs, the fit gets the first half of the real examples.
    """
    passes = 0

    def counted(which: Inputs) -> Any:
        nonlocal passes
        passes += 1
        return call(module, which)

    anatomy = read_anatomy(
        module,
        _FitPass(module, batch, seed, counted),
        lambda: counted(batch),
        declared=declared,
        families=families,
    )
    return anatomy, passes


def fit_batch(
    module: nn.Module, batch: Inputs, seed: int, run_once: Callable[[Inputs], Any]
) -> Inputs:
    """Two random examples that the model takes, or the first half of the real ones."""
    try:
        small = _two_random(module, seed)
        with torch.no_grad():
            run_once(small)
        return small
    except Exception:
        return _narrowed(batch)


def _two_random(module: nn.Module, seed: int) -> Inputs:
    length = min(FIT_LENGTH, context_limit(module) or FIT_LENGTH)
    return random_inputs(module, examples=2, length=length, seed=seed + 1)


class _FitPass:
    """Runs the batch of `fit_batch`: whether the model takes it is seen by the first pass itself.

    A model that says what its anatomy is makes no such pass.
    """

    def __init__(
        self, module: nn.Module, batch: Inputs, seed: int, run_once: Callable[[Inputs], Any]
    ) -> None:
        self._module, self._batch, self._seed = module, batch, seed
        self._run_once = run_once
        self._small: Inputs | None = None

    def __call__(self) -> Any:
        if self._small is None:
            try:
                small = _two_random(self._module, self._seed)
                output = self._run_once(small)
            except Exception:
                self._small = _narrowed(self._batch)
            else:
                self._small = small
                return output
        return self._run_once(self._small)


def _narrowed(batch: Inputs) -> Inputs:
    """The first half of the examples, at least one, where the first axis counts examples.

    Beside a grid of patches per example, it may count the patches of all examples.
    """
    examples = batch.main.shape[0] if batch.main.ndim else 1
    if examples < 2:
        return batch
    half = examples // 2
    grid = next((t for name, t in batch.tensors.items() if name.endswith("grid_thw")), None)
    patches = None if grid is None or grid.shape[0] != examples else grid.prod(dim=1)

    def cut(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.ndim and tensor.shape[0] == examples:
            return tensor[:half]
        if patches is not None and tensor.ndim and tensor.shape[0] == int(patches.sum()):
            return tensor[: int(patches[:half].sum())]
        return tensor

    return replace(batch, tensors={name: cut(tensor) for name, tensor in batch.tensors.items()})


def run(
    module: nn.Module,
    anatomy: Anatomy,
    plan: Plan,
    batch: Inputs,
    loss: Loss,
    *,
    collect: Callable[..., Collector] = Collector,
    norms_of: Callable[[Mapping[str, Sublayer]], dict[str, torch.Tensor]] | None = None,
) -> PassOutcome:
    """One forward pass with the tap on, then one backward pass if a probe asks for it.

    With `norms_of` the gradients of parameters are left for it to read when the pass is over.
    """
    products = BranchProducts() if plan.branches else None
    collector = collect(
        plan,
        batch.mask,
        decoder_mask=batch.decoder_mask,
        pair=is_pair(module),
        products=products,
    )
    tap = Tap(module, anatomy, collector, gradients=bool(plan.seeing("gradient")))
    foreign: dict[tuple[str, int, int], str] = {}
    called_paths: set[str] = set()
    spy = nullcontext()
    if plan.attention:
        spy = _spy(module, tap, collector, foreign, products)
    shared_weights: list[str] = []
    owners = _owners(module, anatomy, shared_weights) if plan.seeing("parameters") else {}
    if not plan.backward:
        with torch.no_grad():
            with tap, spy, _calls(module, called_paths):
                output = call(module, batch)
            collector.settle()
            value = loss.compute(output, batch)
        return PassOutcome(
            collector,
            tap.balance(),
            float(value),
            tap.without_gradient,
            foreign=foreign,
            called_paths=called_paths,
        )
    norms: dict[str, torch.Tensor] = {}
    reduced = _parameter_norms(module, owners, norms) if norms_of is None else nullcontext()
    # Gradients that no probe reads are not computed; that of a large output head costs most.
    # Modules of FSDP2 remember which they need.
    if not fsdp_modules(module):
        for name, parameter in module.named_parameters():
            parameter.requires_grad_(parameter.requires_grad and name in owners)
    with torch.enable_grad(), reduced, recomputed(module, anatomy):
        with tap, spy, _calls(module, called_paths):
            output = call(module, batch)
        collector.settle()
        value = loss.compute(output, batch)
        if not value.requires_grad:
            raise InputError(
                "The loss does not depend on any tensor that carries a gradient, so there is no "
                "backward pass; leave out the probe 'gradient' (probes='stream', --probes stream)."
            )
        value.backward()
    if norms_of is not None:
        norms = norms_of(owners)
    _hand_over(anatomy, owners, norms, collector)
    balance, number = tap.balance(), float(value.detach())
    return PassOutcome(
        collector, balance, number, tap.without_gradient, shared_weights, foreign, called_paths
    )


@contextmanager
def _calls(module: nn.Module, called_paths: set[str]) -> Iterator[None]:
    """Note the names of every module that is called: one that is shared has several."""

    def note(name: str) -> Callable[..., None]:
        return lambda *_: called_paths.add(name)

    handles = [
        part.register_forward_pre_hook(note(name))
        for name, part in module.named_modules(remove_duplicate=False)
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _spy(
    module: nn.Module,
    tap: Tap,
    collector: Collector,
    foreign: dict[tuple[str, int, int], str],
    products: BranchProducts | None,
) -> AttentionSpy:
    """A spy that hands every attention of a sublayer of the anatomy to the collector."""

    def listen(attention: SeenAttention) -> None:
        place = tap.locate(attention.module)
        if place is None or place[2].role not in MIXING:
            return
        stack, block, write = place
        grid = attention.weights if attention.weights is not None else attention.query
        assert grid is not None
        if attention.ambiguous and attention.query_source is None:
            foreign[stack.name, block.layer, write.sublayer] = (
                f"heads and examples cannot be told apart in {grid.shape[0]} x {grid.shape[1]} "
                "matrices; measure one example (examples=1, --random 1x128), or another number of them"
            )
            return
        if grid.shape[2] != tap.tokens:
            foreign[stack.name, block.layer, write.sublayer] = (
                f"its matrices have {grid.shape[2]} rows and the stream {tap.tokens} tokens: it "
                "runs over windows, chunks or something else than tokens"
            )
            return
        collector.attention(stack, block, write, attention)

    return AttentionSpy(module, listen, examples=lambda: tap.examples, branches=products)


def _owners(module: nn.Module, anatomy: Anatomy, shared_weights: list[str]) -> dict[str, Sublayer]:
    """Parameter name -> its sublayer. Weights that serve several layers cannot be split."""
    owners: dict[str, Sublayer] = {}
    served: dict[int, set[int]] = {}
    for stack in anatomy.stacks:
        if stack.shared:
            shared_weights.append(f"gradient.parameters of the {stack.name}")
            continue
        for block in stack.blocks:
            for s in block.sublayers:
                for name in s.parameters:
                    owners.setdefault(name, s)
                    served.setdefault(id(module.get_parameter(name)), set()).add(id(s))
    tied = [name for name in owners if len(served[id(module.get_parameter(name))]) > 1]
    shared_weights += [f"gradient of '{name}'" for name in tied]
    return {name: s for name, s in owners.items() if name not in tied}


@contextmanager
def _parameter_norms(
    module: nn.Module, owners: Mapping[str, Sublayer], norms: dict[str, torch.Tensor]
) -> Iterator[None]:
    """Reduce every parameter's gradient to its norm as soon as it is complete, then let it go."""
    names = {id(p): n for n, p in module.named_parameters()}
    handles: list[Any] = []

    def reduce(parameter: torch.Tensor) -> None:
        gradient, parameter.grad = parameter.grad, None
        name = names[id(parameter)]
        if gradient is None or name not in owners:
            return
        norms[name] = gradient_norm(gradient)

    try:
        for parameter in module.parameters():
            if parameter.requires_grad:
                handles.append(parameter.register_post_accumulate_grad_hook(reduce))
        yield
    finally:
        for handle in handles:
            handle.remove()


def _hand_over(
    anatomy: Anatomy,
    owners: Mapping[str, Sublayer],
    norms: Mapping[str, torch.Tensor],
    collector: Collector,
) -> None:
    for stack in anatomy.stacks:
        for block in stack.blocks:
            for s in block.sublayers:
                own_norms = [norms[p] for p in s.parameters if p in norms and owners[p] is s]
                if own_norms:
                    total = torch.linalg.vector_norm(torch.stack(own_norms))
                    collector.parameters(stack, block, s, total)
