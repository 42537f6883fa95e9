"""Small models trained for a few seconds on bytes of Python's standard library, and kept.

AdamW, 8 windows of 64 bytes a step, the rate warmed up and then lowered to zero by a cosine; on one
thread, so that the result does not depend on the number of cores. A trained model is
kept in a folder and read from there the next time: `LEADLINE_CACHE`, else `.cache` in a checkout,
else the user's cache.
"""

from __future__ import annotations

import functools
import hashlib
import json
import math
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import leadline
from leadline.errors import require

__all__ = ["MASK", "TrainingCourse", "cache_folder", "hide", "kept_model", "trained_model"]

MASK = 256
"""The id that hides a byte from a masked model."""
SHARE = 0.15
"""How many bytes are hidden."""


@dataclass(frozen=True)
class TrainingCourse:
    """How a model is trained: about 20 seconds on one core."""

    length: int = 64
    examples: int = 8
    steps: int = 550
    rate: float = 4e-3
    warmup: int = 30


_PLAIN = TrainingCourse()
# A masked model has to learn for every place where its neighbours are, before it can learn anything
# else: with windows of 64 bytes none of many trials got below the entropy of single bytes.
_MASKED = TrainingCourse(length=16, examples=64, steps=600, rate=2e-3, warmup=50)

_SETTINGS: Mapping[str, Mapping[str, Any]] = {
    "gpt2": {"vocab_size": 256, "n_layer": 6, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
    | {"resid_pdrop": 0.0},
    "llama": {"vocab_size": 256, "num_key_value_heads": 4},
    "qwen3": {"vocab_size": 256, "num_hidden_layers": 6, "tie_word_embeddings": True},
    "gpt_neox": {"vocab_size": 256},
    "bert": {"vocab_size": 260, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    | {"initializer_range": 0.1},
    "nano-gpt": {"vocab_size": 256},
}


def cache_folder() -> Path:
    """Where trained hosts are kept."""
    if chosen := os.environ.get("LEADLINE_CACHE"):
        return Path(chosen) / "faults"
    checkout = Path(leadline.__file__).parents[2]
    if (checkout / "pyproject.toml").is_file():
        return checkout / ".cache" / "faults"
    if sys.platform == "win32":
        home = Path(os.environ.get("LOCALAPPDATA", Path.home()))
    else:
        home = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
    return home / "leadline" / "faults"


def trained_model(family: str) -> nn.Module:
    """The trained model of a family, from the cache or trained now."""
    facts = [family, dict(_SETTINGS[family])]
    return kept_model(_build(family), family, _course(family), facts, masked=family == "bert")


def kept_model(
    model: nn.Module,
    name: str,
    course: TrainingCourse,
    facts: list[Any],
    *,
    masked: bool = False,
    seed: int = 0,
) -> nn.Module:
    """A model as drawn becomes the trained one; `facts` say what it was, `seed` draws its text."""
    safetensors = require("safetensors.torch", extra="hf")
    path = cache_folder() / f"{name}-{_key(facts, course)}.safetensors"
    if not path.is_file():
        _train(model, course, masked=masked, seed=seed)
        path.parent.mkdir(parents=True, exist_ok=True)
        # Another process may be writing the same file: each writes its own and renames it.
        own = path.with_suffix(f".{os.getpid()}")
        safetensors.save_model(model, str(own))
        own.replace(path)
    safetensors.load_model(model, str(path))
    return model.eval()


def _build(family: str) -> nn.Module:
    settings = _SETTINGS[family]
    if family == "nano-gpt":
        from leadline.testing.faults.hosts.plain import NanoGpt, NanoGptConfig

        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            return NanoGpt(NanoGptConfig(**settings))
    from leadline.testing.faults.hosts.building import build_hf

    model = build_hf(family, 0, **settings)
    if family == "bert":
        positions = model.get_submodule("bert.embeddings.position_embeddings")
        _draw_waves(positions.weight, 0.1)  # type: ignore[arg-type]
    return model


@torch.no_grad()
def _draw_waves(table: Tensor, deviation: float) -> None:
    """Start positions as sines and cosines, in which neighbours are easy to find."""
    places, width = table.shape
    steps = torch.arange(0, width, 2) / width
    angles = torch.arange(places)[:, None] * 100.0**-steps
    table.copy_(deviation * math.sqrt(2) * torch.cat([angles.sin(), angles.cos()], dim=1))


def _course(family: str) -> TrainingCourse:
    return _MASKED if family == "bert" else _PLAIN


def _key(facts: list[Any], course: TrainingCourse) -> str:
    """What decides the weights, as a short digest."""
    facts = [
        *facts,
        asdict(course),
        SHARE,
        _task(course.length).digest,
        torch.__version__,
        require("transformers", extra="hf").__version__,
    ]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:12]


@functools.cache
def _task(length: int) -> Any:
    from leadline.lab.tasks.stdlib import StandardLibrary

    return StandardLibrary(length=length)


def hide(ids: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """The ids with some of them hidden, and labels that ask for these alone."""
    chosen = torch.rand(ids.shape, generator=generator) < SHARE
    return ids.masked_fill(chosen, MASK), ids.masked_fill(~chosen, -100)


def _train(model: nn.Module, course: TrainingCourse, *, masked: bool, seed: int) -> None:
    decays = [p for p in model.parameters() if p.ndim >= 2]
    others = [p for p in model.parameters() if p.ndim < 2]
    groups = [{"params": decays, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=course.rate, betas=(0.9, 0.95))
    rate = torch.optim.lr_scheduler.LambdaLR(optimizer, functools.partial(_rate, course))
    generator = torch.Generator().manual_seed(seed)
    model.train()
    with _one_thread():
        for step in range(course.steps):
            batch = _task(course.length).train(step, course.examples, seed=seed)
            ids, targets = hide(batch.ids, generator) if masked else (batch.ids, batch.targets)
            output: Any = model(ids)
            logits = output if isinstance(output, Tensor) else output.logits
            loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=-100)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            rate.step()
    model.eval()


def _rate(course: TrainingCourse, step: int) -> float:
    warm = min(1.0, (step + 1) / course.warmup)
    return warm * 0.5 * (1 + math.cos(math.pi * step / course.steps))


@contextmanager
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
