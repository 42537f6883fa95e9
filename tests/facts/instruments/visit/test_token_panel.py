"""What moves when one token changes, against masks written down by hand."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from leadline.instruments.visit.patient import Patient
from leadline.instruments.visit.tokens.panel import run_panel
from leadline.instruments.visit.tokens.rows import ROWS, moved, token_rows
from leadline.models.inputs import Inputs
from tests.plain_gpt import PlainGPT


def panel_of(*faults: str) -> tuple[dict[str, str], dict[str, str]]:
    """The output and the second attention, of eight tokens."""
    torch.manual_seed(0)
    model = PlainGPT(faults).eval()
    patient = Patient(model, Inputs({"idx": torch.arange(10, 26).view(2, 8)}), None)
    [rows] = token_rows(patient)
    assert (rows.tokens, rows.middle, rows.first, rows.last, rows.pair) == (8, 4, 0, 7, (4, 5))
    panel = run_panel(model, rows, ["h.0.attn", "h.1.attn"])
    assert panel.output is not None
    return panel.output, panel.mixers["h.1.attn"]


@pytest.mark.parametrize(
    ("fault", "middle", "first", "last"),
    [
        ("", "00001111", "11111111", "00000001"),
        ("leak", "11111111", "11111111", "11111111"),
        ("ahead", "00011111", "11111111", "00000011"),
        ("window", "00001111", "11110000", "00000001"),
    ],
)
def test_a_module_alone_reaches_what_its_mask_shows(
    fault: str, middle: str, first: str, last: str
) -> None:
    _, attention = panel_of("", fault)
    assert (attention["middle"], attention["first"], attention["last"]) == (middle, first, last)


def test_the_output_joins_the_reach_of_all_layers() -> None:
    output, _ = panel_of("window", "window")
    # Three tokens back twice: six.
    assert output["first"] == "11111110"
    assert output["copy"] == "00000000"


def test_a_swap_moves_only_its_places_in_attention_without_positions() -> None:
    _, attention = panel_of("leak", "leak")
    assert attention["swap"] == "00001100"


def test_rounding_counts_as_unmoved_and_a_change_as_moved() -> None:
    base = torch.randn(len(ROWS), 3, 5, generator=torch.Generator().manual_seed(0))
    rows: Tensor = base[:1].repeat(len(ROWS), 1, 1)
    rows[2, 1, 0] += 4 * torch.finfo(torch.float32).eps * float(rows.abs().max())
    rows[3, 2, 0] += 1e-4
    where = moved(rows, len(ROWS), 3)
    assert where is not None
    assert where.nonzero().tolist() == [[3, 2]]


def test_tensors_without_rows_and_tokens_are_left_out() -> None:
    assert moved(torch.zeros(4, 7), 10, 3) is None
    assert moved(torch.zeros(10, 3, 2, dtype=torch.long), 10, 3) is None


@pytest.mark.parametrize(
    ("fault", "placed"),
    [
        ("", [False, False]),
        ("turn", [True, True]),
        ("turn queries", [True, False]),
        ("turn keys", [False, True]),
        ("turn by head", [False, False]),
    ],
)
def test_a_token_at_another_place_tells_which_side_is_turned(
    fault: str, placed: list[bool]
) -> None:
    _, attention = panel_of("", fault)
    assert attention["placed"] == placed
