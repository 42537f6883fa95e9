"""`leadline train`: one run on a task, with its gauges, into a record."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from leadline.cli.request import options as o
from leadline.cli.request.models import read_overrides
from leadline.cli.request.outputs import check_outputs, say_outputs, write_outputs
from leadline.cli.screen.voice import Gauge, Voice, check_writable
from leadline.errors import LabError

if TYPE_CHECKING:
    from leadline.lab.trainer import Beat

TRAINING = "Training"
SAMPLES = 20
"""So often the gauges are read at least, unless --set says how often."""


def train(
    voice: Voice,
    recipe: o.RecipeName = None,
    overrides: Annotated[
        list[str] | None,
        o.option(
            "--set FIELD=VALUE",
            "Change a field of the recipe or of the training, such as depth=24, "
            "placement=post, warmup=300 or task=copy; may be repeated.",
            o.MODEL,
        ),
    ] = None,
    task: Annotated[
        str | None,
        o.option(
            "--task CHOICE",
            "What to learn: stdlib (the text of Python's own library) unless given; "
            "`leadline list tasks` names them.",
            TRAINING,
        ),
    ] = None,
    corpus: Annotated[
        str | None,
        o.option(
            "--corpus PATH", "Learn the bytes of this file or folder: the task text.", TRAINING
        ),
    ] = None,
    steps: Annotated[
        int | None, o.option("--steps N", "Updates; 200 unless given.", TRAINING)
    ] = None,
    layers: Annotated[
        bool,
        o.option(
            "--layers",
            "Keep of every layer what a watch reads, not gauges of the model alone.",
            TRAINING,
        ),
    ] = False,
    seed: o.Seed = 0,
    plugin: o.Plugins = None,
    output: Annotated[
        Path | None,
        o.option(
            "--output -o FILE.leadline",
            "The record of the run; the same command goes on where a run was cut off.",
            o.OUTPUT,
        ),
    ] = None,
    save: Annotated[
        Path | None, o.option("--save FOLDER", "Save the trained model here.", o.OUTPUT)
    ] = None,
    html: o.HtmlFile = None,
    everything: o.Everything = False,
) -> None:
    """Train a Transformer of a recipe on a task and watch its gauges.

    Everything stays on this machine. The record holds the losses and the gauges step by step;
    `leadline report` draws them.
    """
    asked: dict[str, Any] = read_overrides(overrides or ())
    if corpus is not None:
        if task is not None or "task" in asked:
            raise LabError("--corpus is a task of its own; leave --task out.")
        asked["task"] = {"name": "text", "path": corpus}
    for name, value in (("task", task), ("steps", steps), ("layers", layers or None)):
        if value is not None:
            if name in asked:
                raise LabError(f"{name} is given twice, by --{name} and by --set; give one.")
            asked[name] = value
    if output is not None:
        check_writable(output, "record")
    check_outputs(None, html)
    with voice.progress("Preparing the run") as gauge, _interruptible(gauge) as beat:
        from leadline.lab.cell import OF_THE_TASK
        from leadline.lab.fields import split_fields
        from leadline.lab.recording import train as train_model
        from leadline.lab.training import Training
        from leadline.models.loading.recipes import recipe_of

        for name in OF_THE_TASK:
            if name in asked:
                raise LabError(f"The {name} of the model follows from the task; leave it out.")
        of_recipe, of_training = split_fields(asked)
        training = Training.from_json(of_training)
        if "gauges" not in of_training:  # most alarms need eleven samples to tell what is usual
            training = training.but(gauges=min(training.gauges, max(1, training.steps // SAMPLES)))
        try:
            trained = train_model(
                recipe_of(recipe, of_recipe),
                output,
                training=training,
                seed=seed,
                save=save,
                beat=beat,
            )
        except KeyboardInterrupt:
            raise LabError(_paused(output)) from None
    from leadline.reading.page import as_json as record_to_json
    from leadline.reading.page import screen_of

    record = trained.record
    write_outputs(record, None, html)
    voice.emit(lambda: record_to_json(record))
    voice.show(screen_of(record, everything=everything).show)
    if output is not None:
        record.close()
    say_outputs(voice, output, html)
    if save is not None:
        voice.say(f"The model is in {save}")


@contextmanager
def _interruptible(gauge: Gauge) -> Iterator[Callable[[Beat], None]]:
    """Ctrl-C and SIGTERM pause the run between two updates, where a checkpoint can be written."""
    asked = threading.Event()

    def beat(now: Beat) -> None:
        numbers = [f"loss {now.loss:.3f}", f"{now.tokens_per_second:,.0f} tokens/s"]
        for name, value in now.gauges.items():
            numbers.append(f"{_SHORT.get(name, name)} {value:.3g}")
        gauge(", ".join(numbers), now.step, now.steps)
        if asked.is_set():
            raise KeyboardInterrupt

    # Only the main thread may set handlers.
    kinds = (signal.SIGINT, signal.SIGTERM)
    main = threading.current_thread() is threading.main_thread()
    handlers = {kind: signal.signal(kind, lambda *_: asked.set()) for kind in kinds if main}
    try:
        yield beat
    finally:
        for kind, handler in handlers.items():
            signal.signal(kind, handler)


_SHORT = {
    "gauge.token_cosine": "cosine",
    "gauge.gradient_ratio": "|g_0|/|g_L|",
    "gauge.stream_growth": "|x_L|/|x_0|",
}


def _paused(output: Path | None) -> str:
    if output is None:
        return "The run was interrupted, and without --output nothing of it is kept."
    return (
        f"The run was interrupted; {output} and its checkpoint are kept. The same command goes on "
        "from there."
    )
