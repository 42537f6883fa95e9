"""Any model as one stream and its sublayers, proved by the balance equation."""

from __future__ import annotations

from leadline.anatomy.find.declaration import Declaration, declare
from leadline.anatomy.find.measurable import check_measurable, check_module
from leadline.anatomy.find.reading import TOLERANCE, judge, read_anatomy, refuse_imbalance
from leadline.anatomy.find.wrappers import (
    configured_model,
    is_compiled,
    unsharded,
    unwrapped,
    wrapper_names,
)
from leadline.anatomy.kept_weights import model_pass
from leadline.anatomy.own_passes import own_depth, own_passes
from leadline.anatomy.structure import Anatomy, Balance, Block, Port, Stack, Sublayer, WriteLaw
from leadline.anatomy.tap.attention import AttentionSpy, SeenAttention
from leadline.anatomy.tap.module_hook import ModuleHook
from leadline.anatomy.tap.tap import MIXING, Listener, Tap
from leadline.anatomy.untouched import untouched

__all__ = [
    "MIXING",
    "TOLERANCE",
    "Anatomy",
    "AttentionSpy",
    "Balance",
    "Block",
    "Declaration",
    "Listener",
    "ModuleHook",
    "Port",
    "SeenAttention",
    "Stack",
    "Sublayer",
    "Tap",
    "WriteLaw",
    "check_measurable",
    "check_module",
    "configured_model",
    "declare",
    "is_compiled",
    "judge",
    "model_pass",
    "own_depth",
    "own_passes",
    "read_anatomy",
    "refuse_imbalance",
    "unsharded",
    "untouched",
    "unwrapped",
    "wrapper_names",
]
