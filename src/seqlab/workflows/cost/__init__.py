"""What a model costs: counted, predicted, measured."""
