"""The catalog of families and the pieces that they share."""

from __future__ import annotations

from collections.abc import Callable

from torch import nn

from leadline.anatomy.structure import Block, Port, Stack, Sublayer
from leadline.catalog import Catalog

__all__ = ["FAMILIES", "Family", "blocks_in", "model_type", "parameters_under"]

Family = Callable[[nn.Module], "list[Stack] | None"]

FAMILIES: Catalog[Family] = Catalog(
    "family", package="leadline.anatomy.families", group="leadline.families"
)


def model_type(model: nn.Module) -> str:
    """The HF model type of a module, or nothing."""
    return str(getattr(getattr(model, "config", None), "model_type", "") or "")


def parameters_under(model: nn.Module, *modules: str) -> tuple[str, ...]:
    """Names of all parameters under the given modules."""
    return tuple(
        f"{path}.{name}"
        for path in modules
        for name, _ in model.get_submodule(path).named_parameters()
    )


def blocks_in(
    model: nn.Module, class_name: str, write: Callable[[str], tuple[Sublayer, ...]]
) -> tuple[Block, ...]:
    """Every module of the named class as a block, its sublayers by `write(path)`."""
    paths = [path for path, m in model.named_modules() if type(m).__name__ == class_name]
    return tuple(
        Block(
            layer=index + 1,
            module=path,
            entry=Port(path, "input"),
            exit=Port(path, "output"),
            sublayers=write(path),
        )
        for index, path in enumerate(paths)
    )
