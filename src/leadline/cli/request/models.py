"""What a command line asks for: which model, which inputs, which declaration of the anatomy.

Texts are checked at once; torch is imported only when something is loaded.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from leadline.errors import AnatomyError, InputError, LoadingError

if TYPE_CHECKING:
    from leadline.anatomy import Declaration
    from leadline.models.inputs import Inputs
    from leadline.models.loading import LoadedModel

__all__ = ["InputRequest", "ModelRequest", "read_declaration", "read_overrides", "read_size"]

DEFAULT_SIZE = "4x128"


@dataclass(frozen=True)
class ModelRequest:
    """Which model a command line asks for."""

    source: str | None
    random_init: str | None
    recipe: str | None
    overrides: Sequence[str]
    dtype: str | None
    device: str
    trust_remote_code: bool
    seed: int

    def load(self) -> LoadedModel:
        """Load the model."""
        given = [x for x in (self.source, self.random_init, self.recipe) if x is not None]
        if len(given) != 1:
            count = {0: "none was given", 2: "two were given"}.get(len(given), "all were given")
            raise LoadingError(
                "Name a MODEL (a folder, a hub id, a .gguf file or package.module:function), or "
                "give --random-init TYPE for random weights, or --recipe NAME for a Transformer "
                f"made of parts; {count}."
            )
        from leadline.models.loading import load_model

        return load_model(
            given[0],
            random_init=self.random_init is not None,
            recipe=self.recipe is not None,
            overrides=read_overrides(self.overrides),
            dtype=self.dtype,
            device=self.device,
            trust_remote_code=self.trust_remote_code,
            seed=self.seed,
        )


@dataclass(frozen=True)
class InputRequest:
    """Which inputs a command line asks for."""

    texts: Sequence[str]
    text_file: Path | None
    windows: str | None
    tokens_file: Path | None
    random: str | None
    truncate: bool
    seed: int

    def check(self) -> None:
        """Refuse more than one kind of input, and a size that is none."""
        given = {
            "--text": bool(self.texts),
            "--text-file": self.text_file is not None,
            "--tokens-file": self.tokens_file is not None,
            "--random": self.random is not None,
        }
        chosen = [option for option, used in given.items() if used]
        if len(chosen) > 1:
            raise InputError(f"Give one kind of input, not {' and '.join(chosen)} together.")
        if self.windows is not None and self.text_file is None:
            raise InputError("--windows cuts a text file; give --text-file too.")
        for option, size in (("--random", self.random), ("--windows", self.windows)):
            if size is not None:
                read_size(size, option)

    def make(self, loaded: LoadedModel) -> Inputs:
        """Make the inputs for a loaded model; where it refuses them, that is an input error."""
        return replace(self._read(loaded), made=True)

    def _read(self, loaded: LoadedModel) -> Inputs:
        from leadline.models import inputs

        if self.texts:
            return inputs.text_inputs(
                self.texts, loaded.tokenizer, loaded.model, truncate=self.truncate
            )
        if self.text_file is not None:
            examples, length = _size(self.windows, "--windows", loaded)
            return inputs.text_file(
                self.text_file,
                loaded.tokenizer,
                loaded.model,
                examples=examples,
                length=length,
                truncate=self.truncate,
            )
        if self.tokens_file is not None:
            return inputs.token_file(self.tokens_file, loaded.model, truncate=self.truncate)
        examples, length = _size(self.random, "--random", loaded)
        return inputs.random_inputs(loaded.model, examples=examples, length=length, seed=self.seed)


def read_declaration(text: str | None) -> Declaration | None:
    """Read `--declare`: the arguments of `leadline.declare` as JSON, or a file that holds them."""
    if text is None:
        return None
    place = "--declare"
    if not text.lstrip().startswith("{"):
        place = text
        try:
            text = Path(text).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise AnatomyError(f"The declaration {place} cannot be read: {error}.") from error
    try:
        given = json.loads(text)
    except (json.JSONDecodeError, RecursionError) as error:
        raise AnatomyError(f"The declaration in {place} is not JSON: {error}.") from error
    from leadline.anatomy import declare

    known = inspect.signature(declare).parameters
    needed = [key for key, value in known.items() if value.default is value.empty]
    if not isinstance(given, dict) or not set(needed) <= set(given) <= set(known):
        raise AnatomyError(
            f"The declaration in {place} must be an object with {' and '.join(needed)}, and may "
            f"have {', '.join(key for key in known if key not in needed)}; "
            f"it has {', '.join(map(str, given)) if isinstance(given, dict) else 'none of them'}."
        )
    return declare(**given)


def _size(text: str | None, option: str, loaded: LoadedModel) -> tuple[int, int]:
    """The size asked for; without one the default, cut to the model's context."""
    from leadline.models.inputs import context_limit

    examples, length = read_size(text or DEFAULT_SIZE, option)
    limit = context_limit(loaded.model)
    return examples, length if text is not None or limit is None else min(length, limit)


def read_size(text: str, option: str) -> tuple[int, int]:
    """Read `4x128` as (examples, length).

    >>> read_size("4x128", "--random")
    (4, 128)
    """
    match = re.fullmatch(r"([1-9]\d*)[x×]([1-9]\d*)", text.strip())
    if match is None:
        raise InputError(
            f"{option} {text!r} is not a size; write examples, x, length, such as {option} 4x128."
        )
    return int(match[1]), int(match[2])


def read_overrides(pairs: Sequence[str]) -> dict[str, Any]:
    """Read `KEY=VALUE` pairs; a value is JSON where it can be, otherwise a text.

    >>> read_overrides(["n_layer=48", "scale=true", "activation=gelu"])
    {'n_layer': 48, 'scale': True, 'activation': 'gelu'}
    """
    found: dict[str, Any] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not (key.strip() and equals):
            raise LoadingError(f"--set {pair!r} is not KEY=VALUE; write for example n_layer=48.")
        found[key.strip()] = _read_value(value.strip())
    return found


def _read_value(text: str) -> Any:
    named = {"True": True, "False": False, "None": None}
    if text in named:
        return named[text]
    try:
        return json.loads(text)
    except (json.JSONDecodeError, RecursionError):
        return text
