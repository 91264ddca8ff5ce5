"""What can be refused before torch is loaded and before any data is read: wrong use answers at once."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from seqlab.core.errors import UsageError
from seqlab.core.settings.fields import check_group, check_threads, from_table, with_flags
from seqlab.core.settings.generation import GenerationSettings
from seqlab.core.settings.lm import WINDOWED, LMSettings, check_said, check_vocab_size, fill_lm, refuse_other_model
from seqlab.data.folders import check_glob
from seqlab.data.normalise import parse_steps
from seqlab.data.sources import check_encoding, check_source, checked_path
from seqlab.runs.folder import RunFolder
from seqlab.runs.request import Checks, Request, check_request
from seqlab.workflows.lm.named import check_named, require_weights


def check_train(
    said: dict[str, Any],
    *,
    out: str | Path | None,
    resume: bool,
    from_run: str | Path | None,
    config: str | Path | None,
    threads: int | None,
) -> None:
    """Refuse, in one line, what `train_lm` could never do."""
    asked = with_flags(LMSettings(), said)
    check_encoding(asked.data.encoding)
    check_glob(asked.data.glob)
    parse_steps(asked.data.normalise)
    if from_run is not None and config is None and not resume:
        parent = require_weights(RunFolder(from_run))
        if parent.kind != "lm":
            raise UsageError(f"--from {from_run} holds a run of kind '{parent.kind}', not 'lm'")
        have = from_table(LMSettings, parent.table, str(from_run))
        refuse_other_model(have, said, Path(from_run), windowed=have.model.kind in WINDOWED)
    request = Request(said, out, resume, from_run, config, threads)
    check_request(request, Checks("lm", LMSettings, ("text",), _check_new, check_said))


def _check_new(asked: LMSettings, said: dict[str, Any]) -> None:
    settings = fill_lm(asked)
    check_said(settings, said)
    if not settings.data.text:
        raise UsageError("no text is named; for example: seqlab lm train my.txt")
    check_source(settings.data.text, settings.data.glob)
    check_vocab_size(settings)


def check_generate(
    folder: str | Path, how: dict[str, Any], threads: int | None, *, prompt: str | None, prompts: str | None
) -> list[str]:
    """Refuse, in one line, what `generate` could never do; what it could do has these prompts."""
    check_threads(threads)
    check_group(GenerationSettings(**how))
    if prompt is not None and prompts is not None:
        raise UsageError("--prompt and --prompts both say what to continue; give one of them")
    found = [prompt or ""] if prompts is None else [] if prompts == "-" else read_prompts(prompts)
    check_named(folder)
    return found or read_prompts("-")  # nobody types prompts for a folder that is not there


def read_prompts(source: str) -> list[str]:
    """The lines of a file, or of standard input for '-': one prompt each. An empty line begins a new text."""
    name = "standard input" if source == "-" else source
    if source == "-" and sys.stdin is None:
        raise UsageError("there is no standard input to read; name a file instead of '-'")
    try:
        written = sys.stdin.buffer.read() if source == "-" else checked_path(source).read_bytes()
        lines = written.decode("utf-8-sig").removesuffix("\n").split("\n") if written else []
    except OSError as error:
        raise UsageError(f"--prompts {name} cannot be read: {error.strerror}; name a file or '-'") from None
    except UnicodeDecodeError as error:
        raise UsageError(f"--prompts {name} is not valid utf-8 at byte {error.start + 1}; convert it") from None
    if not lines:
        raise UsageError(f"--prompts {name} is empty; write one prompt on each line")
    return [line.removesuffix("\r") for line in lines]
