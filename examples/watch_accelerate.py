"""Watch a loop of accelerate: the same line as in any loop, after `prepare`.

    python examples/watch_accelerate.py run.leadline
    accelerate launch examples/watch_accelerate.py run.leadline       # with several processes

The watch takes model and optimizer as `prepare` returns them. With several processes each of them
calls ll.watch, and the first one writes.
"""

import sys
from pathlib import Path

import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader
from transformers import GPT2Config, GPT2LMHeadModel

import leadline as ll

STEPS, LENGTH, ACCUMULATED = 60, 32, 2
# Any text will do; this one is there without a network.
TEXT = torch.tensor(list(Path(__file__).read_bytes()))


def main(path: str = "run.leadline") -> None:
    torch.manual_seed(0)
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=ACCUMULATED)
    config = GPT2Config(
        n_layer=4,
        n_head=4,
        n_embd=64,
        vocab_size=256,
        n_positions=LENGTH,
        bos_token_id=0,
        eos_token_id=0,
    )
    model = GPT2LMHeadModel(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    batches = DataLoader(TEXT.unfold(0, LENGTH, 4), batch_size=4, shuffle=True)
    model, optimizer, batches = accelerator.prepare(model, optimizer, batches)

    updates = 0
    # As a context manager the watch ends with its block, whatever ends the block.
    with ll.watch(model, optimizer, path, every=10) as watch:
        model.train()
        while updates < STEPS:
            for batch in batches:
                with accelerator.accumulate(model):
                    accelerator.backward(model(input_ids=batch, labels=batch).loss)
                    if accelerator.sync_gradients:
                        accelerator.clip_grad_norm_(model.parameters(), 1.0)
                        updates += 1
                    optimizer.step()
                    optimizer.zero_grad()
                if updates == STEPS:
                    break
    for warning in watch.warnings:
        accelerator.print(f"warning: {warning.verdict}")
    accelerator.print(f"{updates} updates are in {path}; look with: leadline watch {path}")


if __name__ == "__main__":
    main(*sys.argv[1:2])
