"""Wiki markup to clean prose: the words a reader of the page sees in its running text.

The steps run from the outside in: what is removed with its content (comments, references, formulas),
then templates and links (nested, so one stack serves both), then tables, tags, headings and list marks.
A page becomes one line per paragraph, heading or list item, without blank lines.
"""

import html
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import IO
from xml.etree import ElementTree

COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
SILENT_TAGS = "ref|math|gallery|timeline|source|syntaxhighlight|score|imagemap|ce|references"
SILENT_ELEMENT = re.compile(
    rf"<({SILENT_TAGS})\b[^<>]*?(?:/>|>.*?</\1\s*>)",
    re.DOTALL | re.IGNORECASE,
)
POWER = re.compile(r"<sup>\s*([−–+-]?\d+)\s*</sup>", re.IGNORECASE)
BREAK = re.compile(r"<(?:br|hr)\b[^<>]*>", re.IGNORECASE)
BLOCK_TAG = re.compile(r"</?(?:li|ol|ul|p|div|blockquote|poem|center)\b[^<>]*>", re.IGNORECASE)
TAG = re.compile(r"</?[a-z][^<>]*>", re.IGNORECASE)
BRACKET = re.compile(r"\{\{|\}\}|\[\[|\]\]")
EXTERNAL_LINK = re.compile(r"\[(?:https?:|ftp:|mailto:)?//[^\s\]]*\s*([^\[\]]*)\]")
BARE_ADDRESS = re.compile(r"\b(?:https?|ftp)://[^\s\])]*")
MAGIC_WORD = re.compile(r"__[A-Z]+__")
QUOTES = re.compile(r"'{2,5}")
HEADING = re.compile(r"^\s*(={1,6})\s*([^=].*?)\s*\1\s*$")
LIST_MARK = re.compile(r"^[*#:;\s]+")
LEFTOVER = re.compile(r"\[{2,}|\]{2,}|\{{2,}|\}{2,}|\{\||\|\}")
FOREIGN_EDITION = re.compile(r"[a-z]{2,3}(-[a-z-]+)?:")
CLOSES = {"}}": "{{", "]]": "[["}
UNSEEN_LINKS = ("file:", "image:", "category:", "media:", "template:", "special:")
# Sections that are lists of works or links, not prose: a heading made only of these words.
SOURCE_WORDS = re.compile(
    r"(?:(?:references?|(?:foot|end)?notes|citations?|sources|bibliography|works cited|gallery|cited"
    r"|external|links|further|reading|see|also|general|and)\b[\s,]*)+",
    re.IGNORECASE,
)

Render = Callable[[Sequence[str]], str]


def strip_markup(wikitext: str) -> str:
    """The prose of one page; never fails, whatever the markup."""
    text = COMMENT.sub("", wikitext)
    text = SILENT_ELEMENT.sub("", text)
    text = resolve_brackets(text)
    text = drop_tables(text)
    text = strip_inline(text)
    sections = prose_sections(text.split("\n"))
    lines = (tidy(line) for section in sections for line in section.lines())
    return "\n".join(line for line in lines if any(map(str.isalnum, line)))


def strip_inline(text: str) -> str:
    """Links to elsewhere, tags, bold and italic marks, entities."""
    text = EXTERNAL_LINK.sub(r"\1", text)
    text = BARE_ADDRESS.sub("", text)
    text = POWER.sub(r"^\1", text)
    text = BREAK.sub(" ", text)
    text = BLOCK_TAG.sub("\n", text)
    text = TAG.sub("", text)
    text = MAGIC_WORD.sub("", text)
    # Four quotes are an apostrophe and a bold mark; any other run is only a mark.
    text = QUOTES.sub(lambda run: "'" if len(run.group()) == 4 else "", text)
    return without_leftovers(html.unescape(text))


def without_leftovers(text: str) -> str:
    """Remove brackets that had no partner; again, since a removal can bring two single ones together."""
    while LEFTOVER.search(text):
        text = LEFTOVER.sub("", text)
    return text


def resolve_brackets(text: str) -> str:
    """Replace every {{template}} and [[link]] by what a reader sees, innermost first, in one pass."""
    frames: list[tuple[str, list[str]]] = [("", [])]
    position = 0
    for bracket in BRACKET.finditer(text):
        frames[-1][1].append(text[position : bracket.start()])
        position = bracket.end()
        if bracket.group() in CLOSES:
            close_frame(frames, CLOSES[bracket.group()])
        else:
            frames.append((bracket.group(), []))
    frames[-1][1].append(text[position:])
    while len(frames) > 1:
        dissolve_top(frames)
    return "".join(frames[0][1])


def close_frame(frames: list[tuple[str, list[str]]], opener: str) -> None:
    """Render the nearest frame that began with `opener`; a closing bracket without one says nothing."""
    if all(begun_with != opener for begun_with, _ in frames):
        return
    while frames[-1][0] != opener:
        dissolve_top(frames)
    content = "".join(frames.pop()[1])
    frames[-1][1].append(render_template(content) if opener == "{{" else render_link(content))


def dissolve_top(frames: list[tuple[str, list[str]]]) -> None:
    """An opening bracket that is never closed: its content is ordinary text."""
    content = frames.pop()[1]
    frames[-1][1].extend(content)


def render_link(content: str) -> str:
    """[[target]] -> target, [[target|label]] -> label; pictures, categories, other editions -> nothing."""
    target, *labels = content.split("|")
    target = target.strip()
    if target.lower().startswith(UNSEEN_LINKS):
        return ""
    if labels and labels[-1].strip():
        return labels[-1]
    if FOREIGN_EDITION.match(target):
        return ""
    return target.lstrip(":")


def render_template(content: str) -> str:
    """The few templates that carry running text; all others are boxes, notes and citations."""
    name, *arguments = content.split("|")
    name = name.strip().lower()
    positional = [argument.strip() for argument in arguments if "=" not in argument]
    render = TEMPLATES.get("lang-" if name.startswith("lang-") else name)
    return render(positional) if render else ""


def first(arguments: Sequence[str]) -> str:
    return arguments[0] if arguments else ""


def second(arguments: Sequence[str]) -> str:
    return arguments[1] if len(arguments) > 1 else ""


def last(arguments: Sequence[str]) -> str:
    return arguments[-1] if arguments else ""


def always(text: str) -> Render:
    return lambda arguments: text


def joined(separator: str, before: str = "") -> Render:
    return lambda arguments: before + separator.join(arguments)


RANGE_WORDS = frozenset({"to", "and", "or", "by", "x", "-", "–", "+/-", "×"})
UNITS = {
    "C": "°C",
    "F": "°F",
    "sqmi": "square miles",
    "km2": "square kilometres",
    "mi": "miles",
    "ft": "feet",
    "in": "inches",
    "lb": "pounds",
    "acre": "acres",
}


def measure(arguments: Sequence[str]) -> str:
    """{{convert|5|to|10|km|mi}} -> 5 to 10 km: the numbers and the first unit, as in the source."""
    words: list[str] = []
    for argument in arguments:
        if argument[:1].isdigit() or argument[1:2].isdigit() or argument in RANGE_WORDS:
            words.append(argument)
        else:
            words.append(UNITS.get(argument, argument))
            break
    return " ".join(words)


TEMPLATES: dict[str, Render] = {
    **dict.fromkeys(("nowrap", "small", "smaller", "big", "quote", "blockquote", "cquote", "angbr"), first),
    **dict.fromkeys(("nihongo", "sc", "vanchor", "tooltip", "keypress", "abbr", "flag", "val", "math"), first),
    **dict.fromkeys(("mvar", "var", "lang-", "nobold", "nobr", "longitem", "sub", "smallcaps"), first),
    **dict.fromkeys(("lang", "transl"), second),
    "visible anchor": last,
    **dict.fromkeys(("convert", "cvt"), measure),
    **dict.fromkeys(("chem", "gaps"), joined("")),
    "frac": joined("/"),
    "as of": joined(" ", before="As of "),
    "sup": joined("", before="^"),
    "e": joined("", before="×10^"),
    **dict.fromkeys(("circa", "c."), joined("", before="c. ")),
    **dict.fromkeys(("nbsp", "spaces", "space"), always(" ")),
    **dict.fromkeys(("mdash", "—", "emdash"), always("—")),
    **dict.fromkeys(("ndash", "–", "spaced ndash"), always(" – ")),
    **dict.fromkeys(("·", "•"), always(" · ")),
    "'s": always("'s"),
    "'": always("'"),
}


def drop_tables(text: str) -> str:
    """Remove {| ... |}, nested ones too; a table mark counts only where a line begins with it."""
    kept: list[str] = []
    depth = 0
    for line in text.split("\n"):
        start = line.lstrip(" :*")
        if start.startswith("{|"):
            depth += 1
        elif start.startswith("|}") and depth:
            depth -= 1
        elif HEADING.match(line):
            # No table spans a heading: this one was never closed.
            depth = 0
            kept.append(line)
        elif depth == 0 and not start.startswith("|"):
            kept.append(line)
    return "\n".join(kept)


@dataclass
class Section:
    level: int
    title: str
    body: list[str] = field(default_factory=list)

    def lines(self) -> list[str]:
        return [self.title, *self.body] if self.title else self.body


def prose_sections(lines: Iterable[str]) -> list[Section]:
    """Cut at headings; leave out lists of sources and headings under which nothing remains."""
    kept: list[Section] = []
    for section in reversed(without_source_lists(split_sections(lines))):
        has_subsections = bool(kept) and kept[-1].level > section.level
        if has_subsections or any(line.strip() for line in section.body):
            kept.append(section)
    return kept[::-1]


def split_sections(lines: Iterable[str]) -> list[Section]:
    sections = [Section(level=0, title="")]
    for line in lines:
        heading = HEADING.match(line)
        if heading:
            sections.append(Section(level=len(heading[1]), title=heading[2]))
        else:
            sections[-1].body.append(LIST_MARK.sub("", line))
    return sections


def without_source_lists(sections: Iterable[Section]) -> list[Section]:
    kept: list[Section] = []
    skipping: int | None = None
    for section in sections:
        if skipping is not None and section.level > skipping:
            continue
        skipping = section.level if SOURCE_WORDS.fullmatch(section.title.strip()) else None
        if skipping is None:
            kept.append(section)
    return kept


HOLLOW_PARENTHESES = re.compile(r"\(\s*(?:(?:[,;:–/·]|or|and)\s*)*\)")
PARENTHESIS_START = re.compile(r"\(\s*(?:[,;:]\s*)*")
PARENTHESIS_END = re.compile(r"\s*(?:[,;]\s*)*\)")
SPACE_BEFORE_MARK = re.compile(r"\s+([,;.])(?=\s|$)")
WHITE_SPACE = re.compile(r"\s+")


def tidy(line: str) -> str:
    """Close the gaps that removed templates left: `( ; born` -> `(born`, empty parentheses, double spaces."""
    line = HOLLOW_PARENTHESES.sub("", line)
    line = PARENTHESIS_START.sub("(", line)
    line = PARENTHESIS_END.sub(")", line)
    line = WHITE_SPACE.sub(" ", line)
    line = SPACE_BEFORE_MARK.sub(r"\1", line)
    return line.strip()


def articles(dump: IO[bytes]) -> Iterator[tuple[str, str]]:
    """Title and markup of every article in a MediaWiki export: namespace 0, redirects left out."""
    for _, element in ElementTree.iterparse(dump):
        if element.tag.rpartition("}")[2] != "page":
            continue
        if element.findtext("{*}ns") == "0" and element.find("{*}redirect") is None:
            yield element.findtext("{*}title", ""), element.findtext("{*}revision/{*}text", "")
        # Pages already read would otherwise stay in memory until the end of the dump.
        element.clear()


def prose_of_dump(dump: IO[bytes]) -> str:
    """Every article as its title and its prose, one line per paragraph, a blank line between articles."""
    return "\n".join(f"{title}\n{strip_markup(markup)}\n" for title, markup in articles(dump))
