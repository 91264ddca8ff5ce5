import pytest
from tests.data.packages import nowhere  # noqa: F401 (a fixture)

from seqlab.data import pip_settings
from seqlab.data.pip_settings import parse_pip_listing, read_pip_settings


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
