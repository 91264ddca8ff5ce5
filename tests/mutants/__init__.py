"""A sampler of small changes of the source that tests should see; `python -m tests.mutants --help`."""
