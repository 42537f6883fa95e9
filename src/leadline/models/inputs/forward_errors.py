"""Explain why a model's forward refused the inputs that Leadline made for it.

A model that wants an image, speech or boxes beside its tokens says so by an exception of its own.
Where Leadline made the inputs, that is an input error: the message repeats the model's words, says
what it got and names the inputs that its `forward` takes besides. Where the user gave the tensors,
the exception is the user's own and passes through unchanged.
"""

from __future__ import annotations

import inspect
import re
import traceback
from pathlib import Path

from torch import nn

from leadline.anatomy import configured_model
from leadline.errors import InputError, words_of
from leadline.models.inputs.batch import Inputs

__all__ = ["forward_refusal", "is_models_own"]

_LIBRARIES = frozenset({"builtins", "torch", "transformers"})
_PACKAGE = Path(__file__).parents[2]
_MODELS = (_PACKAGE / "parts", _PACKAGE / "testing")
# Arguments that carry something seen, heard or drawn, whatever model takes them.
_SENSES = re.compile(
    r"^input_ids$|pixel|image|video|audio|speech|input_(features|values)|bbox|boxes|visual|grid|"
    r"waveform|spectrogram|past_values|decoder_input_"
)
_EXTRAS = re.compile(r"attention_mask|labels|token_type|position_ids|embeds$")


def forward_refusal(model: nn.Module, batch: Inputs, error: Exception) -> InputError | None:
    """The input error that reports the model's exception; None where it passes through unchanged.

    It passes through where the user gave the tensors, where memory ran out, where its class is the
    user's own, and where a hook of Leadline raised it.
    """
    if not batch.made or isinstance(error, MemoryError) or "OutOfMemory" in type(error).__name__:
        return None
    if type(error).__module__.partition(".")[0] not in _LIBRARIES or not is_models_own(error):
        return None
    inner = configured_model(model)
    shapes = ", ".join(
        f"{name} {'x'.join(map(str, tensor.shape))}" for name, tensor in batch.tensors.items()
    )
    return InputError(
        f"{type(inner).__name__} refused the inputs that were made for it ({batch.kind}: {shapes}) "
        f"with {type(error).__name__}: {words_of(error)} {_wants(inner, batch)}"
        f"{_misfit(error)}Give what it needs in Python, leadline.measure(model, "
        "{'name': tensor, ...}); the command line gives tokens "
        "(--text, --tokens-file) or random inputs (--random 4x128)."
    )


def is_models_own(error: BaseException) -> bool:
    """Whether it was raised below `running.call` by code that is not Leadline's own.

    A hook of Leadline that fails runs below the forward pass too; the model has no part in that.
    """
    files: list[Path] | None = None
    for frame, _ in traceback.walk_tb(error.__traceback__):
        file = Path(frame.f_code.co_filename)
        if (
            file == _PACKAGE / "instruments" / "passes" / "running.py"
            and frame.f_code.co_name == "call"
        ):
            files = []
        elif files is not None:
            files.append(file)
    return bool(files) and not any(
        file.is_relative_to(_PACKAGE) and not any(map(file.is_relative_to, _MODELS))
        for file in files
    )


def _misfit(error: Exception) -> str:
    """torch says by a RuntimeError that shapes do not fit; --set can make a model of such sizes."""
    changed = "If its configuration was changed, the sizes in it may not fit together. "
    return changed if isinstance(error, RuntimeError) else ""


def _wants(model: nn.Module, batch: Inputs) -> str:
    """Which further inputs the signature of `forward` names, as a sentence with a blank after it."""
    needed: list[str] = []
    senses: list[str] = []
    for name, parameter in inspect.signature(model.forward).parameters.items():
        if name in batch.tensors or parameter.kind in (
            parameter.VAR_POSITIONAL,
            parameter.VAR_KEYWORD,
        ):
            continue
        if parameter.default is parameter.empty:
            needed.append(name)
        elif _SENSES.search(name) and not _EXTRAS.search(name):
            senses.append(name)
    if needed:
        more = f" and also takes {', '.join(senses)}" if senses else ""
        return f"Its forward needs {', '.join(needed)}{more}. "
    if senses:
        return f"Its forward also takes {', '.join(senses)}. "
    return "Inputs of another length or kind may suit it. "
