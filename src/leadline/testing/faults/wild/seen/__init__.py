"""Wild faults that those who write rules may look at."""

from __future__ import annotations

from leadline.testing.faults.wild.case import WildFault
from leadline.testing.faults.wild.seen.attention import ATTENTION_FAULTS
from leadline.testing.faults.wild.seen.norms import NORM_FAULTS
from leadline.testing.faults.wild.seen.numbers import NUMBER_FAULTS
from leadline.testing.faults.wild.seen.residuals import RESIDUAL_FAULTS
from leadline.testing.faults.wild.seen.structure import STRUCTURE_FAULTS

__all__ = ["OPEN_FAULTS"]

OPEN_FAULTS: tuple[WildFault, ...] = (
    *RESIDUAL_FAULTS,
    *NORM_FAULTS,
    *ATTENTION_FAULTS,
    *STRUCTURE_FAULTS,
    *NUMBER_FAULTS,
)
