"""Which attentions are what they seem to be."""

from __future__ import annotations

from leadline.anatomy import SeenAttention

__all__ = ["KnownHeads"]


class KnownHeads:
    """Which attentions have heads behind their examples, where both are as many.

    The products that queries come from tell. They are followed in the first sample, and again
    where a batch has as many examples as heads and the first one had not.
    """

    def __init__(self) -> None:
        self.looks = True
        """Whether the next sample follows the products."""
        self.modules: set[str] = set()

    def can_tell(self, attention: SeenAttention) -> bool:
        """Say whether an attention is known to be what it seems to be."""
        if not attention.ambiguous:
            if attention.query_source is not None:
                self.modules.add(attention.module)
            return True
        if attention.query_source is not None:
            self.modules.add(attention.module)
        self.looks = self.looks or attention.module not in self.modules
        return attention.module in self.modules
