"""A loop of accelerate is watched by the line that every loop takes."""

import pytest
import torch
from torch.utils.data import DataLoader

import leadline
from leadline.reading.watch.history import History
from leadline.record import Record
from tests.watched import Trace, assert_same, examples, steps_of, tiny_gpt2

accelerate = pytest.importorskip("accelerate")

UPDATES = 6


@pytest.fixture(autouse=True)
def _one_accelerator():
    """Accelerate keeps one state for the process, with the precision of the first one."""
    accelerate.state.AcceleratorState._reset_state(reset_partial_state=True)
    accelerate.state.GradientState._reset_state()
    yield
    accelerate.state.AcceleratorState._reset_state(reset_partial_state=True)
    accelerate.state.GradientState._reset_state()


def trained(path=None, *, accumulate=1, clip=None, precision="no", checkpointing=False, evaluate=False):  # fmt: skip
    accelerate.state.AcceleratorState._reset_state(reset_partial_state=True)
    accelerate.state.GradientState._reset_state()
    accelerator = accelerate.Accelerator(
        cpu=True, gradient_accumulation_steps=accumulate, mixed_precision=precision
    )
    inner = tiny_gpt2()
    if checkpointing:
        inner.gradient_checkpointing_enable({"use_reentrant": False})
    optimizer = torch.optim.AdamW(inner.parameters(), lr=1e-3)
    data = DataLoader(examples(2 * UPDATES * accumulate), batch_size=2)
    model, optimizer, data = accelerator.prepare(inner, optimizer, data)
    watched = None
    if path is not None:
        watched = leadline.watch(model, optimizer, path, every=2, quiet=True)
    model.train()
    with Trace(inner) as trace:
        for batch in data:
            with accelerator.accumulate(model):
                accelerator.backward(model(**batch).loss)
                if clip is not None and accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), clip)
                optimizer.step()
                optimizer.zero_grad()
            if evaluate:
                model.eval()
                with torch.no_grad():
                    model(**batch)
                model.train()
    if watched is not None:
        watched.close()
    return trace, watched


SETTINGS = {
    "plain": {},
    "accumulation": {"accumulate": 2},
    "clipping": {"clip": 0.1},
    "bf16": {"precision": "bf16"},
    "checkpointing": {"checkpointing": True},
    "evaluation in between": {"evaluate": True},
    "accumulation and clipping": {"accumulate": 3, "clip": 0.1},
}


@pytest.mark.parametrize("setting", SETTINGS)
def test_a_watched_training_is_the_same_bit_for_bit(tmp_path, setting):
    path = tmp_path / "run.leadline"
    alone, _ = trained(**SETTINGS[setting])
    watched, watch = trained(path, **SETTINGS[setting])
    assert_same(alone, watched)
    assert watch.notes == []
    assert steps_of(path, "train.loss") == [1, 2, 3, 4, 5, 6]
    for quantity in ("stream.norm", "update.ratio", "gradient.stream", "weights.update_ratio"):
        assert steps_of(path, quantity) == [1, 2, 4, 6], quantity


def test_the_loss_is_the_mean_over_the_micro_batches(tmp_path):
    path = tmp_path / "run.leadline"
    trace, _ = trained(path, accumulate=2)
    with Record.open(path) as record:
        losses = History.of(record).of_run("train.loss").values.tolist()
    # accelerate divides every loss by the number of micro-batches before backward.
    assert losses == pytest.approx(torch.stack(trace.losses).double().view(6, 2).sum(1).tolist())
    assert 3.0 < losses[0] < 5.0  # about ln 64
