"""Counts of the training text as a network's guide: made, kept in the run folder, and read again."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray

from seqlab.core.errors import DamageError, DataError
from seqlab.core.memory import available_bytes
from seqlab.core.reporting import Reporter
from seqlab.core.settings.fields import filled
from seqlab.core.settings.lm import LMSettings
from seqlab.models.folds import Folded, count_folds
from seqlab.models.guided import Guide

GUIDE = "guide.safetensors"


def counted(settings: LMSettings, ids: NDArray[Any], vocab_size: int, reporter: Reporter) -> Folded | None:
    """The training text counted as a whole and without each of its folds, if the model is to be led by counts."""
    model = settings.model
    if model.guide != "ngram":
        return None
    folds = filled(model.folds)
    if filled(settings.training.context) <= len(ids) < folds:  # one shorter than a context is refused as such
        raise DataError(
            f"the training text has {len(ids):,} tokens, too few for {folds} folds; give more text, or say --guide none"
        )
    with reporter.task("counting", None):
        return count_folds(ids, vocab_size, filled(model.order), folds, available_bytes() or math.inf)


def guide_from(settings: LMSettings, files: Mapping[str, bytes], vocab_size: int) -> Guide | None:
    """The guide that a run folder keeps; None if the run has none."""
    if settings.model.guide != "ngram":
        return None
    if GUIDE not in files:
        raise DamageError(f"{GUIDE} is missing from the run folder; restore it from a copy")
    return Guide.from_bytes(files[GUIDE], vocab_size, filled(settings.model.order), GUIDE)
