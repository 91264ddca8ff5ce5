"""Text classification: train, predict, report."""
