"""From settings to a model: the only place here that reads presets."""

import inspect
from collections.abc import Iterable
from typing import Any

import torch

from seqlab.core.errors import UsageError, nearest
from seqlab.core.registry import ALL_MODELS, MODELS, look_up
from seqlab.core.seeding import derived_seed
from seqlab.core.settings import LMSettings, ModelSettings, check_range, fit_lm_settings

MODEL_SIZES = (
    *("width", "depth", "heads", "attention", "positions", "score", "tied", "dropout"),
    *("order", "vectors", "vector_width", "train_vectors"),
)
NOT_IN_CONSTRUCTORS = {"vectors": "vector_width"}  # a setting of models that have the other one


def build_lm(kind: str, vocab_size: int, *, seed: int = 0, **sizes: Any) -> Any:
    """A language model of any registered kind; every size has a default (that of the small preset).

    The weights depend on `seed` alone; no other random stream is touched.
    """
    constructor = look_up(MODELS, kind, "model")
    refuse_unknown_sizes(kind, sizes)
    for name, value in sizes.items():
        check_range(name, value)
    defaults = _sizes(fit_lm_settings(LMSettings(model=ModelSettings(kind=kind, size="small"))))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derived_seed(seed, "initialisation"))
        return constructor(vocab_size=vocab_size, **(defaults | sizes))


def build_lm_from_settings(settings: LMSettings, vocab_size: int) -> Any:
    """The model that fitted settings describe."""
    return build_lm(settings.model.kind, vocab_size, seed=settings.training.seed, **_sizes(settings))


def outline_lm(settings: LMSettings, vocab_size: int) -> Any:
    """The same model without numbers in it (torch's device "meta"): shapes to count, at no memory."""
    with torch.random.fork_rng(devices=[]), torch.device("meta"):
        return look_up(MODELS, settings.model.kind, "model")(vocab_size=vocab_size, **_sizes(settings))


def refuse_unknown_sizes(kind: str, names: Iterable[str]) -> None:
    """What a person says of a model must be something that the model has."""
    known = known_sizes(kind)
    for name in names:
        if name not in known:
            raise UsageError(f"model '{kind}' has no setting '{name}'{nearest(name, known)}")


def known_sizes(kind: str) -> set[str]:
    """What can be said of a model of this kind."""
    known = set(inspect.signature(look_up(ALL_MODELS, kind, "model")).parameters) - {"vocab_size", "levels"}
    return known | {name for name, other in NOT_IN_CONSTRUCTORS.items() if other in known}


def _sizes(settings: LMSettings) -> dict[str, Any]:
    """What fitted settings say of a model's sizes, as far as its constructor takes them."""
    said = {name: getattr(settings.model, name) for name in MODEL_SIZES} | {"context": settings.training.context}
    known = known_sizes(settings.model.kind)
    known -= NOT_IN_CONSTRUCTORS.keys()
    return {name: value for name, value in said.items() if value is not None and name in known}
