"""`leadline anatomy`: a model as one stream and its sublayers, and the proof that it is one."""

from __future__ import annotations

from leadline.catalog import load_plugin
from leadline.cli.request import options as o
from leadline.cli.request.models import InputRequest, ModelRequest, read_declaration
from leadline.cli.screen.voice import Voice


def anatomy(
    model: o.Model = None,
    random_init: o.RandomInit = None,
    recipe: o.RecipeName = None,
    overrides: o.Overrides = None,
    dtype: o.Dtype = None,
    device: o.Device = "cpu",
    trust_remote_code: o.TrustRemoteCode = False,
    declare: o.Declare = None,
    no_families: o.NoFamilies = False,
    text: o.Texts = None,
    text_file: o.TextFile = None,
    windows: o.Windows = None,
    tokens_file: o.TokensFile = None,
    random: o.RandomSize = None,
    truncate: o.Truncate = False,
    seed: o.Seed = 0,
    plugin: o.Plugins = None,
    as_json: o.AsJson = False,
    quiet: o.Quiet = False,
    debug: o.Debug = False,  # main reads it
) -> None:
    """Find the stream and the sublayers of MODEL, and prove them.

    For every sublayer, what was kept plus what was written must equal what came out, to rounding.
    """
    model_request = ModelRequest(
        source=model,
        random_init=random_init,
        recipe=recipe,
        overrides=overrides or (),
        dtype=dtype,
        device=device,
        trust_remote_code=trust_remote_code,
        seed=seed,
    )
    input_request = InputRequest(
        texts=text or (),
        text_file=text_file,
        windows=windows,
        tokens_file=tokens_file,
        random=random,
        truncate=truncate,
        seed=seed,
    )
    input_request.check()
    for file in plugin or ():
        load_plugin(file)

    with Voice(as_json=as_json, quiet=quiet) as voice:
        with voice.progress("Loading the model") as gauge:
            from leadline.instruments.passes.measurement import anatomy_of

            declared = read_declaration(declare)
            loaded = model_request.load()
            inputs = input_request.make(loaded)
            gauge("Finding the anatomy")
            found = anatomy_of(
                loaded.model, inputs, anatomy=declared, families=not no_families, seed=seed
            )
        voice.emit(found.to_json)
        voice.say(str(found))
