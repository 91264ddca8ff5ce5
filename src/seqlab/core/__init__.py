"""What the words mean: settings, errors, random streams, registries and the types that travel between rooms."""

from typing import Any

__all__ = ["reorder"]


def __getattr__(name: str) -> Any:
    # `reorder` needs torch, which help and settings must not load.
    if name == "reorder":
        from seqlab.core.state import reorder

        return reorder
    raise AttributeError(name)
