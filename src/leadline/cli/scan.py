"""`leadline scan`: many checkpoints, measured and diagnosed; which are unhealthy, what changes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from leadline.cli.diagnose import FailOn
from leadline.cli.request import options as o
from leadline.cli.request.engines import engine_choice, interruptible
from leadline.cli.request.models import ModelRequest, read_size
from leadline.cli.request.outputs import check_outputs, say_outputs, write_outputs
from leadline.cli.screen.voice import Gauge, Voice, check_writable
from leadline.errors import LabError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leadline.lab.scan.settings import ScanSettings

RUNNING = "Running"
MOST_NAMES = 5


@dataclass(frozen=True)
class ScanRequest(ModelRequest):
    """The inputs that every checkpoint gets, and how each is loaded."""

    model: str | None = None
    random_init: str | None = None
    recipe: str | None = None
    overrides: list[str] | None = None
    dtype: o.Dtype = None
    device: o.Device = "cpu"
    trust_remote_code: o.TrustRemoteCode = False
    plugin: o.Plugins = None

    def settings(self, *, twin: bool) -> ScanSettings:
        """Return what a scan measures with."""
        from leadline.lab.scan.settings import ScanSettings

        return ScanSettings(
            text=tuple(self.text or ()),
            text_file=self.text_file,
            windows=None if self.windows is None else read_size(self.windows, "--windows"),
            tokens_file=self.tokens_file,
            random=None if self.random is None else read_size(self.random, "--random"),
            truncate=self.truncate,
            dtype=self.dtype,
            device=self.device,
            trust_remote_code=self.trust_remote_code,
            twin=twin,
            seed=self.seed,
        )


def scan(
    voice: Voice,
    request: ScanRequest,
    sources: Annotated[
        list[str],
        o.argument(
            "DIR or LIST...",
            "Folders with checkpoints, models, .gguf files, patterns such as 'runs/*/step-*', hub "
            "ids; or a .txt file with one of these per line.",
        ),
    ],
    engine: Annotated[str, o.option("--engine NAME", "Who runs: local or ray.", RUNNING)] = "local",
    address: Annotated[
        str | None,
        o.option(
            "--address HOST:PORT", "The Ray cluster, or auto for the one of this machine.", RUNNING
        ),
    ] = None,
    workers: Annotated[
        int | None,
        o.option(
            "--workers N",
            "Checkpoints at a time; as many as there are cores, and fit into memory, unless given.",
            RUNNING,
            least=1,
        ),
    ] = None,
    threads: Annotated[
        int, o.option("--threads N", "Threads of each worker.", RUNNING, least=1)
    ] = 1,
    retry: Annotated[
        bool,
        o.option("--retry", "Try once more what could not be measured.", RUNNING),
    ] = False,
    no_twin: Annotated[
        bool,
        o.option(
            "--no-twin",
            "Do not build twins with random weights; rules that compare with them do not look.",
            RUNNING,
        ),
    ] = False,
    fail_on: Annotated[
        FailOn | None,
        o.option(
            "--fail-on",
            "Leave with exit code 1 where a finding is at least as severe, or a checkpoint could not "
            "be measured.",
            o.OUTPUT,
        ),
    ] = None,
    output: Annotated[
        Path | None,
        o.option(
            "--output -o FILE.leadline",
            "The record, DIR-scan.leadline for one folder or list and scan.leadline for several "
            "unless given; the same command goes on where a scan was cut off, and measures what is "
            "new or has changed.",
            o.OUTPUT,
        ),
    ] = None,
    html: o.HtmlFile = None,
    everything: o.Everything = False,
) -> None:
    """Measure and diagnose many checkpoints: which are unhealthy, and what changes over them?

    The checkpoints of a training run are put in the order of their steps, and their layers are drawn
    over steps. A checkpoint that cannot be loaded is a row with the reason. Exit code 1 means that no
    checkpoint could be measured, or that --fail-on was given and something at least as severe was
    found.
    """
    path = output or _usual_record(sources)
    check_outputs(path, html)
    check_writable(path, "record")
    request.check()
    chosen = engine_choice(engine, address)
    with voice.progress("Looking for checkpoints") as gauge, interruptible():
        from leadline.lab.scan.scan import scan as scan_checkpoints

        listener = _ScanGauge(voice, gauge)
        try:
            record = scan_checkpoints(
                sources,
                path,
                settings=request.settings(twin=not no_twin),
                engine=chosen,
                workers=workers,
                threads=threads,
                retry=retry,
                plugins=request.plugin or (),
                progress=listener,
            )
        except KeyboardInterrupt:
            raise LabError(
                f"The scan was interrupted; what has been measured is in {path}. The same command "
                "goes on from there."
            ) from None
    with record:
        result = record.scan
        write_outputs(record, None, html)
        voice.emit(result.to_json)
        voice.show(result.screen(everything=everything).show)
        voice.say("")
        say_outputs(voice, path, html)
        measured = [one for one in result.checkpoints if one.measured]
        if told := [*result.unhealthy, *measured][:1]:
            voice.say(f"One of them alone: `leadline diagnose {path}:{told[0].name}`")
        if not measured or (fail_on is not None and result.worse_than(fail_on)):
            raise typer.Exit(1)


def _usual_record(sources: list[str]) -> Path:
    """The record's name where none was given: that of the one folder or list, and `-scan`."""
    place = Path(sources[0]).expanduser()
    if len(sources) > 1 or not place.exists():
        return Path("scan.leadline")
    place = place.resolve()
    return Path(f"{place.name if place.is_dir() else place.stem}-scan.leadline")


def _names(names: Sequence[str]) -> str:
    """The first of these names, and how many more there are."""
    more = len(names) - MOST_NAMES
    shown = ", ".join(names if more <= 1 else names[:MOST_NAMES])
    return f"{shown} and {more} more" if more > 1 else shown


class _ScanGauge:
    """Tells the gauge what a scan does, and people what they would not expect."""

    def __init__(self, voice: Voice, gauge: Gauge) -> None:
        self.voice = voice
        self.gauge = gauge
        self.total = 0
        self.ended = 0
        self.running: list[str] = []

    def __call__(self, event: Any) -> None:
        from leadline.lab.engines import News
        from leadline.lab.scan.scan import ScanBegun

        if isinstance(event, ScanBegun):
            self._begin(event)
        elif isinstance(event, News):
            if event.run not in self.running:
                self.running.append(event.run)
        else:
            self.ended += 1
            run = event.entry["run"]
            self.running = [one for one in self.running if one != run]
            if event.entry["status"] != "measured":
                self.gauge.tell(f"{event.name} ({event.entry['status']}): {event.entry['reason']}")
        doing = ", ".join(self.running) or "starting the workers"
        self.gauge(f"measuring {doing}" if self.running else doing, self.ended, self.total)

    def _begin(self, event: Any) -> None:
        self.total = len(event.waiting)
        before = len(event.checkpoints) - len(event.waiting)
        if before:
            self.voice.note(
                f"{before} of {len(event.checkpoints)} checkpoints were measured before."
            )
        if event.changed:
            self.voice.note(f"Changed since, so measured again: {_names(event.changed)}.")
        if event.gone:
            self.voice.note(
                "In the record and not among these sources, kept as they were: "
                f"{_names(event.gone)}."
            )
        if event.dropped:
            self.voice.note(
                "Never measured and not among these sources, so dropped from the record: "
                f"{_names(event.dropped)}."
            )
        if event.wanted and event.workers and event.workers < event.wanted:
            self.voice.note(
                f"{event.workers} of {event.wanted} workers, because the memory does not suffice for "
                "more of these models at once."
            )
