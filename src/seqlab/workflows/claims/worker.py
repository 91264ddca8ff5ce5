"""A process of a crew: reads the question, then an id a line, and answers each with a line of JSON."""

from __future__ import annotations

import json
import os
import sys

from seqlab.training.determinism import using_threads
from seqlab.workflows.claims.check import check_one
from seqlab.workflows.claims.choose import known_claims
from seqlab.workflows.claims.processes import Question
from seqlab.workflows.claims.record import packed


def serve() -> None:
    """Until there is nothing more to read."""
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as answers, using_threads(1):
        os.dup2(2, 1)  # what a test prints is no answer
        question = Question(**json.loads(sys.stdin.readline()))
        by_id = {claim.id: claim for claim in known_claims(question.file)}
        for line in sys.stdin:
            answers.write(json.dumps(packed(check_one(by_id[line.strip()], question))) + "\n")
            answers.flush()


if __name__ == "__main__":
    serve()
