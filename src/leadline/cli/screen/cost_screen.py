"""What `--dry-run` shows: the answer in a sentence, the parts in a table, and on what they rest."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from leadline.cli.request.models import ModelRequest
    from leadline.cli.screen.voice import Voice
    from leadline.instruments.costs import Instrument

__all__ = ["show_cost"]


def show_cost(
    voice: Voice,
    request: ModelRequest,
    instrument: Instrument,
    *,
    probes: Any = None,
    loss: str = "auto",
    ablate: str | None = None,
    layer: int | tuple[int, int] | None = None,
    k: int | None = None,
    smallest: int = 0,
) -> None:
    """Predict the cost of a command and show it; nothing is measured."""
    with voice.progress("Counting the operations"):
        from leadline.instruments.costs import cost
        from leadline.models.loading.request import no_trace

        loaded, why = request.load_weightless()
        with no_trace(request.seed):
            estimate = cost(
                loaded,
                request.inputs(loaded),
                instrument=instrument,
                probes=probes,
                loss=loss,
                ablate=ablate,
                layer=layer,
                k=k,
                smallest=smallest,
                seed=request.seed,
            )
    from leadline.instruments.cost.text import answer, lines, table_rows
    from leadline.record.provenance import strict_json
    from leadline.record.words.table import Row, TableColumn, TextTable

    voice.emit(lambda: strict_json({**estimate.to_json(), "answer": answer(estimate)}))
    voice.say(answer(estimate))
    columns = [TableColumn("part"), *(TableColumn(name, right=True) for name in
               ("passes", "flops", "bytes", "memory", "seconds"))]  # fmt: skip
    rows = tuple(Row(cells) for cells in table_rows(estimate))
    voice.show(TextTable(tuple(columns), rows).show)
    for line in lines(estimate):
        voice.say(line)
    if why is not None:
        voice.say(f"The model was loaded, because {why}.")
    else:
        voice.say("Nothing was measured, and no weights were read.")
