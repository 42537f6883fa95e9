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
from dataclasses import dataclass
from pathlib import Path

from leadline.errors import InputError, Progress, no_progress
from leadline.experiments.experiment import EXPERIMENTS
from leadline.experiments.gradient_flow.growth import Found
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
from leadline.experiments.gradient_flow.training import Trained, flow_sweep, read_trained, train_all
from leadline.experiments.outcome import Outcome
from leadline.parts import Transformer
from leadline.record import Record

__all__ = ["DEPTHS", "RECORD", "Setting", "gradient_flow"]

DEPTHS = (6, 12, 24, 48, 96)
RECORD = "training"
"""What the record of the trainings is called in the folder."""
STEPS = ((24, 150), (48, 120))
"""Up to so many layers so many updates; deeper ones get fewer, because a step costs more."""
FEWEST = 80
QUICK_STEPS = 100


@dataclass(frozen=True)
class Setting:
    """What is measured and what is trained."""

    depths: tuple[int, ...] = DEPTHS
    seeds: int = 5
    training_seeds: int = 3
    trained_to: int = 96
    """No deeper model is trained; 0 for no training."""
    jacobians_to: int = 24
    """The Jacobians of the blocks of no deeper model are measured."""
    most_steps: int | None = None
    """No training is longer."""
    width: int = 64
    heads: int = 4
    length: int = 64
    examples: int = 4
    jacobian_length: int = 32

    @classmethod
    def quick(cls) -> Setting:
        """All depths before training, 6 to 24 layers after it, in a few minutes."""
        return cls(
            seeds=3, training_seeds=1, trained_to=24, jacobians_to=12, most_steps=QUICK_STEPS
        )

    def check(self) -> None:
        """Refuse what cannot be done, with what to change."""
        for name in ("seeds", "training_seeds", "width", "heads", "length", "examples"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} is {getattr(self, name)}; give a whole number from 1 on.")
        if len(set(self.depths)) < 2 or min(self.depths) < 1:
            raise InputError(
                f"The depths are {', '.join(map(str, self.depths)) or 'none'}; an exponent over "
                "depth needs two different ones from 1 on, such as 12,24,48."
            )

    @property
    def trainings(self) -> dict[int, int]:
        """The depths that are trained, and how many updates they get."""
        found = {d: steps_of(d) for d in sorted(set(self.depths)) if d <= self.trained_to}
        if self.most_steps is None:
            return found
        return {depth: min(steps, self.most_steps) for depth, steps in found.items()}


def steps_of(depth: int) -> int:
    """How many updates a depth gets."""
    return next((steps for most, steps in STEPS if depth <= most), FEWEST)


@EXPERIMENTS.register("gradient-flow")
def gradient_flow(
    setting: Setting | None = None,
    *,
    seed: int = 0,
    folder: Path | None = None,
    workers: int | None = None,
    progress: Progress = no_progress,
) -> Outcome:
    """Gradient and stream over depth in seven designs, before and after a short training.

    With a `folder` the record of the trainings is kept there, and an experiment that was cut off
    goes on from it when it is asked for in the same way.
    """
    setting = setting or Setting()
    setting.check()
    starts, overflowed = _starts(setting, seed, progress)
    blocks, norms = _jacobians(setting, seed, progress)
    with _trained(setting, seed, folder, workers, progress) as (record, trained):
        found = Found(tuple(starts), overflowed, tuple(blocks), tuple(norms), tuple(trained))
        kept = record is not None and folder is not None
        return Outcome(
            experiment="gradient-flow",
            title="Gradient and stream over depth, before "
            + ("and after a short training" if found.trained else "training"),
            value_label="",
            lines=tuple(lines(found, width=setting.width)),
            remarks=tuple(remarks(found, width=setting.width)),
            records={RECORD: record} if kept and record is not None else {},
            axis="place",
            scales=scales(found),
            tables=tuple(tables(found, width=setting.width)),
            places=places(found),
            across=3,
        )


def _starts(setting: Setting, seed: int, progress: Progress) -> tuple[list[Start], dict[int, bool]]:
    """Every untrained model, and whether the one without norms overflows float32."""
    found: list[Start] = []
    overflowed: dict[int, bool] = {}
    depths = sorted(set(setting.depths))
    total = len(DESIGNS) * setting.seeds * sum(depths)
    done = 0
    for depth in depths:
        for design in DESIGNS:
            for number in range(setting.seeds):
                own = seed + number
                progress(f"{design}, {depth} layers", done, total)
                batch = batch_of(setting.length, examples=setting.examples, seed=own)
                found.append(
                    measured(_model(setting, design, depth, own), batch, design=design, seed=own)
                )
                done += depth
        batch = batch_of(setting.length, examples=setting.examples, seed=seed)
        overflowed[depth] = overflows(_model(setting, "no norm", depth, seed), batch)
    return found, overflowed


def _model(
    setting: Setting, design: str, depth: int, seed: int, *, length: int | None = None
) -> Transformer:
    return built(
        design,
        depth,
        width=setting.width,
        heads=setting.heads,
        length=length or setting.length,
        seed=seed,
    )


def _jacobians(setting: Setting, seed: int, progress: Progress) -> tuple[list[Blocks], list[Norms]]:
    depths = [depth for depth in sorted(set(setting.depths)) if depth <= setting.jacobians_to]
    length = setting.jacobian_length
    batch = batch_of(length, examples=1, seed=seed)
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

            model = _model(setting, design, depth, seed, length=length)
            blocks.append(blocks_of(model, batch, design=design, told=told))
            if design == "post":
                norms.append(norms_apart(model, batch))
    return blocks, norms


@contextmanager
def _trained(
    setting: Setting, seed: int, folder: Path | None, workers: int | None, progress: Progress
) -> Iterator[tuple[Record | None, list[Trained]]]:
    """The trainings and their record, which stays open where it is kept in a folder."""
    if not setting.trainings:
        yield None, []
        return
    what = flow_sweep(
        setting.trainings,
        seeds=range(seed, seed + setting.training_seeds),
        width=setting.width,
        heads=setting.heads,
        length=setting.length,
    )
    if folder is not None:
        path = folder / f"{RECORD}.leadline"
        record = train_all(what, path, workers=workers, progress=progress)
        yield record, read_trained(record)
        return
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / f"{RECORD}.leadline"
        with train_all(what, path, workers=workers, progress=progress) as record:
            yield record, read_trained(record)
