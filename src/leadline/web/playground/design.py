"""A design: the knobs of the playground, and the model and the inputs that they stand for.

    Design(depth=48, placement="post").model()      a Transformer
    Design.from_json({"depth": 48, "placement": "post"})

Parts are spelled as in a recipe (`"hyper(lanes=4)"`). Whatever cannot be built is refused with the
name of the knob to turn. `gain` multiplies the output projections of every branch after the draw:
1 is the init as it is. Text is read as bytes, so that every byte is a token of the vocabulary.

`leadline.measure(design.model(), design.inputs())` gives the numbers that the playground shows.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from leadline.catalog import Choice
from leadline.errors import LeadlineError, RecipeError, nearest_names, shown

if TYPE_CHECKING:
    from leadline.models.inputs import Inputs
    from leadline.parts import Recipe, Transformer

__all__ = [
    "DEFAULT_TEXT",
    "LIMITS",
    "MOST_TOKENS",
    "PART_KNOBS",
    "Design",
    "DesignError",
    "checked_fields",
    "scale_outputs",
]

MOST_TOKENS = 64
"""Tokens of a text that are used; positions are learned for as many."""
LIMITS: dict[str, tuple[int, int]] = {"depth": (2, 96), "width": (16, 256), "heads": (1, 256)}
"""The smallest and the largest of what is counted."""
MOST_OF_OPTION = {"lanes": 16, "iterations": 100, "hidden": 1024}
"""The largest whole number that an option of a part may be; others may be up to `MOST_OF_OTHERS`."""
MOST_OF_OTHERS = 256
MOST_OF_NUMBERS = 1e8
"""Of any number of an option: products of weights far beyond are not finite in single precision."""
MOST_GAIN = 4.0
MOST_SEED = 2**31 - 1
PART_KNOBS = ("connection", "placement", "norm", "init", "mlp", "positions")
"""The knobs that choose a part of the recipe."""
MASKS = ("causal", "full")
DEFAULT_TEXT = "The sea is deep, and a line tells how deep."
_GUESSES = ("heads", "init", "connection", "placement", "norm", "mlp", "positions")
"""Which knob is tried first where a refusal is about several."""


class DesignError(RecipeError):
    """A design that cannot be built; `knob` is the one to turn, or None where it is not known."""

    def __init__(self, reason: str, *, knob: str | None = None) -> None:
        super().__init__(reason)
        self.knob = knob

    def to_json(self) -> dict[str, Any]:
        """Return knob and reason."""
        return {"knob": self.knob, "reason": str(self)}


def checked_fields(fields: object, known: list[str], *, what: str, part: str) -> dict[str, Any]:
    """Return the fields of a request by name; DesignError where one is none of those known."""
    if not isinstance(fields, Mapping):
        raise DesignError(f"A {what} is a mapping of its {part}s, not {shown(fields)}.")
    for name in fields:
        if name not in known:
            near = nearest_names(str(name), known, at_most=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise DesignError(
                f"A {what} has no {part} {shown(name)}.{hint} Its {part}s: {', '.join(known)}.",
                knob=str(name),
            )
    return {str(name): value for name, value in fields.items()}


@dataclass(frozen=True, kw_only=True)
class Design:
    """The knobs of one side of the playground. `init="auto"` is the init of the connection."""

    connection: str = "identity"
    placement: str = "pre"
    norm: str = "layernorm"
    init: str = "auto"
    mask: str = "causal"
    mlp: str = "gelu_tanh"
    positions: str = "learned"
    depth: int = 24
    width: int = 64
    heads: int = 4
    gain: float = 1.0
    text: str = DEFAULT_TEXT
    seed: int = 0

    def __post_init__(self) -> None:
        for name, (least, most) in LIMITS.items():
            _check_integer(name, getattr(self, name), least, most)
        _check_integer("seed", self.seed, 0, MOST_SEED)
        object.__setattr__(self, "gain", _checked_gain(self.gain))
        if self.mask not in MASKS:
            raise DesignError(
                f"The mask is {shown(self.mask)}; choose causal (no token sees a later one) or full.",
                knob="mask",
            )
        object.__setattr__(self, "text", _checked_text(self.text))
        for name in PART_KNOBS:
            object.__setattr__(self, name, _checked_part(name, getattr(self, name)))
        try:
            self.recipe()
        except LeadlineError as error:
            raise DesignError(str(error), knob=self._knob_to_turn()) from error

    @classmethod
    def from_json(cls, fields: object) -> Design:
        """Read a design; what is absent takes the default."""
        known = [field.name for field in dataclasses.fields(cls)]
        return cls(**checked_fields(fields, known, what="design", part="knob"))

    def to_json(self) -> dict[str, Any]:
        """Return every knob."""
        return dataclasses.asdict(self)

    def difference(self) -> dict[str, Any]:
        """Return the knobs that are not at their default."""
        default = Design().to_json()
        return {name: value for name, value in self.to_json().items() if value != default[name]}

    @property
    def tokens(self) -> int:
        """How many tokens the text has."""
        return len(self.text.encode())

    def recipe(self) -> Recipe:
        """Return what the model is made of."""
        from leadline.parts import Recipe

        return Recipe(
            depth=self.depth,
            width=self.width,
            heads=self.heads,
            attention=Choice("multihead") if self.mask == "causal" else _SEES_ALL,
            positions=self.positions,
            mlp=self.mlp,
            norm=self.norm,
            connection=self.connection,
            placement=self.placement,
            init=None if self.init == "auto" else self.init,
            vocabulary=256,
            context=MOST_TOKENS,
        )

    def model(self) -> Transformer:
        """Return a new model with its weights drawn."""
        from leadline.parts import Transformer

        try:
            model = Transformer(self.recipe(), seed=self.seed)
        except LeadlineError as error:
            # Some parts look at depth and norm only when they are made.
            raise DesignError(str(error), knob=self._knob_to_turn(built=True)) from error
        scale_outputs(model, self.gain)
        return model

    def inputs(self) -> Inputs:
        """Return the text as one example of bytes."""
        import torch

        from leadline.models.inputs import Inputs

        ids = torch.tensor([list(self.text.encode())])
        # Called a text, so that no byte is taken for a mask token where tokens see each other.
        return Inputs({"input_ids": ids}, kind="text", preview=self.text, made=True)

    def _knob_to_turn(self, *, built: bool = False) -> str | None:
        """The first knob whose default alone makes the design possible."""
        fields = {name: getattr(self, name) for name in _GUESSES}
        default = {name: _DEFAULTS[name] for name in _GUESSES}
        default["heads"] = 1
        for name in _GUESSES:
            if fields[name] == default[name]:
                continue
            trial = object.__new__(Design)
            for one, value in dataclasses.asdict(self).items():
                object.__setattr__(trial, one, default[name] if one == name else value)
            try:
                recipe = trial.recipe()
                if built:
                    from leadline.parts import Transformer

                    Transformer(recipe)
            except LeadlineError:
                continue
            return name
        return None


_DEFAULTS = {field.name: field.default for field in dataclasses.fields(Design)}
_SEES_ALL = Choice("multihead", causal=False)


def scale_outputs(model: Transformer, gain: float) -> None:
    """Multiply every weight that writes to the stream."""
    import torch

    from leadline.parts.inits.init import RESIDUAL

    if gain == 1.0:
        return
    with torch.no_grad():
        for sublayer in model.sublayers():
            for role, weight in sublayer.branch.weights():
                if role in RESIDUAL:
                    weight.mul_(gain)


def _check_integer(name: str, value: object, least: int, most: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise DesignError(
            f"The {name} is {shown(value)}; give a whole number from {least} to {most}.", knob=name
        )


def _checked_gain(value: object) -> float:
    number = value if isinstance(value, int | float) and not isinstance(value, bool) else math.nan
    if 0 <= number <= MOST_GAIN:  # before float(), which not every integer fits
        return float(number)
    raise DesignError(
        f"The gain is {shown(value)}; give a number from 0 to {MOST_GAIN:g}.", knob="gain"
    )


def _checked_text(value: object) -> str:
    if not isinstance(value, str):
        raise DesignError(f"The text is {shown(value)}; give some words.", knob="text")
    # Half of a surrogate pair, which JSON can spell, has no bytes.
    cut = value.encode("utf-8", "replace")[:MOST_TOKENS].decode("utf-8", "ignore")
    if len(cut.encode()) < 2:
        raise DesignError(
            f"The text {shown(value)} has fewer than two bytes; give at least two letters, because "
            "one token has no other to be compared with.",
            knob="text",
        )
    return cut


def _checked_part(name: str, value: object) -> str:
    """The part in its one spelling, or a refusal that names the knob."""
    from leadline.parts.recipe import PARTS

    if name == "init" and value == "auto":
        return "auto"
    if not isinstance(value, str | Mapping | Choice):
        raise DesignError(
            f"The {name} is {shown(value)}; give the name of one, such as {_DEFAULTS[name]!r}.",
            knob=name,
        )
    try:
        choice = PARTS[name].check(value)
    except LeadlineError as error:
        raise DesignError(str(error), knob=name) from error
    for option, number in choice.options.items():
        if isinstance(number, int | float) and not abs(number) <= MOST_OF_NUMBERS:
            raise DesignError(
                f"The option {option} of {choice.name} is {shown(number)}; the playground takes "
                f"numbers up to {MOST_OF_NUMBERS:g}.",
                knob=name,
            )
        most = MOST_OF_OPTION.get(option, MOST_OF_OTHERS)
        if (
            type(number) is int
            and abs(number) > most
            and PARTS[name].options(choice.name)[option].default.__class__ is not float
        ):
            raise DesignError(
                f"The option {option} of {choice.name} is {number}; the playground takes at most "
                f"{most}.",
                knob=name,
            )
    return str(choice)
