"""Train a task as a process of its own: ``python tests/contracts/train_task.py KIND OUT FOLDER [FLAG=VALUE …]``."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.contracts import parity  # noqa: F401 (registers itself)

from seqlab.core.settings.fields import declared_type, flags_of
from seqlab.pages import canvas
from seqlab.runs.task import find_task
from seqlab.runs.train import train


def main(kind: str, out: str, folder: str, *more: str) -> None:
    canvas.DPI = 40  # fewer pixels are drawn sooner
    task = find_task(kind)
    known = flags_of(task.settings_type)
    said = task.trial(Path(folder))
    for name, value in (word.split("=") for word in more):
        said[name] = int(value) if declared_type(known[name][1]) == "int" else value
    run = train(task, said, out=out, resume=True, threads=1)
    print("interrupted" if run.interrupted else "finished")


if __name__ == "__main__":
    main(*sys.argv[1:])
