"""The fresh hosts: other families, depths, widths and numbers of heads, and models trained anew."""
