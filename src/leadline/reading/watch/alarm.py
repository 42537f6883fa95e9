"""An alarm looks at the history of a run for one way in which training goes wrong.

To add one, put one file into `alarms/` and one decorator into it:

    @alarm("G04", "second-moment-stale", severity="warning", needs=("optimizer.surprise",), ...)
    def second_moment_stale(history: History, alarm: Alarm) -> Iterator[Finding]: ...

An alarm is asked after every sample, about everything up to that sample, and may say the same thing
several times: `Standing` tells what is new. What it expects comes from the run's own past, from
the other layers or from the law of the design, and is a fixed number only where physics gives it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from leadline.catalog import Catalog
from leadline.reading.diagnosis.rule import Evidence, Remedy
from leadline.record.rows.finding import Finding, Severity

if TYPE_CHECKING:
    from leadline.reading.watch.history import History

RATE_TIMES = 3.0
"""Times its own median: a linear warm-up comes to twice it."""
RATE_SAMPLES = 20
LEAST_RATES = 5

__all__ = ["ALARMS", "Alarm", "Evidence", "Standing", "alarm", "ask_alarms", "good_until"]


@dataclass(frozen=True)
class Alarm:
    """One alarm with everything that its page says.

    `needs` are names of quantities; without them the alarm does not look.
    """

    code: str
    name: str
    severity: Severity
    needs: tuple[str, ...]
    look: Callable[[History], Iterable[Finding]]
    summary: str
    """What it looks for, in one sentence."""
    why: str
    """Why it is bad."""
    is_not: str
    """What looks alike and is healthy."""
    do_now: str
    """What to do while the run is still going."""
    sources: tuple[str, ...]

    def warning(
        self,
        verdict: str,
        *,
        step: int,
        since: int,
        quantity: str,
        stack: str | None = None,
        layers: Iterable[int] = (),
        sublayer: str | None = None,
        evidence: Sequence[Evidence] = (),
        cause: str = "",
        do_now: str = "",
        severity: Severity | None = None,
    ) -> Finding:
        """Return a warning: `step` is where it is said, `since` where it began."""
        place = {"stack": stack, "layers": sorted(set(layers)), "sublayer": sublayer}
        return Finding(
            verdict,
            quantity=quantity,
            severity=severity or self.severity,
            code=self.code,
            name=self.name,
            details={key: value for key, value in place.items() if value not in (None, [])}
            | {
                "step": step,
                "since": since,
                "evidence": [one.to_json() for one in evidence],
                "ruled_out": [],
                "cause": cause,
                "remedy": Remedy(do_now or self.do_now).to_json(),
                "confidence": "likely",
            },
        )


ALARMS: Catalog[Alarm] = Catalog(
    "alarm", package="leadline.reading.watch.alarms", group="leadline.alarms"
)
"""Every alarm by its name."""


def alarm(
    code: str,
    name: str,
    *,
    severity: Severity,
    needs: tuple[str, ...],
    summary: str,
    why: str,
    is_not: str,
    do_now: str,
    sources: tuple[str, ...],
) -> Callable[[Callable[[History, Alarm], Iterable[Finding]]], Alarm]:
    """Return the decorator that makes a function (history, alarm) -> warnings an alarm."""

    def enter(look: Callable[[History, Alarm], Iterable[Finding]]) -> Alarm:
        made = Alarm(
            code=code,
            name=name,
            severity=severity,
            needs=needs,
            look=lambda history: look(history, made),
            summary=summary,
            why=why,
            is_not=is_not,
            do_now=do_now,
            sources=sources,
        )
        return ALARMS.register(name)(made)

    return enter


def good_until(step: int) -> int:
    """The last update whose weights are known to be good, where a gauge was as usual at a step.

    What stands at a step was read before its update was made: that update may be the one that broke.
    """
    return max(step - 1, 0)


def ask_alarms(
    history: History, *, note: Callable[[str], object] | None = None
) -> Iterator[Finding]:
    """Ask every alarm whose quantities were read; one that fails is noted, the run goes on."""
    for name, one in sorted(ALARMS.items(), key=lambda item: item[1].code):
        if not all(need in history for need in one.needs):
            continue
        try:
            yield from [_with_rate(history, finding) for finding in one.look(history)]
        except Exception as error:  # an alarm of a plug-in must not end somebody's training
            if note is not None:
                note(f"The alarm {one.code} {name} failed: {type(error).__name__}: {error}")


def _with_rate(history: History, finding: Finding) -> Finding:
    """Add to a warning that the learning rate has risen by as much as no warm-up explains."""
    # A warning may wait until its trouble has lasted: then the rate rose before that began.
    steps = (history.step, finding.details.get("since", history.step))
    rise = next((one for step in steps if (one := _rise(history, step)) is not None), None)
    if rise is None:
        return finding
    before, now, after = rise
    words = f"the learning rate rose from {before:.3g} to {now:.3g} after step {after}"
    evidence = Evidence("learning rate", now, before, "the run's own past").to_json()
    cause = f"{words}; {finding.cause}" if finding.cause else words
    known: list[Any] = finding.details.get("evidence", [])
    details = {**finding.details, "cause": cause, "evidence": [*known, evidence]}
    return replace(finding, details=details)


def _rise(history: History, step: int) -> tuple[float, float, int] | None:
    """The learning rate as it was, that of a step, and after which step it rose; None if it did not."""
    rates = history.of_run("train.rate")
    if rates is None:
        return None
    rates = rates.until(max(rates.sample(step)[0], 0)).tail(RATE_SAMPLES)
    values = rates.values
    before = float(sorted(values)[len(values) // 2]) if len(values) else 0.0
    if len(values) < LEAST_RATES or not before > 0 or values[-1] < RATE_TIMES * before:
        return None
    low = [at for at, value in enumerate(values) if value * value < before * values[-1]]
    return before, float(values[-1]), int(rates.steps[low[-1] if low else 0])


class Standing:
    """Which warnings have been said: one that goes on is said once, until it has been quiet."""

    QUIET = 5
    """Samples without a warning after which it counts as new."""

    def __init__(self) -> None:
        self._last: dict[tuple[str, str | None], int] = {}
        self._sample = 0

    def new(self, warnings: Iterable[Finding]) -> list[Finding]:
        """Return those of one sample's warnings that have not been said yet."""
        self._sample += 1
        fresh: list[Finding] = []
        for one in warnings:
            key = (one.code, one.stack)
            if self._sample - self._last.get(key, -self.QUIET - 1) > self.QUIET:
                fresh.append(one)
            self._last[key] = self._sample
        return fresh
