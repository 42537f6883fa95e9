"""A model in several processes: who holds what, what they tell each other, how it comes together."""
