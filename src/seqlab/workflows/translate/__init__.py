"""Translation: encode once, translate to many."""
