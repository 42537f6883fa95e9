"""Leadline, the depth gauge for Transformers.

Point it at any PyTorch or Hugging Face model and it tells how signal and gradient travel through
depth. The public names are imported when they are first used: `import leadline` loads no torch.
"""

from __future__ import annotations

import importlib
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
        MissingExtra,
        ProbeError,
        RecipeError,
        RecordError,
        UnknownName,
    )
    from leadline.instruments.collapse.measure import collapse, collapse_weights
    from leadline.instruments.jacobian.lyapunov import lyapunov
    from leadline.instruments.jacobian.measure import jacobian
    from leadline.instruments.passes.measurement import anatomy_of, measure
    from leadline.instruments.paths.measure import paths
    from leadline.lab.grid import Sweep
    from leadline.lab.recording import train
    from leadline.lab.sweep import sweep
    from leadline.lab.training import Training
    from leadline.models.inputs import random_inputs, random_tokens
    from leadline.models.loading import load
    from leadline.numerics.spectra.spectrum import (
        attention_spectral_norm,
        singular_values,
        spectral_norm,
    )
    from leadline.parts import Recipe, Transformer
    from leadline.reading.bounds.evaluate import bounds
    from leadline.reading.compare.compare import compare
    from leadline.reading.map.trainability import trainability
    from leadline.reading.page import report
    from leadline.record import Record

__version__ = "0.1.0"

__all__ = [
    "AnatomyError",
    "BalanceError",
    "CatalogError",
    "Choice",
    "InputError",
    "LabError",
    "LeadlineError",
    "LoadingError",
    "MachineError",
    "MissingExtra",
    "ProbeError",
    "Recipe",
    "RecipeError",
    "Record",
    "RecordError",
    "Sweep",
    "Training",
    "Transformer",
    "UnknownName",
    "__version__",
    "anatomy_of",
    "attention_spectral_norm",
    "bounds",
    "collapse",
    "collapse_weights",
    "compare",
    "declare",
    "jacobian",
    "load",
    "lyapunov",
    "measure",
    "paths",
    "random_inputs",
    "random_tokens",
    "report",
    "singular_values",
    "spectral_norm",
    "sweep",
    "train",
    "trainability",
]

_HOME = (
    {
        "Choice": "catalog",
        "Recipe": "parts",
        "Record": "record",
        "Sweep": "lab.grid",
        "Training": "lab.training",
        "Transformer": "parts",
        "anatomy_of": "instruments.passes.measurement",
        "attention_spectral_norm": "numerics.spectra.spectrum",
        "bounds": "reading.bounds.evaluate",
        "collapse": "instruments.collapse.measure",
        "collapse_weights": "instruments.collapse.measure",
        "compare": "reading.compare.compare",
        "declare": "anatomy",
        "jacobian": "instruments.jacobian.measure",
        "load": "models.loading",
        "lyapunov": "instruments.jacobian.lyapunov",
        "measure": "instruments.passes.measurement",
        "paths": "instruments.paths.measure",
        "random_inputs": "models.inputs",
        "random_tokens": "models.inputs",
        "report": "reading.page",
        "singular_values": "numerics.spectra.spectrum",
        "spectral_norm": "numerics.spectra.spectrum",
        "sweep": "lab.sweep",
        "train": "lab.recording",
        "trainability": "reading.map.trainability",
    }
    | {name: "errors" for name in __all__ if name.endswith("Error")}
    | {
        "MissingExtra": "errors",
        "UnknownName": "errors",
    }
)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
