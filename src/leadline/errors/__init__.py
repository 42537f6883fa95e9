"""What can go wrong, and how it is said: exceptions, the words of messages, checks of arguments."""

from __future__ import annotations

from leadline.errors.arguments import (
    MOST_NESTED,
    as_whole_number,
    check_count,
    check_function,
    check_path,
    check_seed,
    check_text,
    is_nested_deeply,
)
from leadline.errors.exceptions import (
    FULL_DISK,
    AnatomyError,
    BalanceError,
    CatalogError,
    InputError,
    LabError,
    LeadlineError,
    LoadingError,
    MachineError,
    MemoryLack,
    MissingExtra,
    ProbeError,
    ProcessError,
    RecipeError,
    RecordError,
    TrainingStopped,
    UnknownName,
)
from leadline.errors.libraries import (
    require,
    without_collector,
)
from leadline.errors.progress import (
    Progress,
    check_progress,
    no_progress,
)
from leadline.errors.words import (
    did_you_mean,
    join_words,
    nearest_names,
    shown,
    words_of,
)

__all__ = [
    "FULL_DISK",
    "MOST_NESTED",
    "AnatomyError",
    "BalanceError",
    "CatalogError",
    "InputError",
    "LabError",
    "LeadlineError",
    "LoadingError",
    "MachineError",
    "MemoryLack",
    "MissingExtra",
    "ProbeError",
    "ProcessError",
    "Progress",
    "RecipeError",
    "RecordError",
    "TrainingStopped",
    "UnknownName",
    "as_whole_number",
    "check_count",
    "check_function",
    "check_path",
    "check_progress",
    "check_seed",
    "check_text",
    "did_you_mean",
    "is_nested_deeply",
    "join_words",
    "nearest_names",
    "no_progress",
    "require",
    "shown",
    "without_collector",
    "words_of",
]
