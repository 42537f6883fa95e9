"""T-Fixup: an init with which a Transformer trains without norms and without warm-up.

    Xavier; value, output and MLP weights times  0.67 N^(-1/4)   kind encoder
                                                 (9 N)^(-1/4)    kind decoder
    tables: normal of std width^(-1/2), times (9 N)^(-1/4)

Huang et al. 2020 (ICML). N = number of layers. The decoder of the paper has a third sublayer,
attention to the encoder; a decoder alone has none, and which kind suits it better is open: decoder
is the default, the quieter of the two. The released code also multiplies value weights by sqrt(2):
that only undoes the gain 1 / sqrt(2) of its library, so value weights start from Xavier's gain 1
here as there; query and key weights keep gain 1, as in the paper (in the code 1 / sqrt(2)). It
multiplies what is looked up in the table by sqrt(width): embedding token(scale=sqrt_width). For
placement none or norm none.
"""

from __future__ import annotations

import torch
from torch import Tensor

from leadline.parts.inits.init import INITS, TABLES, Init, normal, xavier
from leadline.parts.options import one_of
from leadline.parts.place import Place

QUIETER = frozenset({"value", "output", "up", "gate", "down"})


@INITS.register("tfixup")
class TFixup(Init):
    """Xavier uniform with small branches and small tables, for stacks without norms."""

    def __init__(self, *, kind: str = "decoder") -> None:
        self.kind = one_of("tfixup", "kind", kind, ("encoder", "decoder"))

    def fill(self, role: str, weight: Tensor, place: Place, generator: torch.Generator) -> None:
        quiet = (9 * place.depth) ** -0.25
        if role in TABLES:
            normal(weight, place.width**-0.5 * quiet, generator)
        elif role in QUIETER:
            encoder = self.kind == "encoder"
            xavier(weight, 0.67 * place.depth**-0.25 if encoder else quiet, generator)
        else:
            xavier(weight, 1.0, generator)
