import json
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from seqlab.core.errors import DamageError, SeqlabError
from seqlab.core.files import canonical_json
from seqlab.models import build_lm
from seqlab.training.checkpoint import (
    load_optimiser,
    load_tensors,
    load_weights,
    optimiser_tensors,
    save_tensors,
)
from seqlab.training.optim import build_optimiser

TENSORS = {"a": torch.randn(3, 4), "empty": torch.zeros(0), "scalar": torch.tensor(2.5, dtype=torch.float64)}


def test_what_is_saved_comes_back_bit_for_bit(tmp_path: Path) -> None:
    tensors = TENSORS | {"bytes": torch.get_rng_state(), "t": torch.randn(2, 3).T}
    save_tensors(tmp_path / "x", tensors, {"step": 3, "best": None})
    loaded, record = load_tensors(tmp_path / "x")
    assert record == {"step": 3, "best": None}
    assert loaded.keys() == tensors.keys()
    assert all(torch.equal(loaded[k], v) and loaded[k].dtype == v.dtype for k, v in tensors.items())


def test_every_flipped_byte_is_found(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    save_tensors(path, TENSORS, {"step": 3})
    content = path.read_bytes()
    for position in range(len(content)):
        path.write_bytes(content[:position] + bytes([content[position] ^ 0x10]) + content[position + 1 :])
        try:
            tensors, record = load_tensors(path)
        except SeqlabError as error:
            assert "model.safetensors" in str(error)
        else:  # padding of the header may change without changing what is loaded
            assert record == {"step": 3}
            assert all(torch.equal(tensors[k], v) for k, v in TENSORS.items())


@pytest.mark.parametrize("length", [0, 4, 100, -1])
def test_a_cut_file_is_found(tmp_path: Path, length: int) -> None:
    path = tmp_path / "model.safetensors"
    save_tensors(path, TENSORS, {})
    path.write_bytes(path.read_bytes()[:length])
    with pytest.raises(DamageError, match="model.safetensors is damaged"):
        load_tensors(path)


def test_a_missing_file_and_a_foreign_one_are_named(tmp_path: Path) -> None:
    with pytest.raises(DamageError, match="nothing.safetensors"):
        load_tensors(tmp_path / "nothing.safetensors")
    save_file({"x": torch.zeros(1)}, tmp_path / "foreign.safetensors")
    with pytest.raises(SeqlabError, match=r"foreign.safetensors has format None, this seqlab reads 2"):
        load_tensors(tmp_path / "foreign.safetensors")


def test_weights_of_another_model_are_refused() -> None:
    small, large = build_lm("gru", vocab_size=5, width=4), build_lm("gru", vocab_size=5, width=8)
    with pytest.raises(
        SeqlabError, match=r"f does not fit this model: 'embedding.weight' has shape \(6, 8\), not \(6, 4\)"
    ):
        load_weights(small, large.state_dict(), "f")
    with pytest.raises(SeqlabError, match="only in one of them"):
        load_weights(small, build_lm("transformer", vocab_size=5).state_dict(), "f")


def test_the_optimiser_goes_on_where_it_stood() -> None:
    def step(model: torch.nn.Module, optimiser: torch.optim.Optimizer) -> None:
        model(torch.arange(4)[None])[0].square().sum().backward()
        optimiser.step()
        optimiser.zero_grad()

    one = build_lm("lstm", vocab_size=5, width=4)
    optimiser = build_optimiser(one, 0.1, 0.1)
    step(one, optimiser)
    two = build_lm("lstm", vocab_size=5, width=4)
    two.load_state_dict(one.state_dict())
    other = build_optimiser(two, 0.1, 0.1)
    load_optimiser(two, other, {k: v.clone() for k, v in optimiser_tensors(one, optimiser).items()})
    step(one, optimiser)
    step(two, other)
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), two.parameters(), strict=True))


def test_the_same_tensors_give_the_same_bytes(tmp_path: Path) -> None:
    """Metadata with several keys comes out in an order that differs from file to file."""
    for k in range(8):
        save_tensors(tmp_path / str(k), TENSORS, {"step": 3, "best": 0.5, "run": "ab" * 32})
    assert len({(tmp_path / str(k)).read_bytes() for k in range(8)}) == 1


def test_files_of_the_former_format_are_read(tmp_path: Path) -> None:
    record = canonical_json({"step": 3}).decode()
    save_tensors(tmp_path / "new", TENSORS, {"step": 3})
    with safe_open(tmp_path / "new", framework="pt") as file:
        digest = json.loads(file.metadata()["seqlab"])["sha256"]
    save_file(TENSORS, tmp_path / "old", {"format": "1", "record": record, "sha256": digest})
    tensors, found = load_tensors(tmp_path / "old")
    assert found == {"step": 3}
    assert all(torch.equal(tensors[name], value) for name, value in TENSORS.items())
    save_file(TENSORS, tmp_path / "old", {"format": "1", "record": record, "sha256": digest[::-1]})
    with pytest.raises(DamageError, match="checksum differs"):
        load_tensors(tmp_path / "old")
