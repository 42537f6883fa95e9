"""Which checkpoints a scan is of: found in folders, by patterns, or named in a list.

    folder          itself, where it holds a model; the step folders of a training run in it;
                    else every folder and GGUF file below it that holds one
    pattern         `runs/*/checkpoint-*`: whatever is there
    text file       a source on every line; empty lines and those that begin with # are skipped
    anything else   what `leadline.load` takes: a hub id, package.module:function

A step comes from the trainer_state.json of the Hugging Face Trainer, or from the name:
`checkpoint-100`, `step-2000`, `global_step143000`, `iter_0001000`, `step10k`, `2000`. Nothing is
opened here but that file; a folder with pickles only is a checkpoint too, so that it is refused by
name instead of missing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from leadline.errors import LabError, words_of
from leadline.models.loading.request import PICKLES

__all__ = ["CheckpointSource", "find_checkpoints", "step_in"]

DEEPEST = 6
"""So many folders below the one that was named are looked into."""
_NUMBER = r"(\d+)([km])?(?![a-z0-9])"
_STEPS = tuple(
    re.compile(pattern + _NUMBER, re.IGNORECASE)
    for pattern in (
        r"(?:^|[^a-z0-9])(?:global[-_]?step|steps?|iter(?:ation)?|update)[-_=]?",
        r"(?:^|[^a-z0-9])(?:checkpoint|ckpt)[-_=]?",
        r"^",  # the number is the whole name
    )
)
"""How names say a step, the surest first."""
_THOUSANDS = {"": 1, "k": 1_000, "m": 1_000_000}
_MODEL_FILES = ("config.json", "recipe.json")
_OF_THE_TRAINER = re.compile(
    r"(?:optimizer|scheduler|scaler|rng_state|training_args|random_states)"
)
"""Pickles that a trainer puts beside its weights; no model is in them."""
_SHARD = re.compile(r"-(\d{5})-of-\d{5}$")


@dataclass(frozen=True)
class CheckpointSource:
    """A checkpoint: its name, what is loaded, and where it stands in a training run.

    `step` is None where nobody knows it; `group` is the folder that it shares with the others of
    its run.
    """

    name: str
    source: str
    step: int | None = None
    group: str = ""

    @property
    def path(self) -> Path | None:
        """Its folder or file; None where it is no path."""
        path = Path(self.source)
        return path if path.exists() else None


def find_checkpoints(sources: Sequence[str | Path]) -> list[CheckpointSource]:
    """Return every checkpoint that the sources name, once, those of a run in the order of steps.

    Nothing at a place that was named is an error; what is there and cannot be loaded is not.
    """
    places = [place for text in sources for place in _expand(str(text))]
    if not places:
        raise LabError(
            "No checkpoint was named; give a folder that holds some, several paths, or a text file "
            "with one source per line."
        )
    known: dict[str, CheckpointSource] = {}
    for place in places:
        for one in _checkpoints_at(place, alone=len(places) == 1):
            real = (
                one.source if one.path is None else str(one.path.resolve())
            )  # not twice by a link
            known.setdefault(real, one)
    return _with_distinct_names(sorted(known.values(), key=_order_of(known)))


def step_in(name: str) -> int | None:
    """Read the step in the name of a folder or file; None where it names none.

    >>> step_in("checkpoint-500"), step_in("step10k"), step_in("gpt2-medium")
    (500, 10000, None)
    """
    match = next((found for one in _STEPS if (found := one.search(name))), None)
    if match is None or (match.re is _STEPS[-1] and match[0] != name):
        return None
    return int(match[1]) * _THOUSANDS[(match[2] or "").lower()]


def _expand(text: str) -> list[str]:
    """The places that one word of the command line means: a pattern's matches, a list's lines."""
    path = Path(text).expanduser()
    if path.exists():
        return _lines_of(path) if _is_list(path) else [text]
    if not set(text) & set("*?["):
        return [text]
    root = Path(path.anchor or ".")
    pattern = str(path.relative_to(path.anchor) if path.anchor else path)
    matches = sorted(map(str, root.glob(pattern)), key=_natural)
    if not matches:
        raise LabError(f"Nothing is at {text}; check the pattern.")
    return matches


def _is_list(path: Path) -> bool:
    return path.is_file() and path.suffix.lower() in {".txt", ".list"}


def _lines_of(path: Path) -> list[str]:
    """The sources in a text file; a path that is not here may be meant from the file's folder."""
    try:
        lines = [line.strip() for line in path.read_text(encoding="utf-8").splitlines()]
    except (OSError, ValueError) as error:
        raise LabError(
            f"The list {path} cannot be read: {words_of(error, first_line=True)}"
        ) from error
    named = [line for line in lines if line and not line.startswith("#")]
    if not named:
        raise LabError(f"The list {path} names no checkpoint; write one source per line.")
    return [
        str(path.parent / line)
        if not Path(line).expanduser().exists() and (path.parent / line).exists()
        else line
        for line in named
    ]


def _checkpoints_at(place: str, *, alone: bool) -> list[CheckpointSource]:
    """The checkpoints at one place; of a folder without any, itself, unless it stands alone."""
    path = Path(place).expanduser()
    if not path.exists():
        return [CheckpointSource(place, place)]
    path = path.absolute()
    if path.is_file():
        return [_checkpoint(path, path.stem)]
    inside = list(_below(path, DEEPEST))
    if not inside:
        if alone:
            raise LabError(
                f"{place} holds no checkpoint: no folder in it has weights or a config.json, and "
                "there is no .gguf file. Give the folder that holds them."
            )
        return [_checkpoint(path, path.name)]
    return [
        _checkpoint(one, path.name if one == path else one.relative_to(path).as_posix())
        for one in inside
    ]


def _checkpoint(path: Path, name: str) -> CheckpointSource:
    name = name.removesuffix(".gguf")
    return CheckpointSource(name, str(path), _step_of(path), str(path.parent))


def _below(folder: Path, deep: int) -> Iterator[Path]:
    """Yield the folder where it holds a model, and those below it.

    In the folder of a model only step folders count: others hold the same model once more, in
    another form. In a step folder nothing counts.
    """
    holds_model = _holds_model(folder)
    if holds_model:
        yield folder
        if step_in(folder.name) is not None:
            return
    try:
        children = sorted(folder.iterdir(), key=lambda one: _natural(one.name))
    except OSError:
        return
    for child in children:
        if child.name.startswith("."):
            continue
        if child.is_dir():
            if deep and (not holds_model or step_in(child.name) is not None):
                yield from _below(child, deep - 1)
        elif child.suffix.lower() == ".gguf" and not holds_model:
            shard = _SHARD.search(child.stem)
            if shard is None or int(shard[1]) == 1:
                yield child


def _holds_model(folder: Path) -> bool:
    """Whether a folder holds a model, whole or broken: weights, or what belongs to weights."""
    try:
        files = [one.name for one in folder.iterdir() if one.is_file()]
        leaf = len(files) == sum(1 for _ in folder.iterdir())
    except OSError:
        return False
    weights = any(
        name.endswith((".safetensors", ".safetensors.index.json")) or _is_pickled_model(name)
        for name in files
    )
    described = any(name in files for name in _MODEL_FILES)
    return weights or (described and (leaf or step_in(folder.name) is not None))


def _is_pickled_model(name: str) -> bool:
    return Path(name).suffix.lower() in PICKLES and not _OF_THE_TRAINER.match(name)


def _step_of(path: Path) -> int | None:
    """The step that the trainer noted, else the one in the name."""
    try:
        state = json.loads((path / "trainer_state.json").read_text(encoding="utf-8"))
        step = state["global_step"]
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        step = None
    if isinstance(step, int) and not isinstance(step, bool) and 0 <= step < 2**63:
        return step
    return step_in(path.stem if path.is_file() else path.name)


def _natural(text: str) -> list[tuple[int, int | str]]:
    """The key that sorts checkpoint-1000 behind checkpoint-200."""
    return [
        (0, int(part)) if part.isdigit() else (1, part) for part in re.split(r"(\d+)", text) if part
    ]


def _order_of(
    known: dict[str, CheckpointSource],
) -> Callable[[CheckpointSource], tuple[int, bool, int]]:
    """The key of the order: groups as they came, and steps within a group."""
    groups = {group: at for at, group in enumerate(dict.fromkeys(o.group for o in known.values()))}

    def key(one: CheckpointSource) -> tuple[int, bool, int]:
        return groups[one.group], one.step is None, one.step or 0

    return key


def _with_distinct_names(checkpoints: list[CheckpointSource]) -> list[CheckpointSource]:
    """Put the names of parent folders before names that several have."""
    for depth in range(1, DEEPEST):
        names = [one.name for one in checkpoints]
        if len(set(names)) == len(names):
            break
        checkpoints = [
            replace(one, name=_longer(one, depth)) if names.count(one.name) > 1 else one
            for one in checkpoints
        ]
    return checkpoints


def _longer(one: CheckpointSource, depth: int) -> str:
    """The name with one more folder before it."""
    parts = Path(one.source).parts
    taken = len(Path(one.name).parts)
    return "/".join(parts[-taken - 1 :]).removesuffix(".gguf") if len(parts) > taken else one.name
