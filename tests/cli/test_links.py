"""Every link between pages leads somewhere, to its heading too; the glossary's words are words of the pages."""

import re
from collections import Counter

import pytest
from tests.cli.documents import PAGES, ROOT, page_text

GLOSSARY = "docs/glossary.md"


def prose(page: str) -> str:
    """A page without its fenced blocks, where `#` begins a comment and brackets are code."""
    return re.sub(r"^```.*?^```", "", page_text(page), flags=re.S | re.M)


def anchors(page: str) -> set[str]:
    """The anchors that a heading gets: lower case, no punctuation, hyphens for spaces; -1, -2 … when it comes again."""
    seen: Counter[str] = Counter()
    found = set()
    for heading in re.findall(r"^#+ (.+)$", prose(page), flags=re.M):
        slug = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        found.add(f"{slug}-{seen[slug]}" if seen[slug] else slug)
        seen[slug] += 1
    return found


@pytest.mark.parametrize("page", PAGES)
def test_links_and_pictures_lead_somewhere(page: str) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        name, _, anchor = target.partition("#")
        place = (ROOT / page).parent.joinpath(name).resolve() if name else ROOT / page
        assert place.exists(), target
        if anchor:
            assert anchor in anchors(str(place.relative_to(ROOT))), target


def test_anchors_are_made_of_headings() -> None:
    assert {"what-the-figures-count", "classifiers"} <= anchors("docs/measuring.md")
    assert "the-walk-of-seqlab-lm-train-mytxt" in anchors("docs/architecture.md")


def glossary_words() -> list[str]:
    """What stands in bold at the beginning of a row; several forms of one word stand with commas between."""
    rows = re.findall(r"^\| \*\*(.+?)\*\*", page_text(GLOSSARY), flags=re.M)
    return [form for row in rows for form in row.split(", ")]


def test_the_words_of_the_glossary_appear_on_other_pages() -> None:
    others = " ".join(" ".join(page_text(page).lower().split()) for page in PAGES if page != GLOSSARY)
    words = glossary_words()
    assert len(words) > 40
    assert len(words) == len(set(words))
    assert [word for word in words if not re.search(rf"\b{re.escape(word.lower())}s?\b", others)] == []
