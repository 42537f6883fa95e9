"""The lab in the browser: designs on a playground, records, diagnoses and lessons on one page."""
