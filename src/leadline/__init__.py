"""Leadline, the depth gauge for Transformers.

Point it at any PyTorch or Hugging Face model and it tells how signal and gradient travel through
depth. The public names are imported when they are first used: `import leadline` loads no torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from leadline.analysis.bounds import bounds
    from leadline.analysis.compare import compare
    from leadline.analysis.trainability import trainability
    from leadline.anatomy import declare
    from leadline.catalog import Choice
    from leadline.collapsing import collapse, collapse_weights
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
    from leadline.exponents import lyapunov
    from leadline.inputs import random_inputs, random_tokens
    from leadline.jacobians import jacobian
    from leadline.lab.grid import Sweep
    from leadline.lab.recording import train
    from leadline.lab.sweep import sweep
    from leadline.lab.training import Training
    from leadline.loading import load
    from leadline.measurement import anatomy_of, measure
    from leadline.numerics.spectrum import (
        attention_spectral_norm,
        singular_values,
        spectral_norm,
    )
    from leadline.parts import Recipe, Transformer
    from leadline.pathways import paths
    from leadline.record import Record
    from leadline.reporting import report

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
        "anatomy_of": "measurement",
        "attention_spectral_norm": "numerics.spectrum",
        "bounds": "analysis.bounds",
        "collapse": "collapsing",
        "collapse_weights": "collapsing",
        "compare": "analysis.compare",
        "declare": "anatomy",
        "jacobian": "jacobians",
        "load": "loading",
        "lyapunov": "exponents",
        "measure": "measurement",
        "paths": "pathways",
        "random_inputs": "inputs",
        "random_tokens": "inputs",
        "report": "reporting",
        "singular_values": "numerics.spectrum",
        "spectral_norm": "numerics.spectrum",
        "sweep": "lab.sweep",
        "train": "lab.recording",
        "trainability": "analysis.trainability",
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
