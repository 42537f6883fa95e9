"""What a fault is, and the catalog of all of them.

To add one, write a function of a `Subject` that changes its model and returns the answer, in a file
of `kinds/`:

    @fault("mlp-zero", "weights-zero", "write-dead")
    def mlp_zero(subject): ...

The causes are names of rules, the best one first; all of them are accepted. `fits` says which hosts
can have the fault. A function that has to build another model returns it beside the answer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from leadline.catalog import Catalog
from leadline.errors import InputError
from leadline.testing.faults.answer import Answer
from leadline.testing.faults.hosts.entry import Host

if TYPE_CHECKING:
    from torch import nn

    from leadline.testing.faults.subject import Subject

__all__ = ["FAULTS", "FRESH_FAULTS", "Fault", "FaultSite", "fault"]
__all__ += ["find_fault", "fresh_fault"]

FAULTS: Catalog[Fault] = Catalog("fault", package="leadline.testing.faults.kinds")
FRESH_FAULTS: Catalog[Fault] = Catalog("fault", package="leadline.testing.faults.fresh.kinds")
"""Kinds of faults that only the fresh rounds have, apart so that no rule is tried on them before."""


@dataclass(frozen=True)
class FaultSite:
    """Where a fault was put: layers from 1, the role of a sublayer, a tensor or module."""

    layers: tuple[int, ...] = ()
    sublayer: str | None = None
    parameter: str | None = None
    names_stack: bool = True
    """False where the fault changes what the stack is, such as a decoder that sees the future."""
    model: nn.Module | None = None
    """Another model, where the fault could not be put into the one that was given."""
    causes: tuple[str, ...] = ()
    """Causes that are right for this host alone, beside those of the fault."""


@dataclass(frozen=True)
class Fault:
    """One way in which a model may be wrong."""

    name: str
    causes: tuple[str, ...]
    """Names of rules that are right, the best one first."""
    fits: Callable[[Host], bool]
    change: Callable[[Subject], FaultSite]

    def apply(self, model: nn.Module, host: Host, seed: int = 0) -> tuple[nn.Module, Answer]:
        """Put the fault into a model of the host; return the model that has it, and the answer."""
        import torch

        from leadline.testing.faults.subject import Subject

        if not self.fits(host):
            raise InputError(
                f"The host {host.name} cannot have the fault {self.name}; `fits` says which can."
            )
        with torch.no_grad():
            place = self.change(Subject(model, host, seed, fault=self.name))
        answer = Answer(
            frozenset(self.causes + place.causes),
            stack=host.layout.stack if place.names_stack else None,
            layers=place.layers,
            sublayer=place.sublayer,
            parameter=place.parameter,
        )
        return (model if place.model is None else place.model), answer


def anywhere(_host: Host) -> bool:
    """Every host can have the fault."""
    return True


def find_fault(name: str) -> Fault:
    """The fault of this name, of the first round or of a fresh one."""
    return FRESH_FAULTS.get(name) if name in FRESH_FAULTS.names() else FAULTS.get(name)


Change = Callable[["Subject"], FaultSite]


def fault(
    name: str,
    *causes: str,
    fits: Callable[[Host], bool] = anywhere,
    catalog: Catalog[Fault] = FAULTS,
) -> Callable[[Change], Change]:
    """Enter a function of a subject as the fault of this name."""

    def enter(change: Change) -> Change:
        catalog.register(name)(Fault(name, causes, fits, change))
        return change

    return enter


def fresh_fault(
    name: str, *causes: str, fits: Callable[[Host], bool] = anywhere
) -> Callable[[Change], Change]:
    """Enter a function of a subject as a fault of a fresh round."""
    return fault(name, *causes, fits=fits, catalog=FRESH_FAULTS)
