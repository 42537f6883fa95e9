"""Leadline, the depth gauge for Transformers.

Point it at any PyTorch or Hugging Face model and it tells how signal and gradient travel through
depth. The public names are imported when they are first used: `import leadline` loads no torch.
"""

from __future__ import annotations

import importlib
import sys
import warnings
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from leadline.anatomy import declare
    from leadline.catalog import Choice
    from leadline.errors import (
        AnatomyError,
        BalanceError,
        CatalogError,
        InputError,
        LabError,
        LeadlineError,
        LoadingError,
        MachineError,
        MemoryLack,
        MissingExtra,
        ProbeError,
        ProcessError,
        RecipeError,
        RecordError,
        TrainingStopped,
        UnknownName,
    )
    from leadline.instruments.attacks.bounds import bounds
    from leadline.instruments.collapse.recording import collapse, collapse_weights
    from leadline.instruments.costs import cost
    from leadline.instruments.jacobian.recording import jacobian, lyapunov
    from leadline.instruments.passes.measurement import anatomy_of, measure
    from leadline.instruments.paths.recording import paths
    from leadline.instruments.visit.diagnose import diagnose
    from leadline.lab.grid import Sweep
    from leadline.lab.recording import train
    from leadline.lab.scan.scan import scan
    from leadline.lab.scan.settings import ScanSettings
    from leadline.lab.sweep import sweep
    from leadline.lab.training import Training
    from leadline.lab.watch.callbacks import LeadlineCallback
    from leadline.lab.watch.watch import watch
    from leadline.models.inputs import random_inputs, random_tokens
    from leadline.models.loading import load
    from leadline.numerics.spectra.spectrum import (
        attention_spectral_norm,
        singular_values,
        spectral_norm,
    )
    from leadline.parts import Recipe, Transformer
    from leadline.reading.compare.compare import compare
    from leadline.reading.diagnosis.diagnosis import Diagnosis
    from leadline.reading.map.trainability import trainability
    from leadline.reading.page import report
    from leadline.record import Finding, Record
    from leadline.web.server.notebook import lab

__version__ = "0.1.0"

__all__ = [
    "AnatomyError",
    "BalanceError",
    "CatalogError",
    "Choice",
    "Diagnosis",
    "Finding",
    "InputError",
    "LabError",
    "LeadlineCallback",
    "LeadlineError",
    "LoadingError",
    "MachineError",
    "MemoryLack",
    "MissingExtra",
    "ProbeError",
    "ProcessError",
    "Recipe",
    "RecipeError",
    "Record",
    "RecordError",
    "ScanSettings",
    "Sweep",
    "Training",
    "TrainingStopped",
    "Transformer",
    "UnknownName",
    "__version__",
    "anatomy_of",
    "attention_spectral_norm",
    "bounds",
    "collapse",
    "collapse_weights",
    "compare",
    "cost",
    "declare",
    "diagnose",
    "jacobian",
    "lab",
    "load",
    "lyapunov",
    "measure",
    "paths",
    "random_inputs",
    "random_tokens",
    "report",
    "scan",
    "singular_values",
    "spectral_norm",
    "sweep",
    "train",
    "trainability",
    "watch",
]

_HOME = (
    {
        "Choice": "catalog",
        "Diagnosis": "reading.diagnosis.diagnosis",
        "Finding": "record",
        "LeadlineCallback": "lab.watch.callbacks",
        "Recipe": "parts",
        "Record": "record",
        "ScanSettings": "lab.scan.settings",
        "Sweep": "lab.grid",
        "Training": "lab.training",
        "Transformer": "parts",
        "anatomy_of": "instruments.passes.measurement",
        "attention_spectral_norm": "numerics.spectra.spectrum",
        "bounds": "instruments.attacks.bounds",
        "collapse": "instruments.collapse.recording",
        "collapse_weights": "instruments.collapse.recording",
        "compare": "reading.compare.compare",
        "cost": "instruments.costs",
        "declare": "anatomy",
        "diagnose": "instruments.visit.diagnose",
        "jacobian": "instruments.jacobian.recording",
        "load": "models.loading",
        "lyapunov": "instruments.jacobian.recording",
        "measure": "instruments.passes.measurement",
        "paths": "instruments.paths.recording",
        "random_inputs": "models.inputs",
        "random_tokens": "models.inputs",
        "report": "reading.page",
        "scan": "lab.scan.scan",
        "singular_values": "numerics.spectra.spectrum",
        "spectral_norm": "numerics.spectra.spectrum",
        "sweep": "lab.sweep",
        "train": "lab.recording",
        "trainability": "reading.map.trainability",
        "watch": "lab.watch.watch",
    }
    | {name: "errors" for name in __all__ if name.endswith("Error")}
    | {
        "MemoryLack": "errors",
        "MissingExtra": "errors",
        "TrainingStopped": "errors",
        "UnknownName": "errors",
    }
)


_MOVED = {
    "leadline.analysis.claim": "leadline.claims.claim",
    "leadline.probes": "leadline.instruments.passes.probes",
    "leadline.reporting": "leadline.reading.page",
    "leadline.reproduce": "leadline.experiments",
}
"""Rooms that pages told plug-ins to import from, by the names that they had in version 0.1.0."""


class _MovedRooms(MetaPathFinder, Loader):
    """Finds a room under its old name, with a warning that says the new one."""

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> Any:
        """Return the spec of a module that has moved."""
        return ModuleSpec(fullname, self) if _new_name(fullname) else None

    def create_module(self, spec: ModuleSpec) -> None:
        """Let Python make an empty module, which `exec_module` replaces."""

    def exec_module(self, module: Any) -> None:
        """Put the module itself under its old name, so that nothing in it runs twice."""
        old, new = module.__name__, _new_name(module.__name__)
        assert new is not None
        warnings.warn(f"{old} is now {new}.", DeprecationWarning, stacklevel=2)
        sys.modules[old] = importlib.import_module(new)


def _new_name(old: str) -> str | None:
    for before, now in _MOVED.items():
        if old == before or old.startswith(f"{before}."):
            return now + old.removeprefix(before)
        if before.startswith(f"{old}."):
            return "leadline.reading"  # leadline.analysis held more than one room
    return None


# First, because the folder of a moved room would otherwise be imported a second time.
sys.meta_path.insert(0, _MovedRooms())


def __getattr__(name: str) -> Any:
    if name == "lab":  # the room itself, which can be called
        return importlib.import_module("leadline.lab")
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
