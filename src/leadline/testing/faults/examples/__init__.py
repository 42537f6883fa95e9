"""The examples of rules, run: what their pages show. `make rules` keeps them as data."""

from __future__ import annotations

from leadline.testing.faults.examples.run import run_example
from leadline.testing.faults.examples.sick_models import SICK_MODELS, SickModel, sick_models_of

__all__ = ["SICK_MODELS", "SickModel", "run_example", "sick_models_of"]
