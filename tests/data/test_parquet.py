"""The reader of word lists against pyarrow, which is what files are written with."""

import io
import random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqlab.data.parquet import read_strings, snappy

WORDS = st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=12), max_size=60)
WAYS = st.fixed_dictionaries(
    {
        "compression": st.sampled_from(["snappy", "gzip", "none"]),
        "use_dictionary": st.booleans(),
        "data_page_size": st.sampled_from([1, 64, 1 << 20]),
        "dictionary_pagesize_limit": st.sampled_from([1, 40, 1 << 20]),
        "row_group_size": st.sampled_from([7, 1000]),
        "write_statistics": st.booleans(),
    }
)


def written(values: list[Any], *, nullable: bool = True, name: str = "index", **how: Any) -> bytes:
    kind = pa.array(values).type if values else pa.string()
    buffer = io.BytesIO()
    pq.write_table(pa.table([values], schema=pa.schema([pa.field(name, kind, nullable=nullable)])), buffer, **how)
    return buffer.getvalue()


@given(words=WORDS, how=WAYS, nullable=st.booleans(), repeated=st.integers(1, 30))
def test_what_pyarrow_writes_is_read(words: list[str], how: dict[str, Any], nullable: bool, repeated: int) -> None:
    """Repeated words make runs and dictionaries; small limits make many pages, and dictionaries that are full."""
    assert read_strings(written(words * repeated, nullable=nullable, **how)) == words * repeated


def test_a_long_list_with_a_dictionary_that_does_not_hold_it() -> None:
    draw = random.Random(0)
    words = ["".join(draw.choices("abcdefgh", k=draw.randint(1, 20))) for _ in range(20_000)]
    words += draw.choices(words, k=20_000)
    assert read_strings(written(words, dictionary_pagesize_limit=50_000, data_page_size=10_000)) == words


@given(content=st.binary(max_size=300), repeated=st.integers(1, 400))
def test_snappy_is_that_of_pyarrow(content: bytes, repeated: int) -> None:
    whole = content * repeated + content[:7]
    assert snappy(pa.compress(whole, "snappy", asbytes=True)) == whole


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "no Parquet file"),
        (b"PAR1PAR1", "damaged or no Parquet file"),
        (written([1, 2, 3]), "not one column of strings"),
        (written(["a", None, "b"]), "missing values"),
        (written(["a", "b"], compression="zstd"), "compression 6"),
        (written(["a", "b"], data_page_version="2.0"), "pages of type 3"),
        (written([["a"], ["b"]]), "not one column of strings"),
    ],
)
def test_what_it_cannot_read_is_said(content: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_strings(content)


def test_damage_anywhere_is_an_error_or_other_words_and_never_a_hang() -> None:
    whole = written([f"word{k % 17}" for k in range(300)], data_page_size=64)
    draw = random.Random(1)
    for _ in range(300):
        damaged = bytearray(whole)
        damaged[draw.randrange(len(whole))] ^= 1 << draw.randrange(8)
        try:
            found = read_strings(bytes(damaged[: draw.choice([len(whole), draw.randrange(len(whole))])]))
        except ValueError:
            continue
        assert all(isinstance(word, str) for word in found)
