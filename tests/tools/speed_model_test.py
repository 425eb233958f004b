"""tools/make_speed_model.py: its blocks hold what they should, by the gguf package's decoders."""

import subprocess
import sys

import gguf
import numpy as np
import pytest

from make_speed_model import Random
from project import BUILD, ROOT

TOOL = ROOT / "tools" / "make_speed_model.py"
REPRISE = BUILD / "reprise"


@pytest.mark.parametrize("kind", ["q4_0", "q4_1", "q8_0", "q4_k", "q6_k", "bf16", "f16"])
def test_weights_have_the_deviation_asked_for(kind):
    data = Random(1).matrix(kind, 64, 1024, 0.02)
    values = gguf.quants.dequantize(data, gguf.GGMLQuantizationType[kind.upper()])
    assert values.shape == (64, 1024)
    assert abs(values.mean()) < 0.001
    assert 0.018 < values.std() < 0.022


def test_a_seed_makes_the_same_bytes():
    first, again = (Random(7).matrix("q4_k", 16, 256, 0.1) for _ in range(2))
    assert np.array_equal(first, again)


@pytest.mark.skipif(not REPRISE.exists(), reason=f"{REPRISE} is not built")
@pytest.mark.parametrize("form", ["q4_0", "q8_0", "q4_k_m", "bf16"])
def test_a_small_one_runs(tmp_path, form):
    command = [sys.executable, TOOL, form, "--shape", "tiny", "--out", tmp_path]
    path = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
    run = [REPRISE, "run", path, "-p", "abc", "-n", "4", "--temp", "0", "--raw", "-q"]
    subprocess.run(run, check=True, stdin=subprocess.DEVNULL, timeout=60)
