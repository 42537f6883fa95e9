"""What every checkpoint of a scan is measured with: the same inputs, number type and seed."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from leadline.errors import InputError, LabError, check_seed, words_of

if TYPE_CHECKING:
    from leadline.models.inputs import Inputs
    from leadline.models.loading import LoadedModel

__all__ = ["ScanSettings"]


@dataclass(frozen=True)
class ScanSettings:
    """The inputs, random tokens of the seed unless others are named, and how models are loaded.

    `random` and `windows` are (examples, length). `twin=False` measures no twin with random
    weights: less memory and time, and rules that compare with it do not look.
    """

    text: Sequence[str] = ()
    text_file: str | Path | None = None
    windows: tuple[int, int] | None = None
    tokens_file: str | Path | None = None
    random: tuple[int, int] | None = None
    truncate: bool = False
    dtype: str | None = None
    device: str = "cpu"
    trust_remote_code: bool = False
    twin: bool = True
    seed: int = 0

    def check(self) -> None:
        """Refuse what makes no sense, before any checkpoint is opened."""
        from leadline.models.loading.sources import number_type

        check_seed(self.seed)
        number_type(self.dtype)
        kinds = {
            "text": bool(self.text),
            "text_file": self.text_file is not None,
            "tokens_file": self.tokens_file is not None,
            "random": self.random is not None,
        }
        chosen = [name for name, used in kinds.items() if used]
        if len(chosen) > 1:
            raise InputError(f"Give one kind of input, not {' and '.join(chosen)} together.")
        if self.windows is not None and self.text_file is None:
            raise InputError("windows cuts a text file; give text_file too.")

    def inputs(self, loaded: LoadedModel) -> Inputs:
        """Make the inputs for one model."""
        from leadline.models.inputs.choice import InputChoice

        return InputChoice(
            text=(self.text,) if isinstance(self.text, str) else tuple(self.text),
            text_file=None if self.text_file is None else Path(self.text_file),
            windows=self.windows,
            tokens_file=None if self.tokens_file is None else Path(self.tokens_file),
            random=self.random,
            truncate=self.truncate,
            seed=self.seed,
        ).read(loaded)

    def to_json(self) -> dict[str, Any]:
        """Return what a record keeps: of a file its name and the digest of its contents."""
        facts = asdict(self)
        facts["text"] = [self.text] if isinstance(self.text, str) else list(self.text)
        for name in ("windows", "random"):
            size = facts[name]
            facts[name] = None if size is None else list(size)
        for name in ("text_file", "tokens_file"):
            path = facts[name]
            facts[name] = None if path is None else _described(Path(path))
        return facts


def _described(path: Path) -> str:
    try:
        digest = hashlib.sha256(path.read_bytes()).hexdigest()[:16]
    except OSError as error:
        raise LabError(f"{path} cannot be read: {words_of(error)}") from error
    return f"{path.name} ({digest})"
