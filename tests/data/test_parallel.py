"""Aligned texts: tables, files line by line, verses; batches of pairs."""

import gzip
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqlab.core.errors import DataError, UsageError
from seqlab.core.types import IGNORED
from seqlab.data import parallel as module
from seqlab.data.corpora import CORPORA
from seqlab.data.pair_batches import PairBatches, Pairs, Rows
from seqlab.data.parallel import read_parallel
from seqlab.data.verses import verse_table

PAIRS = "en\tde\tfr\nHello.\tHallo.\tBonjour.\nGood night.\tGute Nacht.\t\n\tleer\tvide\n  A  b \t c\td\n"


def written(folder: Path, name: str, content: str) -> str:
    path = folder / name
    path.write_text(content, encoding="utf-8", newline="")
    return str(path)


def test_a_table_with_names(tmp_path: Path) -> None:
    found = read_parallel(written(tmp_path, "pairs.tsv", PAIRS))
    assert (found.source, list(found.targets)) == ("en", ["de", "fr"])
    assert found.sources == ("Hello.", "Good night.", "A b")  # white space is one space
    assert found.targets["fr"] == ("Bonjour.", "", "d")
    assert found.rows == (2, 3, 5)
    assert any("1 of 4 rows have no source or no target" in note for note in found.notes)
    assert any("1 rows have no text in 'fr'" in note for note in found.notes)


def test_columns_can_be_chosen(tmp_path: Path) -> None:
    place = written(tmp_path, "pairs.tsv", PAIRS)
    found = read_parallel(place, source="de", to=["en"])
    assert (found.source, list(found.targets), found.sources[0]) == ("de", ["en"], "Hallo.")


def test_two_columns_without_names_are_source_and_target(tmp_path: Path) -> None:
    found = read_parallel(written(tmp_path, "pairs.tsv", "Go on.\tWeiter.\nStop!\tHalt!\n"))
    assert (found.source, list(found.targets), found.sources) == ("source", ["target"], ("Go on.", "Stop!"))
    assert "has no names of columns" in found.notes[0]
    assert found.rows == (1, 2)
    named = read_parallel(written(tmp_path, "named.csv", "english,german\nGo on.,Weiter.\n"))
    assert named.sources == ("Go on.",)
    assert "names the columns" in named.notes[0]


def test_quotes_that_do_not_close_are_characters(tmp_path: Path) -> None:
    found = read_parallel(written(tmp_path, "pairs.tsv", 'en\tde\n"Go," he said.\t"Geh", sagte er.\nx\t"y\n'))
    assert found.sources == ('"Go," he said.', "x")
    with pytest.raises(DataError, match="line 2"):
        read_parallel(written(tmp_path, "pairs.csv", 'en,de\n"Go," he said.,x\n'))


def test_quotes_that_close_on_another_line_join_nothing(tmp_path: Path) -> None:
    """A quotation over several sentences: no row swallows the next ones."""
    rows = [
        f"{'“' if k else ''}{chr(34) if k == 1 else ''}say {k}{chr(34) if k == 4 else ''}\tsag {k}" for k in range(6)
    ]
    found = read_parallel(written(tmp_path, "talk.tsv", "en\tde\n" + "\n".join(rows).replace("“", "") + "\n"))
    assert len(found.sources) == 6
    assert found.sources[1] == '"say 1'


def test_names_that_were_said_are_names(tmp_path: Path) -> None:
    place = written(tmp_path, "pairs.tsv", "English sentence\tGerman sentence\nGo on.\tWeiter.\n")
    assert read_parallel(place, source="English sentence").sources == ("Go on.",)
    assert read_parallel(place, to=["German sentence"]).sources == ("Go on.",)
    first_pair = read_parallel(written(tmp_path, "other.tsv", "Go.\tGeh.\nStop.\tHalt.\n"))
    assert first_pair.sources == ("Go.", "Stop.")


def test_files_line_by_line(tmp_path: Path) -> None:
    one, two = written(tmp_path, "a.en", "x\ny\nz\n"), written(tmp_path, "a.de", "1\n2\n3\n")
    (tmp_path / "a.fr.gz").write_bytes(gzip.compress(b"i\nii\niii"))
    found = read_parallel(one, [two, str(tmp_path / "a.fr.gz")])
    assert (found.sources, found.targets["de"], found.targets["fr"]) == (
        ("x", "y", "z"),
        ("1", "2", "3"),
        ("i", "ii", "iii"),
    )
    named = read_parallel(one, [two], to=["german"])
    assert list(named.targets) == ["german"]
    assert named.sha256 != found.sha256


@pytest.mark.parametrize(
    ("files", "options", "error", "words"),
    [
        ({"a.txt": "x\ny\n", "b.txt": "1\n"}, {}, UsageError, r"a.txt has 2, .*b.txt has 1"),
        ({"a.txt": "x\n", "b.txt": "x\n"}, {}, UsageError, "is the same text as the source"),
        ({"a.txt": "x\n", "b.txt": "\n"}, {}, DataError, "has a text in 'b'|no row"),
        ({"a.txt": "x\n"}, {}, UsageError, "alone has no translations"),
        (
            {"a.tsv": "en\tde\nx\ty\n"},
            {"to": ["fr"]},
            UsageError,
            "no column 'fr' for --to; its columns are 'en', 'de'",
        ),
        ({"a.tsv": "en\tde\nx\ty\n"}, {"source": "fr"}, UsageError, "no column 'fr' for --source"),
        ({"a.tsv": "en\tde\nx\ty\n"}, {"to": ["de", "de"]}, UsageError, "given twice"),
        ({"a.tsv": "en\tde\nx\ty\n"}, {"to": ["en"]}, UsageError, "is the source"),
        ({"a.tsv": "en\nx\n"}, {}, UsageError, "one column only"),
        ({"a.tsv": "en\tde\nx\tx\ny\ty\n"}, {}, UsageError, "is the same text as the source"),
        ({"a.txt": "x\n", "b.txt": "y\n"}, {"to": ["p", "q"]}, UsageError, "names 2 targets, but there are 1"),
        ({"a.txt": "x\n", "b.tsv": "y\n"}, {}, UsageError, "is a table"),
        ({"a.tsv": "en\tde\tde\nx\ty\tz\n"}, {}, DataError, "2 columns called 'de'"),
        ({"a.tsv": "en\tde,AT\tfr\nx\ty\tz\n"}, {}, UsageError, "cannot be called 'de,AT'"),
        ({"a.tsv": "en\tde\t\nx\ty\t\n"}, {}, UsageError, "a column has no name .*say which to learn with --to"),
    ],
)
def test_what_cannot_be_read_is_one_line(
    tmp_path: Path, files: dict[str, str], options: dict[str, Any], error: type[Exception], words: str
) -> None:
    first, *others = [written(tmp_path, name, content) for name, content in files.items()]
    with pytest.raises(error, match=words) as caught:
        read_parallel(first, others, **options)
    assert "\n" not in str(caught.value)


def test_names_that_are_no_data() -> None:
    with pytest.raises(DataError, match="did you mean 'bible-kjv'"):
        read_parallel("bible-kj")
    with pytest.raises(UsageError, match="has no translations; those that have are bible-kjv"):
        read_parallel("imdb")
    with pytest.raises(UsageError, match="--to with one or more of bible-web"):
        read_parallel("bible-kjv")
    with pytest.raises(UsageError, match="is the source itself"):
        read_parallel("bible-kjv", to=["bible-kjv"])


# --------------------------------------------------------------------------- verses


def edition(text: str, places: dict[int, tuple[int, int]]) -> bytes:
    starts = {number: start for number, (start, _) in places.items()}
    ends = {number: end for number, (_, end) in places.items()}
    return f'from x import Bible\nbible = Bible(V.ONE, """{text}""", {starts}, {ends}, {{}}, False)\n'.encode()


def test_verses_are_cut_out_of_the_written_literal() -> None:
    table = verse_table(
        edition("In the beginning. And there was.\nThird.", {1001001: (0, 17), 1001002: (18, 32), 1001003: (33, 39)})
    )
    assert table.splitlines() == [
        "verse\ttext",
        "1001001\tIn the beginning.",
        "1001002\tAnd there was.",
        "1001003\tThird.",
    ]


def test_a_mark_says_how_others_count_the_verse() -> None:
    """Places were counted where a backslash is written as two."""
    text = r"First. \\2:1\\Second. Title.\\ Fourth."
    places = {1001001: (0, 6), 1001002: (7, 21), 1002001: (22, 30), 1002002: (31, 38)}
    assert [text[a:b] for a, b in places.values()] == ["First.", r"\\2:1\\Second.", r"Title.\\", "Fourth."]
    rows = dict(line.split("\t") for line in verse_table(edition(text, places)).splitlines()[1:])
    assert rows["1002001"] == "Second."  # and the title that the edition counts as 2:1 is left out
    assert rows["1001001"] == "First."
    assert "1001002" not in rows


@pytest.mark.parametrize(
    "content",
    [
        b"def (",
        b"x = 1",
        b"b = Bible(1, 2, {1: 2}, {1: 3})",
        b"b = Bible(1, 'x', {1: f()}, {1: 3})",
        b"b=B(1,'x',[],{})",
    ],
)
def test_what_is_no_edition_is_refused_and_nothing_of_it_runs(content: bytes) -> None:
    with pytest.raises(ValueError, match="not the expected Python file"):
        verse_table(content)


def test_editions_are_aligned_by_their_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert all(CORPORA[f"bible-{name}"].kind == "verses" for name in ("kjv", "web", "asv", "bbe", "ylt"))
    rows = {"bible-kjv": "1\ta a\n2\tb\n3\tc\n4\td\n", "bible-web": "1\tA\n3\tC\n9\tZ\n", "bible-asv": "2\tbb\n"}

    class Loaded:
        def __init__(self, name: str) -> None:
            self.path = tmp_path / f"{name}.tsv"
            self.path.write_text("verse\ttext\n" + rows[name])
            self.sha256, self.bytes, self.licence = f"sha of {name}", 10, "public domain"

    monkeypatch.setattr(module, "load_corpus", lambda name, progress: Loaded(name))
    found = read_parallel("bible-kjv", to=["bible-web", "bible-asv"])
    assert found.ordered
    assert found.rows == (1, 2, 3)
    assert found.sources == ("a a", "b", "c")
    assert found.targets == {"bible-web": ("A", "", "C"), "bible-asv": ("", "bb", "")}


# --------------------------------------------------------------------------- batches


def some_pairs(count: int, seed: int = 0) -> Pairs:
    draw = np.random.default_rng(seed)
    rows = [Rows.of([draw.integers(0, 9, draw.integers(1, 30)) for _ in range(count)]) for _ in range(3)]
    source, target = np.tile(np.arange(count), 2), np.repeat([0, 1], count)
    return Pairs(rows[0], (rows[1], rows[2]), source, target, 9, 10)


def test_a_batch_is_shifted_by_one_and_padded() -> None:
    pairs = Pairs(
        Rows.of([np.array([1, 2]), np.array([3])]),
        (Rows.of([np.array([4]), np.array([5, 6, 7])]),),
        np.arange(2),
        np.zeros(2, int),
        9,
        10,
    )
    batch = pairs.batch(np.array([0, 1]))
    assert batch.source.ids.tolist() == [[1, 2, 9], [3, 9, 9]]
    assert batch.source.lengths.tolist() == [3, 2]
    assert batch.inputs.tolist() == [[10, 4, 9, 9], [10, 5, 6, 7]]
    assert batch.targets.tolist() == [[4, 9, IGNORED, IGNORED], [5, 6, 7, 9]]
    assert batch.count == 6
    tagged = some_pairs(4).batch(np.array([0, 3, 4, 7]))
    assert tagged.inputs[:, 0].tolist() == [10, 10, 11, 11]  # the tag tells the targets apart


@given(st.integers(2, 60), st.integers(20, 400), st.integers(0, 5))
def test_every_pair_once_an_epoch_and_no_batch_too_large(count: int, tokens: int, seed: int) -> None:
    pairs = some_pairs(count)
    chosen = np.arange(0, len(pairs), 2) if count > 4 else np.arange(len(pairs))
    batches = PairBatches(pairs, chosen, tokens, seed)
    for epoch in (0, 1):
        seen = []
        for step in range(epoch * batches.steps_per_epoch, (epoch + 1) * batches.steps_per_epoch):
            batch = batches(step)
            seen += batch.inputs[:, 0].tolist()
            assert batch.count == int((batch.targets != IGNORED).sum())
            longest = max(batch.source.ids.shape[1], batch.inputs.shape[1])
            assert len(batch.inputs) == 1 or longest * len(batch.inputs) <= tokens + 3 * len(batch.inputs) + longest
        assert len(seen) == len(chosen)
    order = batches._order(0)
    assert sorted(np.concatenate(order).tolist()) == sorted(chosen.tolist())


def test_batches_depend_on_their_number_and_the_seed_alone() -> None:
    pairs = some_pairs(50)
    one, same, other = (PairBatches(pairs, np.arange(100), 200, seed) for seed in (1, 1, 2))
    steps = one.steps_per_epoch
    assert all((one(k).inputs == same(k).inputs).all() for k in (steps + 1, 0, 3))
    assert any(not np.array_equal(a, b) for a, b in zip(one._order(0), other._order(0), strict=True))
    assert any(not np.array_equal(a, b) for a, b in zip(one._order(0), one._order(1), strict=True))
    shares = [one(0, rank, 2) for rank in (0, 1)]
    assert sum(share.count for share in shares) == one(0).count
    assert math.isclose(one.count_per_step, sum(one(k).count for k in range(steps)) / steps, rel_tol=0.05)
