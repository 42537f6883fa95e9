"""Rules about attention, masks and positions."""
