"""What an init is: something that fills a weight, given its role and its place.

Roles: embedding (tied, where the head uses it too), positions, types, head (these at layer 0),
query, key, value, output, up, gate, down, and what a connection names itself. Biases start at 0, norms at 1. Every weight is drawn by its
own generator, seeded by the model's seed and the weight's name: models of one seed share the
weights of all parts that they share.
"""

from __future__ import annotations

import hashlib
import math
from abc import ABC, abstractmethod

import torch
from torch import Tensor

from leadline.catalog import Catalog
from leadline.parts.place import Place

__all__ = ["INITS", "RESIDUAL", "TABLES", "Init", "generator_of", "normal", "xavier"]

RESIDUAL = frozenset({"output", "down"})
"""The weights that write to the stream."""
TABLES = frozenset({"embedding", "tied", "positions", "types"})
"""The weights whose rows are looked up."""


class Init(ABC):
    """Draws weights by role and place; its options are the constructor's keyword arguments."""

    @abstractmethod
    def fill(self, role: str, weight: Tensor, place: Place, generator: torch.Generator) -> None:
        """Draw one weight, in place."""


INITS: Catalog[type[Init]] = Catalog("init", package="leadline.parts.inits", group="leadline.inits")


def generator_of(seed: int, name: str) -> torch.Generator:
    """The generator of one weight."""
    digest = hashlib.sha256(f"{seed}:{name}".encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:8], "big") >> 1)


def normal(weight: Tensor, std: float, generator: torch.Generator) -> None:
    """Fill with a normal distribution."""
    weight.copy_(torch.empty(weight.shape).normal_(0.0, std, generator=generator))


def xavier(weight: Tensor, gain: float, generator: torch.Generator) -> None:
    """Fill uniformly in ± gain sqrt(6 / (fan in + fan out)) (Glorot and Bengio 2010)."""
    limit = gain * math.sqrt(6.0 / (weight.shape[0] + weight.shape[1]))
    weight.copy_(torch.empty(weight.shape).uniform_(-limit, limit, generator=generator))
