"""What rules about weights ask of a case: matrices, their twins, where they stand, in words."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from statistics import median

from leadline.reading.diagnosis.case import OUTSIDE, Case, CasePlace
from leadline.reading.diagnosis.words import layers_text

__all__ = [
    "common_factor",
    "exact_share",
    "has_fresh_constants",
    "inputs_of",
    "is_matrix",
    "is_untrained",
    "kind_of",
    "lost_branches",
    "matrix_ratios",
    "names_text",
    "role_of",
    "shape_of",
    "site_text",
    "stack_layers",
    "tensor_lines",
]

_ATTENTION = ("attn", "attention", "query", "key", "value", "qkv", "q_proj", "k_proj", "v_proj")
_MLP = ("mlp", "ffn", "feed_forward", "feedforward", "intermediate", "fc1", "fc2", "dense_", "linear1", "linear2", "output.dense", "expert")  # fmt: skip


def shape_of(case: Case, parameter: str) -> Sequence[int]:
    """The shape of a tensor by its full path; empty where it is not known."""
    return case.fact("tensors", {}).get(parameter, {}).get("shape", ())


def kind_of(case: Case, parameter: str) -> str:
    """What a tensor belongs to: linear, conv1d, embedding, norm or other."""
    return case.fact("tensors", {}).get(parameter, {}).get("kind", "other")


def is_matrix(case: Case, place: CasePlace) -> bool:
    """Whether a tensor has two axes or more and is no vector in disguise."""
    shape = shape_of(case, case.parameter(place))
    return len(shape) > 1 and min(shape[-2:]) > 1


def inputs_of(case: Case, parameter: str) -> int:
    """How many inputs a linear map has."""
    shape = shape_of(case, parameter)
    return int(shape[0] if kind_of(case, parameter) == "conv1d" else shape[-1])


def matrix_ratios(case: Case) -> dict[CasePlace, float]:
    """The size of every matrix over that of its twin, where both are above 0."""
    return case.remember("matrix ratios", lambda: _matrix_ratios(case))


def _matrix_ratios(case: Case) -> dict[CasePlace, float]:
    twins = case.values("weights.rms", "twin")
    return {
        place: value / twins[place]
        for place, value in case.values("weights.rms").items()
        if value > 0 and twins.get(place, 0.0) > 0 and is_matrix(case, place)
    }


def common_factor(ratios: Iterable[float], *, within: float, share: float = 0.8) -> float | None:
    """The factor that most of the ratios have, within a factor; None where they have none."""
    values = sorted(ratios)
    if not values:
        return None
    middle = median(values)
    near = sum(1 / within < value / middle < within for value in values)
    return middle if near >= share * len(values) else None


def has_fresh_constants(case: Case) -> bool | None:
    """Whether gains and biases are the constants that they are drawn as; None where there are none.

    Training moves them with the first step, so that this tells a fresh model of any scale.
    """
    return case.remember("fresh constants", lambda: _has_fresh_constants(case))


def _has_fresh_constants(case: Case) -> bool | None:
    twins, sizes = case.values("norm.spread", "twin"), case.values("weights.rms")
    constant = [
        value == 0
        for place, value in case.values("norm.spread").items()
        if twins.get(place, 1.0) == 0
    ]
    biases = [
        sizes[place] == 0
        for place, twin in case.values("weights.rms", "twin").items()
        if twin == 0 and place in sizes
    ]
    every = constant + biases
    return sum(every) >= 0.8 * len(every) if every else None


def is_untrained(case: Case) -> bool:
    """Whether no step has been made: by gains and biases, else by the sizes of all weights.

    Sizes alone mistake a short training for none.
    """
    fresh = has_fresh_constants(case)
    return bool(case.at_initialisation) if fresh is None else fresh


def exact_share(case: Case, quantity: str, place: CasePlace, statistic: str | None = None) -> float:
    """A share that is only kept where it is above 0."""
    return case.values(quantity, statistic).get(place, 0.0)


def tensor_lines(case: Case, quantity: str) -> dict[tuple[str, str], dict[int, float]]:
    """Numbers of tensors over the layers of a stack; those outside of blocks left out."""
    lines = case.lines(quantity)
    return {key: line for key, line in lines.items() if key[0] != OUTSIDE}


def role_of(case: Case, stack: str, layer: int, parameter: str) -> str | None:
    """The role of the sublayer that a tensor belongs to, by the anatomy, else by its name."""
    for one in case.layers:
        if one["stack"] != stack or one["layer"] != layer:
            continue
        for sublayer in one["sublayers"]:
            if parameter.startswith(f"{sublayer['module']}."):
                return sublayer["role"]
    name = parameter[len(case.module(stack, layer)) :].lower()
    if "norm" in name or "ln_" in name:
        return None  # post_attention_layernorm stands before the MLP
    if any(word in name for word in _MLP) and "attention" not in name:
        return "mlp"
    return "attention" if any(word in name for word in _ATTENTION) else None


def lost_branches(case: Case) -> dict[tuple[str, int], dict[str, list[str]]]:
    """Branches that run and that no output depends on: their tensors by place of the block and role.

    All tensors of the branch are called, and no output moves when they are changed: exact.
    """
    return case.remember("lost branches", lambda: _lost_branches(case))


def _lost_branches(case: Case) -> dict[tuple[str, int], dict[str, list[str]]]:
    unread = {
        facts["name"]
        for facts in case.fact("gradients", {}).get("none", ())
        if facts["called"] and not facts["moves"] and not facts["expert"]
        and "lora" not in facts["name"].lower()
    }  # fmt: skip
    places = {case.place_of(name) for name in unread}
    lost: dict[tuple[str, int], dict[str, list[str]]] = {}
    for stack, layer in places:
        if stack is None:
            continue
        block = f"{case.module(stack, layer)}."
        branches: defaultdict[str | None, list[str]] = defaultdict(list)
        for name, facts in case.fact("tensors", {}).items():
            if name.startswith(block) and facts["kind"] != "norm":
                branches[role_of(case, stack, layer, name)].append(name)
        whole = {role: names for role, names in branches.items() if role and unread >= {*names}}
        if whole:
            lost[stack, layer] = whole
    return lost


def site_text(case: Case, stack: str, layers: Sequence[int]) -> str:
    """`decoder layer 5`; of a tensor outside of blocks, `the model`."""
    if stack == OUTSIDE or not layers or layers == [0]:
        return "the model"
    words = layers_text(list(layers), case.depth(stack))
    return f"{words} of the {stack}" if words.startswith("all") else f"{stack} {words}"


def stack_layers(places: Iterable[CasePlace]) -> Mapping[str, list[int]]:
    """The layers of places by stack."""
    grouped: defaultdict[str, set[int]] = defaultdict(set)
    for place in places:
        grouped[place.stack].add(place.layer)
    return {stack: sorted(layers) for stack, layers in grouped.items()}


def names_text(names: Sequence[str], most: int = 3) -> str:
    """The first names of a list, and how many more there are."""
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"
