"""The options that several commands share: each is declared once, and a command takes it by type."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.models import ArgumentInfo, OptionInfo

from leadline.catalog import load_plugin

MODEL, INPUT, MEASURING, OUTPUT = "Model", "Input", "Measuring", "Output"


def option(
    spelling: str,
    text: str,
    group: str | None = None,
    *,
    show_default: bool = True,
    least: int | None = None,
    callback: Callable[..., Any] | None = None,
) -> OptionInfo:
    """Declare an option by how it is written, such as `--output -o FILE`, and its help.

    `group` is where the help shows it, `least` the smallest number that is taken.
    """
    words = spelling.split()
    names = [word for word in words if word.startswith("-")]
    return typer.Option(
        *names,
        metavar=" ".join(words[len(names) :]) or None,
        help=text,
        rich_help_panel=group,
        show_default=show_default,
        min=least,
        callback=callback,
    )


def argument(metavar: str, text: str) -> ArgumentInfo:
    """Declare an argument by what the usage calls it and its help."""
    return typer.Argument(metavar=metavar, help=text, show_default=False)


def _load_plugins(files: list[Path] | None) -> list[Path] | None:
    """Run the plug-ins while the command line is read, so that commands find their entries."""
    for file in files or ():
        load_plugin(file)
    return files


Model = Annotated[
    str | None,
    argument(
        "MODEL",
        "A local folder, a hub id, a .gguf file, or package.module:function "
        "(or file.py:function) that returns a module.",
    ),
]
Models = Annotated[
    list[str] | None,
    argument(
        "MODEL",
        "Hub ids, local folders, .gguf files, package.module:function; recipe:NAME for a "
        "Transformer of a recipe, random:TYPE for random weights. The experiment's own models "
        "otherwise.",
    ),
]
RandomInit = Annotated[
    str | None,
    option(
        "--random-init TYPE",
        "Instead of MODEL: a model type with random weights, such as gpt2.",
        MODEL,
    ),
]
RecipeName = Annotated[
    str | None,
    option(
        "--recipe NAME",
        "Instead of MODEL: a Transformer of a recipe with random weights, such as gpt2 "
        "(`leadline list recipes` names them), default, or a JSON file of its fields.",
        MODEL,
    ),
]
Overrides = Annotated[
    list[str] | None,
    option(
        "--set KEY=VALUE",
        "Change a field of the configuration or the recipe, such as n_layer=48 or "
        "connection=hyper(lanes=4); may be repeated.",
        MODEL,
    ),
]
Dtype = Annotated[
    str | None,
    option(
        "--dtype TYPE", "float32, bfloat16, float16 or float64 instead of the model's own.", MODEL
    ),
]
Device = Annotated[str, option("--device NAME", "Where to compute, such as cuda.", MODEL)]
TrustRemoteCode = Annotated[
    bool,
    option(
        "--trust-remote-code", "Let the model folder bring its own Python code and run it.", MODEL
    ),
]
Stream = Annotated[
    bool | None,
    option(
        "--stream/--no-stream",
        "Read the weights from their files block by block while the model runs, for models larger "
        "than memory; without the option, where they do not fit into free memory.",
        MODEL,
        show_default=False,
    ),
]
NoFamilies = Annotated[
    bool,
    option(
        "--no-families", "Leave the family files aside: discovery alone finds the anatomy.", MODEL
    ),
]
Declare = Annotated[
    str | None,
    option(
        "--declare FILE.json",
        "Your own declaration of the anatomy: a JSON file, or the JSON itself, such as "
        '{"blocks": "transformer.h", "writes": ["attn", "mlp"]}.',
        MODEL,
    ),
]
StackName = Annotated[
    str | None,
    option("--stack NAME", "Which stack, where a model has several, such as decoder.", MEASURING),
]
Texts = Annotated[list[str] | None, option("--text TEXT", "A text; may be repeated.", INPUT)]
TextFile = Annotated[
    Path | None, option("--text-file FILE", "A text file, cut into windows.", INPUT)
]
Windows = Annotated[
    str | None,
    option(
        "--windows EXAMPLESxLENGTH",
        "How many windows of how many tokens to take from the text file; 4x128 otherwise.",
        INPUT,
    ),
]
TokensFile = Annotated[
    Path | None,
    option("--tokens-file FILE", "A file of token ids: .txt, .json, .npy or .safetensors.", INPUT),
]
RandomSize = Annotated[
    str | None,
    option(
        "--random EXAMPLESxLENGTH",
        "Random inputs of this size; 4x128 when no input is given.",
        INPUT,
    ),
]
Truncate = Annotated[
    bool, option("--truncate", "Cut a text that is longer than the model's context.", INPUT)
]
Seed = Annotated[int, option("--seed N", "Seed of everything random.", INPUT)]
Plugins = Annotated[
    list[Path] | None,
    option(
        "--plugin FILE.py",
        "Run this Python file first, so that it can add entries; may be repeated.",
        callback=_load_plugins,
    ),
]
RecordFile = Annotated[
    Path | None, option("--output -o FILE.leadline", "Save the record here.", OUTPUT)
]
HtmlFile = Annotated[
    Path | None,
    option("--html FILE.html", "Write the report here: one file that needs no network.", OUTPUT),
]
Everything = Annotated[
    bool, option("--all", "Show every row, not those alone that matter most.", OUTPUT)
]
DryRun = Annotated[
    bool,
    option(
        "--dry-run",
        "Only say what it would take: passes, operations, memory and time, part by part.",
        OUTPUT,
    ),
]
Anyway = Annotated[
    bool, option("--anyway", "Try it even if it needs more memory than is free.", MEASURING)
]
AsJson = Annotated[
    bool, option("--json", "Print JSON to standard output, and nothing else.", OUTPUT)
]
Quiet = Annotated[bool, option("--quiet -q", "Print nothing but errors.", OUTPUT)]
Debug = Annotated[bool, option("--debug", "Show the whole traceback of an error.", OUTPUT)]
