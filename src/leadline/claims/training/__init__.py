"""What trains: depth, warm-up, designs, dropped layers. One file per claim."""
