"""English words that deny and words that turn a text round.

Slices and tests by negation and contrast are for English. On other data nothing breaks: these words are seldom
found there, the slices are small and the tests seldom apply.
"""

from __future__ import annotations

from collections.abc import Sequence

# The affirmative that stands in for each word of denial; "" where the word is best left out.
AFFIRMATIVE = {
    "not": "",
    "n't": "",  # as some data writes it, apart from its verb
    "never": "",
    "no": "",
    "nor": "",
    "none": "all",
    "nobody": "everybody",
    "no-one": "everyone",
    "nothing": "everything",
    "nowhere": "everywhere",
    "neither": "both",
    "without": "with",
    "cannot": "can",
    "hardly": "",
    "barely": "",
    "scarcely": "",
    "lack": "have",
    "lacks": "has",
    "lacked": "had",
    "lacking": "having",
}
# isn't -> is needs no entry; these do
IRREGULAR = {"won't": "will", "can't": "can", "shan't": "shall", "ain't": "is"}
# The verbs that are also found without their apostrophe; "cant" and "wont" are words of their own, but rare ones.
_VERBS = (
    *("is", "are", "was", "were", "do", "does", "did", "has", "have", "had"),
    *("would", "could", "should", "must", "need", "might"),
)
BARE = {f"{verb}nt": verb for verb in _VERBS} | {"cant": "can", "wont": "will", "aint": "is"}

CONTRASTS = (
    *(("but",), ("however",), ("although",), ("though",), ("yet",), ("despite",), ("whereas",)),
    *(("nevertheless",), ("nonetheless",), ("on", "the", "other", "hand"), ("in", "spite", "of"), ("even", "so")),
    *(("that", "said"), ("having", "said", "that"), ("all", "the", "same")),
)
_BY_HEAD = {head: [phrase for phrase in CONTRASTS if phrase[0] == head] for head, *_ in CONTRASTS}


def affirmative(form: str) -> str | None:
    """What to write in place of a word of denial ("" to leave it out); None if it denies nothing."""
    for table in (AFFIRMATIVE, IRREGULAR, BARE):
        if form in table:
            return table[form]
    return form.removesuffix("n't") if form.endswith("n't") else None


def denies(form: str) -> bool:
    return affirmative(form) is not None


def contrasts(forms: Sequence[str]) -> list[tuple[int, int]]:
    """Where the words of contrast stand: forms[first:last] is one of `CONTRASTS`."""
    heads = ((i, phrase) for i, form in enumerate(forms) for phrase in _BY_HEAD.get(form, ()))
    return [(i, i + len(phrase)) for i, phrase in heads if tuple(forms[i : i + len(phrase)]) == phrase]
