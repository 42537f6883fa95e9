"""How signal and gradient flow through depth: seven designs before training, five of them after.

The notes argue with products of Jacobians, J = I + F'. Here the numbers are measured on models of
bytes, width 64, 4 heads, with Xavier's init wherever a design has none of its own:

    pre, post, no skip, no norm, scaled pre, gpt2-scaled, deepnorm        see `_flow_start`

Before training, in float64, several seeds, over depth: the gradient of the last output matrix
(Xiong et al. 2020, arXiv 2002.04745: L^(-1/2) for pre-norm, L^0 for post-norm), the gradient at
every site, the mean square of the stream and what it is made of, the cosine of tokens. Of the
shallower ones the Jacobian of every block. After a short training without warm-up the same
gradients once more: what vanishes in post-norm has been learned, it is not there at the start.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from leadline.errors import Progress, no_progress
from leadline.experiments.gradient_flow import GradientFlowOptions
from leadline.experiments.gradient_flow.growth import FlowGrowth
from leadline.experiments.gradient_flow.jacobians import Blocks, Norms, blocks_of, norms_apart
from leadline.experiments.gradient_flow.lines import lines, places, scales, tables
from leadline.experiments.gradient_flow.starts import (
    DESIGNS,
    Start,
    batch_of,
    built,
    measured,
    overflows,
)
from leadline.experiments.gradient_flow.text import remarks
from leadline.experiments.gradient_flow.training import (
    TrainedDesigns,
    flow_sweep,
    read_trained,
    train_all,
)
from leadline.experiments.outcome.outcome import Outcome
from leadline.parts import Transformer
from leadline.record import Record

__all__ = ["RECORD", "gradient_flow"]

RECORD = "training"
"""What the record of the trainings is called in the folder."""


def gradient_flow(
    options: GradientFlowOptions | None = None,
    *,
    folder: Path | None = None,
    progress: Progress = no_progress,
) -> Outcome:
    """Gradient and stream over depth in seven designs, before and after a short training.

    With a `folder` the record of the trainings is kept there, and an experiment that was cut off
    goes on from it when it is asked for in the same way.
    """
    options = options or GradientFlowOptions()
    options.check()
    starts, overflowed = _starts(options, progress)
    blocks, norms = _jacobians(options, progress)
    with _trained(options, folder, progress) as (record, trained):
        found = FlowGrowth(tuple(starts), overflowed, tuple(blocks), tuple(norms), tuple(trained))
        kept = record is not None and folder is not None
        return Outcome(
            experiment="gradient-flow",
            title="Gradient and stream over depth, before "
            + ("and after a short training" if found.trained else "training"),
            value_label="",
            lines=tuple(lines(found, width=options.width)),
            remarks=tuple(remarks(found, width=options.width)),
            records={RECORD: record} if kept and record is not None else {},
            axis="place",
            scales=scales(found),
            tables=tuple(tables(found, width=options.width)),
            places=places(found),
            across=3,
        )


def _starts(
    options: GradientFlowOptions, progress: Progress
) -> tuple[list[Start], dict[int, bool]]:
    """Every untrained model, and whether the one without norms overflows float32."""
    found: list[Start] = []
    overflowed: dict[int, bool] = {}
    depths = sorted(set(options.depths))
    total = len(DESIGNS) * options.seeds * sum(depths)
    done = 0
    for depth in depths:
        for design in DESIGNS:
            for number in range(options.seeds):
                own = options.seed + number
                progress(f"{design}, {depth} layers", done, total)
                batch = batch_of(options.length, examples=options.examples, seed=own)
                found.append(
                    measured(_model(options, design, depth, own), batch, design=design, seed=own)
                )
                done += depth
        batch = batch_of(options.length, examples=options.examples, seed=options.seed)
        overflowed[depth] = overflows(_model(options, "no norm", depth, options.seed), batch)
    return found, overflowed


def _model(
    options: GradientFlowOptions, design: str, depth: int, seed: int, *, length: int | None = None
) -> Transformer:
    return built(
        design,
        depth,
        width=options.width,
        heads=options.heads,
        length=length or options.length,
        seed=seed,
    )


def _jacobians(
    options: GradientFlowOptions, progress: Progress
) -> tuple[list[Blocks], list[Norms]]:
    depths = [depth for depth in sorted(set(options.depths)) if depth <= options.jacobians_to]
    length = options.jacobian_length
    batch = batch_of(length, examples=1, seed=options.seed)
    blocks: list[Blocks] = []
    norms: list[Norms] = []
    total = len(DESIGNS) * sum(depth + 1 for depth in depths)
    done = 0

    for depth in depths:
        for design in DESIGNS:

            def told(what: str = f"Jacobians, {design}, {depth} layers") -> None:
                nonlocal done
                done += 1
                progress(what, done, total)

            model = _model(options, design, depth, options.seed, length=length)
            blocks.append(blocks_of(model, batch, design=design, told=told))
            if design == "post":
                norms.append(norms_apart(model, batch))
    return blocks, norms


@contextmanager
def _trained(
    options: GradientFlowOptions, folder: Path | None, progress: Progress
) -> Iterator[tuple[Record | None, list[TrainedDesigns]]]:
    """The trainings and their record, which stays open where it is kept in a folder."""
    if not options.trainings:
        yield None, []
        return
    what = flow_sweep(
        options.trainings,
        seeds=range(options.seed, options.seed + options.training_seeds),
        width=options.width,
        heads=options.heads,
        length=options.length,
    )
    if folder is not None:
        path = folder / f"{RECORD}.leadline"
        record = train_all(what, path, workers=options.workers, progress=progress)
        yield record, read_trained(record)
        return
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / f"{RECORD}.leadline"
        with train_all(what, path, workers=options.workers, progress=progress) as record:
            yield record, read_trained(record)
