import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seqlab.data.wikitext import strip_markup


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
