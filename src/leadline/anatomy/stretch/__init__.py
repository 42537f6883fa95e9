"""A stretch of a model as one function of the stream: a block, or several."""
