"""measure(model, inputs) -> Record: read the anatomy, then one forward and one backward pass.

The anatomy takes a few small forward passes and one on the real inputs, and is judged again during
the measuring pass itself; its balance goes into the record, and so does the number of passes of
each kind. All probes share the measuring passes. The model is left as it was.
"""

from __future__ import annotations

import importlib.metadata
import math
import platform
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from os import PathLike
from typing import Any

import torch
from torch import nn

from leadline.anatomy import (
    Anatomy,
    Balance,
    Declaration,
    check_measurable,
    configured_model,
    is_compiled,
    refuse_imbalance,
    unsharded,
    untouched,
    wrapper_names,
)
from leadline.anatomy.find.trace import trace_calls
from leadline.catalog import Choice
from leadline.errors import (
    AnatomyError,
    InputError,
    ProbeError,
    check_path,
    check_progress,
    check_seed,
    check_text,
    shown,
)
from leadline.instruments.passes.ablation import ablate as leave_out
from leadline.instruments.passes.coverage import coverage_of, with_linear
from leadline.instruments.passes.linearising import Linearising
from leadline.instruments.passes.plan import Plan, plan
from leadline.instruments.passes.running import (
    Done,
    batch_for,
    call,
    few_threads,
    head_of,
    read,
    run,
)
from leadline.instruments.passes.sameness import (
    declared_digest,
    digest_of,
    function_facts,
    structure_of,
)
from leadline.instruments.passes.unseen import nothing_seen
from leadline.models.inputs import Inputs, Loss, choose_loss
from leadline.models.loading import LoadedModel
from leadline.numerics.half_precision import half_route
from leadline.record import Finding, Record, Site
from leadline.record.file.lock import only_writer
from leadline.record.file.unfinished import (
    GrowingRecord,
    refuse_foreign,
    refuse_unfinished,
    resume_record,
)

__all__ = [
    "Progress",
    "anatomy_of",
    "broken_tensor",
    "known_anatomy",
    "measure",
    "model_facts",
    "modules_of",
    "refuse_broken",
    "refuse_broken_inputs",
    "tokenizer_for",
    "versions",
]

Progress = Callable[[str, int, int], None]
"""Called with what is being done, the steps done and the steps in all."""


def measure(
    model: nn.Module | LoadedModel,
    inputs: Any = None,
    *,
    probes: str | Sequence[str | Choice | Mapping[str, Any]] | None = None,
    loss: str | Callable[..., torch.Tensor] = "auto",
    anatomy: Anatomy | Declaration | None = None,
    families: bool = True,
    ablate: str | None = None,
    seed: int = 0,
    name: str | None = None,
    source: str = "given",
    path: str | PathLike[str] | None = None,
    progress: Progress | None = None,
) -> Record:
    """Measure how signal and gradient travel through a model.

    `model` is a module or what `load` returns. `inputs` is texts (with a loaded model),
    what `random_tokens` and its kin return, a tensor, a mapping of tensors, or None
    for random ones. `probes` are names or choices such as `recall(ridge=0.01)`; None means all
    that share one forward and one backward pass, which follow the passes that read the anatomy.
    `loss` is "auto", "next-token", "masked",
    "random" (a seeded random cotangent) or a function of output and inputs. `anatomy` is a
    declaration, or an anatomy that `anatomy_of` proved before; `families=False` leaves all to
    discovery. `ablate` is "block" or "sublayer": each is left out in turn and the loss measured
    again. `path` is the record's file. The rows of probes that go block by block (`jacobian`,
    `lyapunov`) are in it as soon as a block has ended, and a measurement that was cut off goes on
    there when it is asked for again in the same way. A file that is no record is not written over.
    """
    started = time.perf_counter()
    seed = check_seed(seed)
    planned = plan(probes)
    place = None if path is None else check_path(path)
    if place is not None:
        refuse_foreign(place)
    say = check_progress(progress)
    for label, text in (("name", name), ("source", source)):
        if text is not None:
            check_text(text, label)
    if isinstance(model, LoadedModel):
        name, source = name or model.name, model.source
    given, module = modules_of(model)
    batch = batch_for(module, inputs, seed, tokenizer=tokenizer_for(model, inputs))
    refuse_broken_inputs(batch)
    known = known_anatomy(module, anatomy)
    asked = _Asked(planned, loss, ablate, seed, say)
    with _gradients_on(), untouched(module), nullcontext() if place is None else only_writer(place):
        begin: dict[str, Any] = {}
        before = None
        if place is not None and planned.linear:
            begin = _request(asked, module, batch, families=families, anatomy=anatomy)
            before = resume_record(place, begin)
        elif place is not None:
            refuse_unfinished(place)
        asked.say("reading the anatomy", 0, 3)
        proved, reading = known, 0
        if proved is None:
            proved, reading = _read(module, batch, anatomy, families, seed)
        later = Linearising(module, proved, planned, lambda: call(module, batch))
        if before is None:
            record = _passes(asked, module, batch, proved, reading, steps=later.steps)
            record.note("model", model_facts(given, name, source))
        else:
            record = before
        if planned.linear:
            growing = (
                GrowingRecord.begin(
                    record, place, request=begin, parts=len(later.parts), started=started
                )
                if before is None
                else GrowingRecord(record, place, started=started)
            )
            with few_threads(module, batch):
                record = _linearised(growing, later, asked, batch)
        else:
            record.note("seconds", round(time.perf_counter() - started, 3))
            if place is not None:
                record.save(place)
    asked.say("done", 3 + later.steps, 3 + later.steps)
    return record


@dataclass(frozen=True)
class _Asked:
    """What is to be measured, apart from the model and its inputs."""

    planned: Plan
    loss: str | Callable[..., torch.Tensor]
    ablate: str | None
    seed: int
    say: Progress


def _passes(
    asked: _Asked,
    module: nn.Module,
    batch: Inputs,
    proved: Anatomy,
    reading: int,
    *,
    steps: int,
) -> Record:
    """The forward and the backward pass, and those with parts left out; `steps` come later."""
    planned, total = asked.planned, 3 + steps
    # Before the pass, which switches off the gradients that nobody reads.
    frozen = sum(not parameter.requires_grad for parameter in module.parameters())
    head, looking = head_of(module, batch, proved, asked.loss, asked.seed)
    chosen, batch = choose_loss(module, batch, asked.loss, seed=asked.seed, head=head)
    asked.say("forward and backward", 1, total)
    done = run(module, proved, planned, batch, chosen)
    if _only_attention(planned) and not done.collector.attentions:
        raise ProbeError(nothing_seen(module, proved, done))
    refuse_imbalance(module, proved, done.balance, lambda: call(module, batch))
    if done.balance.unjudged:
        _refuse_broken_weights(module, proved, done.balance)
    asked.say("writing the record", 2, total)
    record = _record(planned, done)
    passes = {"forward": 1, "backward": int(planned.backward), "anatomy_forward": reading}
    if looking:
        passes["head_forward"] = looking
    if asked.ablate is not None:
        found = leave_out(
            module,
            proved,
            lambda: chosen.compute(call(module, batch), batch),
            unit=asked.ablate,
            progress=asked.say,
        )
        for quantity in found.quantities:
            record.describe(quantity)
        record.append(found.readings)
        passes["ablation_forward"] = found.passes
    record.note("anatomy", proved.proved(done.balance).to_json())
    record.note("input", batch.summary())
    record.note("loss", _loss_facts(chosen, done.loss))
    record.note("passes", passes)
    record.note("probes", [str(choice) for choice in planned.choices])
    record.note("coverage", coverage_of(module, batch, planned, done, proved, frozen=frozen))
    if done.collector.attentions:
        record.note("attention", done.collector.attentions)
    record.note("versions", versions())
    record.note("time", time.strftime("%Y-%m-%dT%H:%M:%S%z"))
    for finding in [*_findings(record, proved, done.balance), *done.collector.remarks]:
        record.add_finding(finding)
    return record


def _linearised(growing: GrowingRecord, later: Linearising, asked: _Asked, batch: Inputs) -> Record:
    """The finished record, after the probes that see blocks as linear maps."""
    total = 3 + later.steps
    try:
        later.run(growing, lambda what, at: asked.say(what, 2 + at, total))
        asked.say("writing the record", total - 1, total)
        record = growing.record
        wanted = [quantity.name for probe in asked.planned.linear for quantity in probe.quantities]
        seen = [name for name in wanted if name in record]
        if not seen and len(asked.planned.linear) == len(asked.planned.probes):
            raise ProbeError(f"No linear map could be measured: {growing.refused[0][2]}.")
        known = record.provenance
        padded = batch.mask is not None and not bool(batch.mask.bool().all())
        notes = {
            "coverage": with_linear(
                known["coverage"], asked.planned, seen, refused=growing.refused, padded=padded
            ),
            "linear_maps": later.facts,
            "seconds": round(growing.seconds, 3),
        }
        return growing.end(notes, _not_finite(record, seen))
    except BaseException:
        growing.close()
        raise


def _request(
    asked: _Asked,
    module: nn.Module,
    batch: Inputs,
    *,
    families: bool,
    anatomy: Anatomy | Declaration | None,
) -> dict[str, Any]:
    """What a measurement must have in common with one that was cut off, to go on with it."""
    return {
        "probes": [str(choice) for choice in asked.planned.choices],
        "seed": asked.seed,
        "loss": asked.loss if isinstance(asked.loss, str) else function_facts(asked.loss),
        "ablation": asked.ablate,
        "anatomy": {"families": families, "declared": declared_digest(anatomy)},
        "input": batch.digest,
        "weights": digest_of(module),
        "structure": structure_of(module),
        "versions": versions(),
    }


def anatomy_of(
    model: nn.Module | LoadedModel,
    inputs: Any = None,
    *,
    anatomy: Anatomy | Declaration | None = None,
    families: bool = True,
    seed: int = 0,
) -> Anatomy:
    """The anatomy of a model, proved by its balance on the inputs."""
    seed = check_seed(seed)
    _, module = modules_of(model)
    known_anatomy(module, anatomy)
    batch = batch_for(module, inputs, seed, tokenizer=tokenizer_for(model, inputs))
    with _gradients_on(), untouched(module):
        return _read(module, batch, anatomy, families, seed)[0]


@contextmanager
def _gradients_on() -> Iterator[None]:
    """Whatever mode the caller is in: roles and gradient norms need autograd."""
    with torch.inference_mode(False), torch.enable_grad():
        yield


def modules_of(model: nn.Module | LoadedModel) -> tuple[nn.Module, nn.Module]:
    """The module as given, and the one inside any wrapper; half precision is made safe for it."""
    given = model.model if isinstance(model, LoadedModel) else model
    module = unsharded(given)
    check_measurable(module)
    half_route(module)
    return given, module


def known_anatomy(module: nn.Module, anatomy: Anatomy | Declaration | None) -> Anatomy | None:
    """The given anatomy where it is proved already, None where it must be read.

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
    there = {name for name, _ in module.named_modules(remove_duplicate=False)}
    there |= {name for name, _ in module.named_parameters(remove_duplicate=False)}
    for stack in anatomy.stacks:
        for block in stack.blocks:
            for s in block.sublayers:
                for name in (block.module, s.module, *s.parameters):
                    if name not in there:
                        raise AnatomyError(
                            f"The given anatomy is that of another model: "
                            f"{type(module).__name__} has no '{name}'."
                        )
    return anatomy


def tokenizer_for(model: nn.Module | LoadedModel, inputs: Any) -> Any:
    """The tokenizer of a loaded model, where the inputs are texts."""
    texts = isinstance(inputs, str) or (
        isinstance(inputs, list) and any(isinstance(item, str) for item in inputs)
    )
    return model.tokenizer if texts and isinstance(model, LoadedModel) else None


def _read(
    module: nn.Module,
    batch: Inputs,
    declared: Anatomy | Declaration | None,
    families: bool,
    seed: int,
) -> tuple[Anatomy, int]:
    try:
        return read(module, batch, declared=declared, families=families, seed=seed)
    except AnatomyError as error:
        first = _first_broken_output(module, batch)
        if first is None:  # whatever a weight holds, it is not what went wrong
            raise
        raise AnatomyError(
            f"{broken} They are first seen in what '{first}' returns."
            if (broken := broken_tensor(module)) is not None
            else f"What '{first}' returns is not finite, although the parameters of "
            f"{type(module).__name__} are; look for an overflow or a division by zero there."
        ) from error


def _record(planned: Plan, done: Done) -> Record:
    record = Record()
    readings = done.collector.readings()
    for quantity in planned.quantities:
        if quantity.name in done.collector.seen:
            record.describe(quantity)
    record.append(readings)
    return record


# --- refusals ------------------------------------------------------------------------------------


def refuse_broken_inputs(batch: Inputs) -> None:
    """Refuse inputs that are not finite."""
    for key, tensor in batch.tensors.items():
        if tensor.is_floating_point() and "mask" not in key and not _finite(tensor).all():
            raise InputError(f"The input '{key}' holds values that are not finite.")


def _refuse_broken_weights(module: nn.Module, anatomy: Anatomy, balance: Balance) -> None:
    """A stream that is not finite although all weights are is a finding; broken weights are not."""
    broken = broken_tensor(module)
    if broken is not None:
        raise AnatomyError(
            f"{broken} They reach the stream first at {_place(anatomy, *balance.unjudged[0])}."
        )


def _finite(tensor: torch.Tensor) -> torch.Tensor:
    """Which values are finite; torch does not say it of sparse tensors and of 8-bit floats."""
    dense = tensor if tensor.layout == torch.strided else tensor.to_dense()
    return torch.isfinite(dense.float() if dense.itemsize == 1 else dense)


def broken_tensor(module: nn.Module) -> str | None:
    """Say which parameter, buffer or plain tensor of a module is not finite, or None.

    Infinity is an honest value outside of parameters: masks hold minus infinity, and numbers
    alone are bounds to clip at. Only NaN, and plus infinity in a table, are taken as broken there.
    """
    tensors = [
        *(("parameter", name, parameter) for name, parameter in module.named_parameters()),
        *(("buffer", name, buffer) for name, buffer in module.named_buffers()),
        *(
            ("tensor", f"{path}.{name}" if path else name, value)
            for path, inner in module.named_modules()
            for name, value in vars(inner).items()
            if isinstance(value, torch.Tensor)
        ),
    ]
    for kind, name, tensor in tensors:
        if tensor.is_meta or not (tensor.is_floating_point() or tensor.is_complex()):
            continue
        if kind != "parameter" and not bool(_spoils(tensor).any()):
            continue
        if count := int((~_finite(tensor.detach())).sum()):
            return (
                f"The {kind} '{name}' holds values that are not finite ({count} of "
                f"{tensor.numel()}); {_MENDS[kind]}."
            )
    return None


_MENDS = {
    "parameter": "load intact weights",
    "buffer": "load intact weights, or compute it anew",
    "tensor": "compute it anew",
}


def _spoils(tensor: torch.Tensor) -> torch.Tensor:
    """Where a tensor holds what neither a mask nor a bound holds."""
    tensor = torch.view_as_real(tensor) if tensor.is_complex() else tensor
    return tensor.isnan() if tensor.numel() == 1 else tensor.isnan() | tensor.isposinf()


def _first_broken_output(module: nn.Module, batch: Inputs) -> str | None:
    """The first module whose output is broken, an innermost one if there is one."""
    broken = [
        called
        for called in trace_calls(module, lambda: call(module, batch))
        if called.left is not None and bool(_spoils(called.left).any())
    ]
    innermost = [c for c in broken if next(c.module.children(), None) is None]
    return next((c.path for c in innermost or reversed(broken)), None)


def _place(anatomy: Anatomy, stack: str, layer: int) -> str:
    path = next(b.module for b in anatomy.stack(stack).blocks if b.layer == layer)
    return f"{stack} layer {layer} ('{path}')"


# --- provenance ----------------------------------------------------------------------------------


def _findings(record: Record, anatomy: Anatomy, balance: Balance) -> list[Finding]:
    """What must be said whatever was asked: values that are not finite, and where they begin."""
    if balance.unjudged:
        stack, layer = balance.unjudged[0]
        return [
            Finding(
                verdict=f"The stream is not finite from {_place(anatomy, stack, layer)} on; "
                f"{len(balance.unjudged)} layers could not be judged.",
                quantity="stream.norm",
                site=Site(stack, layer),
                severity="serious",
            )
        ]
    return _not_finite(record, record.quantities)


def _not_finite(record: Record, names: Iterable[str]) -> list[Finding]:
    found: list[Finding] = []
    for name in names:
        broken = [r.site for r in record.select(name) if not abs(r.value) < float("inf")]
        if broken:
            first = min(broken, key=lambda site: (site.layer, site.sublayer or 0))
            count = len(set(broken))
            where = f"at {first}" if count == 1 else f"at {count} sites, first at {first}"
            found.append(
                Finding(
                    verdict=f"{name} is not finite {where}{_why_not_finite(record, name, first)}.",
                    quantity=name,
                    site=first,
                    severity="serious",
                )
            )
    return found


def _why_not_finite(record: Record, name: str, site: Site) -> str:
    """The reason where the record proves it, with a colon before it; empty where it does not."""

    def values(quantity: str) -> list[float]:
        there = quantity in record.quantities
        return [r.value for r in record.select(quantity) if r.site == site] if there else []

    norms = values("update.norm")
    # The ratio is NaN where a norm is, and where the stream that it divides by has none.
    if name != "update.ratio" or not norms or not all(map(math.isfinite, norms)):
        return ""
    if not any(map(math.isnan, values(name))):
        return ""
    return (
        ": the stream of a token is exactly 0 before this write (a row of the embedding that holds "
        "zeros, such as that of a padding id, makes it so), and no update can be compared with it. "
        "All other numbers hold"
    )


def model_facts(model: nn.Module, name: str | None, source: str) -> dict[str, Any]:
    """What the provenance says about a model, and about the wrappers around it."""
    module = configured_model(model)
    config = getattr(module, "config", None)
    found = name or getattr(config, "name_or_path", None) or getattr(config, "model_type", None)
    first = next(model.parameters(), None)
    wrappers = wrapper_names(model)
    return {
        "name": found or _own_label(module) or type(module).__name__,
        "class": type(module).__name__,
        **({"wrappers": wrappers} if wrappers else {}),
        "parameters": sum(p.numel() for p in model.parameters()),
        "dtype": "none" if first is None else str(first.dtype).removeprefix("torch."),
        "device": "none" if first is None else str(first.device),
        **({} if (route := half_route(module)) is None else {"half_precision": route}),
        "source": source,
        "mode": "eval, uncompiled" if is_compiled(model) else "eval",
        **_own_recipe(module),
    }


def _loss_facts(loss: Loss, value: float) -> dict[str, Any]:
    return {"kind": loss.kind, "reason": loss.reason, "value": value, "seed": loss.seed}


def versions() -> dict[str, str]:
    """What the provenance says about the programs that measured."""
    found = {"python": platform.python_version(), "torch": torch.__version__}
    for package in ("leadline", "transformers"):
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def _only_attention(planned: Plan) -> bool:
    return all(hasattr(probe, "attention") for probe in planned.probes)


def _own_label(module: nn.Module) -> str | None:
    """What a model calls itself: ours say what is special about their recipe."""
    label = getattr(module, "label", None)
    return label if isinstance(label, str) else None


def _own_recipe(module: nn.Module) -> dict[str, Any]:
    """The recipe and the seed of a model that has them."""
    recipe = getattr(module, "recipe", None)
    if not hasattr(recipe, "to_json"):
        return {}
    return {"recipe": recipe.to_json(), "seed": getattr(module, "seed", None)}  # type: ignore[union-attr]


def refuse_broken(module: nn.Module, batch: Inputs) -> None:
    """Refuse inputs and weights that are not finite: shares would not be finite either."""
    refuse_broken_inputs(batch)
    broken = broken_tensor(module)
    if broken is not None:
        raise InputError(broken)
