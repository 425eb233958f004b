"""Help, suggestions, the environment, refusals of wrong usage: nothing here needs a model that runs."""

import json
import re
import subprocess

import pytest

from cli import FAILED, REPRISE, USAGE, answer, environment, needs_reprise, refusal, reprise

pytestmark = needs_reprise

COMMANDS = ["run", "chat", "tokenize", "inspect", "explain", "devices", "bench", "version", "help", "serve"]


def test_help_lists_every_command():
    text = answer("--help")
    assert text == answer("help") == answer("-h")
    for command in COMMANDS:
        assert f"\n  {command} " in text


@pytest.mark.parametrize("command", [c for c in COMMANDS if c != "help"])
def test_help_of_a_command(command):
    text = answer(command, "--help")
    assert text == answer("help", command)
    assert text.startswith(f"reprise {command}: ") and f"usage: reprise {command}" in text
    assert max(map(len, text.splitlines())) <= 100
    assert text.count("-h, --help") == 1


def test_help_of_run_shows_both_dialects_defaults_and_variables():
    text = answer("run", "--help")
    for names in (
        "-m, --model MODEL",
        "-n, --max-tokens, --n-predict, --predict N",
        "-c, --max-model-len, --ctx-size N",
        "-np, --max-num-seqs, --parallel N",
        "--temperature, --temp T",
        "-s, --seed N",
    ):
        assert names in text
    assert "[default 0.8, env REPRISE_TEMPERATURE]" in text
    assert "--enforce-eager" in text and "--capture MODE" in text


def test_no_command_is_wrong_usage():
    done = reprise()
    assert done.returncode == USAGE
    assert done.stdout == b"" and b"usage: reprise COMMAND" in done.stderr


def test_version():
    assert answer("version") == answer("--version")
    assert json.loads(answer("version", "--json"))["version"] in answer("version")


def test_devices_self_test():
    # lint-allow: cpu, a device that is always there
    one = answer("devices", "--selftest", "cpu")
    assert one == "cpu: 100000 replays of 1 and of 513 integers, each input was seen\n"
    names = [line.split(":")[0] for line in answer("devices", "--selftest").splitlines()]
    assert names == [d["name"] for d in json.loads(answer("devices", "--json")) if d["usable"]]
    assert 'no device "abacus"' in refusal("devices", "--selftest", "abacus", status=FAILED)


def test_devices():
    text = answer("devices")
    for other in [answer("--list-devices"), answer("run", "--list-devices")]:
        # Free memory changes while one looks.
        assert re.sub(r"[\d.]+ [KMG]iB", "", other) == re.sub(r"[\d.]+ [KMG]iB", "", text)
    names = [d["name"] for d in json.loads(answer("devices", "--json"))]
    assert "cpu" in names and "emu" in names
    assert all(f"\n{name} " in text for name in names)


@pytest.mark.parametrize(
    "args, sentence",
    [
        ("rnu", "unknown command rnu; did you mean run?"),
        ("frobnicate", "unknown command frobnicate; `reprise help` lists them"),
        ("help tokenise", "unknown command tokenise; did you mean tokenize?"),
        ("-m x", "-m comes after a command: reprise run -m ..."),
        ("run --promt x", "unknown option --promt; did you mean --prompt?"),
        ("run --tensors", "--tensors is an option of `reprise inspect`, not of this command"),
        ("run -ngl 99", "-ngl is not an option here: the whole model runs on the device"),
        ("run -m", "-m needs a value: MODEL"),
        ("run -p x", "no model: give -m MODEL, a .gguf file, a model folder, or a short name"),
        ("run -n 12x", '-n needs a whole number from -1 to 2147483647, not "12x"'),
        ("run --temp hot", '--temp needs a number from 0 to 100, not "hot"'),
        ("run --top-p 2", '--top-p needs a number from 0 to 1, not "2"'),
        ("run --seed -2", '--seed needs a whole number of at least -1, not "-2"'),
        ("run --capture never", '--capture needs one of auto|on|off, not "never"'),
        ("run -m x -p=", "the prompt is empty"),
        ("run -m x -p a -f b", "given twice, by --prompt and by --file"),
        ("run -m x -p a b", 'unexpected argument "b"'),
        ("run -m x -p a --raw -sys b", "--raw uses no chat template"),
        ("run -m x -p a --logprobs 2", "--logprobs needs --json"),
        ("run -m x -p a --capture on --enforce-eager", "--capture on was given"),
        ("bench -m x -p 0 -n 0", "nothing to measure"),
        ("bench -m x -p 1,x", "-p needs whole numbers with commas between"),
        ("inspect", "no model: give -m MODEL"),
        ("devices cpu", 'unexpected argument "cpu"'),
    ],
)
def test_wrong_usage(args, sentence):
    assert sentence in refusal(*args.split(), status=USAGE)


@pytest.mark.parametrize("command", ["run", "chat", "tokenize", "inspect", "explain", "bench"])
def test_a_model_that_is_not_there(command, tmp_path):
    prompt = ["-p", "x"] if command in ("run", "tokenize") else []
    said = refusal(command, "-m", tmp_path / "no.gguf", *prompt, status=FAILED)
    assert "no.gguf" in said


@pytest.mark.parametrize("command", ["run", "inspect"])
def test_a_folder_without_config(command, tmp_path):
    prompt = ["-p", "x"] if command == "run" else []
    said = refusal(command, "-m", tmp_path, *prompt, status=FAILED)
    assert str(tmp_path) in said and "config.json" in said


def test_a_file_that_is_no_model(tmp_path):
    path = tmp_path / "text.gguf"
    path.write_text("This is no model.\n")
    assert "text.gguf" in refusal("run", "-m", path, "-p", "x", status=FAILED)


def test_files_that_cannot_be_read(tmp_path):
    said = refusal("run", "-m", "x", "-f", tmp_path / "no.txt", status=FAILED)
    assert said == f"cannot open {tmp_path / 'no.txt'}: No such file or directory"
    said = refusal("run", "-m", "x", "-p", "a", "--chat-template-file", tmp_path, status=FAILED)
    assert said == f"cannot read {tmp_path}: Is a directory"


def test_a_prompt_that_is_no_utf8():
    said = refusal("run", "-m", "x", "-p", b"ab\xff", status=FAILED)
    assert said == "the prompt is not valid UTF-8: byte 0xFF at offset 2"
    said = refusal("run", "-m", "x", "-f", "-", stdin=b"\xe4\xb8", status=FAILED)
    assert said == "the prompt is not valid UTF-8: byte 0xE4 at offset 0"


@pytest.mark.parametrize("stdin", [b"", b"\n"])
def test_an_empty_standard_input(stdin):
    assert refusal("run", "-m", "x", stdin=stdin, status=USAGE) == "the prompt is empty"


def test_the_environment_is_checked_like_arguments():
    said = refusal("run", "-p", "x", env=environment(REPRISE_MAX_TOKENS="many"), status=USAGE)
    assert said.startswith("REPRISE_MAX_TOKENS needs a whole number") and '"many"' in said


def test_bash_completion():
    ask = answer("--bash-completion")
    for words in ("reprise run --max-", "reprise ch", "reprise run --capture o"):
        last = len(words.split()) - 1
        ask += f"\nCOMP_WORDS=({words}) COMP_CWORD={last}; _reprise; echo ${{COMPREPLY[@]}}"
    done = subprocess.run(["bash", "-c", ask], capture_output=True, text=True)
    lines = done.stdout.splitlines()
    assert done.stderr == ""
    assert {"--max-tokens", "--max-model-len", "--max-num-seqs"} <= set(lines[0].split())
    assert lines[1:] == ["chat", "on off"]


def test_output_that_cannot_be_written():
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [REPRISE, "help"], stdout=full, stderr=subprocess.PIPE, env=environment()
        )
    assert done.returncode == FAILED
    said = b"reprise: cannot write to the standard output: No space left on device\n"
    assert done.stderr == said
