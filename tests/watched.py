"""A small model, its data, and what its training computed, for the tests of trainers that are watched."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.optim.optimizer import register_optimizer_step_post_hook

import leadline
from leadline.record import Record

VOCABULARY, LENGTH = 64, 12


def tiny_gpt2(*, dropout: float = 0.1, seed: int = 0) -> nn.Module:
    """GPT-2 with two blocks; it drops values, so that a run depends on the random state, too."""
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(seed)
    config = GPT2Config(
        n_layer=2,
        n_head=2,
        n_embd=32,
        vocab_size=VOCABULARY,
        n_positions=LENGTH,
        bos_token_id=0,
        eos_token_id=0,
        resid_pdrop=dropout,
        embd_pdrop=dropout,
        attn_pdrop=dropout,
    )
    return GPT2LMHeadModel(config)


def examples(count: int, *, seed: int = 1) -> list[dict[str, Tensor]]:
    """Token rows that are their own labels."""
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randint(VOCABULARY, (count, LENGTH), generator=generator)
    return [{"input_ids": row, "labels": row} for row in rows]


class Trace:
    """What a training computed while the trace was open: losses, gradients, weights, random state.

    Losses are the values on which backward is called: a hook on the model would see the passes
    that prove its anatomy, too. Gradients are kept as the optimizer takes them.
    """

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self.losses: list[Tensor] = []
        self.gradients: list[Tensor | None] = []
        self.end: list[Tensor] = []

    def __enter__(self) -> Trace:
        backward, losses = Tensor.backward, self.losses

        def kept(loss, *args, **kwargs):
            losses.append(loss.detach().clone())
            return backward(loss, *args, **kwargs)

        self._handle = register_optimizer_step_post_hook(self._keep_gradients)
        self._backward, Tensor.backward = backward, kept
        return self

    def __exit__(self, *error: object) -> None:
        self._handle.remove()
        Tensor.backward = self._backward
        self.end = [one.detach().clone() for one in self._model.state_dict().values()]
        self.end.append(torch.get_rng_state())

    def _keep_gradients(self, *_: object) -> None:
        for parameter in self._model.parameters():
            self.gradients.append(None if parameter.grad is None else parameter.grad.clone())


def assert_same(one: Trace, other: Trace) -> None:
    """Two trainings are equal bit for bit, and something was trained."""
    assert one.losses and one.gradients and one.end
    for name in ("losses", "gradients", "end"):
        mine, theirs = getattr(one, name), getattr(other, name)
        assert len(mine) == len(theirs), name
        for a, b in zip(mine, theirs, strict=True):
            assert (a is b) if a is None or b is None else torch.equal(a, b), name


def steps_of(path: object, quantity: str, *, run: str | None = None) -> list[int]:
    """The steps at which a record has readings of a quantity, rising."""
    with Record.open(path) as record:
        rows = record.select(quantity) if quantity in record else ()
        return sorted({row.step for row in rows if run is None or row.run == run})


def run_python(*arguments: object, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run Python in a folder, with this leadline and these tests to import from; it has to end well."""
    places = (Path(leadline.__file__).parents[1], Path(__file__).parents[1])
    ended = subprocess.run(
        [sys.executable, *map(str, arguments)],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(map(str, places))},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    return ended
