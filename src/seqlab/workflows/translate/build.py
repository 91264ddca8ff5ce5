"""From settings and what was read to a translator."""

from __future__ import annotations

import inspect
from typing import Any

import torch

from seqlab.core.registry import TRANSLATORS, look_up
from seqlab.core.settings.translate import TranslateSettings
from seqlab.layers.recompute import recompute_blocks
from seqlab.workflows.translate.data import Prepared


def outline_translator(settings: TranslateSettings, vocab_size: int, targets: int) -> Any:
    """A model of the right shapes."""
    constructor = look_up(TRANSLATORS, settings.model.kind, "model")
    taken = inspect.signature(constructor).parameters
    said = {name: getattr(settings.model, name) for name in settings.model.__dataclass_fields__ if name in taken}
    sizes = {name: value for name, value in said.items() if value is not None}
    made = constructor(vocab_size=vocab_size, targets=targets, **sizes)
    if settings.training.recompute:
        recompute_blocks(made, settings.model.kind)
    return made


def start_from_data(model: Any, data: Prepared) -> None:
    """Generating starts from how often each piece stands in the targets."""
    model.start_from_counts(torch.from_numpy(data.counts).float())
