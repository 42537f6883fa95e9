"""Watch a Lightning training: give the Trainer one more callback.

    python examples/watch_lightning.py run.leadline

The callback watches the module that the training step calls: the only child of the LightningModule
here, `model`. Where a step calls something else, say which: `LeadlineCallback(path, module="net")`.
"""

import sys
from pathlib import Path

import lightning
import torch
from torch.utils.data import DataLoader
from transformers import GPT2Config, GPT2LMHeadModel

import leadline as ll

STEPS, LENGTH = 60, 32
# Any text will do; this one is there without a network.
TEXT = torch.tensor(list(Path(__file__).read_bytes()))


class Language(lightning.LightningModule):
    """A small language model over bytes."""

    def __init__(self) -> None:
        super().__init__()
        self.model = GPT2LMHeadModel(
            GPT2Config(
                n_layer=4,
                n_head=4,
                n_embd=64,
                vocab_size=256,
                n_positions=LENGTH,
                bos_token_id=0,
                eos_token_id=0,
            )
        )

    def training_step(self, batch: torch.Tensor, batch_idx: int) -> torch.Tensor:
        return self.model(input_ids=batch, labels=batch).loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


def main(path: str = "run.leadline") -> None:
    lightning.seed_everything(0, verbose=False)
    # With stop=True a serious warning sets trainer.should_stop. An exception ends the watch as well,
    # and everything up to it is in the record.
    callback = ll.LeadlineCallback(path, every=10, stop=True)
    trainer = lightning.Trainer(
        max_steps=STEPS,
        accumulate_grad_batches=2,
        gradient_clip_val=1.0,
        callbacks=[callback],
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    batches = DataLoader(TEXT.unfold(0, LENGTH, 4), batch_size=4, shuffle=True)
    trainer.fit(Language(), batches)
    for warning in callback.warnings:
        print(f"warning: {warning.verdict}")
    print(f"{trainer.global_step} updates are in {path}; look with: leadline watch {path}")


if __name__ == "__main__":
    main(*sys.argv[1:2])
