"""From settings to a model: the only place here that reads presets."""

import inspect
from collections.abc import Iterable
from dataclasses import fields
from typing import Any

from seqlab.core.eager import without_numbers
from seqlab.core.errors import UsageError, nearest
from seqlab.core.registry import ALL_MODELS, MODELS, look_up
from seqlab.core.seeding import initialising
from seqlab.core.settings.fields import check_value
from seqlab.core.settings.lm import LMSettings, LMTrainingSettings, ModelSettings, fill_lm, model_fields
from seqlab.layers import BlockStyle
from seqlab.layers.recompute import recompute_blocks
from seqlab.models.guided import GATES, Guide, GuidedLM

FIELDS = {f.name: f for f in (*fields(ModelSettings), *fields(LMTrainingSettings))}
STYLE = {f.name for f in fields(BlockStyle)} & {f.name for f in fields(ModelSettings)}
MODEL_SIZES = tuple(f.name for f in fields(ModelSettings) if f.metadata["kinds"] is not None)


def build_lm(kind: str, vocab_size: int, *, seed: int = 0, **sizes: Any) -> Any:
    """A language model of any registered kind; every size has a default (that of the small preset).

    The weights depend on `seed` alone; no other random stream is touched.
    """
    constructor = look_up(MODELS, kind, "model")
    refuse_unknown_sizes(kind, sizes, constructor_sizes(kind))
    for name in sizes.keys() & FIELDS.keys():
        check_value(FIELDS[name], sizes[name])
    defaults = _sizes(fill_lm(LMSettings(model=ModelSettings(kind=kind, size="small"))))
    with initialising(seed):
        return constructor(vocab_size=vocab_size, **_with_style(defaults | sizes))


def build_lm_from_settings(settings: LMSettings, vocab_size: int, guide: Guide | None = None) -> Any:
    """The model that filled settings describe; with a guide, the network that it leads."""
    outputs = vocab_size + (0 if guide is None else GATES)
    model = build_lm(settings.model.kind, outputs, seed=settings.training.seed, **_sizes(settings))
    if settings.training.recompute:
        recompute_blocks(model, settings.model.kind)
    return model if guide is None else GuidedLM(model, guide)


def outline_lm(settings: LMSettings, vocab_size: int) -> Any:
    """The same model without numbers in it (torch's device "meta"): shapes to count, at no memory."""
    with without_numbers():
        constructor = look_up(MODELS, settings.model.kind, "model")
        return constructor(vocab_size=vocab_size, **_with_style(_sizes(settings)))


def refuse_unknown_sizes(kind: str, names: Iterable[str], known: set[str]) -> None:
    """What a person says of a model must be something that the model has."""
    for name in names:
        if name not in known:
            raise UsageError(f"model '{kind}' has no setting '{name}'{nearest(name, known)}")


def known_sizes(kind: str) -> set[str]:
    """What can be said of a model of this kind; one of somebody's own has what its constructor takes."""
    return model_fields(kind) or constructor_sizes(kind)


def constructor_sizes(kind: str) -> set[str]:
    taken = set(inspect.signature(look_up(ALL_MODELS, kind, "model")).parameters) - {"vocab_size", "levels"}
    return taken | STYLE if "style" in taken else taken


def _with_style(sizes: dict[str, Any]) -> dict[str, Any]:
    """Sizes as the constructor takes them: what they say of the blocks is one value; a whole one beats its parts."""
    said = {name: sizes.pop(name) for name in STYLE & sizes.keys()}
    return sizes if "style" in sizes or not said else {**sizes, "style": BlockStyle(**said)}


def _sizes(settings: LMSettings) -> dict[str, Any]:
    """What filled settings say of a model's sizes, as far as its constructor takes them."""
    said = {name: getattr(settings.model, name) for name in MODEL_SIZES} | {"context": settings.training.context}
    taken = constructor_sizes(settings.model.kind)
    return {name: value for name, value in said.items() if value is not None and name in taken}
