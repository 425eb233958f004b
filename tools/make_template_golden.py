#!/usr/bin/env python3
"""Writes what Python's jinja2 renders, for tests/text/template_test.c to compare with.

    tools/make_template_golden.py                 # rewrites tests/fixtures/template/*.json
    tools/make_template_golden.py --templates DIR --out FILE   # other templates, same conversations

The environment is the one that transformers gives chat templates: immutable sandbox, trim_blocks, lstrip_blocks, loop
controls, tojson without HTML escaping, raise_exception, strftime_now, and the generation tag. Needs jinja2 only.
Outcomes: a string; {"raise": text} from raise_exception; {"error": text} for everything else that fails.
"""
import argparse
import datetime
import json
import pathlib
import sys

import jinja2
import jinja2.ext
import jinja2.sandbox

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import template_cases  # noqa: E402

FIXTURES = pathlib.Path(__file__).parent.parent / "tests" / "fixtures" / "template"
NOW = 1721995200  # 2024-07-26 12:00:00 UTC; the C test uses the same


class Generation(jinja2.ext.Extension):
    """{% generation %}: a call block whose call yields its body."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        call = self.call_method("_body")
        return jinja2.nodes.CallBlock(call, [], [], body).set_lineno(line)

    def _body(self, caller):
        return caller()


class Namespace(jinja2.utils.Namespace):
    """Refuses names that begin with an underscore."""

    def __init__(*args, **kwargs):
        values = dict(*args[1:], **kwargs)
        for name in values:
            Namespace.check(name)
        jinja2.utils.Namespace.__init__(args[0], values)

    def __setitem__(self, name, value):
        Namespace.check(name)
        jinja2.utils.Namespace.__setitem__(self, name, value)

    @staticmethod
    def check(name):
        if isinstance(name, str) and name.startswith("_"):
            raise jinja2.exceptions.SecurityError(name)


def make_environment():
    env = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols]
    )

    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(
            value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
        )

    def strftime_now(format):
        return datetime.datetime.fromtimestamp(NOW, datetime.timezone.utc).strftime(format)

    env.filters["tojson"] = tojson
    env.globals.update(
        raise_exception=raise_exception, strftime_now=strftime_now, namespace=Namespace,
        dict=lambda *args, **kwargs: dict(*args, **kwargs),
    )
    return env


def outcome(env, source, context):
    try:
        return env.from_string(source).render(**context)
    except jinja2.exceptions.TemplateError as e:
        kind = "raise" if type(e) is jinja2.exceptions.TemplateError else "error"
        return {kind: str(e)}
    except Exception as e:  # Python's own errors pass through jinja2
        return {"error": f"{type(e).__name__}: {e}"}


def write(path, value):
    path.write_text(json.dumps(value, ensure_ascii=False, indent=0) + "\n", encoding="utf-8")


def write_conversations(env, templates, path):
    result = {"conversations": template_cases.CONVERSATIONS, "outcomes": {}}
    for template in sorted(templates.glob("*.jinja")):
        source = template.read_bytes().decode()
        result["outcomes"][template.name] = [
            outcome(env, source, context) for context in template_cases.CONVERSATIONS
        ]
    write(path, result)
    print(path, len(result["outcomes"]), "templates,", len(template_cases.CONVERSATIONS), "conversations")


def write_cases(env, path):
    context = template_cases.CASE_CONTEXT
    cases = [[source, outcome(env, source, context)] for source in template_cases.CASES]
    write(path, {"context": context, "cases": cases})
    print(path, len(cases), "cases")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--templates", type=pathlib.Path)
    parser.add_argument("--out", type=pathlib.Path)
    args = parser.parse_args()
    env = make_environment()
    if args.templates:
        write_conversations(env, args.templates, args.out)
        return
    write_conversations(env, FIXTURES, FIXTURES / "conversations.json")
    write_cases(env, FIXTURES / "cases.json")


if __name__ == "__main__":
    main()
