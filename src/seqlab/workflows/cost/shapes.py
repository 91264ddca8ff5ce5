"""The model whose costs are asked for: of settings and shapes, or of a run, with numbers in it or without."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from torch import nn

from seqlab.core.eager import without_numbers
from seqlab.core.seeding import initialising
from seqlab.core.settings.cost import Asked, Shapes, reads_all_pairs
from seqlab.core.settings.fields import with_changes
from seqlab.core.settings.lm import model_fields
from seqlab.models.build import MODEL_SIZES, build_lm_from_settings, known_sizes, refuse_unknown_sizes
from seqlab.runs.folder import RunFolder
from seqlab.runs.task import find_task
from seqlab.workflows.classify.build import outline_classifier
from seqlab.workflows.classify.data import MOST_BAYES, Sizes
from seqlab.workflows.cost.drawn import drawn_guide
from seqlab.workflows.cost.request import Request
from seqlab.workflows.translate.build import outline_translator


def settled(asked: Asked, shapes: Shapes) -> Any:
    """The settings with what data would decide: whether a bigram's gradient is exact, whether there is a pointer."""
    settings = asked.settings
    if asked.task == "lm" and settings.model.kind == "bigram" and settings.training.full_gradient is None:
        return with_changes(settings, {"training": {"full_gradient": reads_all_pairs(asked, shapes.vocabulary)}})
    if asked.task == "translate" and settings.model.pointer is None:
        return with_changes(settings, {"model": {"pointer": False}})
    return settings


def build(request: Request) -> nn.Module:
    """The model at its start. Torch's random stream stays where it is."""
    with initialising(request.settings.training.seed):
        return _outline(request)


@contextlib.contextmanager
def _without_numbers() -> Iterator[None]:
    with without_numbers():
        yield


def outline(request: Request) -> nn.Module:
    """The same without numbers in it, at no memory."""
    with _without_numbers():
        return _outline(request)


def _outline(request: Request) -> nn.Module:
    settings, shapes = settled(request.asked, request.shapes), request.shapes
    if request.run is not None:
        files = RunFolder(request.run)
        return find_task(request.task).outline(settings, files.kept(files.read().record))
    if request.task == "lm":
        _refuse_unknown_sizes(request.asked)
        guide = drawn_guide(settings, shapes.vocabulary)
        model: nn.Module = build_lm_from_settings(settings, shapes.vocabulary, guide)
    elif request.task == "classify":
        model = outline_classifier(settings, _sizes(settings.model, shapes))
    else:
        model = outline_translator(settings, shapes.vocabulary, shapes.targets)
    return model


def _refuse_unknown_sizes(asked: Asked) -> None:
    """Of a model of somebody's own, which its constructor describes."""
    kind = asked.settings.model.kind
    if model_fields(kind) is None:
        refuse_unknown_sizes(kind, set(asked.said) & set(MODEL_SIZES), known_sizes(kind))


def _sizes(model: Any, shapes: Shapes) -> Sizes:
    """As preparing the data decides: naive Bayes where its counts are not too many."""
    labels = tuple(map(str, range(shapes.classes)))
    known = shapes.vocabulary
    bayes = known * len(labels) <= MOST_BAYES if model.bayes is None else model.bayes
    return Sizes(labels, known, vectored=known, bayes=bayes and model.kind == "average")
