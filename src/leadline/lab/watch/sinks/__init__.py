"""Where the gauges of a watched run go beside its record: loggers that people already look at."""

from leadline.lab.watch.sinks.names import scalars
from leadline.lab.watch.sinks.sink import SINKS, Sink, open_sinks, warning_text

__all__ = ["SINKS", "Sink", "open_sinks", "scalars", "warning_text"]
