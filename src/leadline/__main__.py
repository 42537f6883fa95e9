"""`python -m leadline` is the command line."""

from __future__ import annotations

from leadline.cli.main import run

if __name__ == "__main__":
    run()
