"""The quantities that only serve to compute others: the ingredients of bounds on attention and rank.

They are numbers of the weights, such as the largest singular value of a head's W_Q. They stand in
the record and in its JSON, and `leadline bounds` reads them, but tables and charts of what was
measured leave them out.
"""

from __future__ import annotations

__all__ = ["INGREDIENTS"]

INGREDIENTS = frozenset(
    {
        "attention.bias_range",
        "attention.key_bias",
        "attention.key_radius",
        "attention.key_weight",
        "attention.norm_gain",
        "attention.norm_shift",
        "attention.query_bias",
        "attention.query_radius",
        "attention.query_weight",
        "attention.scaling",
        "attention.soft_cap",
        "collapse.lipschitz",
        "collapse.query_key",
        "collapse.value_gain",
        "collapse.value_output_1",
        "collapse.value_output_inf",
    }
)
