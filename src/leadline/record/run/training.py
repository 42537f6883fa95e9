"""What a training run says about itself: losses, learning rate and gauges, step by step.

These numbers belong to the run, not to a place in the model; their site is `RUN`. `step` counts
the updates of the weights: a number at step 0 was read before the first one.
"""

from __future__ import annotations

from leadline.record.rows.quantity import Quantity

__all__ = [
    "GAUGES",
    "GRADIENT_NORM",
    "GRADIENT_RATIO",
    "LEARNING_RATE",
    "STREAM_GROWTH",
    "TOKEN_COSINE",
    "TRAINING",
    "TRAIN_LOSS",
    "VALIDATION_LOSS",
]

TRAIN_LOSS = Quantity(
    name="train.loss",
    title="Training loss",
    symbol="L",
    formula="mean cross-entropy of the batches since the row before, before each update",
    unit="nats",
    lives_on="run",
    high="At the unigram entropy: the model has learned the frequencies of the symbols alone.",
    low="The model predicts the training data.",
    headline="value",
    meaning="How well the model predicts what it is trained on.",
    topic="training",
    better="low",
)
VALIDATION_LOSS = Quantity(
    name="validation.loss",
    title="Validation loss",
    symbol="L_val",
    formula="mean cross-entropy of the task's validation examples, in evaluation mode",
    unit="nats",
    lives_on="run",
    high="At the unigram entropy: the model has learned the frequencies of the symbols alone.",
    low="The model predicts data that it was not trained on.",
    headline="value",
    meaning="How well the model predicts what it was not trained on.",
    topic="training",
    leads=True,
    better="low",
)
LEARNING_RATE = Quantity(
    name="train.rate",
    title="Learning rate",
    symbol="eta",
    formula="of the update that led to this step",
    lives_on="run",
    scale="log",
    headline="value",
    meaning="How large a step each update takes.",
    topic="training",
)
GRADIENT_NORM = Quantity(
    name="train.gradient_norm",
    title="Gradient norm",
    symbol="|dL/dtheta|",
    formula="Euclidean norm over all parameters, before clipping, of the update that led to this step",
    lives_on="run",
    scale="log",
    high="A jump often comes before a jump of the loss.",
    low="Nothing moves.",
    headline="value",
    meaning="How strongly the loss asks the weights to change. Of a watched loop in which no one "
    "factor tells clipping it is read as the optimizer takes it.",
    topic="training",
)
TOKEN_COSINE = Quantity(
    name="gauge.token_cosine",
    title="Token cosine after the last layer",
    symbol="mean cos(x_i, x_j)",
    formula="tokens.cosine of the stream after the last layer",
    lives_on="run",
    high="Towards 1: all tokens have become one vector; the model can only learn frequencies.",
    low="Tokens are spread in all directions.",
    source="Noci et al. 2022, arXiv 2206.03126",
    headline="value",
    meaning="How alike the tokens are after the last layer.",
    topic="training",
    better="low",
)
GRADIENT_RATIO = Quantity(
    name="gauge.gradient_ratio",
    title="Gradient at the entry over that at the end",
    symbol="|g_0| / |g_L|",
    formula="gradient.stream (total) before the first layer over that after the last",
    lives_on="run",
    scale="log",
    high="Gradients grow on their way to the first layers.",
    low="Gradients vanish on their way: the first layers do not learn.",
    source="Xiong et al. 2020, arXiv 2002.04745",
    headline="value",
    meaning="How much of the gradient arrives at the first layer.",
    topic="training",
    better="one",
)
STREAM_GROWTH = Quantity(
    name="gauge.stream_growth",
    title="Growth of the stream",
    symbol="|x_L| / |x_0|",
    formula="stream.norm (mean) after the last layer over that before the first",
    lives_on="run",
    scale="log",
    high="Later layers write onto a stream so large that they hardly matter.",
    low="The stream dies out.",
    headline="value",
    meaning="How much the stream grows from the first to the last layer.",
    topic="training",
)

TRAINING = (TRAIN_LOSS, VALIDATION_LOSS, LEARNING_RATE, GRADIENT_NORM)
GAUGES = (TOKEN_COSINE, GRADIENT_RATIO, STREAM_GROWTH)
