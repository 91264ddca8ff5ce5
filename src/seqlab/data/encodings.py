"""Which encoding a text is in: what its first bytes say for certain, and what the rest of it suggests.

A guess is only ever a word in an error message; nothing is decoded by it.
"""

from __future__ import annotations

import codecs
import unicodedata

# The longer marks first: one of UTF-32 begins as one of UTF-16 does.
MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
SAMPLE = 1 << 16  # bytes that a guess looks at
EAST_ASIAN = ("gb18030", "big5", "shift_jis", "euc_jp", "euc_kr")
LATIN = ("cp1252", "cp1250")
OTHER_SCRIPTS = ("cp1255", "cp1251", "koi8-r", "cp1253", "cp1256")  # where two fit equally, the first is meant
FEW = 3  # different characters beyond ASCII, with which two bytes that follow each other may be anything
ENOUGH = 0.85  # of the characters beyond ASCII must be where they would be in a text
# Half of all running Chinese, in either script, is written with a few hundred characters; these are some of them.
HANZI = set(
    "的一是不了在人有我他这个们中来上大为和国地到以说时要就出会可也你对生能而子那得于着下自之年过发后作里用道行所然"
    "這個們來為國說時會對於著過發後裡無與還沒點開間問學體經長現動進種面方心多天小家起看好只如把還"
)
PUNCTUATION = set("“”‘’„‚«»‹›–—…·•°§€£¥©®™¿¡¹²³½¼¾×÷ªº\xa0")
MOST_ACCENTED = 3  # letters of a word in a Latin script that has no plain one


def marked(beginning: bytes) -> str | None:
    """The encoding that a byte-order mark names, if it is another than UTF-8."""
    return next((name for mark, name in MARKS if beginning.startswith(mark)), None)


def suggested(content: bytes) -> str | None:
    """The encoding in which these bytes would be a text, if one fits clearly better than nothing."""
    sample = content[:SAMPLE]
    if not sample.isascii() and _decoded(sample, "utf-8") is not None:
        return "utf-8"
    if b"\0" in sample:
        return _by_zero_bytes(sample)
    scores = {name: _likeness(sample, name) for name in (*EAST_ASIAN, *LATIN, *OTHER_SCRIPTS)}
    best = max((name for name in scores if scores[name] >= ENOUGH), key=lambda name: scores[name], default=None)
    if best == "cp1252" and not any(0x80 <= byte < 0xA0 for byte in sample):
        return "latin-1"  # the same characters, under the name that more people know
    return best


def mostly_utf8(content: bytes) -> bool:
    """Whether more characters beyond ASCII are valid than not: then the text is UTF-8, and damaged."""
    text = content[:SAMPLE].decode("utf-8", "replace")
    broken = text.count("\ufffd")
    return sum(c > "\x7f" for c in text) - broken > broken


def _by_zero_bytes(sample: bytes) -> str | None:
    """Half of the bytes of Western text in UTF-16 are zero, all at even or all at odd places."""
    even, odd = sample[::2].count(0), sample[1::2].count(0)
    for zeros, others, name in ((odd, even, "utf-16-le"), (even, odd, "utf-16-be")):
        if zeros > len(sample) // 8 and others * 8 < zeros and _decoded(sample[: len(sample) // 2 * 2], name):
            return name
    return None


def _decoded(sample: bytes, name: str) -> str | None:
    """The text in an encoding, but for a character cut at the end; None if it is none in it."""
    try:
        return codecs.getincrementaldecoder(name)().decode(sample)
    except UnicodeDecodeError:
        return None


def _likeness(sample: bytes, name: str) -> float:
    """The share of the characters beyond ASCII that look like text in this encoding."""
    text = _decoded(sample, name)
    if text is None:
        return 0.0
    foreign = [character for character in text if character > "\x7f"]
    if not foreign:
        return 0.0
    if name in EAST_ASIAN and len(set(foreign)) < FEW:
        return 0.0
    if name in EAST_ASIAN:
        return _east_asian(foreign, name)
    words = [word for word in text.split() if not word.isascii()]
    if name in LATIN:
        words = [word for word in words if _has_plain_letters(word)]
    return sum(_fitting(word) for word in words) / len(foreign)


def _east_asian(foreign: list[str], name: str) -> float:
    """Each language shows itself: Japanese by kana, Korean by Hangul, Chinese by its most frequent characters."""
    kana = sum("\u3040" <= c <= "\u30ff" for c in foreign) / len(foreign)
    if name == "euc_kr":
        return sum("\uac00" <= c <= "\ud7a3" for c in foreign) / len(foreign)
    if name in ("shift_jis", "euc_jp"):
        ideographs = sum("\u4e00" <= c <= "\u9fff" or "\u3000" <= c <= "\u303f" for c in foreign) / len(foreign)
        return (kana + ideographs) if kana > 0.25 else 0.0
    letters = [c for c in foreign if "\u4e00" <= c <= "\u9fff"]
    frequent = sum(c in HANZI for c in letters) / max(1, len(letters))
    return min(1.0, 0.8 + frequent) if frequent > 0.12 and kana < 0.05 else 0.0


def _has_plain_letters(word: str) -> bool:
    letters = [c for c in word if c.isalpha()]
    return len(letters) <= MOST_ACCENTED or any(map(str.isascii, letters))


def _fitting(word: str) -> int:
    """How many characters beyond ASCII of a word are letters where letters would be, or usual punctuation."""
    return sum(_fits(word, k) for k, character in enumerate(word) if character > "\x7f")


def _fits(word: str, place: int) -> bool:
    """A letter of the script of its neighbours, not a capital after a small one."""
    character = word[place]
    if character in PUNCTUATION:
        inside = 0 < place < len(word) - 1 and word[place - 1].isalpha() and word[place + 1].isalpha()
        return not inside or character in "’·"
    if not character.isalpha():
        return False
    before = word[place - 1] if place else ""
    if before.isalpha() and before.islower() and character.isupper():
        return False
    neighbours = [c for c in (before, word[place + 1 : place + 2]) if c.isalpha()]
    return all(_script(c) == _script(character) for c in neighbours)


def _script(letter: str) -> str:
    return unicodedata.name(letter, "UNKNOWN").split()[0]
