"""seqlab: train, measure and explain sequence models on your own text.

run = seqlab.train_lm("my.txt", model="gru", budget="60s", out="runs/mine")
run = seqlab.load("runs/mine")
run.generate("To be", tokens=200)
run.score("any text").nats
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from seqlab.workflows.lm import train_lm as train_lm
    from seqlab.workflows.run import load as load

__version__ = "0.1.0"

_PUBLIC = {"train_lm": "seqlab.workflows.lm", "load": "seqlab.workflows.run"}


def __getattr__(name: str) -> Any:
    # torch is loaded by the first call that needs it, not by `import seqlab`.
    if name in _PUBLIC:
        return getattr(import_module(_PUBLIC[name]), name)
    raise AttributeError(f"module 'seqlab' has no attribute '{name}'")
