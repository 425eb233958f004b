"""The C tests of the tenstorrent device on the real ttnn, each in a process of its own: what ends
that process ends one test. Minutes each on the simulator."""

import os
import subprocess

import pytest

from cli import REPRISE

TESTS = REPRISE.parent / "reprise-tests"
NAMES = [
    "describes_itself",
    "replays_have_the_bits_of_the_warm_run",
    "two_handles_destroyed_in_either_order",
    "keys_that_are_no_numbers_are_not_seen",
    "corpus",
    "llama",
    "smollm2",
    "qwen3",
    "mistral",
    "internlm2",
    "batches_of_every_size",
    "batches_of_up_to_32",
    "captured_again_after_a_batch_change",
    "two_step_sizes_take_turns",
    "pieces_between_host_ops_are_traces",
    "two_hundred_replays_across_blocks",
    "a_decode_step_writes_its_inputs_and_reads_its_logits",
    "visits_of_several_steps_pick_the_same_tokens",
    "weights_as_block_floats",
    "whole_smollm2_decodes",
]


def what_is_missing():
    if not os.environ.get("TT_METAL_SIMULATOR") and not os.path.exists("/dev/tenstorrent"):
        return "no simulator (TT_METAL_SIMULATOR) and no card (/dev/tenstorrent)"
    if not os.environ.get("REPRISE_TTNN_PYTHON"):
        return "REPRISE_TTNN_PYTHON does not name a Python that has ttnn"
    return None if TESTS.exists() else f"{TESTS} is not built"


pytestmark = pytest.mark.skipif(what_is_missing() is not None, reason=str(what_is_missing()))


@pytest.mark.parametrize("name", NAMES)
def test_on_the_real_ttnn(name):
    env = {**os.environ, "RP_TEST_TTNN": "real"}
    done = subprocess.run(
        [TESTS, f"tenstorrent.{name}"], env=env, capture_output=True, text=True
    )
    print(done.stdout)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert "0 failed" in done.stdout and ", 0 skipped" in done.stdout
