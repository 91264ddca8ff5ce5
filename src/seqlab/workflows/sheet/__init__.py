"""The perplexity sheet: every model on every text, heat maps, and domains against each other."""
