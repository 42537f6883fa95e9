"""No connection: what the branch returns is the new stream.

    x' = u

For comparison: the plain deep network that residual connections replaced. It costs nothing.
"""

from __future__ import annotations

from leadline.parts.connections._connection import CONNECTIONS, Scalar


@CONNECTIONS.register("none")
class Disconnected(Scalar):
    """u alone: no residual connection."""

    formula = "u"
    keeps_identity = False
    keeps_variance = True
    keep = 0.0

    def write(self, state: object, update):  # type: ignore[no-untyped-def]
        return update
