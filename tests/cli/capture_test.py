"""`reprise bench capture` and `reprise inspect --fit` as a user meets them."""

import json
import re
import xml.etree.ElementTree as ET

import pytest

from cli import FAILED, USAGE, answer, environment, needs_reprise, reprise
from project import ROOT

pytestmark = needs_reprise

MODEL = ROOT / "tests" / "fixtures" / "tiny" / "llama3.gguf"
SIMULATED = ["--device", "emu", "--device-options", "profile=pcie-accelerator"]
FEW = ["-np", "2", "-b", "32", "-r", "3", "-q"]


def test_json_rows():
    report = json.loads(answer("bench", "capture", MODEL, *SIMULATED, *FEW, "--json"))
    assert report["simulated"] is True and report["pairs"] == 3
    assert [r["bucket"] for r in report["rows"]] == [
        "decode 1",
        "decode 2",
        "prefill 16",
        "prefill 32",
    ]
    for row in report["rows"]:
        assert row["simulated"] is True
        assert 0 < row["replay_us"] < row["eager_us"]
        assert row["decision"] == "replay"
        assert "measured to be faster" in row["reason"]


def test_real_times_are_not_called_simulated():
    text = answer("bench", "capture", MODEL, *FEW)
    assert "sim" not in text.lower()
    assert "decode 1" in text and "prefill 32" in text


def test_table_says_simulated():
    text = answer("bench", "capture", MODEL, *SIMULATED, *FEW)
    assert "simulated" in text and "replay, sim." in text


def test_without_capture_there_is_no_replay_time():
    options = ["--device", "emu", "--device-options", "profile=no-capture"]
    report = json.loads(answer("bench", "capture", MODEL, *options, *FEW, "--json"))
    for row in report["rows"]:
        assert row["replay_us"] is None
        assert row["decision"] == "eager"
        assert row["reason"] == "the device cannot capture"


@pytest.mark.parametrize("options, is_simulated", [(SIMULATED, True), ([], False)])
def test_svg(tmp_path, options, is_simulated):
    path = tmp_path / "plot.svg"
    answer("bench", "capture", MODEL, *options, *FEW, "--svg", path)
    root = ET.parse(path).getroot()
    space = "{http://www.w3.org/2000/svg}"
    texts = [t.text for t in root.iter(space + "text")]
    assert ("simulated" in " ".join(texts)) == is_simulated
    assert {"eager: op by op", "replay: as one graph", "decode sequences"} <= set(texts)
    assert len(list(root.iter(space + "circle"))) == 2 * 4 + 2  # each size twice, and the legend


def test_svg_that_cannot_be_written(tmp_path):
    done = reprise("bench", "capture", MODEL, *FEW, "--svg", tmp_path / "no" / "plot.svg")
    assert done.returncode == FAILED
    assert b"plot.svg cannot be written" in done.stderr


def test_usage():
    assert reprise("bench", "capture").returncode == USAGE
    assert reprise("bench", "capture", MODEL, "more").returncode == USAGE


def test_fit():
    assert "fits on cpu: needs" in answer("inspect", MODEL, "--fit")
    small = ["--device", "emu", "--device-options", "memory=64K", "--json"]
    memory = json.loads(answer("inspect", MODEL, "--fit", *small))["memory"]
    assert memory["fits"] is False and memory["available"] == 65536
    assert memory["largest_context"] == 0
    parts = ["weights", "kv_cache", "arena", "inputs_outputs", "graphs"]
    assert memory["total"] == sum(memory[p] for p in parts) > 65536


def test_a_model_that_does_not_fit_is_refused_with_numbers():
    done = reprise("run", "-m", MODEL, "-p", "x", "--device", "emu", "--device-options", "memory=64K")
    assert done.returncode == FAILED
    assert b"the model needs" in done.stderr and b"65536 are available" in done.stderr


def test_graphs_over_the_cap_are_refused_with_the_number():
    options = ["-m", MODEL, "-p", "x", "-n", "2", "-v", "--capture-at-start", *SIMULATED]
    done = reprise("run", *options)
    planned = re.search(rb"graphs: \d+ captured in (\d+) bytes, (\d+) planned", done.stderr)
    need = int(planned[1])
    assert need == int(planned[2]) > 0
    assert reprise("run", *options, "--max-graph-bytes", need).returncode == 0
    done = reprise("run", *options, "--max-graph-bytes", need - 1)
    assert done.returncode == FAILED
    assert b"recorded steps need %d bytes" % need in done.stderr


def test_eager_steps_by_reason_when_verbose():
    done = reprise("run", "-m", MODEL, "-p", "hi", "-n", "8", "-v", "--ignore-eos", *SIMULATED)
    assert b": eager and replay are being measured" in done.stderr
    done = reprise("run", "-m", MODEL, "-p", "hi", "-n", "8", "-v", "--capture", "off")
    assert b": capture is off" in done.stderr


HYBRID = ["--device", "emu", "--device-options", "profile=p150-hybrid"]


def test_both_placements_are_shown_and_one_is_chosen():
    report = json.loads(answer("bench", "capture", MODEL, *HYBRID, *FEW, "--json"))
    rows = {(r["bucket"], r["placement"]): r for r in report["rows"]}
    assert len(rows) == 2 * 4
    for bucket in ["decode 1", "decode 2", "prefill 16", "prefill 32"]:
        free, hybrid = rows[bucket, "host-free"], rows[bucket, "hybrid"]
        assert free["chosen"] and not hybrid["chosen"]
        assert free["host_ops"] == free["transfers"] == 0 < hybrid["host_ops"]
        for row in free, hybrid:
            assert row["decision"] == "replay" and row["replay_us"] < row["eager_us"]
        assert free["replay_us"] < hybrid["replay_us"] < hybrid["eager_us"] < free["eager_us"]


def test_table_and_plot_of_both_placements(tmp_path):
    path = tmp_path / "plot.svg"
    text = answer("bench", "capture", MODEL, *HYBRID, *FEW, "--svg", path)
    assert "host-free" in text and "hybrid" in text and "| chosen |" in text
    root = ET.parse(path).getroot()
    space = "{http://www.w3.org/2000/svg}"
    texts = [t.text for t in root.iter(space + "text")]
    assert {"hybrid, eager", "hybrid, replay in pieces"} <= set(texts)
    assert texts.count("replay") == 4  # the chosen ones
    assert len(list(root.iter(space + "circle"))) == 2 * 4 + 2
    assert len(list(root.iter(space + "rect"))) == 2 * 4 + 2 + 1  # and the ground


def test_explain_shows_placements_and_overrides():
    text = answer("explain", MODEL, *HYBRID, "-np", "1", "-b", "16")
    assert "decode 1 takes host-free: not measured yet: whole steps can be captured" in text
    assert "decode 1, host-free: 25 ops in 1 segment" in text
    off = answer("explain", MODEL, *HYBRID, "-np", "1", "-b", "16", "--capture", "off")
    assert "decode 1 takes hybrid: not measured yet: steps run op by op" in off
    assert "decode 1, hybrid: 25 ops in 15 segments" in text
    assert "[the device's rule: rms_norm:rows<32=host]" in text
    only = ["--placement", "hybrid", "--place", "norm=device", "--place", "gated:width<81=host"]
    text = answer("explain", MODEL, *HYBRID, "-np", "1", "-b", "16", *only)
    assert "host-free" not in text and "rms_norm:rows<32" not in text
    assert "[override: gated:width<81=host]" in text
    assert " takes " not in text
    env = environment(REPRISE_PLACEMENT="host-free", REPRISE_PLACE="norm=host; gated=host")
    text = answer("explain", MODEL, *HYBRID, "-np", "1", "-b", "16", env=env)
    assert "[override: norm=host]" in text and "[override: gated=host]" in text


def test_answers_do_not_depend_on_placement():
    ask = ["run", "-m", MODEL, "-p", "hi", "-n", "12", "--temp", "0", "-q", *HYBRID]
    texts = {answer(*ask, "--placement", p) for p in ["auto", "host-free", "hybrid"]}
    assert len(texts | {answer(*ask, "--place", "*=host")}) == 1


@pytest.mark.parametrize(
    "options, sentence",
    [
        (["--placement", "both"], 'placement "both" is not known'),
        (["--place", "nrom=host"], 'unknown op "nrom"'),
        (["--device", "emu", "--placement", "hybrid"], "has no rules for a hybrid placement"),
        (["--place", "norm=host"], "nothing can be placed beside it"),
    ],
)
def test_placements_that_are_refused(options, sentence):
    device = [] if "nothing" in sentence or "--device" in options else HYBRID
    done = reprise("run", "-m", MODEL, "-p", "x", "-n", "1", *device, *options)
    assert done.returncode == FAILED and sentence in done.stderr.decode()
