"""What every page, table and picture is made of: columns, palette, words, axes."""
