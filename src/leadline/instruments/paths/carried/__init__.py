"""Tensors that carry their components along: what each path of the model has added to them."""

# The rules enter themselves into a table of `carried`: whoever imports a module from here has them.
from leadline.instruments.paths.carried import rules as _rules  # noqa: F401
