"""Any model as one stream and its sublayers, proved by the balance equation."""

from __future__ import annotations

from leadline.anatomy._structure import Anatomy, Balance, Block, Law, Port, Stack, Sublayer
from leadline.anatomy.declaration import Declaration, declare
from leadline.anatomy.reading import TOLERANCE, judge, read_anatomy, refuse_imbalance
from leadline.anatomy.tap import Listener, Tap
from leadline.anatomy.untouched import untouched, unwrapped

__all__ = [
    "TOLERANCE",
    "Anatomy",
    "Balance",
    "Block",
    "Declaration",
    "Law",
    "Listener",
    "Port",
    "Stack",
    "Sublayer",
    "Tap",
    "declare",
    "judge",
    "read_anatomy",
    "refuse_imbalance",
    "untouched",
    "unwrapped",
]
