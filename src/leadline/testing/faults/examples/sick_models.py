"""Sick models for the pages of rules: faults of the zoo, wild faults, and a few of their own.

A rule names its example. Where that is a fault of the zoo, hosts that can have it are offered in a
fixed order, small and well-known ones first. Rules that no fault is named after have their specimen
here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from leadline.testing.faults.fault import FAULTS
from leadline.testing.faults.hosts import all_hosts, build_recipe, drawn_inputs, host
from leadline.testing.faults.wild import wild_faults

if TYPE_CHECKING:
    from torch import nn

    from leadline.reading.diagnosis.rule import Rule
    from leadline.testing.faults.hosts.entry import Host

__all__ = ["SICK_MODELS", "SickModel", "sick_models_of"]

HOSTS_FIRST = ("gpt2", "llama", "recipe-pre", "nano-gpt", "trained-gpt2", "trained-llama")
MOST_HOSTS = len(HOSTS_FIRST)
"""So many hosts are tried for one fault."""


@dataclass(frozen=True, eq=False)
class SickModel:
    """A sick model, the same model without the fault, and what a user gives to the diagnosis."""

    fault: str
    words: str
    model: nn.Module
    inputs: Any
    healthy: nn.Module | None = None
    host: str = ""
    seed: int = 0
    trained: bool = False
    thread: str = ""
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])


Builder = Callable[[], SickModel]
SICK_MODELS: dict[str, Builder] = {}
"""Specimens of rules that no fault of the zoo is named after, by the name of the rule."""

_OPTIONS: Mapping[str, Mapping[str, Any]] = {"write-harmful": {"ablate": True}}
"""What a rule needs beside model and inputs."""


def sick_models_of(rule: Rule, prefer: tuple[str, str] = ("", "")) -> Iterator[SickModel]:
    """The models in which a rule may be shown, the plainest first, or a preferred fault and host.

    Faults of the zoo that name the rule as a cause come after its own example.
    """
    if rule.name in SICK_MODELS:
        yield SICK_MODELS[rule.name]()
        return
    yield from _wild(rule)
    named = [name for name, fault in FAULTS.items() if rule.name in fault.causes]
    pairs = [
        (name, patient)
        for name in dict.fromkeys([rule.example, *named])
        if name in FAULTS
        for patient in _hosts_of(name)
    ]
    for name, patient in sorted(pairs, key=lambda pair: (pair[0], pair[1].name) != prefer):
        yield _in_host(rule, name, patient)


def _wild(rule: Rule) -> Iterator[SickModel]:
    for fault in wild_faults("seen"):
        if fault.name == rule.example:
            model, inputs, _ = fault.build()
            yield SickModel(
                fault.name,
                fault.trouble,
                model,
                inputs,
                fault.healthy(),
                thread=fault.thread,
                options=fault.means(),
            )


def _hosts_of(fault: str) -> list[Host]:
    fits = [one for one in all_hosts() if FAULTS.get(fault).fits(one)]
    order = {name: at for at, name in enumerate(HOSTS_FIRST)}
    return sorted(fits, key=lambda one: order.get(one.name, len(order)))[:MOST_HOSTS]


def _in_host(rule: Rule, name: str, patient: Host, seed: int = 0) -> SickModel:
    fault = FAULTS.get(name)
    sick = patient.build(seed)
    inputs = patient.inputs(sick, seed + 1)
    model, _ = fault.apply(sick, patient, seed)
    words = (fault.change.__doc__ or "").partition("\n\n")[0].replace("\n", " ")
    return SickModel(
        fault.name,
        " ".join(words.split()),
        model,
        inputs,
        patient.build(seed),
        host=patient.name,
        seed=seed,
        trained=patient.trained,
        options=_OPTIONS.get(rule.name, {}),
    )


def _specimen(name: str) -> Callable[[Builder], Builder]:
    def enter(build: Builder) -> Builder:
        SICK_MODELS[name] = build
        return build

    return enter


def _of_recipes(fault: str, words: str, sick: dict[str, Any], healthy: dict[str, Any]) -> SickModel:
    """Two narrow Transformers of parts, with the inputs that a visit draws for them."""
    from leadline.parts import Transformer

    model, other = (
        Transformer(width=32, heads=2, seed=0, **fields).eval() for fields in (sick, healthy)
    )
    return SickModel(fault, words, model, None, other)


@_specimen("stream-exploding")
def _wide_without_norms() -> SickModel:
    fields = {"init": "xavier", "depth": 16}
    model = build_recipe({**fields, "placement": "none"}, 0)
    healthy = build_recipe({**fields, "placement": "pre"}, 0)
    words = "Sixteen layers without any norm, drawn by Xavier's rule."
    return SickModel("norms left out", words, model, drawn_inputs(model, 1), healthy)


@_specimen("gradient-exploding")
def _without_norms() -> SickModel:
    return _of_recipes(
        "norms left out",
        "Sixteen narrow layers without any norm, drawn by Xavier's rule.",
        {"placement": "none", "init": "xavier", "depth": 16},
        {"placement": "pre", "init": "xavier", "depth": 16},
    )


@_specimen("gradient-vanishing")
def _without_skips() -> SickModel:
    return _of_recipes(
        "connections left out",
        "Twenty-four layers without residual connections, by choice and so no fault of one layer.",
        {"connection": "none", "depth": 24},
        {"depth": 24},
    )


@_specimen("post-norm-deep")
def _deep_post_norm() -> SickModel:
    return _of_recipes(
        "post-norm and deep",
        "Twenty-four post-norm layers as they are drawn, with nothing that scales the branches.",
        {"placement": "post", "depth": 24},
        {"placement": "post", "connection": "deepnorm", "init": "deepnorm", "depth": 24},
    )


@_specimen("lanes-equal")
def _equal_lanes() -> SickModel:
    """Gains that have moved say that it was trained; static lanes that are read alike stay alike."""

    def build(*, alike: bool) -> nn.Module:
        model = build_recipe({"connection": "hyper(lanes=4)", "depth": 6}, 0)
        drawn = torch.Generator().manual_seed(0)
        with torch.no_grad():
            for name, tensor in model.named_parameters():
                lanes = "connection" in name
                if not (lanes and alike):
                    tensor.add_(0.05 * torch.randn(tensor.shape, generator=drawn))
        return model.eval()

    model = build(alike=True)
    return SickModel(
        "lanes read and written alike",
        "A hyper-connected model after training in which every lane is read and written alike.",
        model,
        drawn_inputs(model, 1),
        build(alike=False),
    )


@_specimen("experts-unused")
def _dead_router() -> SickModel:
    from leadline.testing.zoo import ZOO

    inputs = torch.randint(0, 60, (4, 32), generator=torch.Generator().manual_seed(0))
    model, healthy = (ZOO["mixtral"].build(0).eval() for _ in range(2))
    with torch.no_grad():
        for name, tensor in model.named_parameters():
            if name.endswith(("gate.weight", "router.weight")):
                tensor.zero_()
                break
    return SickModel(
        "router-zero",
        "The first router is zero, so every token gets the same experts.",
        model,
        inputs,
        healthy,
    )


@_specimen("logit-drift")
def _shifted_logits() -> SickModel:
    patient = host("trained-pair-pre")
    model, healthy = patient.build(0), patient.build(0)
    head: Any = model.get_submodule("head")
    forward = head.forward
    head.forward = lambda *arguments: forward(*arguments) + 60.0
    return SickModel(
        "logits-shifted",
        "60 is added to every logit, which no probability shows.",
        model,
        patient.inputs(healthy, 1),
        healthy,
        trained=True,
    )


@_specimen("does-not-learn")
def _head_from_nothing() -> SickModel:
    patient = host("gpt2")
    model, healthy = patient.build(0), patient.build(0)
    norm: Any = model.get_submodule("transformer.ln_f")
    forward = norm.forward
    norm.forward = lambda stream: forward(stream).detach() * 0.0
    return SickModel(
        "output-ignores-blocks",
        "What leaves the last norm is detached and multiplied by zero.",
        model,
        patient.inputs(healthy, 1),
        healthy,
        options={"train": 12},
    )


@_specimen("unlike-its-family")
def _wrong_model_type() -> SickModel:
    patient = host("llama")
    model, healthy = patient.build(0), patient.build(0)
    config: Any = model.config
    config.model_type = "gpt2"
    return SickModel(
        "model-type-wrong",
        "The configuration of a Llama says that it is a GPT-2.",
        model,
        patient.inputs(healthy, 1),
        healthy,
    )


@_specimen("attention-sinks")
def _first_token_sink() -> SickModel:
    """The first position points along one direction, which keys read and which queries like."""
    patient = host("gpt2")
    model, healthy = patient.build(0), patient.build(0)
    trunk: Any = model.get_submodule("transformer")
    width: int = trunk.wpe.weight.shape[1]
    head: int = trunk.h[0].attn.head_dim
    with torch.no_grad():
        direction = torch.zeros(width)
        direction[3] = 1.0
        trunk.wpe.weight[0] += 3.0 * direction
        for block in list(trunk.h)[1:5]:
            for start in range(0, width, head):
                block.attn.c_attn.bias[start] = 4.0
                block.attn.c_attn.weight[3, width + start] = 2.0
    return SickModel(
        "first-key-liked",
        "Queries of layers 2 to 5 point to the key of the first token, as training makes them.",
        model,
        patient.inputs(healthy, 1),
        healthy,
    )


@_specimen("massive-activations")
def _massive_coordinate() -> SickModel:
    patient = host("gpt2")
    model, healthy = patient.build(0), patient.build(0)
    trunk: Any = model.get_submodule("transformer")
    with torch.no_grad():
        trunk.wpe.weight[0, 3] = 300.0
    return SickModel(
        "one-coordinate-massive",
        "One coordinate of the first token is set to 300, far above all others.",
        model,
        patient.inputs(healthy, 1),
        healthy,
    )
