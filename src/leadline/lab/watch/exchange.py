"""Exchange a function of torch for one that calls it, as long as some sample needs that."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["Exchange", "ExchangeStay"]


class Exchange:
    """One attribute of a module of torch; a version of torch without it is left as it is.

    Several watches may need it at once: the last one that is removed puts the original back, unless
    somebody else has exchanged it meanwhile.
    """

    def __init__(self, owner: Any, name: str, make: Callable[[Any], Any]) -> None:
        self.standing = 0
        """How many need it now."""
        self._owner, self._name, self._make = owner, name, make
        self._original = self._ours = None

    def begin(self) -> ExchangeStay:
        """Exchange it from now on, until what is returned is removed."""
        original = getattr(self._owner, self._name, None)
        if self._ours is None and original is not None:
            self._original, self._ours = original, self._make(original)
            setattr(self._owner, self._name, self._ours)
        self.standing += 1
        return ExchangeStay(self)

    def remove(self) -> None:
        """Put the original back, if nobody else needs the exchange."""
        self.standing = max(self.standing - 1, 0)
        if self.standing > 0 or self._ours is None:
            return
        if getattr(self._owner, self._name, None) is self._ours:
            setattr(self._owner, self._name, self._original)
        self._original = self._ours = None


class ExchangeStay:
    """One who needs an exchange; leaves it once, however often it is removed."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange: Exchange | None = exchange

    def remove(self) -> None:
        """Need it no more."""
        exchange, self._exchange = self._exchange, None
        if exchange is not None:
            exchange.remove()
