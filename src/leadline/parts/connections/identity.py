"""The residual connection itself.

    x' = x + u

He et al. 2015, arXiv 1512.03385. No constants. It costs one addition. Measured at initialisation,
the mean square of the stream grows by that of every update: a norm before the branch keeps the
updates equal in size, so the growth is linear in depth.
"""

from __future__ import annotations

from leadline.parts.connections._connection import CONNECTIONS, Scalar


@CONNECTIONS.register("identity")
class Identity(Scalar):
    """x + u: the plain residual connection."""

    formula = "x + u"
    starts_as = "plain"
