"""Which calls of step() make one update of the model."""
