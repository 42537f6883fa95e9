"""The options that several commands share: each is declared once, and a command takes it by type."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

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
Models = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="MODEL",
        help="Hub ids, local folders, .gguf files, package.module:function; recipe:NAME for a "
        "Transformer of a recipe, random:TYPE for random weights. The experiment's own models "
        "otherwise.",
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
RecipeName = Annotated[
    str | None,
    typer.Option(
        "--recipe",
        metavar="NAME",
        help="Instead of MODEL: a Transformer of a recipe with random weights, such as gpt2 "
        "(`leadline list recipes` names them), default, or a JSON file of its fields.",
        rich_help_panel=MODEL,
        show_default=False,
    ),
]
Overrides = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Change a field of the configuration or the recipe, such as n_layer=48 or "
        "connection=hyper(lanes=4); may be repeated.",
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
Everything = Annotated[
    bool,
    typer.Option(
        "--all",
        help="Show every row, not those alone that matter most.",
        rich_help_panel=OUTPUT,
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
