"""Watch a training loop of your own: one line, and every layer is on record.

    python examples/watch_plain_loop.py run.leadline

While it runs, or after it: `leadline watch run.leadline` in a terminal, and
`leadline report run.leadline` for a page with a map of layers over steps.
"""

import sys
from pathlib import Path

import torch
from torch import nn

import leadline as ll

STEPS, BATCH, LENGTH, WIDTH, DEPTH = 60, 8, 32, 64, 4
# Any text will do; this one is there without a network.
TEXT = torch.tensor(list(Path(__file__).read_bytes()))


class Decoder(nn.Module):
    """A small language model over bytes, in plain torch."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(256, WIDTH)
        self.positions = nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, batch_first=True, norm_first=True)
            for _ in range(DEPTH)
        )
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, 256)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        length = tokens.shape[1]
        mask = nn.Transformer.generate_square_subsequent_mask(length)
        x = self.tokens(tokens) + self.positions(torch.arange(length))
        for block in self.blocks:
            x = block(x, src_mask=mask, is_causal=True)
        return self.head(self.norm(x))


def main(path: str = "run.leadline") -> None:
    torch.manual_seed(0)
    model = Decoder()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    # The one line. Updates 1, 10, 20, ... are sampled; in between nothing happens. Your losses,
    # gradients and weights stay what they are, bit for bit. A fault of the watch never stops the
    # loop: what it could not do is in watch.notes.
    watch = ll.watch(model, optimizer, path, every=10)

    for step in range(STEPS):
        starts = torch.randint(len(TEXT) - LENGTH - 1, (BATCH,)).tolist()
        rows = torch.stack([TEXT[start : start + LENGTH + 1] for start in starts])
        logits = model(rows[:, :-1])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten())
        loss.backward()
        # The watch tells gradients before clipping, and by how much this line shortens them.
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        if (step + 1) % 20 == 0:
            print(f"step {step + 1}: loss {loss.item():.3f}")
        if watch.should_stop:  # a serious warning: see watch.warnings for what to do now
            break

    # Not needed at the end of a script: a watch ends with its process, too.
    watch.close()
    for warning in watch.warnings:
        print(f"warning: {warning.verdict}")
    print(f"{watch.step} updates are in {path}; look with: leadline watch {path}")


if __name__ == "__main__":
    main(*sys.argv[1:2])
