"""Wild faults that are only scored; whoever writes rules does not open this folder before."""

from __future__ import annotations

from leadline.testing.faults.wild.case import WildFault

__all__ = ["SEALED_FAULTS"]

SEALED_FAULTS: tuple[WildFault, ...] = ()
