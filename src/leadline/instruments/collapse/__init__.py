"""How far tokens still differ after every layer, without cancellation."""
