"""What `print(record)` and a notebook show."""
