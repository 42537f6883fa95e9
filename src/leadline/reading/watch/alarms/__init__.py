"""One file for each way in which a run goes wrong."""
