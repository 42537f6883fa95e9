"""The sections of the report, one file each; `section.py` says what they must have."""
