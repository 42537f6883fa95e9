"""The map of what trains in words: its rule, its places, its usable depths, its gauges."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING

from leadline.reading.map.gauge_prediction import GUESS, best_prediction
from leadline.reading.map.places import DIGITS
from leadline.record.words.numbers import format_number

if TYPE_CHECKING:
    from leadline.reading.map.gauge_prediction import Prediction
    from leadline.reading.map.places import Depth, MapPlace, MapRow
    from leadline.reading.map.trainability import Trainability

__all__ = [
    "MARKS",
    "depth_text",
    "gauge_rows",
    "gauge_title",
    "hole_text",
    "loss_text",
    "map_answer",
    "map_title",
    "notes",
    "place_text",
    "prediction_sentence",
    "rules",
    "seed_text",
    "spread_text",
    "spread_title",
    "unmeasured",
    "usable_text",
]

MARKS = {True: "✓", False: "✗", None: "·"}
_MOST_REACHES, _MOST_NAMES = 4, 4
"""How many usable depths are said in words, and how many rows of each are named."""


def map_answer(training_map: Trainability) -> list[str]:
    """Say which rows train how deep, the deepest first."""
    if not training_map.rows:
        return ["No cell has ended yet."]
    groups: dict[tuple[str, str], list[str]] = {}
    for row in sorted(training_map.rows, key=_usable, reverse=True):
        groups.setdefault(_reach(row, training_map), []).append(row.name)
    sentences = [
        _reach_sentence(reach, names) for reach, names in list(groups.items())[:_MOST_REACHES]
    ]
    if len(groups) > _MOST_REACHES:
        others = sum(map(len, list(groups.values())[_MOST_REACHES:]))
        sentences.append(f"{others} more rows train less deep.")
    return sentences


EVERY_CELL = "all cells"
"""What the only row of a sweep without a name is called."""


def _reach_sentence(reach: tuple[str, str], names: list[str]) -> str:
    """Say how deep rows train, the rows first."""
    verb, rest = reach
    more = len(names) - _MOST_NAMES
    listed = "; ".join(names[:_MOST_NAMES]) + (f" and {more} more" if more > 0 else "")
    if names == [EVERY_CELL]:
        several = {"trains": "train", "was not measured": "were not measured"}
        alone = "No cell trains" if verb == "does not train" else f"All cells {several[verb]}"
        return f"{alone}{rest}."
    if verb == "does not train":
        if len(names) == 1:
            return f"{listed} does not train{rest}."
        subject = f"Neither {' nor '.join(names)}" if len(names) == 2 else f"None of {listed}"
        return f"{subject} trains{rest}."
    if len(names) == 1:
        return f"{listed} {verb}{rest}."
    plural = {"trains": "train", "was not measured": "were not measured"}[verb]
    return f"{' and '.join(names) if len(names) == 2 else listed} {plural}{rest}."


def _usable(row: MapRow) -> float:
    return -1.0 if row.usable is None else float(row.usable.depth)


def _reach(row: MapRow, training_map: Trainability) -> tuple[str, str]:
    """Return how deep a row trains as the verb of a sentence and what follows it."""
    usable, axis = row.usable, training_map.axis
    if usable is None:
        return "was not measured", ""
    if usable.fails_at is None:
        return "trains", f" at every {axis} that was measured, up to {depth_text(usable.depth)}"
    fails = depth_text(usable.fails_at)
    if usable.depth > 0:
        return "trains", f" up to {axis} {depth_text(usable.depth)}, not at {fails}"
    steps = {cell.steps for cell in training_map.cells if cell.status == "finished"}
    within = f" within {steps.pop()} steps" if len(steps) == 1 else ""
    return "does not train", f"{within}, even at {axis} {fails}"


def map_title(training_map: Trainability) -> str:
    """Return the heading of the map; a sweep that was given no name is called sweep."""
    return (
        "What trains" if training_map.name in ("", "sweep") else f"What trains: {training_map.name}"
    )


def rules(training_map: Trainability) -> list[str]:
    """Say what counts as training, and the entropies it is measured by."""
    needed = (
        "all seeds"
        if training_map.share == 1
        else f"at least {training_map.share:.0%} of the seeds"
    )
    if training_map.share <= DIGITS:
        needed = "at least one seed"
    lines = [
        f"A place trains when the validation loss of {needed} is {training_map.margin:g} nats or more "
        "below the unigram entropy of the task."
    ]
    for task, entropy in training_map.entropies.items():
        lines.append(
            f"{task}: unigram entropy {format_number(entropy.unigram)}, bigram entropy "
            f"{format_number(entropy.bigram)}; trains at {entropy.unigram - training_map.margin:.3f} or less."
        )
    return lines


def depth_text(depth: Depth) -> str:
    """Write a depth as a heading."""
    return f"{depth:g}"


def place_text(place: MapPlace | None, *, brief: bool = False) -> str:
    """Write a place: a mark, the median loss, and how many seeds train; nothing if not asked.

    `brief` leaves the seeds out where all agree.
    """
    if place is None:
        return ""
    if place.trains is None:
        return f"{MARKS[None]} {hole_text(place)}"
    agree = place.trained in (0, place.seeds) and not place.holes
    words = [f"{MARKS[place.trains]} {loss_text(place)}"]
    if not (brief and agree):
        words.append(seed_text(place))
    return " ".join(words)


def loss_text(place: MapPlace) -> str:
    """Write the median loss with two digits after the point."""
    return "diverged" if math.isnan(place.loss) else f"{place.loss:.2f}"


def seed_text(place: MapPlace) -> str:
    """Write how many of the measured seeds train; a question mark for every hole."""
    return f"{place.trained}/{place.seeds}{'?' * place.holes}"


def hole_text(place: MapPlace) -> str:
    """Say why nothing was measured at a place."""
    words = dict.fromkeys(cell.status for cell in place.cells)
    return "/".join(words) if words else "not run"


def usable_text(row: MapRow) -> str:
    """Write the usable depth of a row with its bracket: `12, not 24`, `96 or more`, `below 6`."""
    usable = row.usable
    if usable is None:
        return "not measured"
    if usable.fails_at is None:
        return f"{depth_text(usable.depth)} or more"
    if usable.depth == 0:
        return f"below {depth_text(usable.fails_at)}"
    return f"{depth_text(usable.depth)}, not {depth_text(usable.fails_at)}"


def spread_text(row: MapRow) -> str:
    """Write the usable depths of the seeds alone: the smallest, the middle and the largest.

    One seed has one number, two seeds have two.
    """
    if row.usable is None:
        return ""
    depths = sorted(row.usable.by_seed.values())
    if len(depths) > 2:
        depths = [row.usable.smallest, row.usable.median, row.usable.largest]
    return " ".join(depth_text(one) for one in depths)


def spread_title(training_map: Trainability) -> str:
    """Say which numbers `spread_text` has."""
    if len(training_map.seeds) > 2:
        return "the worst, the middle and the best seed"
    return "the worst and the best seed" if len(training_map.seeds) == 2 else "the only seed"


def gauge_title(name: str) -> str:
    """Return the name of a gauge in words: `gauge.token_cosine` is the token cosine."""
    words = name.removeprefix("gauge.").replace("_", " ")
    return words[:1].upper() + words[1:]


def gauge_rows(training_map: Trainability) -> list[tuple[str, ...]]:
    """Return a row per gauge: its area at the first step, the best one, its step, the cells."""
    rows: list[tuple[str, ...]] = []
    for gauge in dict.fromkeys(one.gauge for one in training_map.predictions):
        of_gauge = [one for one in training_map.predictions if one.gauge == gauge]
        best = best_prediction(of_gauge) or of_gauge[0]
        rows.append(
            (
                gauge_title(gauge),
                _area(of_gauge[0]),
                _area(best),
                f"{best.step}",
                f"{best.cells} ({best.failed} fail)",
            )
        )
    return rows


def prediction_sentence(training_map: Trainability) -> str:
    """Say which gauge told failing cells from training ones, or why none can."""
    measured = [cell for cell in training_map.cells if cell.trains is not None]
    if not training_map.predictions:
        return "No gauge was recorded, so none can be judged." if measured else ""
    if not measured:
        return ""
    best = best_prediction(training_map.predictions)
    if best is None:
        which = "All cells train" if measured[0].trains else "No cell trains"
        return f"{which}, so no gauge can be judged: there is nothing to tell apart."
    if best.auc <= GUESS:
        return (
            f"No gauge tells the {best.failed} cells that fail from the {best.trained} that train: "
            f"the best area under the ROC curve is {best.auc:.3f}, and {GUESS:g} is a guess."
        )
    ended = len(measured) - best.cells
    have = "has" if ended == 1 else "have"
    without = f", without {_plural(ended)} that {have} no reading there" if ended else ""
    tried = sum(not math.isnan(one.auc) for one in training_map.predictions)
    return (
        f"Best predictor: {gauge_title(best.gauge).lower()} at step {best.step}, area under the "
        f"ROC curve {best.auc:.3f} over {best.failed} cells that fail and {best.trained} that "
        f"train{without} (0.5 is a guess, 1 is perfect). It is the best of {tried} pairs of gauge and step, "
        "chosen on the same cells, so it flatters."
    )


def notes(training_map: Trainability) -> list[str]:
    """Say what the map hides: holes, depths that train again, cells that ended early."""
    lines: list[str] = []
    cells = training_map.cells
    if training_map.unrun:
        lines.append(f"{_plural(training_map.unrun)} not run yet: {_holes(training_map.unrun)}")
    for status in ("failed", "impossible"):
        count = sum(cell.status == status for cell in cells)
        if count:
            lines.append(f"{_plural(count)} {status}: {_holes(count)}")
    diverged = sum(cell.status == "diverged" for cell in cells)
    if diverged:
        lines.append(f"{_plural(diverged)} diverged, which counts as not training.")
    rang = Counter(code for cell in cells for code in set(cell.alarms))
    if rang:
        count = sum(bool(cell.alarms) for cell in cells)
        listing = ", ".join(f"{code} in {of}" for code, of in rang.most_common())
        lines.append(
            f"Alarms rang in {count} of {_plural(len(cells))}: {listing} (leadline explain CODE)."
        )
    early = sum(cell.status == "seconds" for cell in cells)
    if early:
        stood = "as it stood" if early == 1 else "as they stood"
        lines.append(f"{_plural(early)} ended by the clock and counted {stood} then.")
    for row in training_map.rows:
        if row.usable is None:
            continue
        if row.usable.again:
            deeper = ", ".join(depth_text(d) for d in row.usable.again)
            lines.append(f"{row.name}: trains again at {deeper}, beyond its usable depth.")
        if row.usable.holes:
            depths = ", ".join(depth_text(d) for d in row.usable.holes)
            lines.append(f"{row.name}: nothing was measured at {depths}.")
    return lines


def unmeasured(training_map: Trainability) -> list[tuple[str, str, str]]:
    """Return run, status and reason of the cells that failed or are impossible."""
    return [
        (cell.run, cell.status, cell.reason) for cell in training_map.cells if cell.trains is None
    ]


def _area(one: Prediction) -> str:
    return "-" if math.isnan(one.auc) else f"{one.auc:.3f}"


def _holes(count: int) -> str:
    words = "a hole, which counts" if count == 1 else "holes, which count"
    return f"{words} neither way."


def _plural(count: int) -> str:
    return f"{count} cell" if count == 1 else f"{count} cells"
