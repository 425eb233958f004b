"""The tiny checkpoints and their stored logits agree with a second implementation, in both file
formats."""

import json

import numpy as np
import pytest

import reference
from project import FIXTURES

TINY = FIXTURES / "tiny"
NAMES = sorted(p.stem for p in TINY.glob("*.json") if (TINY / p.stem).is_dir())
# transformers computes in float32 what is double here.
TOLERANCE = 2e-4


def golden(name):
    about = json.loads((TINY / f"{name}.json").read_text())
    rows = np.fromfile(TINY / about["logits"], "<f4").reshape(about["n_rows"], about["n_vocab"])
    return about["ids"], about["n_prompt"], rows


def differ(a, b):
    return np.abs(a - b).max()


def test_all_members_are_here():
    wanted = "internlm2 llama2 llama3 llama3-bf16 mistral qwen2 qwen3 qwen3-bf16 smollm2"
    ropes = "dynamic linear yarn yarn-mscale"
    assert set(NAMES) == {*wanted.split(), *(f"rope-{r}" for r in ropes.split())}


@pytest.mark.parametrize("name", NAMES)
def test_golden_is_greedy_and_spread(name):
    ids, n_prompt, rows = golden(name)
    assert len(ids) == len(rows) == 50 and n_prompt == 40
    assert 1 < rows.std() < 3
    if name != "rope-dynamic":  # its text was chosen without a cache
        assert list(rows[n_prompt - 1 : -1].argmax(-1)) == ids[n_prompt:]


@pytest.mark.parametrize("name", [n for n in NAMES if (TINY / f"{n}.gguf").exists()])
def test_gguf(name):
    ids, _, rows = golden(name)
    assert (
        differ(reference.forward(reference.from_gguf(TINY / f"{name}.gguf"), ids), rows) < TOLERANCE
    )


@pytest.mark.parametrize("name", [n for n in NAMES if n != "rope-dynamic"])
def test_folder(name):
    ids, _, rows = golden(name)
    assert differ(reference.forward(reference.from_folder(TINY / name), ids), rows) < TOLERANCE


@pytest.mark.parametrize("name", [n for n in NAMES if (TINY / n / "config-older.json").exists()])
def test_older_spelling_says_the_same(name):
    new, old = (
        reference.from_folder(TINY / name, f"config{x}.json").config for x in ("", "-older")
    )
    assert np.array_equal(new.frequencies, old.frequencies) and new.magnitude == old.magnitude


def test_dynamic_with_a_fixed_base():
    ids, _, rows = golden("rope-dynamic-fixed")
    assert (
        differ(reference.forward(reference.from_folder(TINY / "rope-dynamic"), ids), rows)
        < TOLERANCE
    )


def test_dynamic_as_transformers():
    """The prompt, longer than max_position_embeddings (32), has the base of its own length 40."""
    ids, n_prompt, rows = golden("rope-dynamic")
    model = reference.from_folder(TINY / "rope-dynamic")
    dim, factor = model.config.head_dim, 4.0
    base = 10000.0 * (factor * n_prompt / 32 - (factor - 1)) ** (dim / (dim - 2))
    model.config.frequencies = reference.plain_frequencies(base, dim)
    assert differ(reference.forward(model, ids[:n_prompt]), rows[:n_prompt]) < TOLERANCE


def without_scaling(model):
    model.config.frequencies = reference.plain_frequencies(10000.0, model.config.head_dim)
    model.config.magnitude = 1.0


def without_window(model):
    model.config.window = 0


def window_off_by_one(model):
    model.config.window += 1


def without_biases(model):
    for layer in model.layers:
        layer.q_bias = layer.k_bias = layer.v_bias = 0.0


def without_head_norms(model):
    for layer in model.layers:
        layer.q_norm = None


def magnitude_of_one(model):
    model.config.magnitude = 1.0


def llama3_unscaled(model):
    model.config.frequencies = reference.plain_frequencies(500000.0, model.config.head_dim)


@pytest.mark.parametrize(
    "name, spoil",
    [
        ("rope-linear", without_scaling),
        ("rope-dynamic", without_scaling),
        ("rope-yarn", without_scaling),
        ("rope-yarn", magnitude_of_one),
        ("rope-yarn-mscale", magnitude_of_one),
        ("llama3", llama3_unscaled),
        ("mistral", without_window),
        ("mistral", window_off_by_one),
        ("qwen2", without_biases),
        ("qwen3", without_head_norms),
    ],
)
def test_what_a_member_adds_shows_in_its_logits(name, spoil):
    """A mistake there cannot hide below any tolerance one would choose."""
    ids, n_prompt, rows = golden("rope-dynamic-fixed" if name == "rope-dynamic" else name)
    model = reference.from_folder(TINY / name)
    spoil(model)
    assert differ(reference.forward(model, ids), rows) > 0.1
