"""Wild faults that are only scored; whoever writes rules does not open this folder before."""

from __future__ import annotations

from leadline.testing.faults.wild.case import WildFault
from leadline.testing.faults.wild.sealed.decoders import DECODER_FAULTS
from leadline.testing.faults.wild.sealed.encoders import ENCODER_FAULTS
from leadline.testing.faults.wild.sealed.families import FAMILY_FAULTS
from leadline.testing.faults.wild.sealed.variants import VARIANT_FAULTS

__all__ = ["SEALED_FAULTS"]

SEALED_FAULTS: tuple[WildFault, ...] = (
    *DECODER_FAULTS,
    *VARIANT_FAULTS,
    *ENCODER_FAULTS,
    *FAMILY_FAULTS,
)
