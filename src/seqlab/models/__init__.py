"""Which parts make a model."""

from seqlab.models.build import build_lm

__all__ = ["build_lm"]
