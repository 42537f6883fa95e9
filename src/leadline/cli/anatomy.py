"""`leadline anatomy`: a model as one stream and its sublayers, and the proof that it is one."""

from __future__ import annotations

from leadline.cli.request.models import AnatomyRequest
from leadline.cli.screen.voice import Voice


def anatomy(
    voice: Voice,
    request: AnatomyRequest,
) -> None:
    """Find the stream and the sublayers of MODEL, and prove them.

    For every sublayer, what was kept plus what was written must equal what came out, to rounding.
    """
    request.check()

    with voice.progress("Loading the model") as gauge:
        from leadline.instruments.passes.measurement import anatomy_of

        declared = request.declaration()
        loaded = request.load()
        inputs = request.inputs(loaded)
        gauge("Finding the anatomy")
        found = anatomy_of(
            loaded.model,
            inputs,
            anatomy=declared,
            families=not request.no_families,
            seed=request.seed,
        )
    voice.emit(found.to_json)
    voice.say(str(found))
