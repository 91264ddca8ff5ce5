"""From settings and what was read to a classifier."""

from __future__ import annotations

import inspect
import math
from typing import Any

import numpy as np
import torch

from seqlab.core.registry import CLASSIFIERS, look_up
from seqlab.core.settings.classify import ClassifierSettings, ClassifySettings
from seqlab.core.settings.fields import filled
from seqlab.core.types import RESERVED
from seqlab.data.label_batches import input_batch
from seqlab.evaluation.calibration import fit_temperature
from seqlab.layers.recompute import recompute_blocks
from seqlab.workflows.classify.data import Prepared, Sizes

LIKELY = 0.5  # ln s: between a third and three, unless many texts say otherwise
CALIBRATED_ON = 2_000  # training texts that say how large naive Bayes' logits should start
PLAIN_WIDTH = 64  # of the vectors where there are too many classes for naive Bayes: they need room


def outline_classifier(settings: ClassifySettings, sizes: Sizes) -> Any:
    """A model of the right shapes."""
    model = settings.model
    constructor = look_up(CLASSIFIERS, model.kind, "model")
    taken = inspect.signature(constructor).parameters
    said = {name: getattr(model, name) for name in model.__dataclass_fields__ if name in taken}
    said |= _average_sizes(model, sizes) if model.kind == "average" else _encoder_sizes(model, sizes)
    made = constructor(classes=sizes.classes, **{name: value for name, value in said.items() if value is not None})
    if model.vectors is not None and not model.train_vectors:
        table = made.vectors if model.kind == "average" else made.embedding
        table.weight.requires_grad_(False)
    if settings.training.recompute:
        recompute_blocks(made, model.kind)
    return made


def _average_sizes(model: ClassifierSettings, sizes: Sizes) -> dict[str, Any]:
    width = model.width if model.width is not None else sizes.vector_width
    if width is None:
        width = 0 if sizes.bayes else PLAIN_WIDTH
    return {"features": sizes.features, "vectored": sizes.vectored, "width": width, "bayes": sizes.bayes}


def _encoder_sizes(model: ClassifierSettings, sizes: Sizes) -> dict[str, Any]:
    found: dict[str, Any] = {"words": sizes.features}
    return found if sizes.vector_width is None else found | {"vector_width": sizes.vector_width}


@torch.no_grad()
def start_from_data(model: Any, settings: ClassifySettings, data: Prepared) -> None:
    """What the training texts give before the first step: known words, counts, vectors, how common each class is."""
    known = torch.from_numpy(data.known.view(np.int64) if data.known.dtype == np.uint64 else data.known)
    seen = np.bincount(data.truth[data.split.train], minlength=len(data.labels)) + 1.0
    logs = torch.from_numpy(np.log(seen / seen.sum())).float()
    if settings.model.kind != "average":
        model.vocabulary.copy_(known)
        model.output.bias.zero_()
        if data.vectors is not None:
            _set_vectors(model.embedding.weight[RESERVED:], data)
        return
    model.kept.copy_(known)
    if model.weights is not None:
        model.count(torch.from_numpy(data.counts))
        model.scale.fill_(_first_scale(model, data))
    if not settings.training.balance:
        model.bias.copy_(logs[1:] - logs[:1] if model.columns == 1 else logs)
    if data.vectors is not None and model.vectors is not None:
        _set_vectors(model.vectors.weight, data)


def _set_vectors(table: torch.Tensor, data: Prepared) -> None:
    """Words without a vector start from random ones of the same spread."""
    vectors = data.vectors
    assert vectors is not None
    given = torch.from_numpy(vectors.matrix)
    known = torch.from_numpy(~vectors.missing)
    table.mul_(float(given[known].std()) / float(table.std()) if bool(known.any()) else 1.0)
    table[known] = given[known]


def _first_scale(model: Any, data: Prepared) -> float:
    """The s with which naive Bayes, its own counts left out, explains the training texts best."""
    rows = data.split.train
    rows = rows[np.linspace(0, len(rows) - 1, min(len(rows), CALIBRATED_ON)).astype(np.int64)]
    model.eval()  # nothing is dropped, nothing is drawn
    model.scale.fill_(1.0)
    vectors, model.vectors = model.vectors, None
    z = model(input_batch(data.inputs, rows), torch.from_numpy(data.truth[rows])).double().numpy()
    model.vectors = vectors
    model.train()
    temperature = fit_temperature(z, data.truth[rows], spread=LIKELY)
    return 1 / temperature if math.isfinite(temperature) else 1.0


def class_weights(settings: ClassifySettings, data: Prepared) -> torch.Tensor | None:
    """n / (K n_k): every class counts the same in the sum."""
    if not settings.training.balance:
        return None
    seen = np.bincount(data.truth[data.split.train], minlength=len(data.labels))
    return torch.from_numpy(seen.sum() / (np.count_nonzero(seen) * seen.clip(min=1))).float()


def validations(settings: ClassifySettings, texts: int) -> int:
    """Steps between two looks at the validation texts, where they cost more than the steps: twice an epoch."""
    return max(1, -(-texts // filled(settings.training.batch)) // 2)
