"""Gains, biases and eps of every norm, and the mean square of what enters it in one small pass."""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor, nn

from leadline.instruments.visit.check import VisitFact, check, check_quantity
from leadline.instruments.visit.patient import Patient
from leadline.record import Quantity, Reading

__all__ = ["norms"]

EPS_NAMES = ("eps", "variance_epsilon", "epsilon", "layer_norm_eps", "norm_eps")
GAIN_NAMES = ("weight", "gain", "scale", "gamma")


def _quantity(name: str, title: str, symbol: str, formula: str, meaning: str) -> Quantity:
    logarithmic = name in ("eps", "input", "size")
    return check_quantity(f"norm.{name}", title, symbol, formula, meaning, logarithmic=logarithmic)


QUANTITIES = (
    _quantity("gain", "Centre of a norm's gain", "mean(g)", "mean g",
              "mean of the gain of a norm as it is stored"),
    _quantity("spread", "Spread of a norm's gain", "std(g)", "std g",
              "deviation of the gain of a norm; 0 as it is drawn"),
    _quantity("least", "Least gain of a norm", "min(g)", "min g", "smallest gain of a norm"),
    _quantity("size", "Size of a norm's gain", "rms(g)", "sqrt(mean g^2)",
              "root mean square of the gain of a norm"),
    _quantity("bias", "Size of a norm's bias", "rms(b)", "sqrt(mean b^2)",
              "root mean square of the bias of a norm"),
    _quantity("eps", "Constant below the root of a norm", "eps", "eps",
              "what a norm adds to the mean square before it divides"),
    _quantity("input", "Mean square that a norm divides by", "v", "median_t mean_i x_ti^2",
              "mean square over features (about the mean, of LayerNorm) of what enters, median of tokens"),
)  # fmt: skip


@check("norms", quantities=QUANTITIES, facts=("norms",), pass_cost=0.3)
def norms(patient: Patient) -> Iterator[Reading | VisitFact]:
    """Numbers per norm; the point of their site is the path of the norm as seen from its block."""
    yield from _norms_of(patient, patient.model, "value")
    yield VisitFact(
        "norms", {path: type(module).__name__ for path, module in norm_modules(patient.model)}
    )
    if patient.twin is not None:
        yield from _norms_of(patient, patient.twin, "twin")


def norm_modules(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Modules called norm that have no children and normalise: their class is named so."""
    for path, module in model.named_modules():
        name = type(module).__name__.lower()
        if "norm" in name and "batchnorm" not in name and not any(True for _ in module.children()):
            yield path, module


def eps_of(module: nn.Module) -> float | None:
    """The constant below the root, under any of its usual names."""
    for name in EPS_NAMES:
        value = getattr(module, name, None)
        if isinstance(value, Tensor) and value.numel() == 1:
            value = float(value)
        if isinstance(value, int | float):
            return float(value)
    return None


def gain_of(module: nn.Module) -> Tensor | None:
    """The gain of a norm as it is stored; Gemma adds 1 to it."""
    for name in GAIN_NAMES:
        gain = getattr(module, name, None)
        if isinstance(gain, nn.Parameter) and gain.is_floating_point() and gain.numel():
            return gain
    return None


def _norms_of(patient: Patient, model: nn.Module, statistic: str) -> Iterator[Reading]:
    inputs = _mean_squares(patient, model)
    for path, module in norm_modules(model):
        site = patient.site(path)
        numbers: dict[str, float | None] = {"eps": eps_of(module), "input": inputs.get(path)}
        gain = gain_of(module)
        if gain is not None:
            values = gain.detach().double()
            numbers["gain"] = float(values.mean())
            numbers["spread"] = float(values.std(correction=0))
            numbers["least"] = float(values.min())
            numbers["size"] = float(values.square().mean().sqrt())
        bias = getattr(module, "bias", None)
        if isinstance(bias, nn.Parameter):
            numbers["bias"] = float(bias.detach().double().square().mean().sqrt())
        for name, value in numbers.items():
            if value is not None:
                yield Reading(f"norm.{name}", site, statistic, value)


def _mean_squares(patient: Patient, model: nn.Module) -> dict[str, float]:
    """The median over tokens of the mean square that each norm divides by, in one pass."""
    seen: dict[str, float] = {}
    paths = {path for path, _ in norm_modules(model)}
    for one in patient.small_pass(model).calls:
        if one.path not in paths or one.path in seen:
            continue
        if not one.arguments or not isinstance(one.arguments[0], Tensor):
            continue
        values = one.arguments[0].double()
        if not values.numel():
            continue
        kind = type(one.module).__name__.lower()
        centred = isinstance(one.module, nn.LayerNorm) or "layernorm" in kind
        if centred and "rms" not in kind:
            values = values - values.mean(-1, keepdim=True)
        seen[one.path] = float(values.square().mean(-1).median())
    return seen
