"""What a command line asks for: which model, which inputs, which declaration of the anatomy.

Texts are checked at once; torch is imported only when something is loaded.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from leadline.cli.request import options as o
from leadline.cli.request.declaration import read_declaration
from leadline.errors import InputError, LoadingError

if TYPE_CHECKING:
    from leadline.anatomy import Declaration
    from leadline.models.inputs import Inputs
    from leadline.models.loading import LoadedModel

__all__ = [
    "AnatomyRequest",
    "ModelRequest",
    "read_overrides",
    "read_size",
]


SPECIAL = 16
"""Tokens that a tokenizer may put around a text."""


@dataclass(frozen=True)
class ModelRequest:
    """A model and inputs for it, as the options that several commands share name them.

    Every field with the type of an option is an option of a command that takes the request; a
    command with more or other options takes a class that adds or changes fields.
    """

    model: o.Model = None
    random_init: o.RandomInit = None
    recipe: o.RecipeName = None
    overrides: o.Overrides = None
    dtype: str | None = None
    device: str = "cpu"
    trust_remote_code: bool = False
    stream: bool | None = None
    text: o.Texts = None
    text_file: o.TextFile = None
    windows: o.Windows = None
    tokens_file: o.TokensFile = None
    random: o.RandomSize = None
    truncate: o.Truncate = False
    seed: o.Seed = 0

    usual_random: ClassVar[str | None] = None
    """The size of random inputs where no input is given; None for the usual one."""

    def check(self) -> None:
        """Refuse more than one kind of input, and a size that is none."""
        given = {
            "--text": bool(self.text),
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

    def load(self) -> LoadedModel:
        """Load the model."""
        given = [x for x in (self.model, self.random_init, self.recipe) if x is not None]
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
            overrides=read_overrides(self.overrides or ()),
            dtype=self.dtype,
            device=self.device,
            trust_remote_code=self.trust_remote_code,
            stream=self.stream,
            seed=self.seed,
        )

    def load_weightless(self) -> tuple[LoadedModel, str | None]:
        """The model without its weights, or with them and a reason why they had to be read."""
        given = [x for x in (self.model, self.random_init, self.recipe) if x is not None]
        if len(given) != 1:
            return self.load(), None  # which refuses
        from leadline.models.loading.weightless import load_weightless

        return load_weightless(given[0], **self._description())

    def described(self, *, runnable: bool = True) -> LoadedModel | None:
        """The model without its weights, if it can be had so."""
        given = [x for x in (self.model, self.random_init, self.recipe) if x is not None]
        if len(given) != 1:
            return None
        from leadline.models.loading.weightless import described

        empty = described(given[0], runnable=runnable, **self._description())
        return None if isinstance(empty, str) else empty

    def _description(self) -> dict[str, Any]:
        return {
            "random_init": self.random_init is not None,
            "recipe": self.recipe is not None,
            "overrides": read_overrides(self.overrides or ()),
            "dtype": self.dtype,
            "trust_remote_code": self.trust_remote_code,
            "seed": self.seed,
        }

    def typed_size(self) -> tuple[int, int] | None:
        """At most so many examples of so many tokens, where that was typed; a token is a byte or more."""
        random = self.usual_random if self.random is None else self.random
        if self.text:
            return len(self.text), max(len(text.encode()) for text in self.text) + SPECIAL
        if self.text_file is not None or self.tokens_file is not None:
            return None if self.windows is None else read_size(self.windows, "--windows")
        from leadline.models.inputs.choice import DEFAULT_SIZE

        return DEFAULT_SIZE if random is None else read_size(random, "--random")

    def inputs(self, loaded: LoadedModel) -> Inputs:
        """Make the inputs for a loaded model; where it refuses them, that is an input error."""
        return replace(self._read(loaded), made=True)

    def _read(self, loaded: LoadedModel) -> Inputs:
        from leadline.models.inputs.choice import InputChoice

        random = self.usual_random if self.random is None else self.random
        return InputChoice(
            text=self.text or (),
            text_file=self.text_file,
            windows=None if self.windows is None else read_size(self.windows, "--windows"),
            tokens_file=self.tokens_file,
            random=None if random is None else read_size(random, "--random"),
            truncate=self.truncate,
            seed=self.seed,
        ).read(loaded)


@dataclass(frozen=True)
class AnatomyRequest(ModelRequest):
    """A model of any kind with inputs, and how its anatomy is found."""

    dtype: o.Dtype = None
    device: o.Device = "cpu"
    trust_remote_code: o.TrustRemoteCode = False
    stream: o.Stream = None
    declare: o.Declare = None
    no_families: o.NoFamilies = False
    plugin: o.Plugins = None

    def declaration(self) -> Declaration | None:
        """Read the declaration of the anatomy, if there is one."""
        return read_declaration(self.declare)


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
