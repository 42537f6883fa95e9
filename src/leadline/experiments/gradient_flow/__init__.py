"""How gradients travel through depth, at initialisation and in training."""
