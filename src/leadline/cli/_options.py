"""The options that several commands share, and what they ask for.

Nothing here imports torch, so that `leadline --help` is quick. Every option is declared once; a
command takes it by its type.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from leadline.errors import AnatomyError, InputError, LoadingError

if TYPE_CHECKING:
    from leadline.anatomy import Declaration
    from leadline.inputs import Inputs
    from leadline.loading import LoadedModel

DEFAULT_SIZE = "4x128"
MODEL, INPUT, MEASURING, OUTPUT = "Model", "Input", "Measuring", "Output"

Model = Annotated[
    str | None,
    typer.Argument(
        metavar="MODEL",
        help="A local folder, a hub id, a .gguf file, or package.module:function "
        "(or file.py:function) that returns a module.",
        show_default=False,
    ),
]
RandomInit = Annotated[
    str | None,
    typer.Option(
        "--random-init",
        metavar="TYPE",
        help="Instead of MODEL: a model type with random weights, such as gpt2.",
        rich_help_panel=MODEL,
        show_default=False,
    ),
]
Overrides = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Change a field of the configuration, such as n_layer=48; may be repeated.",
        rich_help_panel=MODEL,
        show_default=False,
    ),
]
Dtype = Annotated[
    str | None,
    typer.Option(
        "--dtype",
        metavar="TYPE",
        help="float32, bfloat16, float16 or float64 instead of the model's own.",
        rich_help_panel=MODEL,
        show_default=False,
    ),
]
Device = Annotated[
    str,
    typer.Option(
        "--device", metavar="NAME", help="Where to compute, such as cuda.", rich_help_panel=MODEL
    ),
]
TrustRemoteCode = Annotated[
    bool,
    typer.Option(
        "--trust-remote-code",
        help="Let the model folder bring its own Python code and run it.",
        rich_help_panel=MODEL,
    ),
]
NoFamilies = Annotated[
    bool,
    typer.Option(
        "--no-families",
        help="Leave the family files aside: discovery alone finds the anatomy.",
        rich_help_panel=MODEL,
    ),
]
Declare = Annotated[
    str | None,
    typer.Option(
        "--declare",
        metavar="FILE.json",
        help="Your own declaration of the anatomy: a JSON file, or the JSON itself, such as "
        '{"blocks": "transformer.h", "writes": ["attn", "mlp"]}.',
        rich_help_panel=MODEL,
        show_default=False,
    ),
]
Texts = Annotated[
    list[str] | None,
    typer.Option(
        "--text",
        metavar="TEXT",
        help="A text; may be repeated.",
        rich_help_panel=INPUT,
        show_default=False,
    ),
]
TextFile = Annotated[
    Path | None,
    typer.Option(
        "--text-file",
        metavar="FILE",
        help="A text file, cut into windows.",
        rich_help_panel=INPUT,
        show_default=False,
    ),
]
Windows = Annotated[
    str | None,
    typer.Option(
        "--windows",
        metavar="EXAMPLESxLENGTH",
        help="How many windows of how many tokens to take from the text file; 4x128 otherwise.",
        rich_help_panel=INPUT,
        show_default=False,
    ),
]
TokensFile = Annotated[
    Path | None,
    typer.Option(
        "--tokens-file",
        metavar="FILE",
        help="A file of token ids: .txt, .json, .npy or .safetensors.",
        rich_help_panel=INPUT,
        show_default=False,
    ),
]
RandomSize = Annotated[
    str | None,
    typer.Option(
        "--random",
        metavar="EXAMPLESxLENGTH",
        help="Random inputs of this size; 4x128 when no input is given.",
        rich_help_panel=INPUT,
        show_default=False,
    ),
]
Truncate = Annotated[
    bool,
    typer.Option(
        "--truncate",
        help="Cut a text that is longer than the model's context.",
        rich_help_panel=INPUT,
    ),
]
Seed = Annotated[
    int,
    typer.Option("--seed", metavar="N", help="Seed of everything random.", rich_help_panel=INPUT),
]
Plugins = Annotated[
    list[Path] | None,
    typer.Option(
        "--plugin",
        metavar="FILE.py",
        help="Run this Python file first, so that it can add entries; may be repeated.",
        show_default=False,
    ),
]
AsJson = Annotated[
    bool,
    typer.Option(
        "--json", help="Print JSON to standard output, and nothing else.", rich_help_panel=OUTPUT
    ),
]
Quiet = Annotated[
    bool, typer.Option("--quiet", "-q", help="Print nothing but errors.", rich_help_panel=OUTPUT)
]
Debug = Annotated[
    bool,
    typer.Option("--debug", help="Show the whole traceback of an error.", rich_help_panel=OUTPUT),
]


@dataclass(frozen=True)
class ModelRequest:
    """Which model a command line asks for."""

    source: str | None
    random_init: str | None
    overrides: Sequence[str]
    dtype: str | None
    device: str
    trust_remote_code: bool
    seed: int

    def load(self) -> LoadedModel:
        """Load the model."""
        if (self.source is None) == (self.random_init is None):
            both = "both were given" if self.source is not None else "neither was given"
            raise LoadingError(
                "Name a MODEL (a folder, a hub id, a .gguf file or package.module:function), or "
                f"give --random-init TYPE for random weights; {both}."
            )
        from leadline.loading import load_model

        return load_model(
            self.source or self.random_init or "",
            random_init=self.random_init is not None,
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
        """Make the inputs for a loaded model."""
        from leadline import inputs

        if self.texts:
            return inputs.text_inputs(
                self.texts, loaded.tokenizer, loaded.model, truncate=self.truncate
            )
        if self.text_file is not None:
            examples, length = read_size(self.windows or DEFAULT_SIZE, "--windows")
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
        examples, length = read_size(self.random or DEFAULT_SIZE, "--random")
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
    except json.JSONDecodeError as error:
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
    except json.JSONDecodeError:
        return text
