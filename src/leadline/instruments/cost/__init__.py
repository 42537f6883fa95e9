"""What an instrument costs: work counted without running, time by the rates of this machine."""
