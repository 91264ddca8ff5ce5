"""`seqlab claims list|show|check|report|quiz`."""

from __future__ import annotations

import argparse
import dataclasses
import sys
import textwrap
from collections.abc import Iterator
from typing import Any

from seqlab.cli.arguments import Parser, add_common, add_fields, given
from seqlab.cli.terminal import TerminalReporter, emit_json, table, terminal_width, typed_lines
from seqlab.core.settings.claims import CheckSettings, QuizSettings, ShowSettings

CLAIMS = """Statements about sequence models, each with its verdict and a check that a program runs: proofs, counted
operations, identities, simulations with intervals, counterexamples. What textbooks get wrong is in it too, with the
right form and the wrong one under the same test.

examples:
  seqlab claims list --subject lstm
  seqlab claims show pe.sinusoid
  seqlab claims check --jobs 2
"""
LIST = """The claims with their verdicts.

examples:
  seqlab claims list --verdict false
  seqlab claims list --subject gru --method identity
  seqlab claims list --markdown > claims.md         as a document
"""
SHOW = """One claim: what it says, its conditions, the proof or the figures of a check that is run now, the smallest
counterexample, the wrong forms that the same test refutes, and the code that it is about.

example:
  seqlab claims show pe.sinusoid --seed 3
"""
CHECK = """Check claims: whether each verdict is reproduced. A false claim is reproduced if its refutation stands. Exit
code 1 if any is not. A check that raises an error counts as not reproduced.

examples:
  seqlab claims check                               all of them
  seqlab claims check pe.sinusoid pe.index-meaning --seed 7
  seqlab claims check --subject optimisation --jobs 2 --forms
  seqlab claims check --file my_claims.py           your own (examples/own_claim.py shows how)
"""
REPORT = """Check claims and write one page: the mathematics, the verdicts, the evidence, false claims beside the right
form. Every number on it is computed in that run. Nothing is fetched when it is opened.

example:
  seqlab claims report --out claims.html --jobs 2
"""
QUIZ = """True or false? Statements from the ledger, one after the other; the evidence is the answer. Say t, f, or q to
stop: a line each, from standard input. A statement that is true under conditions is asked with them.

examples:
  seqlab claims quiz --questions 5 --subject attention
  printf 't\\nf\\n' | seqlab claims quiz --questions 2
"""
ALL_IDS = "ids of claims (default: all)"
LEAST_STATEMENT = 16  # characters of it that are worth a column


def add_commands(commands: Any) -> None:
    claims: Parser = commands.add_parser("claims", help="mathematical claims, checked by machine", description=CLAIMS)
    claims.set_defaults(parser=claims)
    actions = claims.add_subparsers(metavar="ACTION", parser_class=Parser)
    listing = _action(actions, "list", "what is claimed, with verdicts", LIST, list_command)
    listing.add_argument("--markdown", action="store_true", help="as a document, with all that is said of each")
    showing = _action(actions, "show", "one claim and its evidence", SHOW, show_command, filters=())
    showing.add_argument("id", metavar="ID", help="id of the claim")
    add_fields(showing, dataclasses.fields(ShowSettings))
    checking = _action(actions, "check", "whether every verdict is reproduced", CHECK, check_command)
    checking.add_argument("--forms", action="store_true", help="try every wrong form too: none may pass")
    report = _action(actions, "report", "one page with all the evidence", REPORT, report_command)
    report.add_argument("--out", default="claims.html", metavar="FILE", help="page (default: claims.html)")
    for parser in (checking, report):
        parser.add_argument("ids", nargs="*", metavar="ID", help=ALL_IDS)
        add_fields(parser, dataclasses.fields(CheckSettings))
    quiz = _action(actions, "quiz", "true or false?", QUIZ, quiz_command, filters=("subject",), own_file=False)
    add_fields(quiz, dataclasses.fields(QuizSettings))


def _action(
    actions: Any,
    name: str,
    help: str,
    description: str,
    run: Any,
    *,
    filters: tuple[str, ...] = ("subject", "verdict", "method"),
    own_file: bool = True,
) -> Parser:
    parser: Parser = actions.add_parser(name, help=help, description=description)
    for word in filters:
        parser.add_argument(f"--{word}", metavar=word.upper(), help=f"only those of this {word}")
    if own_file:
        parser.add_argument(
            "--file", metavar="FILE", help="a Python file with claims of your own, which is run, in place of seqlab's"
        )
    add_common(parser, threads=False)
    parser.set_defaults(run=run, parser=parser)
    return parser


def _choice(arguments: argparse.Namespace, *ids: str) -> Any:
    """What was named; wrong names are refused here, before torch is loaded."""
    from seqlab.workflows.claims.request import Choice, check_choice

    named = {name: getattr(arguments, name, None) for name in ("subject", "verdict", "method", "file")}
    choice = Choice(ids, **named)
    check_choice(choice)
    return choice


def _announce(choice: Any, reporter: TerminalReporter) -> None:
    if choice.file is not None:
        reporter.note(f"running {choice.file}: code that you chose")


def list_command(arguments: argparse.Namespace) -> int:
    choice = _choice(arguments)
    from seqlab.workflows.claims import markdown, words
    from seqlab.workflows.claims.choose import chosen
    from seqlab.workflows.claims.record import claim_record

    _announce(choice, TerminalReporter())
    claims = chosen(choice)
    if arguments.json:
        emit_json({"claims": [claim_record(claim) for claim in claims]})
    elif arguments.markdown:
        print(markdown.document(claims), end="")
    else:
        print(claims_table(words.LIST_HEADER, [words.list_row(claim) for claim in claims]))
    return 0


def claims_table(header: list[str], rows: list[list[str]]) -> str:
    """A line for each claim, its statement as far as the terminal is wide; where that is not wide, claim by claim."""
    room = terminal_width() or 0
    for columns in ([0, 1, 2, 3], [0, 2]):  # subject and method may be left out
        used = sum(max(len(row[k]) for row in [header, *rows]) + 2 for k in columns)
        if room - used >= LEAST_STATEMENT:
            cut = [
                [*(row[k] for k in columns), textwrap.shorten(row[-1], room - used, placeholder="…")] for row in rows
            ]
            return table([*(header[k] for k in columns), header[-1]], cut, left=len(header))
    return table(header, rows, left=len(header), key=1)


def show_command(arguments: argparse.Namespace) -> int:
    choice = _choice(arguments, arguments.id)
    checks = _checked(choice, given(arguments, dataclasses.fields(ShowSettings)), forms=True)
    (checked,) = checks.claims
    if arguments.json:
        from seqlab.workflows.claims.record import claim_record

        emit_json(claim_record(checked.claim) | checked.as_json() | {"seed": checks.seed})
    else:
        print("\n\n".join(_shown(checked, checks.seed)))
    return 0 if checks.holds else 1


def _shown(checked: Any, seed: int) -> Iterator[str]:
    """A claim as a person reads it, part by part."""
    from seqlab.workflows.claims import words
    from seqlab.workflows.claims.plain_mathematics import readable

    claim, evidence = checked.claim, checked.evidence
    yield f"{claim.id}  ({claim.subject}): {words.VERDICTS[claim.verdict]}\n\n  {readable(claim.statement)}"
    for name, text in words.claim_parts(claim):
        yield f"{name}: {readable(text)}"
    yield f"{words.method_words(claim.method)}, seed {seed}: {words.outcome(checked)}"
    if evidence is not None:
        if evidence.steps:
            yield "derivation:\n" + "\n".join(f"  {readable(line)}" for line in map(words.as_text, evidence.steps))
        yield table(*words.findings_table(evidence), left=2)
        if checked.counterexample:
            yield f"counterexample: {readable(checked.counterexample)}"
    if checked.forms:
        yield "under the same test:\n" + "\n".join(f"  {words.form_words(form)}" for form in checked.forms)
    if claim.about:
        yield "code: " + ", ".join(claim.about)


def _checked(choice: Any, settings: dict[str, Any], *, forms: bool) -> Any:
    from seqlab.workflows.claims.check import check_claims

    named = {name: getattr(choice, name) for name in ("subject", "verdict", "method", "file")}
    return check_claims(choice.ids, **settings, **named, forms=forms, reporter=TerminalReporter())


def check_command(arguments: argparse.Namespace) -> int:
    settings = _check_settings(arguments)
    checks = _checked(_choice(arguments, *arguments.ids), settings, forms=arguments.forms)
    if arguments.json:
        emit_json(checks.as_json())
        return 0 if checks.holds else 1
    from seqlab.workflows.claims import words

    if checks.failed:
        print(table(words.FAILED_HEADER, words.failed_rows(checks.failed), left=6) + "\n")
    print(words.summary(checks))
    return 0 if checks.holds else 1


def _check_settings(arguments: argparse.Namespace) -> dict[str, Any]:
    from seqlab.core.settings.fields import check_group

    settings = given(arguments, dataclasses.fields(CheckSettings))
    check_group(CheckSettings(**settings))
    return settings


def report_command(arguments: argparse.Namespace) -> int:
    from seqlab.core.files import check_targets

    settings, choice = _check_settings(arguments), _choice(arguments, *arguments.ids)
    check_targets({"--out": arguments.out})
    from seqlab.workflows.claims import words
    from seqlab.workflows.claims.report import write_report

    checks = _checked(choice, settings, forms=True)
    write_report(checks, arguments.out)
    if arguments.json:
        emit_json(checks.as_json() | {"page": arguments.out})
    else:
        print(f"{words.summary(checks)}\npage: {arguments.out}  (open it in a browser)")
    return 0 if checks.holds else 1


def quiz_command(arguments: argparse.Namespace) -> int:
    _choice(arguments)
    from seqlab.workflows.claims.quiz import quiz_questions

    questions = quiz_questions(subject=arguments.subject, **given(arguments, dataclasses.fields(QuizSettings)))
    say: Any = print if not arguments.json else TerminalReporter().note
    answered = list(_asked(questions, say))
    score = sum(one["right"] for one in answered)
    say(f"\n{score} of {len(answered)} right")
    if arguments.json:
        emit_json({"score": score, "asked": len(answered), "questions": answered})
    return 0


def _asked(questions: list[Any], say: Any) -> Iterator[dict[str, Any]]:
    """Question by question, until the answers end."""
    from seqlab.workflows.claims.quiz import read_reply

    lines = typed_lines(sys.stdin.buffer)
    for number, asked in enumerate(questions, start=1):
        say(f"\n{number}. {asked.text}\ntrue or false? (t, f, q to stop)")
        reply = read_reply(lines, lambda: say("answer t or f, or q to stop"))
        if reply is None:
            return
        right = reply == asked.answer
        say(f"{'right' if right else 'wrong'}: {asked.explanation()}")
        yield {"id": asked.claim.id, "answer": asked.answer, "given": reply, "right": right}
