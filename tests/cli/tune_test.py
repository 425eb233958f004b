"""`reprise tune` and profiles as a user meets them."""

import json
import os
import signal
import subprocess

import pytest

from cli import FAILED, INTERRUPTED, REPRISE, USAGE, answer, environment, needs_reprise, reprise
from project import ROOT

pytestmark = needs_reprise

MODEL = ROOT / "tests" / "fixtures" / "tiny" / "llama3.gguf"
OTHER = ROOT / "tests" / "fixtures" / "tiny" / "qwen3.gguf"
P150 = ["--device", "emu", "--device-options", "profile=p150-hybrid"]
SMALL = ["-np", "2", "-b", "32"]


@pytest.fixture(scope="module")
def profile(tmp_path_factory):
    path = tmp_path_factory.mktemp("tune") / "profile.txt"
    answer("tune", MODEL, *P150, *SMALL, "-r", "1", "-q", "-o", path)
    return path


def explain(placement, *more, model=MODEL, device=P150):
    return reprise("explain", model, *device, *SMALL, "--placement", placement, *more)


def test_rows_are_measured_on_the_virtual_clock():
    rows = json.loads(answer("tune", MODEL, *P150, *SMALL, "-r", "1", "-q", "-o", os.devnull, "--json"))
    by_size = {(r["op"], r["rows"], r["width"]): r for r in rows}
    assert len(by_size) == len(rows) and all(r["simulated"] for r in rows)
    norm = by_size["rms_norm", 1, 64]
    # launch and work on the card; read, norm and write beside it
    assert 330 < norm["device_us"] < 400 and 100 < norm["host_us"] < 200
    assert norm["place"] == "host"
    assert by_size["rope", 192, 16]["place"] == "device"
    assert not {r["op"] for r in rows} & {"attention", "kv_write"}


def test_a_profile_is_loaded_and_shown(profile):
    text = explain(profile).stdout.decode()
    assert "decode 1, tuned: 25 ops" in text
    assert "[tuned: rms_norm:rows>=1,width=64=host]" in text
    over = explain(profile, "--place", "norm=device").stdout.decode()
    assert "[override: norm=device]" in over and "tuned: rms_norm" not in over


def test_a_profile_changes_no_token(profile):
    ask = ["run", "-m", MODEL, "-p", "hi", "-n", "12", "--temp", "0", "-q", *P150]
    assert answer(*ask, "--placement", profile) == answer(*ask, "--placement", "host-free")


def test_the_default_place(tmp_path):
    env = environment(REPRISE_CACHE=tmp_path)
    missing = explain("tuned", "--cache", tmp_path)
    assert missing.returncode == FAILED
    assert b"no tuned profile at " in missing.stderr and b"`reprise tune` makes it" in missing.stderr
    done = reprise("tune", MODEL, *P150, *SMALL, "-r", "1", env=env)
    (path,) = (tmp_path / "tune").iterdir()
    assert path.name.startswith("emu-") and f"the profile is {path}".encode() in done.stderr
    assert b"rms_norm" in done.stdout
    assert b"decode 1, tuned" in explain("tuned", "--cache", tmp_path).stdout


@pytest.mark.parametrize(
    "change, sentence",
    [
        (("build ", "build 0."), "the profile is stale, tune again"),
        (("device emu", "device card"), 'line 3: device is "card", expected "emu"'),
        (("reprise-tune 1", "reprise-tune 9"), 'line 1: reprise-tune is "9"'),
        (("end ", "end 1"), "line "),
    ],
)
def test_a_profile_that_does_not_hold_is_refused(profile, tmp_path, change, sentence):
    bad = tmp_path / "bad.txt"
    bad.write_text(profile.read_text().replace(*change, 1))
    done = explain(bad)
    assert done.returncode == FAILED and sentence in done.stderr.decode()
    assert f"{bad}, line " in done.stderr.decode()


def test_a_profile_of_another_model_or_device_is_refused(profile):
    done = explain(profile, model=OTHER)
    assert done.returncode == FAILED and b"a model of another shape" in done.stderr
    done = explain(profile, device=["--device", "emu"])
    assert done.returncode == FAILED and b"measured on another device" in done.stderr


def test_what_cannot_be_tuned():
    done = reprise("tune", MODEL, "-o", os.devnull)
    assert done.returncode == FAILED and b"works in the host's memory" in done.stderr
    assert reprise("tune").returncode == USAGE
    assert reprise("tune", MODEL, *P150, "--placement", "auto").returncode == USAGE


def test_a_pipe_and_a_link_stay_what_they_are(tmp_path):
    pipe, link, file = tmp_path / "pipe", tmp_path / "link", tmp_path / "file"
    os.mkfifo(pipe)
    link.symlink_to(file)
    end = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    for path in (pipe, link):
        answer("tune", MODEL, *P150, *SMALL, "-r", "1", "-q", "-o", path)
    assert pipe.is_fifo() and link.is_symlink()
    assert os.read(end, 1 << 16) == file.read_bytes() != b""
    os.close(end)


def test_a_place_that_cannot_be_written(tmp_path):
    path = tmp_path / "no" / "profile.txt"
    done = reprise("tune", MODEL, *P150, *SMALL, "-r", "1", "-o", path)
    assert done.returncode == FAILED and b"profile.txt cannot be written" in done.stderr


def test_an_interrupt_leaves_nothing(tmp_path):
    path = tmp_path / "profile.txt"
    args = [REPRISE, "tune", MODEL, *P150, "-np", "8", "-b", "512", "-r", "1000", "-o", path]
    with subprocess.Popen(args, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as p:
        with pytest.raises(subprocess.TimeoutExpired):
            p.wait(1)
        p.send_signal(signal.SIGINT)
        out, _ = p.communicate(timeout=30)
    assert p.returncode == INTERRUPTED and out == b"" and not list(tmp_path.iterdir())
