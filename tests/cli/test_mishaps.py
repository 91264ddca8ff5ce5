"""A hundred and fifty mishaps and more, over all commands: no traceback, no hang, no silent wrong result.

Every one was tried by hand first. A mishap is refused in one line that names it, or what it asks for is done.
"""

import contextlib
import gzip
import io
import json
import os
import random
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import TINY_FLAGS
from tests.conftest import nonsense

import seqlab
from seqlab.cli import main
from seqlab.core.errors import SeqlabError
from seqlab.core.files import write_text

LM = ("lm", "train", "t.txt")
FEW = ("--budget", "2steps", "--threads", "1")


@dataclass(frozen=True)
class Answer:
    code: int
    out: str
    err: str


def ask(*words: object, stdin: bytes = b"") -> Answer:
    """Run `seqlab WORDS…` in this process."""
    out, err = io.StringIO(), io.StringIO()
    former, sys.stdin = sys.stdin, io.TextIOWrapper(io.BytesIO(stdin))
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = main([str(word) for word in words])
    finally:
        sys.stdin = former
    return Answer(code, out.getvalue(), err.getvalue())


# --------------------------------------------------------------------------- a place full of things


def text_files() -> dict[str, bytes]:
    text = nonsense(2200).encode()
    return {
        "t.txt": text,
        "white.txt": b" \n\t " * 3000,
        "one.txt": b"a" * 20_000,
        "emoji.txt": "🙂🎉👩‍👩‍👧".encode() * 900,
        "mark.txt": b"\xef\xbb\xbf",
        "surrogate.txt": b"ab\xed\xa0\x80cd\n" * 300,
        "overlong.txt": b"ab\xc0\xafcd\n" * 300,
        "cut.gz": gzip.compress(text)[:-20],
        "odd16.txt": "text in utf-16 ".encode("utf-16") * 40 + b"x",
        "bare16.txt": "text in utf-16 ".encode("utf-16-le") * 40,
        "latin.txt": "café\n".encode("latin-1"),
        "prompts.txt": b"To be\n\nOr not\n",
        "nothing.txt": b"",
        "bad.toml": b"model = [",
        "unknown.toml": b"[model]\nkind = 'gru'\nwidht = 3\n",
        "word.toml": b"[model]\nwidth = 'wide'\n",
        "flat.toml": b"model = 3\n",
        "binary.toml": b"\xff\xfe\x00",
        "date.toml": b"[training]\nseed = 1979-05-27\n",
        "claims_bad.py": b"def (",
        "claims_none.py": b"x = 1\n",
        "claims_raise.py": b"raise ValueError('boom')\n",
        "claims_leave.py": b"import sys\nsys.exit(3)\n",
        "p1.txt": b"a b\n" * 50,
        "p2.txt": b"c d\n" * 49,
    }


def tables() -> dict[str, str]:
    draw = random.Random(0)

    def some(words: str, count: int) -> str:
        return " ".join(draw.choice(words.split()) for _ in range(count))

    reviews = "".join(f"{some('good bad fine poor film plot', 6)},{draw.choice('ab')}\n" for _ in range(120))
    pairs = "".join(f"{some('sun moon star', 4)}\t{some('sun moon star', 4)}\n" for _ in range(120))
    return {
        "c.csv": "text,label\n" + reviews,
        "p.tsv": "en\tde\n" + pairs,
        "empty.csv": "",
        "head.csv": "text,label\n",
        "blank.csv": "\n\n\n",
        "twice.csv": "text,text,label\n" + "a b,c d,x\n" * 30,
        "onecolumn.csv": "text\ngood\nbad\n",
        "quote.csv": 'text,label\n"open quote,a\nmore,b\n',
        "ragged.csv": "text,label\na b c,x\nd e f\n",
        "nolabel.csv": "text,label\n" + "good film,\n" * 30,
        "onelabel.csv": "text,label\n" + "good film,a\n" * 30,
        "alldifferent.csv": "text,label\n" + "".join(f"t{k},l{k}\n" for k in range(40)),
        "zero.csv": "text,label\na\0b,x\n" * 9,
        "notjson.jsonl": '{"text":"a","label":"x"}\nnot json\n' * 10,
        "list.jsonl": '["a","b"]\n' * 10,
        "deep.jsonl": '{"text":{"a":1},"label":"x"}\n{"text":"b","label":"y"}\n' * 10,
        "nan.jsonl": '{"text":"a","label":NaN}\n{"text":"b","label":1}\n' * 10,
        "one.tsv": "en\na b\n" * 30,
        "same.tsv": "en\tde\n" + "a b\tc d\n" * 60,
        "few.tsv": "en\tde\n" + "a b\tc d\n" * 3,
        "noneof.tsv": "en\tde\n" + "a b\t\n" * 60,
        "ragged.tsv": "en\tde\n" + "a b\tc d\te\n" * 40,
        "nan.vec": "the 1 nan\nof 2 3\n",
        "mixed.vec": "the 1 2\nof 2 3 4\n",
        "folder/a/1.txt": "x",
        "flat/1.txt": "x",
    }


RUNS = {
    "gru": (*LM, "--model", "gru", "--tokenizer", "char", *TINY_FLAGS),
    "counts": (*LM, "--model", "ngram", "--tokenizer", "char", "--order", "3"),
    "bytes": (*LM, "--model", "ngram", "--tokenizer", "byte", "--order", "2"),
    "other": ("lm", "train", "p.tsv", "--model", "ngram", "--tokenizer", "char", "--order", "2"),
    "average": ("classify", "train", "c.csv", *FEW),
    "pairs": ("translate", "train", "p.tsv", "--model", "gru", "--width", "16", *FEW),
}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with all of these and a tiny run of each kind, which nobody may change."""
    folder, former = tmp_path_factory.mktemp("mishaps"), Path.cwd()
    os.chdir(folder)
    for name, content in text_files().items():
        Path(name).write_bytes(content)
    for name, written in tables().items():
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text(written)
    Path("nothing").mkdir()
    for name, words in RUNS.items():
        answer = ask(*words, "--out", name)
        assert answer.code == 0, answer.err
    yield folder
    os.chdir(former)


@pytest.fixture(autouse=True)
def in_the_world(world: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(world)


def refused(answer: Answer, code: int, message: str) -> None:
    """One line, no other word of it anywhere, and nothing that looks like a result."""
    assert answer.code == code, answer.err
    *before, last = answer.err.splitlines()
    assert last.startswith("seqlab: ")
    assert message in last
    assert "Traceback" not in answer.err
    assert "unexpected " not in last or "unexpected argument" in last
    assert not any(line.startswith("seqlab: ") for line in before)
    assert answer.out == ""


# --------------------------------------------------------------------------- wrong use, of every command

WRONG_USE: list[tuple[str, str]] = [
    ("lm train t.txt --budget", "argument --budget: expected one argument"),
    ("lm train t.txt --budget=", "budget '' is not understood"),
    ("lm train t.txt --budget 1e5steps", "budget '1e5steps' is not understood"),
    ("lm train t.txt --seed 1.5", "invalid int value: '1.5'"),
    ("lm train t.txt --width=", "invalid int value: ''"),
    ("lm train t.txt --depth 100000", "--depth 100000 is too large; the most is 1,000"),
    ("lm train t.txt --context 1000001", "--context 1000001 is too large"),
    ("lm train t.txt --learning-rate 1e400", "--learning-rate inf must be"),
    ("lm train t.txt --warmup 1.5", "--warmup 1.5 must lie between 0 and 1"),
    ("lm train t.txt --decay step", "--decay 'step' is not known"),
    ("lm train t.txt --cooldown 0.5", "--cooldown does not apply to --decay linear"),
    ("lm train t.txt --momentum 0.9", "--momentum does not apply to --optimiser adamw"),
    ("lm train t.txt --optimiser sgd --bias-correction", "does not apply to --optimiser sgd"),
    ("lm train t.txt --ema 1", "--ema 1.0 must be at least 0 and below 1"),
    ("lm train t.txt --clip-value -1", "--clip-value -1.0 must be a number greater than 0"),
    ("lm train t.txt --size tiny", "--size 'tiny' is not known"),
    ("lm train t.txt --guide none --order 3", "--order does not apply to --guide none"),
    ("lm train t.txt --folds 1", "--folds 1 is out of range"),
    ("lm train t.txt --model ngram --order 9", "n-grams have an order from 1 to 8"),
    ("lm train t.txt --model ngram --batch 8", "--batch does not apply: model 'ngram' is fitted by counting"),
    ("lm train t.txt --model ngram --tensorboard", "--tensorboard does not apply"),
    ("lm train t.txt --model bigram --watch-gradients 3", "a bigram carries nothing over time"),
    ("lm train t.txt --model lstm --attention softmax", "model 'lstm' has no setting 'attention'"),
    ("lm train t.txt --model transformer --heads 4 --kv-heads 3", "cannot share 3 key/value heads evenly"),
    ("lm train t.txt --model transformer --carry", "--carry is for rnn, gru, lstm"),
    ("lm train t.txt --tokenizer char --vocab-size 50", "is not a choice for the tokenizer 'char'"),
    ("lm train t.txt --normalise lower,lower", "is given twice"),
    ("lm train t.txt --normalise ,", "unknown normalisation step ''"),
    ("lm train t.txt --split 33/33/33", "adds up to 99, not to 100"),
    ("lm train t.txt --split 0/0/100", "leaves nothing to train on"),
    ("lm train t.txt --encoding base64", "--encoding 'base64' is not known"),
    ("lm train t.txt --glob *.txt", "chooses files of a folder, and 't.txt' is none"),
    ("lm train . --glob ../*", "leads out of the folder"),
    ("lm train t.txt --threads two", "invalid int value: 'two'"),
    ("lm train -t.txt", "unexpected argument '-t.txt'"),
    ("lm train t.txt --out t.txt", "t.txt exists already"),
    ("lm train t.txt --out /dev/null/x", "/dev/null is a file, not a folder"),
    ("lm train t.txt --from t.txt", "there is no run folder t.txt"),
    ("lm train t.txt --from average", "--from average holds a run of kind 'classify', not 'lm'"),
    ("lm train t.txt --from counts", "an n-gram is fitted by counting and cannot be trained further"),
    ("lm train t.txt --from gru --tokenizer bpe", "--tokenizer bpe conflicts with --from gru, which has char"),
    ("lm train t.txt --from gru --resume --out gru", "leave out --config and --from"),
    ("lm train --out gru --resume --model lstm", "--model lstm conflicts with gru"),
    ("lm train --out gru --resume --budget 5m", "of which no step was timed"),
    ("lm train --out gru --resume --threads 2", "--threads 2 conflicts with the run's 1"),
    ("lm train p.tsv --out gru --resume", "is not the text this run was trained on"),
    ("lm train --out average --resume", "holds a run of kind 'classify', not 'lm'"),
    ("lm train --out counts --resume --order 2", "--order 2 conflicts with 3"),
    ("lm train t.txt --model bigram --vector-width 7 --vectors glove-6b-50d", "50 values, not 7"),
    ("lm train imdb", "is a table of labelled texts, no running text"),
    ("lm train t.txt --tensorboard=yes", "ignored explicit argument 'yes'"),
    ("lm train --config unknown.toml", "unknown setting 'model.widht'; did you mean 'width'?"),
    ("lm train --config word.toml", "model.width is 'wide'; it must be of type int"),
    ("lm train --config flat.toml", "'model' is 3; it must be a table"),
    ("lm train --config date.toml", "it must be of type int"),
    ("lm train --config average/settings.toml", "has the settings of a run of kind 'classify', not 'lm'"),
    ("classify train --config gru/settings.toml", "has the settings of a run of kind 'lm', not 'classify'"),
    ("lm train t.txt --out o\udcff", "'o\\udcff' names no run folder"),
    ("lm compare t.txt --models gru,gru", "names 'gru' twice"),
    ("lm compare t.txt --models ,", "names no model"),
    ("lm compare t.txt --models gru,bigram --watch-gradients 5", "a bigram carries nothing over time"),
    ("lm compare t.txt --models gru,rnn --seeds 0", "--seeds 0 must lie between 1 and 1,000"),
    ("lm compare t.txt --models gru,rnn --seed 3", "say how many with --seeds"),
    ("lm compare t.txt --models gru,rnn --out gru", "holds no duel"),
    ("lm perplexity gru --on", "argument --on: expected at least one argument"),
    ("lm perplexity average --on t.txt", "holds a run of kind 'classify', not 'lm'"),
    ("lm perplexity gru --on t.txt --context 4", "reads on and on; leave it out"),
    ("lm perplexity gru --on t.txt --html nodir/x.html", "there is no folder"),
    ("lm perplexity gru --on t.txt --html x.html --csv x.html", "name the same file"),
    ("lm perplexity gru --on t.txt --hf nowhere", "is not a folder; give a local Hugging Face folder"),
    ("lm perplexity gru --on t.txt --budget 5s", "--budget belongs to --matrix"),
    ("lm perplexity --matrix gru gru", "two domains are called 'gru'"),
    ("lm perplexity --matrix gru average", "holds a run of kind 'classify'"),
    ("lm generate gru --temperature nan", "--temperature nan must be a number of 0 (greedy) or more"),
    ("lm generate gru --top-p 1.5", "--top-p 1.5 must be greater than 0 and at most 1"),
    ("lm generate gru --prompt a --prompts prompts.txt", "both say what to continue"),
    ("lm generate gru --prompts nothing.txt", "--prompts nothing.txt is empty"),
    ("lm generate gru --prompts latin.txt", "is not valid utf-8 at byte 4"),
    ("lm generate gru --prompts nothing", "cannot be read: Is a directory"),
    ("lm generate pairs", "holds a run of kind 'translate', not 'lm'"),
    ("lm generate counts+nowhere", "there is no run folder nowhere"),
    ("lm generate counts+average", "average holds a run of kind 'classify', not 'lm'"),
    ("lm perplexity counts+bytes --on t.txt", "their tokenizers differ (char, "),
    ("lm mix", "the following arguments are required: RUN"),
    ("lm mix counts", "a mixture needs at least two runs"),
    ("lm mix counts counts", "counts is named twice"),
    ("lm mix counts+", "'counts+' names nothing beside a '+'"),
    ("lm mix counts other", "one is of t.txt, the other of p.tsv; train both on one text"),
    ("lm mix counts bytes", "counts and bytes cannot be mixed: their tokenizers differ"),
    ("lm mix counts pairs", "pairs holds a run of kind 'translate', not 'lm'"),
    ("lm mix counts t.txt", "there is no run folder t.txt"),
    ("lm mix counts gru --out gru", "gru exists already; choose another --out"),
    ("lm mix counts gru --out /dev/null/x", "/dev/null is a file, not a folder"),
    ("lm mix counts gru --threads 0", "--threads 0 must lie between 1 and 1024"),
    ("lm train t.txt --split 100/0/0", "leaves nothing to train on or to validate on"),
    ("classify train t.txt", "cannot tell how it is written by the ending '.txt'"),
    ("classify train shakespeare", "is running text without labels"),
    ("classify train c.csv --text nope", "has no column 'nope' for --text; its columns are 'text', 'label'"),
    ("classify train c.csv --text text,label --label label", "is both --text and --label"),
    ("classify train c.csv --model bert", "--model 'bert' is not known"),
    ("classify train c.csv --ngrams 99", "word n-grams have 1 to 8 words"),
    ("classify train c.csv --bucket-bits 99", "between 8 and 28 bits"),
    ("classify train c.csv --model gru --pooling first", "--pooling first is not a choice for model 'gru'"),
    ("classify train c.csv --budget 5Mtokens", "classifiers count texts, not tokens"),
    ("classify train c.csv --no-bayes --width 0", "needs naive Bayes or vectors"),
    ("classify train onecolumn.csv", "which column is the label? Say --label"),
    ("classify predict gru hello", "holds a run of kind 'lm', not 'classify'"),
    ("classify predict average --file c.csv hello", "both say what to decide"),
    ("classify predict average --text x hello", "give --file too"),
    ("classify predict average --encoding x --file c.csv", "--encoding 'x' is not known"),
    ("classify compare c.csv --models average,nope", "unknown model 'nope'"),
    ("translate train one.tsv", "has one column only, 'en'"),
    ("translate train p1.txt p2.txt", "p1.txt has 50, p2.txt has 49"),
    ("translate train p1.txt p1.txt", "is the same text as the source"),
    ("translate train p.tsv --source fr", "has no column 'fr' for --source"),
    ("translate train p.tsv --to en", "the column 'en' is the source"),
    ("translate train p.tsv --split middle", "--split 'middle' is not known"),
    ("translate train p.tsv --length 1", "--length 1 is too small"),
    ("translate train pydoc", "has no translations"),
    ("translate run pairs hello --to fr", "was not trained for 'fr'; it knows de"),
    ("translate run pairs hello --beam 100000", "--beam 100000 is out of range"),
    ("translate run pairs hello --n-best 9", "a beam of 4 has 1 to 4"),
    ("translate run pairs hello --temperature 1 --n-best 2", "leave it out where --temperature draws"),
    ("translate run pairs hello --length-penalty nan", "must lie between 0 and 10"),
    ("translate run pairs --file nothing", "is a folder; name a table or a text file"),
    ("translate evaluate pairs --part train", "--part 'train' is not known"),
    ("translate evaluate pairs --against gru", "holds a run of kind 'lm'"),
    ("diagnose gradients", "name a run folder, or an untrained model"),
    ("diagnose gradients gru --length 1", "--length 1 is too small"),
    ("diagnose gradients gru --model gru", "is for an untrained model"),
    ("diagnose gradients counts", "carries nothing over time"),
    ("diagnose gradients --model rnn --init nope", "--init 'nope' is not known"),
    ("diagnose attention gru", "it has no attention to look at"),
    ("diagnose approximation gru", "it has no attention to approximate"),
    ("diagnose experiment noisy-lenght", "did you mean 'noisy-length'?"),
    ("diagnose memory --tasks nope", "--tasks 'nope' is not known"),
    ("diagnose optimisers --on t.txt", "--on is for a duel"),
    ("diagnose optimisers --duel adamw,nope --on t.txt", "nope"),
    ("cost --task nope", "nope"),
    ("cost t.txt", "there is no run folder t.txt"),
    ("cost gru --task classify", "classify"),
    ("cost --length 5", "task 'lm' has no --length"),
    ("cost --calibration nowhere.json --model gru", "there is no such file"),
    ("cost --scaling --lengths a,b,c", "must be whole numbers with commas between"),
    ("cost --crossover --lengths 5,4,3", "must increase; give 3,4,5"),
    ("cost --scaling --crossover", "ask for one of them"),
    ("claims list --verdict maybe", "unknown verdict 'maybe'"),
    ("claims show pe.index-meaning extra", "unexpected argument 'extra'"),
    ("claims check pe.index-meaning --jobs 9999", "--jobs 9999 is too large"),
    ("claims quiz --questions 0", "--questions 0 is too small"),
    ("runs show nothing", "it has no settings.toml"),
    ("runs show gru extra", "unexpected argument 'extra'"),
    ("data get pydoc nope", "unknown corpus 'nope'"),
    ("data show pydoc --characters -5", "--characters -5 must lie between 0 and 1,000,000,000"),
    ("data show pydoc --characters 99999999999999999999", "must lie between 0 and 1,000,000,000"),
    ("demo --out gru", "gru exists already"),
    ("demo extra", "unexpected argument 'extra'"),
    ("--bogus", "unknown option --bogus; known: --help, --version"),
]


@pytest.mark.parametrize(("words", "message"), WRONG_USE)
def test_wrong_use_is_one_line(words: str, message: str) -> None:
    refused(ask(*words.split(" ")), 2, message)


@pytest.mark.parametrize("words", [words for words, _ in WRONG_USE[::6]])
def test_wrong_use_is_one_object_with_json(words: str) -> None:
    answer = ask(*words.split(" "), "--json")
    assert list(json.loads(answer.out)) == ["error"]
    assert answer.code == 2


# --------------------------------------------------------------------------- data that cannot be used

BAD_DATA: list[tuple[str, str]] = [
    ("lm train mark.txt --out new", "has 3 bytes: too few for a validation part"),
    ("lm train surrogate.txt --out new", "is not valid utf-8 at byte 2 (line 1, byte 0xed)"),
    ("lm train overlong.txt --out new", "is not valid utf-8 at byte 2 (line 1, byte 0xc0)"),
    ("lm train cut.gz --out new", "cannot be decompressed"),
    ("lm train odd16.txt --out new", "is not valid utf-16, which its first bytes name, at byte 1,280"),
    ("lm train bare16.txt --out new", "it reads as utf-16-le: say --encoding utf-16-le"),
    ("lm train t.txt --encoding utf-16 --out new", "it reads as utf-8: say --encoding utf-8"),
    ("lm train t.txt --encoding ascii --out new", "it reads as utf-8: say --encoding utf-8"),
    ("lm train white.txt --tokenizer word --out new", "the training text has 1 token"),
    ("lm train nothing --out new", "it is empty; name another"),
    ("lm train counts+gru --out new", "there is no file, folder or corpus 'counts+gru'"),
    ("lm train . --glob *.none --out new", "holds no file that --glob '*.none' names"),
    ("lm train /dev/null --out new", "is empty"),
    ("lm train /dev/zero --out new", "looks like a binary file (zero at byte 0, line 1)"),
    ("lm train --config bad.toml --out new", "cannot be read as settings"),
    ("lm train --config binary.toml --out new", "cannot be read as settings"),
    ("lm train --config nothing --out new", "cannot be read as settings"),
    ("lm train t.txt --out /proc/nothing", "cannot write /proc/nothing"),
    ("lm train t.txt --model bigram --vectors t.txt --out new", "t.txt, line 1: it holds no values"),
    ("lm train t.txt --model bigram --vectors nan.vec --out new", "nan.vec, line 1"),
    ("lm train t.txt --model bigram --vectors mixed.vec --out new", "mixed.vec, line 2"),
    ("lm train t.txt --model bigram --vectors nothing --out new", "is no file"),
    ("lm perplexity gru --on latin.txt", "it reads as latin-1: say --encoding latin-1"),
    ("lm perplexity gru --on nothing", "it is empty; name another"),
    ("lm perplexity --hf nothing --on t.txt", "has no config.json"),
    ("classify train empty.csv --out new", "empty.csv is empty"),
    ("classify train head.csv --out new", "has no row with a label"),
    ("classify train blank.csv --out new", "has no rows"),
    ("classify train twice.csv --out new", "has 2 columns called 'text'"),
    ("classify train quote.csv --out new", "quote.csv, line 2: the row that begins here is broken"),
    ("classify train ragged.csv --out new", "ragged.csv, line 3: 1 field, not the 2 of line 1"),
    ("classify train nolabel.csv --out new", "30 rows without a label"),
    ("classify train onelabel.csv --out new", "has one label only, 'a'"),
    ("classify train alldifferent.csv --out new", "40 rows with 40 labels are too few"),
    ("classify train zero.csv --out new", "looks like a binary file (zero at byte 12, line 2)"),
    ("classify train notjson.jsonl --out new", "notjson.jsonl, line 2: no valid JSON"),
    ("classify train list.jsonl --out new", "the JSON there is no object"),
    ("classify train deep.jsonl --out new", "'text' is an object, not a string"),
    ("classify train nan.jsonl --out new", "NaN is no JSON value"),
    ("classify train folder --out new", "has one label only, 'a'"),
    ("classify train flat --out new", "outside the sub-folders"),
    ("classify train c.csv --least-texts 1000 --out new", "lower --least-texts to 1"),
    ("classify predict average --file head.csv", "has no rows; give one text at least"),
    ("classify predict average --file latin.txt", "it reads as latin-1"),
    ("classify report average --data head.csv", "has no row with a label"),
    ("translate train same.tsv --out new", "none can be held out"),
    ("translate train few.tsv --out new", "20 are needed at least"),
    ("translate train noneof.tsv --out new", "no row of noneof.tsv has a text in 'de'"),
    ("translate train ragged.tsv --out new", "ragged.tsv, line 2: 3 fields, not the 2"),
    ("translate evaluate pairs --data c.csv", "the columns of the data are not those of the run"),
    ("diagnose gradients gru --text latin.txt", "it reads as latin-1"),
    ("claims list --file claims_bad.py", "claims_bad.py, line 1 is no Python"),
    ("claims list --file claims_none.py", "has no claims"),
    ("claims list --file claims_raise.py", "raised ValueError: boom"),
    ("claims list --file claims_leave.py", "raised SystemExit: 3"),
    ("runs list t.txt", "there is no folder t.txt"),
]


@pytest.mark.parametrize(("words", "message"), BAD_DATA)
def test_bad_data_is_one_line_and_leaves_nothing(words: str, message: str) -> None:
    refused(ask(*words.split(" ")), 1, message)
    assert not Path("new").exists()


# --------------------------------------------------------------------------- damaged runs


def cut(size: int) -> Callable[[Path], object]:
    return lambda file: file.write_bytes(file.read_bytes()[:size])


def filled(content: bytes) -> Callable[[Path], object]:
    return lambda file: file.write_bytes(content)


def folder_instead(file: Path) -> None:
    file.unlink()
    file.mkdir()


DAMAGE: dict[str, tuple[str, Callable[[Path], object], str]] = {
    "no settings": ("settings.toml", Path.unlink, "it has no settings.toml"),
    "empty settings": ("settings.toml", filled(b""), "was not written by seqlab"),
    "cut settings": ("settings.toml", cut(100), "cannot be read as settings"),
    "binary settings": ("settings.toml", filled(b"\xff\xfe\0\0"), "cannot be read as settings"),
    "folder for settings": ("settings.toml", folder_instead, "cannot be read as settings"),
    "no weights": ("model.safetensors", Path.unlink, "has no trained weights yet"),
    "cut weights": ("model.safetensors", cut(200), "model.safetensors is damaged"),
    "empty weights": ("model.safetensors", filled(b""), "model.safetensors is damaged"),
    "huge header": ("model.safetensors", filled(b"\xff" * 8 + b"x" * 99), "model.safetensors is damaged"),
    "folder for weights": ("model.safetensors", folder_instead, "model.safetensors is damaged"),
}
USES = {
    "gru": ("lm", "generate", "{}", "--tokens", "3"),
    "counts": ("lm", "perplexity", "{}", "--on", "t.txt", "--no-baselines"),
    "average": ("classify", "predict", "{}", "hello"),
    "pairs": ("translate", "run", "{}", "hello"),
}


@pytest.mark.parametrize("run", USES)
@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_run_is_named_whatever_it_is_used_for(run: str, damage: str, tmp_path: Path) -> None:
    name, harm, message = DAMAGE[damage]
    shutil.copytree(run, tmp_path / "run")
    harm(tmp_path / "run" / name)
    answer = ask(*(word.format(tmp_path / "run") for word in USES[run]))
    assert answer.code in (1, 2)
    refused(answer, answer.code, message)


@pytest.mark.parametrize(
    ("file", "harm", "message"),
    [
        ("checkpoints/last.safetensors", Path.unlink, "damaged or missing"),
        ("checkpoints/last.safetensors", cut(300), "damaged or missing"),
        ("tokenizer.json", Path.unlink, "tokenizer.json cannot be read"),
        ("tokenizer.json", filled(b"{}"), "tokenizer.json is damaged"),
        ("metrics.jsonl", Path.unlink, "it has 0 lines up to step 8, not 8"),
        ("metrics.jsonl", filled(b"{}\nnot json\n"), "metrics.jsonl is damaged at line 1"),
        ("metrics.jsonl", folder_instead, "metrics.jsonl cannot be read (Is a directory)"),
        ("model.safetensors", Path.unlink, "model.safetensors is damaged or missing"),
    ],
)
def test_what_a_resume_needs_is_named(file: str, harm: Callable[[Path], object], message: str, tmp_path: Path) -> None:
    shutil.copytree("gru", tmp_path / "run")
    harm(tmp_path / "run" / file)
    answer = ask("lm", "train", "--out", tmp_path / "run", "--resume", "--budget", "9steps")
    assert answer.code == 1
    assert message in answer.err.splitlines()[-1]
    assert "Traceback" not in answer.err


def test_a_list_of_runs_survives_damaged_ones(tmp_path: Path) -> None:
    for k, (name, harm, _) in enumerate(DAMAGE.values()):
        shutil.copytree("counts", tmp_path / f"run{k}")
        harm(tmp_path / f"run{k}" / name)
    answer = ask("runs", "list", tmp_path)
    assert answer.code == 0
    assert "damaged" in answer.out


@pytest.mark.parametrize("name", ["guide.safetensors", "model.safetensors"])
def test_a_damaged_member_of_a_mixture_is_named(name: str, tmp_path: Path) -> None:
    shutil.copytree("gru", tmp_path / "run")
    cut(200)(tmp_path / "run" / name)
    refused(ask("lm", "mix", tmp_path / "run", "counts", "--out", tmp_path / "both"), 1, f"{name} is damaged")
    assert not (tmp_path / "both").exists()


# --------------------------------------------------------------------------- odd, but no mistake


@pytest.mark.parametrize("text", ["t.txt", "white.txt", "one.txt", "emoji.txt"])
def test_odd_texts_have_baselines(text: str, tmp_path: Path) -> None:
    words = ("--model", "ngram", "--tokenizer", "byte", "--order", "2", "--out", tmp_path / "run", "--json")
    answer = ask("lm", "train", text, *words)
    assert answer.code == 0, answer.err
    found = json.loads(answer.out)["baselines"]
    assert {one["name"] for one in found} == {"uniform", "7-gram", "xz", "ppmd"}
    assert all(0 <= one["bits_per_byte"] < 9 for one in found)


@pytest.mark.parametrize(
    "name",
    ["a b.txt", "new\nline.txt", "-dash.txt", "émoji🙂.txt", "q'uo\"te.txt", "%s{0}.txt", "[red]x.txt", "~x.txt"],
)
def test_odd_names_are_names(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copy("t.txt", tmp_path / name)
    monkeypatch.chdir(tmp_path)
    answer = ask("lm", "train", f"./{name}", "--model", "ngram", "--tokenizer", "char", "--order", "2", "--out", "run")
    assert answer.code == 0, answer.err
    again = ask("lm", "train", "--out", "run", "--resume")
    assert again.code == 0
    assert "fitted in one go" in again.err
    assert ask("runs", "list", ".", "--json").code == 0


@pytest.mark.parametrize("text", ["white.txt", "one.txt", "emoji.txt"])
@pytest.mark.parametrize("tokenizer", ["char", "bpe"])
def test_odd_texts_are_texts(text: str, tokenizer: str, tmp_path: Path) -> None:
    words = ("--model", "ngram", "--tokenizer", tokenizer, "--order", "2", "--out", tmp_path / "run")
    assert ask("lm", "train", text, *words).code == 0
    assert ask("lm", "generate", tmp_path / "run", "--tokens", "5").code == 0


def test_what_comes_through_a_pipe_can_be_resumed(tmp_path: Path) -> None:
    words = ("lm", "train", "-", "--model", "ngram", "--tokenizer", "char", "--order", "2", "--out", tmp_path / "run")
    refused(ask(*words), 1, "standard input is empty")
    refused(ask(*words, stdin=b"\0\1" * 99), 1, "looks like a binary file (zero at byte 0, line 1)")
    assert ask(*words, stdin=Path("t.txt").read_bytes()).code == 0
    assert ask("lm", "train", "--out", tmp_path / "run", "--resume").code == 0


@pytest.mark.parametrize(
    ("words", "stdin", "code", "shown"),
    [
        (("lm", "generate", "gru", "--prompt", "☃", "--tokens", "3"), b"", 0, "☃"),
        (("lm", "generate", "gru", "--prompt", "\udcff"), b"", 1, "not Unicode"),
        (("lm", "generate", "gru", "--tokens", "0"), b"", 0, "\n"),
        (("lm", "generate", "gru", "--tokens", "2", "--seed", "-5"), b"", 0, ""),
        (("lm", "generate", "gru", "--prompts", "-", "--tokens", "2"), b"", 2, "standard input is empty"),
        (("classify", "predict", "average"), b"good\n\n\nbad", 0, ""),
        (("classify", "predict", "average"), b"\xff\n", 1, "standard input, line 1"),
        (("classify", "predict", "average", ""), b"", 0, ""),
        (("translate", "run", "pairs", ""), b"", 0, ""),
        (("translate", "run", "pairs", "☃ 漢字"), b"", 0, ""),
        (("translate", "run", "pairs"), b"\xff\n", 1, "standard input, line 1"),
        (("claims", "quiz", "--questions", "1"), b"maybe\nq\n", 0, "answer t or f"),
        (("claims", "quiz", "--questions", "1"), b"\xff\n", 1, "standard input, line 1"),
        (("runs", "list", "nothing"), b"", 0, "no runs below nothing"),
    ],
    ids=lambda value: " ".join(map(ascii, value)) if isinstance(value, tuple) else "",
)
def test_odd_input_is_answered(words: tuple[str, ...], stdin: bytes, code: int, shown: str) -> None:
    answer = ask(*words, stdin=stdin)
    assert answer.code == code, answer.err
    assert shown in answer.out + answer.err
    assert "Traceback" not in answer.err


# --------------------------------------------------------------------------- places that are no ordinary files


def test_what_is_written_never_replaces_a_device_or_a_link(tmp_path: Path) -> None:
    """`--csv /dev/null` once made a file of it, for whoever may."""
    read, write = os.pipe()
    os.mkfifo(tmp_path / "pipe")
    with open(os.open(tmp_path / "pipe", os.O_RDWR), "rb+", buffering=0) as kept:
        write_text(tmp_path / "pipe", "through")
        assert kept.read(7) == b"through"
    assert (tmp_path / "pipe").is_fifo()
    os.close(read), os.close(write)
    (tmp_path / "target.txt").write_text("before")
    (tmp_path / "link.txt").symlink_to("target.txt")
    (tmp_path / "new.txt").symlink_to("there.txt")
    for link, target in (("link.txt", "target.txt"), ("new.txt", "there.txt")):
        write_text(tmp_path / link, "after")
        assert (tmp_path / link).is_symlink()
        assert (tmp_path / target).read_text() == "after"
    with pytest.raises(SeqlabError, match="cannot write"):
        write_text(tmp_path, "a folder")
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "link.txt",
        "new.txt",
        "pipe",
        "target.txt",
        "there.txt",
    ]


def test_a_prompt_that_cannot_be_read_writes_nothing() -> None:
    refused(ask("lm", "generate", "gru", "--prompt", "\udcff"), 1, "not Unicode")


def test_more_threads_than_cores_are_remarked_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seqlab.runs.train.usable_cores", lambda: 1)
    words = ("--model", "ngram", "--tokenizer", "char", "--order", "2")
    for threads, remarked in (("1", False), ("2", True)):
        answer = ask("lm", "train", "t.txt", *words, "--threads", threads, "--out", tmp_path / threads)
        assert answer.code == 0
        assert ("warning: --threads 2 on 1 core" in answer.err) is remarked


# --------------------------------------------------------------------------- from Python


def lm() -> Any:
    return seqlab.load("gru")


MISUSE: dict[str, tuple[Callable[[], object], str]] = {
    "no text": (lambda: seqlab.train_lm(), "no text is named"),
    "a number as text": (lambda: seqlab.train_lm(5), "there is no file, folder or corpus '5'"),
    "a list as text": (lambda: seqlab.train_lm(["t.txt"]), "there is no file, folder or corpus"),
    "a budget that is a number": (lambda: seqlab.train_lm("t.txt", budget=60), "must be of type str"),
    "threads as a word": (lambda: seqlab.train_lm("t.txt", threads="2"), "--threads '2' must be a whole number"),
    "half a thread": (lambda: seqlab.train_lm("t.txt", threads=1.5), "--threads 1.5 must be a whole number"),
    "a true thread": (lambda: seqlab.train_lm("t.txt", threads=True), "--threads True must be a whole number"),
    "a folder that is a number": (lambda: seqlab.train_lm("t.txt", out=5), "'5' names no run folder"),
    "a folder of bytes": (lambda: seqlab.train_lm("t.txt", out=b"x"), "names no run folder"),
    "a folder with a zero": (lambda: seqlab.train_lm("t.txt", out="a\0b"), "names no run folder"),
    "a parent that is a number": (lambda: seqlab.train_lm("t.txt", from_run=5), "'5' names no run folder"),
    "settings as a dictionary": (lambda: seqlab.train_lm(config={"a": 1}), "names no file; name a settings.toml"),
    "a slip in a setting": (lambda: seqlab.train_lm("t.txt", widht=3), "did you mean 'width'?"),
    "no seed": (lambda: seqlab.train_lm("t.txt", seed=None), "setting 'seed' is None"),
    "nothing to load": (lambda: seqlab.load(None), "'None' names no run folder"),
    "an infinite temperature": (lambda: lm().generate("a", 3, temperature=float("inf")), "--temperature inf"),
    "a seed of nothing": (lambda: lm().generate("a", 3, seed=None), "seed is None; it must be of type int"),
    "tokens of nothing": (lambda: lm().generate("a", None), "tokens is None"),
    "a prompt in pieces": (lambda: lm().generate("\udcff", 3), "lone surrogate"),
    "another context": (lambda: lm().with_context(4), "reads on and on"),
    "no word to decide": (lambda: seqlab.load("average").predict([None]), "must be a text (str), not None"),
    "one text to decide": (lambda: seqlab.load("average").predict("good"), "of one text: [text]"),
    "a target unheard of": (lambda: seqlab.load("pairs").translate(["a"], to="xx"), "it knows de"),
    "a beam and a half": (lambda: seqlab.load("pairs").translate(["a"], to="de", beam=1.5), "--beam 1.5"),
    "words instead of an encoding": (
        lambda: seqlab.load("pairs").decode("x", to="de"),
        "decode takes what encode gave",
    ),
    "figures of another text": (lambda: seqlab.figures(lm().score("the of"), "other"), "the table covers 6 bytes"),
    "a sheet of nothing": (lambda: seqlab.perplexity_sheet([], ["t.txt"]), "no model is named"),
    "seeds as a word": (lambda: seqlab.compare_lms("t.txt", models="gru,rnn", seeds="3"), "must be of type int"),
    "no models": (lambda: seqlab.compare_lms("t.txt", models=[]), "names no model"),
    "a scorer of nothing": (lambda: seqlab.scorer(None, None), "not a torch.nn.Module"),
    "a cost of nothing": (lambda: seqlab.cost(None), "not of NoneType"),
    "one domain": (lambda: seqlab.domain_matrix(["gru"]), "name at least two"),
    "an experiment unheard of": (lambda: seqlab.run_experiment("nope"), "is not known"),
    "a claim unheard of": (lambda: seqlab.check_claims(["nope"]), "unknown claim 'nope'"),
}


@pytest.mark.parametrize("case", MISUSE)
def test_misuse_from_python_is_one_line(case: str) -> None:
    call, message = MISUSE[case]
    with pytest.raises(SeqlabError) as error:
        call()
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_texts_may_come_from_a_generator() -> None:
    run = seqlab.load("average")
    texts = ["good", "bad film", ""]
    assert run.predict(text for text in texts) == run.predict(texts)
