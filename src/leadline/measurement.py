"""measure(model, inputs) -> Record: one forward and one backward pass, all probes at once.

The anatomy is read first (a few small forward passes and one on the real inputs) and judged again
during the measuring pass itself; its balance goes into the record. The model is left as it was.
"""

from __future__ import annotations

import importlib.metadata
import platform
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from leadline.ablation import ablate as leave_out
from leadline.anatomy import (
    Anatomy,
    Balance,
    Declaration,
    refuse_imbalance,
    untouched,
    unwrapped,
)
from leadline.anatomy.trace import trace_calls
from leadline.catalog import Choice
from leadline.errors import AnatomyError, InputError, ProbeError
from leadline.inputs import Inputs, Loss, choose_loss
from leadline.loading import LoadedModel
from leadline.numerics.patterns import LONG
from leadline.probes._plan import Plan, plan
from leadline.record import Finding, Record, Site
from leadline.record.ingredients import INGREDIENTS
from leadline.running import Done, batch_for, call, read, run
from leadline.unseen import nothing_seen, unseen

__all__ = [
    "Progress",
    "anatomy_of",
    "broken_parameter",
    "measure",
    "model_facts",
    "modules_of",
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
    progress: Progress | None = None,
) -> Record:
    """Measure how signal and gradient travel through a model.

    `model` is a module or what `load` returns. `inputs` is texts (with a loaded model),  what `random_tokens` and its kin return, a tensor, a mapping of tensors, or None
    for random ones. `probes` are names or choices such as `recall(ridge=0.01)`; None means all
    that ride on one forward and one backward pass. `loss` is "auto", "next-token", "masked",
    "random" (a seeded random cotangent) or a function of output and inputs. `anatomy` is a
    declaration, or an anatomy that `anatomy_of` proved before; `families=False` leaves all to
    discovery. `ablate` is "block" or "sublayer": each is left out in turn and the loss measured
    again.
    """
    started = time.perf_counter()
    planned = plan(probes)
    if isinstance(model, LoadedModel):
        name, source = name or model.name, model.source
    given, module = modules_of(model)
    say = progress or _silent
    batch = batch_for(module, inputs, seed, tokenizer=tokenizer_for(model, inputs))
    refuse_broken_inputs(batch)
    known = anatomy if isinstance(anatomy, Anatomy) and anatomy.balance is not None else None
    with _gradients_on(), untouched(module):
        chosen, batch = choose_loss(module, batch, loss, seed=seed)
        say("reading the anatomy", 0, 3)
        reading = 0
        proved = known
        if proved is None:
            proved, reading = _read(module, batch, anatomy, families, seed)
        say("forward and backward", 1, 3)
        done = run(module, proved, planned, batch, chosen)
        if _only_attention(planned) and not done.collector.attentions:
            raise ProbeError(nothing_seen(module, proved, done))
        refuse_imbalance(module, proved, done.balance)
        if done.balance.unjudged:
            _refuse_broken_weights(module, proved, done.balance)
        say("writing the record", 2, 3)
        record = _record(planned, done)
        passes = {"forward": 1, "backward": int(planned.backward), "anatomy_forward": reading}
        if ablate is not None:
            found = leave_out(
                module,
                proved,
                lambda: chosen.compute(call(module, batch), batch),
                unit=ablate,
                progress=progress,
            )
            for quantity in found.quantities:
                record.describe(quantity)
            record.append(found.readings)
            passes["ablation_forward"] = found.passes
    record.note("model", model_facts(module, name, source, compiled=module is not given))
    record.note("anatomy", proved.proved(done.balance).to_json())
    record.note("input", batch.summary())
    record.note("loss", _loss_facts(chosen, done.loss))
    record.note("passes", passes)
    record.note("probes", [str(choice) for choice in planned.choices])
    record.note("coverage", _coverage(module, planned, done, proved))
    if done.collector.attentions:
        record.note("attention", done.collector.attentions)
    record.note("versions", versions())
    record.note("time", time.strftime("%Y-%m-%dT%H:%M:%S%z"))
    record.note("seconds", round(time.perf_counter() - started, 3))
    for finding in _findings(record, proved, done.balance):
        record.add_finding(finding)
    for finding in done.collector.remarks:
        record.add_finding(finding)
    say("done", 3, 3)
    return record


def anatomy_of(
    model: nn.Module | LoadedModel,
    inputs: Any = None,
    *,
    anatomy: Anatomy | Declaration | None = None,
    families: bool = True,
    seed: int = 0,
) -> Anatomy:
    """The anatomy of a model, proved by its balance on the inputs."""
    _, module = modules_of(model)
    batch = batch_for(module, inputs, seed, tokenizer=tokenizer_for(model, inputs))
    with _gradients_on(), untouched(module):
        return _read(module, batch, anatomy, families, seed)[0]


@contextmanager
def _gradients_on() -> Iterator[None]:
    """Whatever mode the caller is in: roles and gradient norms need autograd."""
    with torch.inference_mode(False), torch.enable_grad():
        yield


def modules_of(model: nn.Module | LoadedModel) -> tuple[nn.Module, nn.Module]:
    """The module as given, and the one inside any wrapper."""
    given = model.model if isinstance(model, LoadedModel) else model
    if not isinstance(given, nn.Module):
        raise InputError(
            f"A {type(given).__name__} was given where a torch module is measured; load it first "
            "with leadline.load(...)."
        )
    return given, unwrapped(given)


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
        broken = broken_parameter(module)
        if broken is None:
            raise
        first = _first_broken_output(module, batch)
        where = f" They are first seen in what '{first}' returns." if first else ""
        raise AnatomyError(f"{broken}{where}") from error


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
        if tensor.is_floating_point() and "mask" not in key and not torch.isfinite(tensor).all():
            raise InputError(f"The input '{key}' holds values that are not finite.")


def _refuse_broken_weights(module: nn.Module, anatomy: Anatomy, balance: Balance) -> None:
    """A stream that is not finite although all weights are is a finding; broken weights are not."""
    broken = broken_parameter(module)
    if broken is not None:
        raise AnatomyError(
            f"{broken} They reach the stream first at {_place(anatomy, *balance.unjudged[0])}."
        )


def broken_parameter(module: nn.Module) -> str | None:
    """Say which parameter is not finite, or None."""
    for name, parameter in module.named_parameters():
        bad = int((~torch.isfinite(parameter)).sum())
        if bad:
            return (
                f"The parameter '{name}' holds values that are not finite ({bad} of "
                f"{parameter.numel()}); load intact weights."
            )
    return None


def _first_broken_output(module: nn.Module, batch: Inputs) -> str | None:
    """The first innermost module whose output is not finite."""
    for called in trace_calls(module, lambda: call(module, batch)):
        innermost = next(called.module.children(), None) is None
        if innermost and called.left is not None and not torch.isfinite(called.left).all():
            return called.path
    return None


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
    found: list[Finding] = []
    for name in record.quantities:
        broken = [r.site for r in record.select(name) if not abs(r.value) < float("inf")]
        if broken:
            first = min(broken, key=lambda site: (site.layer, site.sublayer or 0))
            found.append(
                Finding(
                    verdict=f"{name} is not finite at {len(set(broken))} sites, first at {first}.",
                    quantity=name,
                    site=first,
                    severity="serious",
                )
            )
    return found


def _coverage(module: nn.Module, planned: Plan, done: Done, anatomy: Anatomy) -> dict[str, Any]:
    refused: list[dict[str, str]] = []

    def refuse(what: str, why: str) -> None:
        refused.append({"what": what, "why": why})

    without = {one.name for result, _ in done.collector.refused for one in result.quantities}
    one_lane = all(stack.lanes == 1 for stack in anatomy.stacks)
    for quantity in planned.quantities:
        if quantity.name in done.collector.seen:
            continue
        # Lanes belong to the default set; where there is one stream nothing is missing.
        if quantity.name.startswith("lane.") and one_lane:
            continue
        # An ingredient that a model does not have (a soft cap, a bias) is not missing; what a
        # probe refused has its reason below, and so has attention that was not seen.
        if quantity.name in INGREDIENTS or quantity.name in without:
            continue
        if not done.collector.attentions and quantity.name.startswith(("attention.", "collapse.")):
            continue
        # Shared weights have their reason below.
        if not (quantity.name == "gradient.parameters" and done.shared):
            refuse(quantity.name, _why_not(quantity.name, done))
    for what in done.shared:
        refuse(what, "one set of weights serves several layers; their gradients add up")
    for stack, layer in sorted(done.unheard):
        refuse(f"gradient at {stack} layer {layer}", "this tensor carries no gradient")
    for what, why in _refused_by_probes(done):
        refuse(what, why)
    if planned.attention:
        for what, why in unseen(module, anatomy, done):
            refuse(what, why)
        if done.collector.several:
            refuse(
                "numbers over all heads of a layer",
                "some sublayers compute their heads in several calls of attention",
            )
    for stack in sorted(done.collector.unmasked):
        refuse(
            f"padding of the {stack}",
            "the mask has another shape than the stream, so padded tokens are counted",
        )
    frozen = sum(not p.requires_grad for p in module.parameters())
    if frozen and planned.having("parameters"):
        refuse(f"gradient of {frozen} parameter tensors", "requires_grad is False")
    return {
        "measured": sorted(done.collector.seen),
        "refused": refused,
        "layers": {stack.name: f"0-{stack.depth}" for stack in anatomy.stacks},
        "precision": "statistics in float32 (float64 for a float64 stream), means over tokens in float64",
    }


def _refused_by_probes(done: Done) -> Iterator[tuple[str, str]]:
    """(what, why) of quantities that some sites have no number of; layers of one reason together."""
    groups: dict[tuple[str, str, str, str], list[int]] = {}
    for result, site in done.collector.refused:
        names = ", ".join(quantity.name for quantity in result.quantities)
        groups.setdefault((names, site.stack, site.point, result.why), []).append(site.layer)
    for (names, stack, point, why), layers in groups.items():
        yield f"{names} of the {point} of the {stack}, {_in_words(sorted(set(layers)))}", why


def _in_words(layers: list[int]) -> str:
    """layer 3; layers 1 to 12; layers 2, 5, 8."""
    if len(layers) == 1:
        return f"layer {layers[0]}"
    if layers == list(range(layers[0], layers[-1] + 1)):
        return f"layers {layers[0]} to {layers[-1]}"
    return f"layers {', '.join(map(str, layers))}"


def model_facts(
    module: nn.Module, name: str | None, source: str, *, compiled: bool
) -> dict[str, Any]:
    """What the provenance says about a model."""
    config = getattr(module, "config", None)
    found = name or getattr(config, "name_or_path", None) or getattr(config, "model_type", None)
    first = next(module.parameters(), None)
    return {
        "name": found or _own_label(module) or type(module).__name__,
        "class": type(module).__name__,
        "parameters": sum(p.numel() for p in module.parameters()),
        "dtype": "none" if first is None else str(first.dtype).removeprefix("torch."),
        "device": "none" if first is None else str(first.device),
        "source": source,
        "mode": "eval, uncompiled" if compiled else "eval",
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


def _why_not(quantity: str, done: Done) -> str:
    """Why a probe gave no number."""
    if quantity.startswith("attention.logit") and any(
        one["altered"] for one in done.collector.attentions
    ):
        return "weights are changed between softmax and values, so the logits are not theirs"
    if quantity.startswith("attention.") and done.collector.several:
        return "heads of a sublayer are computed in several calls of attention"
    keys = [shape["keys"] for one in done.collector.attentions for shape in one["shapes"]]
    if quantity.startswith("attention.") and max(keys, default=0) >= LONG:
        return f"it needs the whole matrix, and none is formed from {LONG:,} keys on"
    return "too few tokens"


def _only_attention(planned: Plan) -> bool:
    return all(hasattr(probe, "attention") for probe in planned.probes)


def _silent(what: str, done: int, total: int) -> None:
    """No progress was asked for."""


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
