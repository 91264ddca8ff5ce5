"""From settings to a model: the only place here that reads presets."""

import inspect
from typing import Any

import torch

from seqlab.core.errors import UsageError, nearest
from seqlab.core.registry import MODELS, look_up
from seqlab.core.seeding import derived_seed
from seqlab.core.settings import LMSettings, ModelSettings, check_range, fit_lm_settings


def build_lm(kind: str, vocab_size: int, *, seed: int = 0, **sizes: Any) -> Any:
    """A language model of any registered kind; every size has a default (that of the small preset).

    The weights depend on `seed` alone; no other random stream is touched.
    """
    constructor = look_up(MODELS, kind, "model")
    known = set(inspect.signature(constructor).parameters) - {"vocab_size"}
    for name, value in sizes.items():
        if name not in known:
            raise UsageError(f"model '{kind}' has no setting '{name}'{nearest(name, known)}")
        check_range(name, value)
    chosen = {name: value for name, value in _default_sizes(kind).items() if name in known} | sizes
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derived_seed(seed, "initialisation"))
        return constructor(vocab_size=vocab_size, **chosen)


def build_lm_from_settings(settings: LMSettings, vocab_size: int) -> Any:
    """The model that fitted settings describe."""
    return build_lm(settings.model.kind, vocab_size, seed=settings.training.seed, **_sizes(settings))


MODEL_SIZES = ("width", "depth", "heads", "positions", "tied", "dropout")


def _default_sizes(kind: str) -> dict[str, Any]:
    small = LMSettings(model=ModelSettings(kind=kind, size="small"))
    return _sizes(fit_lm_settings(small))


def _sizes(settings: LMSettings) -> dict[str, Any]:
    """What fitted settings say of a model's sizes; the context only where the constructor takes it."""
    sizes = {name: getattr(settings.model, name) for name in MODEL_SIZES}
    if "context" in inspect.signature(look_up(MODELS, settings.model.kind, "model")).parameters:
        sizes["context"] = settings.training.context
    return {name: value for name, value in sizes.items() if value is not None}
