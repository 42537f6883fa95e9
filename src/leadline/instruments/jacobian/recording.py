"""jacobian(model, inputs, layer=3) and lyapunov(model, inputs): the records of both instruments.

`compute_jacobian` and `compute_lyapunov` do the work and return the numbers alone. Here the anatomy
is read first, so that it stands in the record beside them.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from torch import nn

from leadline.anatomy import Anatomy, Declaration
from leadline.errors import Progress, check_progress, check_seed
from leadline.instruments.jacobian.lyapunov import compute_lyapunov
from leadline.instruments.jacobian.measure import compute_jacobian
from leadline.instruments.jacobian.rows import jacobian_record, lyapunov_record
from leadline.instruments.passes.arguments import known_anatomy, modules_of, tokenizer_for
from leadline.instruments.passes.linear.checks import plainly
from leadline.instruments.passes.measurement import anatomy_of
from leadline.instruments.passes.not_finite import refuse_broken_inputs
from leadline.instruments.passes.provenance import model_facts, versions
from leadline.instruments.passes.running import few_threads
from leadline.models.inputs import Inputs
from leadline.models.inputs.for_model import batch_for
from leadline.models.loading import LoadedModel
from leadline.record import Record

__all__ = ["jacobian", "lyapunov"]


def jacobian(
    model: nn.Module | LoadedModel,
    inputs: Any = None,
    *,
    layer: int | tuple[int, int] | None = None,
    sublayer: int | None = None,
    k: int = 4,
    smallest: int = 0,
    probes: int = 32,
    tolerance: float = 1e-6,
    vectors: bool = False,
    stack: str | None = None,
    anatomy: Anatomy | Declaration | None = None,
    families: bool = True,
    seed: int = 0,
    progress: Progress | None = None,
) -> Record:
    """Measure the Jacobian of one block, of one write, or of any stretch of blocks.

    `layer=3` is block 3, `layer=(0, 6)` the first six blocks (site 0 to site 6), None the whole
    stack; `sublayer` one write of a block. The `k` largest and `smallest` smallest singular values
    are computed to `tolerance` of their size; `probes` random vectors give the two norms. `vectors`
    keeps the singular vectors, in memory and in no file. `model`, `inputs`, `anatomy` and
    `families` are those of `measure`; `stack` is needed where a model has several. A block in half
    precision is computed on float32 copies. Attention is switched to a kernel with second
    derivatives only if the output of the model stays the same; otherwise the singular values are
    left out, and the remarks say why. The numbers by name are in `record.jacobian`.
    """
    read = _read(model, inputs, anatomy=anatomy, families=families, seed=seed, progress=progress)
    result = compute_jacobian(
        model,
        read.batch,
        layer=layer,
        sublayer=sublayer,
        k=k,
        smallest=smallest,
        probes=probes,
        tolerance=tolerance,
        vectors=vectors,
        stack=stack,
        anatomy=read.anatomy,
        families=families,
        seed=seed,
        progress=read.progress,
    )
    chosen = read.anatomy.stack(result.stack)
    writes = chosen.blocks[result.end - 1].sublayers
    role = "block" if sublayer is None else writes[sublayer - 1].role
    return jacobian_record(result, read.facts, role=role, depth=chosen.depth)


def lyapunov(
    model: nn.Module | LoadedModel,
    inputs: Any = None,
    *,
    k: int = 8,
    backward: bool = True,
    stack: str | None = None,
    anatomy: Anatomy | Declaration | None = None,
    families: bool = True,
    seed: int = 0,
    progress: Progress | None = None,
) -> Record:
    """Carry k random directions through all blocks and measure how they grow.

    With `backward` (as gradients go) from the last site to the first, by products J' u alone: it
    works under every attention kernel and keeps the graph of one block at a time. Otherwise from
    the first site to the last, by J v. The other arguments are those of `jacobian`. The numbers by
    name are in `record.lyapunov`.
    """
    read = _read(model, inputs, anatomy=anatomy, families=families, seed=seed, progress=progress)
    result = compute_lyapunov(
        model,
        read.batch,
        k=k,
        backward=backward,
        stack=stack,
        anatomy=read.anatomy,
        families=families,
        seed=seed,
        progress=read.progress,
    )
    return lyapunov_record(result, read.facts)


@dataclass(frozen=True)
class _ReadModel:
    """The inputs and the anatomy of a model, with the facts of the provenance."""

    batch: Inputs
    anatomy: Anatomy
    facts: dict[str, Any]
    progress: Progress


def _read(
    model: nn.Module | LoadedModel,
    inputs: Any,
    *,
    anatomy: Anatomy | Declaration | None,
    families: bool,
    seed: int,
    progress: Progress | None,
) -> _ReadModel:
    """Read the anatomy as the computation would, to keep it."""
    seed = check_seed(seed)
    say = check_progress(progress)
    original, module = modules_of(model)
    known = known_anatomy(module, anatomy)
    batch = batch_for(module, inputs, seed, tokenizer=tokenizer_for(model, inputs))
    refuse_broken_inputs(batch)
    say("reading the anatomy", 0, 2)
    with plainly(), few_threads(module, batch):
        known = known or anatomy_of(module, batch, anatomy=anatomy, families=families, seed=seed)
    loaded = isinstance(model, LoadedModel)
    name, source = (model.name, model.source) if loaded else (None, "given")
    facts = {
        "model": model_facts(original, name, source),
        "anatomy": known.to_json(),
        "input": batch.summary(),
        "versions": versions(),
        "time": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
    }

    def after_the_anatomy(what: str, done: int, total: int) -> None:
        if done:  # the computation begins with the anatomy as well, which is known by now
            say(what, done, total)

    return _ReadModel(batch, known, facts, after_the_anatomy)
