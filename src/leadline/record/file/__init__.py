"""The record as one SQLite file: tables, checksums, locks, exports."""
