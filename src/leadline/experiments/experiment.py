"""What an experiment declares: its options, what it does again, and which function does it.

To add one, put one file into this folder:

    @EXPERIMENTS.register("my-experiment")
    @dataclass(frozen=True)
    class MyOptions(ExperimentOptions):
        '''Is my claim true? The first line is the summary, all of it the help of the command.'''

        redoes = "figure 3 of the note"
        work = "leadline.experiments.my_experiment:my_experiment"

        depth: int = option(12, "Layers.", least=1)

    def my_experiment(options: MyOptions, *, progress: Progress = no_progress) -> Outcome:
        import torch
        ...

The command `leadline reproduce my-experiment` is made from it: `depth` becomes `--depth`, with this
type, default and help. A field without `option` can be set in Python alone. The file is imported
for every help text, so torch, numpy and what needs them are imported inside its functions. A large
experiment is a folder: its `__init__.py` holds the options, and its other files, one of which has
the function, are imported when the experiment runs and not before.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from leadline.catalog import Catalog
from leadline.errors import InputError, Progress

if TYPE_CHECKING:
    from typing import Self

    from leadline.experiments.outcome.outcome import Outcome

__all__ = [
    "EXPERIMENT",
    "EXPERIMENTS",
    "INPUT",
    "MEASURING",
    "MODEL",
    "NETWORK",
    "TRAINING",
    "ExperimentCatalog",
    "ExperimentOptions",
    "OptionText",
    "check_depths",
    "option",
    "shared_option",
]

EXPERIMENT, NETWORK, TRAINING = "Experiment", "Network", "Training"
MODEL, INPUT, MEASURING = "Model", "Input", "Measuring"
"""The groups in which the help shows options."""


@dataclass(frozen=True)
class OptionText:
    """What the command line says of a field, and how the option is spelled there."""

    help: str
    names_default: bool
    """Whether the help says what the default is."""
    group: str | None
    metavar: str | None
    name: str | None


def option(
    default: Any,
    text: str | None = None,
    *,
    group: str | None = None,
    metavar: str | None = None,
    name: str | None = None,
    quick: Any = None,
    least: int | None = None,
) -> Any:
    """Declare a field; with a `text` it is an option of the command line.

    `quick` is the value with --quick where that differs, which the text then ends with; `{default}`
    in a text is the default. Below `least` a value is refused. `name` is how the option is called
    where that is not the name of the field, `group` where the help shows it.
    """
    metadata: dict[str, Any] = {}
    if text is not None:
        if quick is not None and "{" not in text:
            text += ": {default}, or {quick} with --quick."
        full = text.format(default=_spelled(default), quick=_spelled(quick))
        metadata["text"] = OptionText(full, "{default}" in text, group, metavar, name)
    if quick is not None:
        metadata["quick"] = quick
    if least is not None:
        metadata["least"] = least
    return field(default=default, metadata=metadata)


def shared_option(default: Any) -> Any:
    """Declare a field whose option other commands have too, so that its text stands there."""
    return field(default=default, metadata={"shared": True})


def _spelled(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


@dataclass(frozen=True, kw_only=True)
class ExperimentOptions:
    """The options of an experiment; the docstring of a subclass is the help of its command."""

    redoes: ClassVar[str]
    """What of the notes or papers is done again."""
    work: ClassVar[str] = ""
    """The function that does it, `module:function`: it takes the options, and `progress`."""
    beginning: ClassVar[str] = "Building the models"
    """What is being done first."""
    group: ClassVar[str] = EXPERIMENT
    """Where the help shows the options that name no other group."""
    quick_text: ClassVar[str] = ""
    """What --quick does; empty where there is no such option."""
    keeps_records: ClassVar[bool] = False
    """Whether records are written beside picture and table."""

    seed: int = shared_option(0)

    @classmethod
    def quick(cls) -> Self:
        """Return the options of a small run that shows the way of it."""
        return cls(**{f.name: f.metadata["quick"] for f in fields(cls) if "quick" in f.metadata})

    @classmethod
    def from_command_line(cls, chosen: Mapping[str, Any], *, quick: bool = False) -> Self:
        """Return the options with the fields that were chosen; the others have their defaults."""
        return replace(cls.quick() if quick else cls(), **chosen)

    def check(self) -> None:
        """Refuse what cannot be done, with what to change."""
        for one in fields(self):
            least, value = one.metadata.get("least"), getattr(self, one.name)
            if least is not None and value < least:
                raise InputError(f"{one.name} is {value}; give a whole number from {least} on.")

    def run(
        self, *, folder: Path | None, progress: Progress, tell: Callable[[str], None]
    ) -> Outcome:
        """Do the experiment.

        `folder` is where results are kept, `tell` gets results before all is done, in sentences.
        """
        return self.function()(self, progress=progress)

    @classmethod
    def function(cls) -> Callable[..., Outcome]:
        """Import the function that does the experiment."""
        module, _, name = cls.work.partition(":")
        return getattr(importlib.import_module(module), name)


def check_depths(depths: tuple[int, ...]) -> None:
    """Refuse depths over which no exponent can be fitted."""
    if len(set(depths)) < 2 or min(depths) < 1:
        raise InputError(
            f"The depths are {', '.join(map(str, depths)) or 'none'}; an exponent over "
            "depth needs two different ones from 1 on, such as 12,24,48."
        )


class ExperimentCatalog(Catalog[type[ExperimentOptions]]):
    """The files and folders beside this one. Of a folder only its `__init__.py` is imported."""

    def _load(self) -> None:
        if not self._loaded:
            room = __name__.rpartition(".")[0]
            for module in pkgutil.iter_modules([str(Path(__file__).parent)]):
                importlib.import_module(f"{room}.{module.name}")
        super()._load()


EXPERIMENTS: Catalog[type[ExperimentOptions]] = ExperimentCatalog("experiment")
"""The experiments and their options. Nothing here needs torch before it runs."""
