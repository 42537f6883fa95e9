"""Read from a record what laws of depth ask about: `DepthFacts` of every stack.

The provenance entry `anatomy` says what every write keeps and adds and where norms stand, the
recipe in `model` which parts the model is made of and how its weights were drawn. A model without a
recipe has no known init: whatever depends on it is not given.

Weights are as they were drawn where the model was built from a recipe or with random weights on the
command line, and at step 0 of a training. Of a module that was handed over, or was read from a
file, that is not known unless the caller says it.

The variance over features stands for the mean square: it is the mean over tokens, where the record
has no mean of squares, and the two differ by the square of the mean over features. Of the Jacobians
the largest over the examples is read, with the upper end of its interval where a bound grows by it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from leadline.catalog import Choice
from leadline.errors import CatalogError
from leadline.record.provenance import number_at, text_at, value_at
from leadline.theory import DepthFacts

if TYPE_CHECKING:
    from leadline.record import Reading, Record

__all__ = ["DepthStack", "depth_stacks", "has_depth", "site_readings"]

QUANTITIES = ("stream.variance", "jacobian.through")
"""What laws along the layers are about."""
STATISTICS = {
    "stream.variance": ("mean",),
    "jacobian.branch": ("max", "value"),
    "jacobian.through": ("max", "value"),
}
"""Which value over tokens or examples is read: the first of those there are."""
HIDDEN_RATIO = 4.0
"""The inner width of a plain MLP over the width of the stream, where a recipe does not say it."""
SCALES = {"xavier": ("gain", 1.0), "gpt2": ("std", 0.02)}
"""The option that scales an init, and what it is where a recipe does not say it."""
EPS = {"layernorm": 1e-5, "rmsnorm": 1e-6}
"""The eps of a norm, where a recipe does not say it."""
PLAIN_MLPS = ("relu", "gelu", "gelu_tanh", "silu")
_PLAIN_ATTENTION_OPTIONS = frozenset({"causal", "bias", "output_bias", "scale", "qk_norm"})
"""Options of attention that leave its values and output weights as they are."""


@dataclass(frozen=True, slots=True)
class DepthStack:
    """A stack and the readings that laws along its layers are about: quantity, then layer."""

    name: str
    facts: DepthFacts
    measured: Mapping[str, Mapping[int, Reading]]
    statistics: Mapping[str, str]


def has_depth(record: Record) -> bool:
    """Whether a record says how a stack is built and holds what laws along it are about."""
    has_anatomy = isinstance(value_at(record.provenance, "anatomy", "layers"), list)
    return has_anatomy and any(site_readings(record, name)[1] for name in QUANTITIES)


def depth_stacks(record: Record, *, initial: bool | None = None) -> list[DepthStack]:
    """Return every stack of a record; `initial` says whether its weights are as they were drawn."""
    by_quantity = {name: site_readings(record, name) for name in STATISTICS}
    stacks: list[DepthStack] = []
    for name in record.stacks:
        measured = {
            quantity: {layer: one for (stack, layer), one in readings.items() if stack == name}
            for quantity, (_, readings) in by_quantity.items()
        }
        if any(measured[quantity] for quantity in QUANTITIES):
            facts = _facts(record, name, measured, initial)
            statistics = {quantity: statistic for quantity, (statistic, _) in by_quantity.items()}
            stacks.append(DepthStack(name, facts, measured, statistics))
    return stacks


def site_readings(record: Record, quantity: str) -> tuple[str, dict[tuple[str, int], Reading]]:
    """Read one quantity by stack and layer: of the first run, at its last step.

    Of several seeds the largest is taken, and NaN before all others.
    """
    for statistic in STATISTICS[quantity]:
        readings = record.select(quantity, statistic=statistic) if quantity in record else []
        layer_readings = [
            one for one in readings if one.site.sublayer is None and one.site.rank is None
        ]
        if not layer_readings:
            continue
        here = [one for one in layer_readings if one.run == layer_readings[0].run]
        last = max(one.step for one in here)
        largest: dict[tuple[str, int], Reading] = {}
        for one in here:
            place = one.site.stack, one.site.layer
            known = largest.get(place)
            larger = known is None or not (math.isnan(known.value) or one.value <= known.value)
            if one.step == last and larger:
                largest[place] = one
        return statistic, largest
    return STATISTICS[quantity][0], {}


def _facts(
    record: Record,
    stack: str,
    measured: Mapping[str, Mapping[int, Reading]],
    initial: bool | None,
) -> DepthFacts:
    recipe = _Recipe(record)
    blocks = _blocks(record, stack)
    writes = [write for block in blocks for write in _writes(block)]
    depth = record.depth(stack)
    width = number_at(record.provenance, "anatomy", "stacks", stack, "width")
    return DepthFacts(
        depth=depth,
        width=None if width is None else int(width),
        connection=recipe.name("connection"),
        placement=recipe.name("placement") or _same([one.get("placement") for one in writes]),
        init=recipe.name("init"),
        init_scale=recipe.init_scale(),
        norm=recipe.name("norm"),
        norm_eps=recipe.norm_eps(),
        mlp=recipe.name("mlp"),
        hidden_ratio=recipe.hidden_ratio(),
        attention=recipe.attention(),
        branches=_branches(blocks),
        final_norm=recipe.final_norm(),
        initial=_as_drawn(record, measured) if initial is None else initial,
        keep=_number(writes, "keep"),
        gain=_number(writes, "gain"),
        mean_square=_line(measured["stream.variance"], 0, depth, upper=False),
        branch_norms=_line(measured["jacobian.branch"], 1, depth, upper=True),
    )


class _Recipe:
    """Reads the parts of a model from its recipe; every answer is None where it has none."""

    def __init__(self, record: Record) -> None:
        recipe = value_at(record.provenance, "model", "recipe")
        known = isinstance(recipe, Mapping)
        self._fields: Mapping[str, Any] = cast("Mapping[str, Any]", recipe) if known else {}

    def _choice(self, field: str) -> Choice | None:
        try:
            return Choice.parse(self._fields[field]) if self._fields.get(field) else None
        except CatalogError:
            return None

    def name(self, field: str) -> str | None:
        choice = self._choice(field)
        return None if choice is None else choice.name

    def init_scale(self) -> float | None:
        choice = self._choice("init")
        if choice is None or choice.name not in SCALES:
            return None
        option, default = SCALES[choice.name]
        return float(cast("float", choice.options.get(option, default)))

    def norm_eps(self) -> float | None:
        choice = self._choice("norm")
        if choice is None or choice.name not in EPS:
            return None
        return float(cast("float", choice.options.get("eps", EPS[choice.name])))

    def hidden_ratio(self) -> float | None:
        choice, width = self._choice("mlp"), self._fields.get("width")
        if choice is None or choice.name not in PLAIN_MLPS or not width:
            return None
        hidden = choice.options.get("hidden")
        return HIDDEN_RATIO if hidden is None else float(cast("int", hidden)) / float(width)

    def attention(self) -> str | None:
        """Return `multihead` where it is plain, and the whole choice where it is not."""
        choice = self._choice("attention")
        if choice is None:
            return None
        options = {key for key, value in choice.options.items() if value is not None}
        if choice.options.get("groups") == self._fields.get("heads"):
            options -= {"groups"}
        return choice.name if options <= _PLAIN_ATTENTION_OPTIONS else str(choice)

    def final_norm(self) -> bool | None:
        """Return whether a norm stands after the last block; None where that is not known."""
        placement, norm = self._choice("placement"), self._choice("norm")
        if placement is None or norm is None:
            return None
        if norm.name == "none" or placement.options.get("closing") is False:
            return False
        return {"pre": True, "post": False}.get(placement.name)


def _as_drawn(record: Record, measured: Mapping[str, Mapping[int, Reading]]) -> bool | None:
    source = text_at(record.provenance, "model", "source")
    if source == "trained here":
        steps = [one.step for line in measured.values() for one in line.values()]
        return max(steps, default=0) == 0
    return True if source == "random init" or source.startswith("recipe ") else None


def _blocks(record: Record, stack: str) -> list[Mapping[str, Any]]:
    layers = value_at(record.provenance, "anatomy", "layers")
    blocks = cast("list[Mapping[str, Any]]", layers) if isinstance(layers, list) else []
    return [one for one in blocks if one.get("stack") == stack]


def _writes(block: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return list(cast("Sequence[Mapping[str, Any]]", block.get("sublayers") or ()))


def _branches(blocks: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """Return the roles of the writes where they are the same in every block."""
    roles = [tuple(str(write.get("role")) for write in _writes(block)) for block in blocks]
    if not roles or any(one != roles[0] for one in roles):
        return ()
    parallel = any(write.get("parallel") for block in blocks for write in _writes(block))
    return (f"{' and '.join(roles[0])} at once",) if parallel else roles[0]


def _number(writes: Sequence[Mapping[str, Any]], key: str) -> float | None:
    """Return what all writes have in common, where all of them are sums with fixed numbers."""
    if any(write.get("law") for write in writes):
        return None
    same = _same([write.get(key) for write in writes])
    return float(same) if isinstance(same, int | float) else None


def _same(values: Sequence[Any]) -> Any | None:
    return values[0] if values and all(value == values[0] for value in values) else None


def _line(
    readings: Mapping[int, Reading], first: int, last: int, *, upper: bool
) -> tuple[float, ...]:
    """Return the values at all sites, NaN where one is missing; empty where all are."""
    if not readings:
        return ()
    along = [readings.get(layer) for layer in range(first, last + 1)]
    return tuple(
        math.nan if one is None else one.upper if upper and one.upper is not None else one.value
        for one in along
    )
