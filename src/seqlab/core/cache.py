"""Where seqlab keeps what it can make again: downloads, encoded texts, the calibration of the machine."""

import os
from pathlib import Path

import platformdirs

CACHE_VARIABLE = "SEQLAB_CACHE"


def cache_folder() -> Path:
    """The folder named by SEQLAB_CACHE, else the platform's user cache; it need not exist yet."""
    named = os.environ.get(CACHE_VARIABLE)
    return Path(named).expanduser() if named else platformdirs.user_cache_path("seqlab")
