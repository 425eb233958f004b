"""`reprise chat`: line by line from a pipe, and on a pseudo terminal."""

import os
import pty
import select
import signal
import time

import pytest

from cli import REPRISE, environment, figures, needs_reprise, reprise

pytestmark = needs_reprise


def chat(model, lines, *args):
    typed = "".join(f"{line}\n" for line in lines).encode()
    return reprise("chat", "-m", model, "--temp", "0", *args, stdin=typed)


def test_it_answers_line_by_line(table):
    done = chat(table, ["hello", "again", "/exit", "never"])
    assert done.returncode == 0 and done.stdout == b"ok.\nok.\n"


def test_the_history_is_kept_and_cleared(table):
    def prompt_tokens(*lines):
        return int(figures(chat(table, lines).stderr)["prompt"].split()[0])

    one, two = prompt_tokens("e"), prompt_tokens("e", "e")
    assert two > one
    assert prompt_tokens("e", "/clear", "e") == one
    assert prompt_tokens("e", "/regen") == one
    assert prompt_tokens("/system e", "e") > one


def test_commands(table):
    done = chat(table, ["/help", "/nonsense", "/stats", "/regen", "/system", "  "])
    assert done.returncode == 0 and done.stdout == b""
    said = done.stderr.decode()
    for part in ("/clear  ", "unknown command /nonsense", "[no answer yet]"):
        assert part in said
    for part in ("[nothing to answer again]", "[no system message]"):
        assert part in said


def test_lines_are_joined_and_a_failure_does_not_end_it(table):
    done = chat(table, ["e" * 90, "e\\", "e"], "-c", "64")
    assert done.returncode == 0 and done.stdout == b"ok.\n"
    assert done.stderr.count(b"reprise: ") == 1


class Terminal:
    """A child on a pseudo terminal; `wait_for` reads on until the text was shown."""

    def __init__(self, *args, **env):
        try:
            self.pid, self.fd = pty.fork()
        except OSError as why:
            pytest.skip(f"no terminal can be made here: {why}")
        if self.pid == 0:
            words = [str(a) for a in (REPRISE, *args)]
            os.execve(REPRISE, words, environment(TERM="xterm", **env))
        self.seen = ""

    def wait_for(self, text, seconds=20):
        end = time.monotonic() + seconds
        while text not in self.seen:
            assert time.monotonic() < end, f"no {text!r} in {self.seen[-2000:]!r}"
            self.seen += self.read(end).decode()
        before, self.seen = self.seen.split(text, 1)
        return before

    def type(self, text):
        os.write(self.fd, text.encode())

    def read(self, end):
        """What comes next; a child that says nothing until `end` is killed."""
        if select.select([self.fd], [], [], max(0, end - time.monotonic()))[0]:
            return os.read(self.fd, 1 << 16)
        os.kill(self.pid, signal.SIGKILL)
        raise AssertionError(f"nothing after {self.seen[-2000:]!r}")

    def end(self, seconds=20):
        end = time.monotonic() + seconds
        try:
            while self.read(end):
                pass
        except OSError:  # how Linux says that the other side is closed
            pass
        os.close(self.fd)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def test_an_interrupt_stops_the_answer_and_one_at_the_prompt_ends_it(endless):
    t = Terminal("chat", "-m", endless, "--temp", "0", "-c", "200000")
    t.wait_for("/help lists the commands")
    t.wait_for("\x1b[1;32m> ")
    t.type("hello\n")
    t.wait_for("bababa")
    t.type("\x03")
    t.wait_for("[stopped]")
    t.wait_for("> ")
    t.type("\x03")
    assert t.end() == 0


def test_no_color_and_the_end_of_input(endless):
    t = Terminal("chat", "-m", endless, NO_COLOR=1)
    assert "\x1b[1" not in t.wait_for("> ")
    t.type("\x04")
    assert t.end() == 0
