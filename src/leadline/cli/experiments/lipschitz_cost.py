"""`leadline reproduce lipschitz-cost`: what larger MLP weights do, and what they cost."""

from __future__ import annotations

from leadline.cli.experiments._shared import Folder, deliver, ready
from leadline.cli.request import options as o
from leadline.cli.screen.voice import Voice


def lipschitz_cost(
    seed: o.Seed = 0,
    output: Folder = None,
    as_json: o.AsJson = False,
    quiet: o.Quiet = False,
    debug: o.Debug = False,  # main reads it
) -> None:
    """Does a large Lipschitz constant of the MLP slow collapse, and what does it cost?

    MLP weights are scaled by 0.5, 1, 2 and 4; measured are the change of the output per change of
    the input, the variance of the gradient over batches, and the residual by layer.
    """
    ready(output)
    with Voice(as_json=as_json, quiet=quiet) as voice:
        with voice.progress("Building the networks") as gauge:
            from leadline.experiments.lipschitz_cost import lipschitz_cost as experiment

            outcome = experiment(seed=seed, progress=gauge)
        deliver(voice, outcome, output)
