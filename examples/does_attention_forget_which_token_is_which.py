"""Does attention forget which token is which? Bidirectional, causal, with a skip, followed exactly.

Run: python examples/does_attention_forget_which_token_is_which.py
"""

from __future__ import annotations

import torch

import leadline as ll

DEPTH, WIDTH, TOKENS = 10, 32, 8


def network(causal: bool, connection: str, mlp: str = "none") -> ll.Transformer:
    return ll.Transformer(
        depth=DEPTH,
        width=WIDTH,
        heads=2,
        attention=f"multihead(causal={str(causal).lower()})",
        mlp=mlp,
        connection=connection,
        embedding="none",
        positions="none",
        head="none",
        init="xavier",
    )


def main() -> None:
    x = torch.randn(TOKENS, WIDTH, generator=torch.Generator().manual_seed(0))
    cases = {
        "no mask, no skip": network(False, "none"),
        "no mask, no skip, MLP": network(False, "none", "gelu"),
        "causal, no skip": network(True, "none"),
        "no mask, skip": network(False, "identity"),
        "no mask, skip / sqrt(2 L)": network(False, "weighted(alpha=depth)"),
    }
    print(f"log10 of the relative residual after layers 0 to {DEPTH}\n")
    for name, model in cases.items():
        found = ll.collapse(model, x).collapse
        shown = " ".join(f"{value:9.4g}" for value in found.log10_relative[::2])
        print(f"{name:<26}{shown}   error {found.error.max():.0e}")


if __name__ == "__main__":
    main()
