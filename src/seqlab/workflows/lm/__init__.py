"""Language models: from a text to a run folder, and what a run can do."""
