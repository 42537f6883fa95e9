"""Numbers of every weight tensor of the model and of its twin, from one read of the weights."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from torch import Tensor, nn

from leadline.instruments.visit.check import VisitFact, check, check_quantity
from leadline.instruments.visit.patient import Patient
from leadline.instruments.visit.tensor_statistics import grid_share, rank_share, read_tensor
from leadline.models.streaming.pager import pager_of
from leadline.record import Quantity, Reading

__all__ = ["weights"]

FEWEST_VALUES = 16
"""Fewer values have no kurtosis to speak of."""
SAMPLE = 1 << 18
"""Of a tensor of the twin about so many values are read: its spread is known to 0.2 % by them."""
FEWEST_ROWS = 256
"""So many rows stay at least: enough for the spread of the norms of columns."""


def _quantity(name: str, title: str, symbol: str, formula: str, meaning: str) -> Quantity:
    logarithmic = name in ("rms", "largest")
    return check_quantity(
        f"weights.{name}", title, symbol, formula, meaning, logarithmic=logarithmic
    )


QUANTITIES = (
    _quantity("rms", "Size of a weight tensor", "rms(W)", "sqrt(mean W^2)",
              "root mean square of the values of a weight tensor"),
    _quantity("mean", "Mean of a weight tensor", "mean(W)", "mean W",
              "mean of the values of a weight tensor"),
    _quantity("largest", "Largest weight", "max |W|", "max |W|",
              "largest magnitude in a weight tensor"),
    _quantity("kurtosis", "Kurtosis of a weight tensor", "mean(W^4) / rms(W)^4",
              "mean W^4 / (mean W^2)^2", "3 of normal draws, 1.8 of uniform ones, more after training"),
    _quantity("row_spread", "Spread of row norms", "std log |W_i|", "std_i log |W_i|",
              "how much the norms of rows differ; sampling alone gives 1 / sqrt(2 columns)"),
    _quantity("column_spread", "Spread of column norms", "std log |W_j|", "std_j log |W_j|",
              "how much the norms of columns differ; sampling alone gives 1 / sqrt(2 rows)"),
    _quantity("rank", "Rank of a weight tensor", "rank(W) / k", "rank(W[I, J]) / k",
              "numerical rank of a random square piece over its side; 1 is full rank"),
    _quantity("zeros", "Share of zeros", "P(W = 0)", "mean [W = 0]",
              "share of the values that are exactly 0"),
    _quantity("zero_rows", "Share of rows that are zero", "P(W_i = 0)", "mean_i [W_i = 0]",
              "share of the rows that are exactly 0"),
    _quantity("zero_columns", "Share of columns that are zero", "P(W_j = 0)", "mean_j [W_j = 0]",
              "share of the columns that are exactly 0"),
    _quantity("grid", "Share of weights on a grid", "P(W on a grid)", "mean [W on a grid]",
              "share of short stretches of values that lie on a grid of at most 256 steps"),
    _quantity("not_finite", "Weights that are not finite", "#(W not finite)",
              "sum [W not finite]", "number of values that are infinite or no number"),
)  # fmt: skip


@check("weights", quantities=QUANTITIES, facts=("tensors",), pass_cost=0.6)
def weights(patient: Patient) -> Iterator[Reading | VisitFact]:
    """Numbers per tensor; shares that are 0 throughout are left out."""
    owners = owners_of(patient.model)
    facts: dict[str, Any] = {}
    on_grid: set[str] = set()  # of other tensors nobody asks whether the twin's are
    for name, parameter in named_tensors(patient.model):
        facts[name] = {"shape": list(parameter.shape), "kind": kind_of(owners[name])}
        for one in _readings(patient, name, parameter, "value"):
            if one.quantity == "weights.grid":
                on_grid.add(name)
            yield one
    if patient.twin is not None:
        for name, parameter in named_tensors(patient.twin):
            if name in facts:
                part = _sample(parameter)
                yield from _readings(patient, name, part, "twin", grid=name in on_grid)
    yield VisitFact("tensors", facts)


def named_tensors(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """The float parameters by name, each once; those of a streamed model are let go again."""
    pager = pager_of(model)
    for name, parameter in model.named_parameters():
        if parameter.is_floating_point() and parameter.numel() and not parameter.is_meta:
            yield name, parameter
            if pager is not None:
                pager.end_reading(parameter)


def _sample(tensor: Tensor) -> Tensor:
    """Rows of a large matrix of the twin, spread evenly: it was drawn at random, row by row."""
    step = tensor.numel() // SAMPLE
    if tensor.ndim != 2 or step < 2 or tensor.shape[0] < 2 * FEWEST_ROWS:
        return tensor
    return tensor[:: min(step, tensor.shape[0] // FEWEST_ROWS)]


def owners_of(model: nn.Module) -> Mapping[str, nn.Module]:
    """The module that holds each parameter, by the parameter's name."""
    return {
        f"{path}.{name}" if path else name: module
        for path, module in model.named_modules()
        for name, _ in module.named_parameters(recurse=False)
    }


def kind_of(module: nn.Module) -> str:
    """What a parameter belongs to: linear (out, in), conv1d (in, out), embedding, norm, other."""
    if isinstance(module, nn.Linear):
        return "linear"
    if isinstance(module, nn.Embedding):
        return "embedding"
    name = type(module).__name__.lower()
    if name == "conv1d" and not isinstance(module, nn.Conv1d):
        return "conv1d"
    return "norm" if "norm" in name else "other"


def _readings(
    patient: Patient, name: str, parameter: Tensor, statistic: str, *, grid: bool = True
) -> Iterator[Reading]:
    site = patient.site(name)
    numbers = read_tensor(parameter)
    always = {"rms": numbers.rms, "mean": numbers.mean, "largest": numbers.largest}
    always |= {"row_spread": numbers.row_spread, "column_spread": numbers.column_spread}
    if parameter.numel() >= FEWEST_VALUES:
        always["kurtosis"] = numbers.kurtosis
    always["rank"] = rank_share(parameter)
    seldom = {
        "zeros": numbers.zeros,
        "zero_rows": numbers.zero_rows,
        "zero_columns": numbers.zero_columns,
        "grid": grid_share(parameter) if grid else None,
        "not_finite": float(numbers.not_finite),
    }
    for key, value in always.items():
        if value is not None:
            yield Reading(f"weights.{key}", site, statistic, value)
    for key, value in seldom.items():
        if value:
            yield Reading(f"weights.{key}", site, statistic, value)
