"""Laws of depth beside what a record holds along its layers."""
