"""The claims that are meant, and those of a file of one's own."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import sys
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

from seqlab.core.errors import DataError, UsageError
from seqlab.theory.ledger import LEDGER, Claim, Ledger, claims
from seqlab.workflows.claims.request import Choice, check_choice, check_names

EXAMPLE = "see examples/own_claim.py"


def chosen(choice: Choice) -> list[Claim]:
    """In the order of the ids, where ids are named."""
    check_choice(choice)
    known = known_claims(choice.file)
    by_id = {claim.id: claim for claim in known}
    if choice.file is not None:
        check_names(choice, {claim.subject for claim in known}, list(by_id))
    named = [by_id[id] for id in dict.fromkeys(choice.ids)] or known
    found = [claim for claim in named if _fits(claim, choice)]
    if not found:
        raise UsageError(f"there is no claim with {choice}; leave one of them out")
    return found


def _fits(claim: Claim, choice: Choice) -> bool:
    asked = ((choice.subject, claim.subject), (choice.verdict, claim.verdict), (choice.method, claim.method))
    return all(wanted in (None, own) for wanted, own in asked)


def known_claims(file: str | None) -> list[Claim]:
    """Those of the file, else the project's."""
    return claims() if file is None else claims_of_file(file)


def claims_of_file(file: str) -> list[Claim]:
    """The claims of every Ledger that the file makes. The file is run."""
    module = _run(Path(file).absolute())
    ledgers = {id(value): value for value in vars(module).values() if isinstance(value, Ledger) and value is not LEDGER}
    found = [claim for ledger in ledgers.values() for claim in ledger]
    if not found:
        raise DataError(f"{file} has no claims; make a Ledger and write some ({EXAMPLE})")
    return found


class _Source(SourceFileLoader):
    def set_data(self, *_: Any, **__: Any) -> None:
        """Nothing is left beside the file."""


def _run(path: Path) -> ModuleType:
    """As a module of its own; what lies beside it can be imported, as by a script."""
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))
    name = f"own_claims_{hashlib.sha256(str(path).encode()).hexdigest()[:12]}"
    loader = _Source(name, str(path))
    spec = importlib.util.spec_from_loader(name, loader)
    assert spec is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        with contextlib.redirect_stdout(sys.stderr):
            loader.exec_module(module)
    except (SyntaxError, UnicodeDecodeError) as error:
        place = f", line {error.lineno}" if isinstance(error, SyntaxError) and error.lineno else ""
        raise DataError(f"{path.name}{place} is no Python: {said(error)}; {EXAMPLE}") from error
    except (Exception, SystemExit) as error:
        raise DataError(f"{path.name} raised {said(error)}; mend it ({EXAMPLE})") from error
    return module


def said(error: BaseException) -> str:
    """What somebody else's code raised, on one line."""
    words = " ".join(str(error).split())[:200]
    return f"{type(error).__name__}: {words}" if words else type(error).__name__
