"""What changed in a run between two of its steps, in texts that can be read."""
