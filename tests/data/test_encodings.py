"""Guesses are right for running text of many languages, and silent about what is no text."""

import random

import pytest

from seqlab.data.encodings import marked, mostly_utf8, suggested

SENTENCES = {
    "latin-1": (
        "Grüße aus München: schöne Straßen, viel Grün und ein Übermut, der gefällt.",
        "Où êtes-vous, garçon? L'élève est déjà là.",
        "naïve café",
    ),
    "cp1252": ("Er sagte „schön“ – und ging über die Brücke.", "L’été dernier, nous étions à la plage…"),
    "cp1250": ("Zażółć gęślą jaźń, a potem idź do domu przez łąkę.", "Příliš žluťoučký kůň běžel přes pole."),
    "cp1251": ("Привет, мир! Сегодня хорошая погода, и мы идём гулять.",),
    "koi8-r": ("Привет, мир! Сегодня хорошая погода, и мы идём гулять.",),
    "cp1253": ("Καλημέρα κόσμε, σήμερα έχει καλό καιρό.",),
    "cp1255": ("שלום עולם, מה שלומך היום בבוקר",),
    "cp1256": ("مرحبا بالعالم كيف حالك اليوم",),
    "gb18030": ("今天天气很好,我和他一起去了学校。",),
    "big5": ("我們的國家在這個時候有很多人來到這裡。",),
    "shift_jis": ("これは日本語の文章です。今日は天気がいいですね。",),
    "euc_jp": ("これは日本語の文章です。今日は天気がいいですね。",),
    "euc_kr": ("안녕하세요. 오늘은 날씨가 좋습니다.",),
    "utf-16-le": ("plain words", "Grüße"),
    "utf-16-be": ("plain words", "Grüße"),
}
CASES = [(encoding, sentence) for encoding, sentences in SENTENCES.items() for sentence in sentences]


@pytest.mark.parametrize(("encoding", "sentence"), CASES)
def test_a_sentence_is_recognised(encoding: str, sentence: str) -> None:
    assert suggested(sentence.encode(encoding)) == encoding
    assert suggested((sentence + "\n").encode(encoding) * 40) == encoding


def test_noise_is_nothing() -> None:
    draw = random.Random(0)
    for _ in range(40):
        noise = draw.randbytes(800)
        assert suggested(noise) is None
        assert suggested(noise.replace(b"\0", b"")) is None
    assert suggested(b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR") is None
    assert suggested(b"plain") is None


def test_damaged_utf8_is_told_from_another_encoding() -> None:
    assert mostly_utf8("Grüße und Küsse, schöne Füße".encode() + b"\xff")
    assert not mostly_utf8("Grüße und Küsse".encode("latin-1"))
    assert not mostly_utf8(b"plain \xff")


@pytest.mark.parametrize("encoding", ["utf-16", "utf-32"])
def test_a_mark_names_its_encoding(encoding: str) -> None:
    assert marked("text".encode(encoding)[:4]) == encoding
    bare = "text".encode(encoding + "-be")
    swapped = "\ufeff".encode(encoding + "-be") + bare
    assert marked(swapped[:4]) == encoding
    assert marked(bare[:4]) is None
    assert marked("\ufefftext".encode()[:4]) is None
    assert marked(b"") is None
