"""`reprise bench` and `reprise bench machine`: what their reports say, never how fast."""

import json

from cli import FAILED, USAGE, answer, needs_reprise, reprise
from project import ROOT

pytestmark = needs_reprise

MODEL = ROOT / "tests" / "fixtures" / "tiny" / "llama3.gguf"
FEW = ["-q", "-r", "1", "--json"]


def test_sequences_at_once_and_depth():
    options = ["-p", "8", "-n", "4", "-np", "3", "-d", "5", "--capture", "off"]
    prompt, answers = json.loads(answer("bench", MODEL, *FEW, *options))
    assert (prompt["test"], prompt["n_seqs"], prompt["n_depth"]) == ("pp8", 3, 0)
    assert (answers["test"], answers["n_seqs"], answers["n_depth"]) == ("tg4", 3, 5)
    assert prompt["tokens_per_second"] > 0 and answers["tokens_per_second"] > 0


def test_several_sequences_take_steps_together():
    """Alone, a request of 200 tokens takes 200 steps or more; four of them together much less than
    800, though they do not come at the same moment."""
    options = ["-p", "0", "-n", "200", "-np", "4", "--capture", "off"]
    (row,) = json.loads(answer("bench", MODEL, *FEW, *options))
    assert 200 <= row["eager_steps"] < 700


def test_too_many_sequences():
    done = reprise("bench", MODEL, "-np", "1000")
    assert done.returncode == USAGE
    assert b"1000 sequences at once (at most 256)" in done.stderr


def test_machine():
    report = json.loads(answer("bench", "machine", "-q", "-t", "1", "--read-mib", "8", "--json"))
    assert report["read_bytes"] == 8 << 20
    kinds = {(r["what"], r["how"]) for r in report["rows"]}
    assert {("read", "4K pages"), ("read", "huge pages"), ("f32", "generic")} < kinds
    for row in report["rows"]:
        assert row["threads"] == 1 and row["per_second"] > 0


def test_machine_table_has_each_number_of_threads():
    rows = answer("bench", "machine", "-q", "-t", "2", "--read-mib", "4").splitlines()
    reads = [r.split("|")[3].strip() for r in rows if r.startswith("| read")]
    assert reads == ["1", "1", "2", "2"]


def test_a_device_without_limits_says_so():
    done = reprise("bench", "machine", "--device", "emu")
    assert done.returncode == FAILED
    assert b"device emu does not measure its limits" in done.stderr
