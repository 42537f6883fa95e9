"""One file per rule; `leadline list rules` names them."""
