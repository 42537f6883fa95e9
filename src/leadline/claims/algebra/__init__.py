"""The algebra of x + F(x): products, gradients, differential equations. One file per claim."""
