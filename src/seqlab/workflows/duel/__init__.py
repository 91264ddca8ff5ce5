"""The duel: models of equal budget on one text, several seeds each, and a verdict."""
