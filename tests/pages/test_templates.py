"""What every page promises: pictures and tables of figures that a narrow screen can push sideways or fold."""

import re
from importlib.resources import files

import pytest
from jinja2 import Environment, PackageLoader, StrictUndefined

TEMPLATES = sorted(
    place.name for place in files("seqlab.pages").joinpath("templates").iterdir() if place.name.endswith(".html.j2")
)


@pytest.mark.parametrize("name", TEMPLATES)
def test_no_picture_is_squeezed(name: str) -> None:
    text = files("seqlab.pages").joinpath("templates", name).read_text("utf-8")
    pictures = [match.start() for match in re.finditer("<img ", text)]
    assert all(text[:place].endswith('<div class="wide">') for place in pictures)


def test_a_short_table_folds_and_names_every_cell_and_a_long_one_is_pushed() -> None:
    environment = Environment(
        loader=PackageLoader("seqlab.pages", "templates"), autoescape=True, undefined=StrictUndefined
    )
    listed = environment.get_template("tables.html.j2").module.listed  # type: ignore[attr-defined]
    short = listed(["model", "bits/byte", "verdict"], [["<gru>", "2.5", "open"], ["all", "3.5", ""]], 1, 2, True)
    assert '<div class="wide"><table class="folds">' in short
    assert '<td data-is="model">&lt;gru&gt;</td><td class="n" data-is="bits/byte">2.5</td>' in short
    assert '<td data-is="verdict">open</td>' in short
    assert '<tr class="all"><td data-is="model">all</td>' in short
    assert '<div class="wide"><table>' in listed(["n"], [[k] for k in range(13)])
