"""Watch the Trainer of transformers: give it one more callback.

    python examples/watch_trainer.py run.leadline

A training that is resumed from a checkpoint goes on in the same record.
"""

import sys
import tempfile
from pathlib import Path

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

import leadline as ll

STEPS, LENGTH = 60, 32
# Any text will do; this one is there without a network.
TEXT = torch.tensor(list(Path(__file__).read_bytes()))


def main(path: str = "run.leadline") -> None:
    torch.manual_seed(0)
    config = GPT2Config(
        n_layer=4,
        n_head=4,
        n_embd=64,
        vocab_size=256,
        n_positions=LENGTH,
        bos_token_id=0,
        eos_token_id=0,
    )
    rows = TEXT.unfold(0, LENGTH, 4)
    arguments = TrainingArguments(
        output_dir=tempfile.mkdtemp(),
        max_steps=STEPS,
        per_device_train_batch_size=4,
        gradient_accumulation_steps=2,
        learning_rate=1e-3,
        max_grad_norm=1.0,
        logging_steps=20,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        use_cpu=True,  # leave this out to train on a GPU
    )
    # Every option of ll.watch can stand here. With stop=True a serious warning, such as a loss that
    # is no number any more, ends the training. sinks=["wandb"] sends every gauge to the run that the
    # Trainer has opened there, under names such as leadline/layer_03/attention/update_ratio.
    callback = ll.LeadlineCallback(path, every=10, stop=True)
    trainer = Trainer(
        model=GPT2LMHeadModel(config),
        args=arguments,
        train_dataset=[{"input_ids": row, "labels": row} for row in rows],
        callbacks=[callback],
    )
    trainer.train()
    for warning in callback.warnings:
        print(f"warning: {warning.verdict}")
    print(f"{trainer.state.global_step} updates are in {path}; look with: leadline watch {path}")


if __name__ == "__main__":
    main(*sys.argv[1:2])
