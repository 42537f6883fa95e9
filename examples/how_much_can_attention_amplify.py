"""How much can attention amplify, layer by layer, and does depth let it explode?

A product of attention matrices has rows that sum to one, so its norm never exceeds the square root
of the number of tokens, whatever the norms of its factors multiply to. The note's bound for
pre-norm is printed with the reason why it does not apply here. Runs in a few seconds.
"""

from __future__ import annotations

import math

import leadline as ll

TOKENS = 48


def main() -> None:
    model = ll.Transformer(depth=24, width=64, heads=4, vocabulary=100, context=TOKENS)
    inputs = ll.random_tokens(model, examples=2, length=TOKENS, seed=0)
    record = ll.measure(model, inputs, probes="attention,attention_product")
    norms = record["attention.spectral_norm"].values
    product = record["attention.product_norm"].values
    bound = record["attention.product_of_norms"].values
    print(f"square root of the tokens: {math.sqrt(TOKENS):.3f}")
    print("layer  norm of a head  norm of the product  product of the norms")
    for layer in (1, 2, 4, 8, 16, 24):
        at = layer - 1
        print(f"{layer:5}  {norms[at]:14.3f}  {product[at]:19.3f}  {bound[at]:20.4g}")
    table = ll.bounds(record, names=["pre-norm-as-written", "causal", "product"])
    for bound_ in table.bounds:
        closest = bound_.closest
        reasons = sorted({why for row in bound_.rows for why in row.because})
        applies = "applies" if bound_.applying else f"does not apply: {'; '.join(reasons)}"
        ratio = math.nan if closest is None else closest.ratio
        print(f"{bound_.name}: measured / predicted up to {ratio:.3f}; {applies}")


if __name__ == "__main__":
    main()
