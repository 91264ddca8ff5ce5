"""How tokens are chosen."""
