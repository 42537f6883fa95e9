"""How a configuration of transformers is read, field by field.

A field that is absent has the default of its class. A field that would change what the model
computes, and that no part here can follow, is refused by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

from leadline.catalog import Catalog, Choice
from leadline.errors import RecipeError
from leadline.parts.recipe import PARTS

__all__ = ["Fields", "part_choice"]

FOREIGN = {
    "quantization_config": "the weights are quantised; save them in full first",
    "auto_map": "the model brings its own code, which may compute anything",
    "pruned_heads": "layers with heads cut out have no part here",
}
"""Fields that any configuration may have and that change what its weights mean."""

BASE = 10000.0
"""The base of rotary positions where a configuration names none."""


class Fields:
    """The configuration of one checkpoint."""

    def __init__(
        self, config: Mapping[str, Any], kind: str, aliases: Mapping[str, str] | None = None
    ) -> None:
        self.kind = kind
        names = dict(aliases or {})
        self.content = {names.get(name, name): value for name, value in config.items()}
        if _from_gguf(self.content.get("quantization_config")):
            del self.content["quantization_config"]
        for name, reason in FOREIGN.items():
            if self.content.get(name):
                self.refuse(name, reason)
        self.must(is_encoder_decoder=False)

    def refuse(self, name: str, reason: str) -> NoReturn:
        """Say that a field cannot be followed."""
        raise RecipeError(
            f"This {self.kind} checkpoint cannot be built here: its configuration says "
            f"{name} = {self.content.get(name)!r}, and {reason}."
        )

    def get(self, name: str, default: Any) -> Any:
        """A field, or its class's default where it is absent."""
        return self.content.get(name, default)

    def count(self, name: str, default: int | None) -> int:
        """A field that must be a whole number from 1 on."""
        value = self.get(name, default)
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            self.refuse(name, "a whole number from 1 on is needed there")
        return value

    def number(self, name: str, default: float) -> float:
        """A field that must be a number above 0."""
        value = self.get(name, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
            self.refuse(name, "a number above 0 is needed there")
        return float(value)

    def flag(self, name: str, default: bool) -> bool:
        """A field that is true or false."""
        value = self.get(name, default)
        if not isinstance(value, bool):
            self.refuse(name, "true or false is needed there")
        return value

    def must(self, **values: Any) -> None:
        """Refuse fields that have another value than the only one that parts here can follow."""
        for name, value in values.items():
            if self.get(name, value) != value:
                self.refuse(name, f"parts here can only follow {name} = {value!r}")

    def one_of(self, name: str, parts: Mapping[str, str], default: str) -> str:
        """The part that a field's value names."""
        value = self.get(name, default)
        if value not in parts:
            self.refuse(name, f"parts here know {', '.join(parts)}")
        return parts[value]

    def head(self, classes: Mapping[str, str]) -> str:
        """The head that the configuration's first architecture has; the first class without one."""
        architectures = self.get("architectures", None) or list(classes)
        if architectures[0] not in classes:
            raise RecipeError(
                f"This {self.kind} checkpoint is a {architectures[0]}, whose head has no part here; "
                f"it can be read as {' or '.join(classes)}."
            )
        return classes[architectures[0]]

    def rotary(
        self,
        *,
        share: float | None = None,
        base_name: str = "rope_theta",
        share_name: str = "partial_rotary_factor",
    ) -> dict[str, Any]:
        """The options of rotary positions. `share` is None where the class turns whole heads.

        They stand in rope_parameters since transformers 5, and in fields of their own before.
        """
        for name in ("rope_scaling", "rope_parameters"):
            if not isinstance(self.get(name, None) or {}, Mapping):
                self.refuse(name, "a mapping is needed there")
        source = "rope_scaling" if self.get("rope_scaling", None) else "rope_parameters"
        parameters = dict(self.get(source, None) or {})
        if any(isinstance(value, Mapping) for value in parameters.values()):
            self.refuse(
                source, "rotary positions that differ from layer to layer have no part here"
            )
        if parameters.get("rope_type", parameters.get("type", "default")) != "default":
            self.refuse(
                source, "only unscaled rotary positions (rope_type default) have a part here"
            )
        self.content[base_name] = parameters.get("rope_theta", self.get(base_name, BASE)) or BASE
        if self.content.get(share_name) is None:
            self.content[share_name] = 1.0 if share is None else share
        self.content[share_name] = (
            parameters.get("partial_rotary_factor") or self.content[share_name]
        )
        if share is None and self.content[share_name] != 1.0:
            self.refuse(share_name, f"the heads of {self.kind} are turned whole")
        return {"base": self.number(base_name, BASE), "share": self.number(share_name, 1.0)}


def _from_gguf(quantization: object) -> bool:
    """Whether the weights were quantised in a GGUF file only: transformers reads them in full."""
    return isinstance(quantization, Mapping) and quantization.get("quant_method") == "gguf"


def part_choice(field: str, name: str, **options: Any) -> Choice:
    """Return the choice of a part with only those options that differ from its defaults."""
    catalog: Catalog[Any] = PARTS[field]
    defaults = {key: p.default for key, p in catalog.options(name).items()}
    return Choice(name, **{k: v for k, v in options.items() if v != defaults[k]})
