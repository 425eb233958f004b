"""`reprise run` on models whose answers are known to the letter."""

import fcntl
import json
import re
import signal
import struct
import subprocess
import termios
import time

import pytest

from cli import (
    FAILED,
    INTERRUPTED,
    REPRISE,
    answer,
    environment,
    figures,
    needs_reprise,
    refusal,
    reprise,
)

pytestmark = needs_reprise

# By the rule of the table model: each letter is followed by the next, a line end by "ok.", after which it ends.
AFTER_P = "qrstuvwxyz0123456789 \nok."


def run(model, *args, **kwargs):
    return reprise("run", "-m", model, "--temp", "0", *args, **kwargs)


def test_a_chat_model_gets_its_template(table):
    done = run(table, "-p", "hello")
    assert done.returncode == 0 and done.stdout == b"ok."


def test_raw_continues_the_prompt(table):
    assert run(table, "--raw", "-p", "p").stdout.decode() == AFTER_P
    assert run(table, "--raw", "-p", "p", "-n", "4").stdout == b"qrst"


def test_the_ways_to_give_a_prompt(table, tmp_path):
    path = tmp_path / "prompt.txt"
    path.write_text("p\n")
    for args, stdin in (
        (["-f", path], b""),
        (["-f", "-"], b"p\n"),
        (["-p", "-"], b"p"),
        ([], b"p\r\n"),
        (["--file", path], b"x"),
        (["p"], b""),
        (["--", "p"], b""),
    ):
        assert run(table, "--raw", *args, stdin=stdin).stdout.decode() == AFTER_P, args
    assert answer("run", table, "p", "--raw", "--temp", "0") == AFTER_P


def test_special_tokens_in_raw_text(table):
    """As text "<|im_end|>" is ten characters, none of which merge."""
    for more, n in (([], 3), (["--no-parse-special"], 12)):
        said = figures(run(table, "--raw", "-p", "e<|im_end|>e", *more).stderr)
        assert said["prompt"].startswith(f"{n} tokens")


def test_stop_strings(table):
    assert run(table, "--raw", "-p", "p", "--stop", "uv").stdout == b"qrst"
    assert run(table, "--raw", "-p", "p", "--stop", "zz", "--stop=st").stdout == b"qr"


def test_the_closing_figures(table):
    done = run(table, "-p", "hello")
    said = figures(done.stderr)
    assert list(said)[-5:] == ["model", "load", "prompt", "answer", "steps"]
    assert re.match(r"\d+ tokens, \d+\.\d+ s, \d+\.\d tokens/s", said["prompt"])
    assert re.match(r"\d+ tokens.* \(stop, seed \d+\)$", said["answer"])
    assert re.fullmatch(r"captures \d+, replays \d+, eager steps \d+", said["steps"])
    assert run(table, "-p", "hello", "-q").stderr == b""


def test_capture_off_never_replays_and_says_the_same(table):
    ways = [(["--capture", "off"], {}), (["--enforce-eager"], {}), ([], {"REPRISE_CAPTURE": "off"})]
    for args, env in ways:
        done = run(table, "--raw", "-p", "p", "-v", *args, env=environment(**env))
        assert done.stdout.decode() == AFTER_P
        assert figures(done.stderr)["steps"].startswith("captures 0, replays 0, eager steps ")
        assert b": capture is off" in done.stderr
    done = run(table, "--raw", "-p", "p", "--capture", "on")
    assert done.stdout.decode() == AFTER_P
    captures, replays, eager = map(int, re.findall(r"\d+", figures(done.stderr)["steps"]))
    assert captures >= 1 and replays > eager


def test_instruction_sets_on_the_emulated_device(table):
    emu = ["--device", "emu", "--raw", "-p", "p"]
    for args, env in ((["--isa", "generic"], {}), ([], {"REPRISE_ISA": "generic"})):
        done = run(table, *emu, *args, env=environment(**env))
        assert done.stdout.decode() == AFTER_P
        assert "generic bodies" in figures(done.stderr)["model"]
    done = run(table, *emu, "--isa", "z80")
    assert done.returncode == FAILED and b'isa "z80" is not available here' in done.stderr


def test_both_dialects(table):
    vllm = "--max-tokens 4 --temperature 0 --max-model-len 64 --max-num-seqs 2 --block-size 16"
    assert answer("run", "--raw", "--model", table, "--prompt", "p", *vllm.split()) == "qrst"
    llama = "--n-predict 4 --temp 0 -c 64 -no-cnv -t 1 -np 2 -ctk f32 -ctv f32 -b 16"
    assert answer("run", "-m", table, "-p", "p", *llama.split()) == "qrst"


def test_arguments_win_over_the_environment(table):
    env = environment(REPRISE_MODEL=table, REPRISE_N_PREDICT=2, REPRISE_RAW="on", REPRISE_TEMP=0)
    assert answer("run", "-p", "p", env=env) == "qr"
    assert answer("run", "-p", "p", "-n", "3", env=env) == "qrs"
    assert answer("run", "-p", "p", "--no-raw", env=env) == "ok"
    assert answer("run", "-p", "e", env=env | {"REPRISE_PROMPT": "p"}) == "fg"
    assert answer("run", env=env | {"REPRISE_PROMPT": "p"}) == "qr"


def test_json(table):
    said = json.loads(run(table, "-p", "hello", "--json", "--logprobs", "2").stdout)
    assert said["text"] == "ok." and said["finish_reason"] == "stop"
    assert [t["text"] for t in said["tokens"]] == ["o", "k", "."]
    assert said["completion_tokens"] == 4  # the end token was generated too
    first = said["tokens"][0]
    assert first["id"] == first["top"][0]["id"] and len(first["top"]) == 2
    assert first["logprob"] == pytest.approx(first["top"][0]["logprob"])


def test_the_seed_repeats_the_answer(table):
    """After "a" the table model draws b, c or d with 0.7, 0.2 and 0.1, and then "a" again."""
    args = ["run", "-m", table, "--raw", "-p", "a", "-n", "64", "--temp", "1"]
    args += ["--top-p", "1", "--min-p", "0"]
    first = answer(*args, "-s", "1")
    assert re.fullmatch("([bcd]a){32}", first)
    assert first == answer(*args, "--seed", "1") == answer(*args, "--capture", "off", "--seed=1")
    assert first != answer(*args, "-s", "2")


def test_templates_and_system_messages(table, tmp_path):
    template = tmp_path / "t.jinja"
    template.write_text("{% for m in messages %}{{ m.content }}{% endfor %}{{ last }}")
    args = ["run", "-m", table, "--temp", "0", "-n", "1", "-p", "g"]
    assert answer(*args, "--chat-template-file", template) == "h"
    assert answer(*args, "--chat-template", "{{ messages[0].content }}", "-sys", "r") == "s"
    kwargs = ["--chat-template-kwargs", '{"last": "u"}']
    assert answer(*args, "--chat-template-file", template, *kwargs) == "v"


def test_the_templates_own_refusal(table):
    template = "{{ raise_exception('no ' + messages[0].role) }}"
    said = refusal("run", "-m", table, "-p", "x", "--chat-template", template, status=FAILED)
    assert said == "the chat template refused: no user"


def test_a_prompt_longer_than_the_context(table):
    said = refusal("run", "-m", table, "--raw", "-p", "e" * 100, "-c", "64", status=FAILED)
    assert "100" in said and "64" in said


def start_endless(endless):
    command = [REPRISE, "run", "-m", endless, "--raw", "-p", "a", "--temp", "0", "-c", "200000"]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment()
    )
    assert process.stdout.read(4) == b"baba"
    return process


def test_the_reader_goes_away(endless):
    process = start_endless(endless)
    process.stdout.close()
    assert process.wait(timeout=10) == FAILED
    assert b"reprise: " not in process.stderr.read()
    process.stderr.close()


def test_one_interrupt_stops_the_answer(endless):
    process = start_endless(endless)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=10)
    assert process.returncode == INTERRUPTED
    assert re.fullmatch(b"a?(ba)*b?", out)  # what was read before may have ended after a b
    assert "(cancelled, " in figures(err)["answer"]


def wait_until_full(pipe):
    """Until nothing more goes in: the writer waits."""
    held, before = -1, -2
    while held != before:
        time.sleep(0.2)
        before = held
        (held,) = struct.unpack("i", fcntl.ioctl(pipe, termios.FIONREAD, b"\0" * 4))


def test_an_interrupt_while_a_write_waits_loses_nothing(endless):
    process = start_endless(endless)
    fcntl.fcntl(process.stdout, fcntl.F_SETPIPE_SZ, 4096)
    wait_until_full(process.stdout)
    process.send_signal(signal.SIGINT)
    time.sleep(0.2)  # the write sees the signal before there is room again
    out, err = process.communicate(timeout=10)
    assert process.returncode == INTERRUPTED and b"reprise: " not in err
    assert re.fullmatch(b"a?(ba)*b?", out) and len(out) > 1000
    assert "(cancelled, " in figures(err)["answer"]


def test_two_interrupts_end_at_once(endless):
    process = start_endless(endless)
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=10)
    assert process.returncode == INTERRUPTED
