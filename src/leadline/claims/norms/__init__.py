"""LayerNorm, its Jacobian, where it stands, and how signal and gradient then travel. One file per claim."""
