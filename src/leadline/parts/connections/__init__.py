"""How an update joins the stream: one file per connection."""

from __future__ import annotations

from leadline.parts.connections._connection import CONNECTIONS, Connection, Scalar, State

__all__ = ["CONNECTIONS", "Connection", "Scalar", "State"]
