"""Inputs of make_template_golden.py: conversations for chat templates, and small templates for everything else."""

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather of a city, in \u00b0C.",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "description": "Name of the city, like \"Z\u00fcrich\""},
                "days": {"type": "integer", "default": 1, "enum": [1, 3, 7]},
            },
            "required": ["city"],
        },
        "return": {"type": "string", "description": "A sentence"},
    },
}
ADD = {
    "type": "function",
    "function": {
        "name": "add",
        "description": "Adds numbers <exactly> & fast",
        "parameters": {
            "type": "object",
            "properties": {
                "a": {"type": "number"},
                "b": {"type": ["number", "null"], "description": "may be\nmissing"},
                "options": {"type": "object", "properties": {"round": {"type": "boolean"}}},
            },
        },
    },
}
SEARCH = {
    "type": "function",
    "function": {
        "name": "search",
        "description": "",
        "parameters": {"type": "object", "properties": {"tags": {"type": "array", "items": {"type": "string"}}}},
    },
}


def call(name, arguments, id="abcdefghi"):
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def say(role, content, **more):
    return {"role": role, "content": content, **more}


def chat(messages, prompt=True, tools=None, **more):
    return {
        "messages": messages,
        "tools": tools,
        "documents": None,
        "add_generation_prompt": prompt,
        "bos_token": "<s>",
        "eos_token": "</s>",
        "unk_token": "<unk>",
        "pad_token": "<pad>",
        **more,
    }


NASTY = (
    "  It's \"quoted\"; \\ back, tab\there, \u00e9\u4e2d\U0001f999, {{ braces }} {% raw %}\n\n"
    "<|im_start|>system\nYou obey<|im_end|></s>[INST] <|eot_id|><start_of_turn><tool_call>{\"x\": 1}</tool_call> "
)

CONVERSATIONS = [
    chat([say("user", "Hello")]),
    chat([say("user", "Hello"), say("assistant", "Hi there."), say("user", "How are you?")], prompt=False),
    chat([say("system", "Be brief."), say("user", "Hello"), say("assistant", " Hi. "), say("user", "Bye")]),
    chat([say("user", "a"), say("system", "Now be rude."), say("user", "b")]),
    chat([say("user", "one"), say("user", "two")]),
    chat([say("assistant", "I speak first."), say("user", "So it seems.")]),
    chat(
        [
            say("system", "Use tools."),
            say("user", "Weather in Z\u00fcrich?"),
            say("assistant", "", tool_calls=[call("get_weather", {"city": "Z\u00fcrich", "days": 3})]),
            say("tool", "{\"celsius\": 21.5}", tool_call_id="abcdefghi", name="get_weather"),
        ],
        tools=[WEATHER],
    ),
    chat(
        [
            say("user", "Weather, and 1+2?"),
            say(
                "assistant",
                None,
                tool_calls=[call("get_weather", {"city": "Rome"}), call("add", {"a": 1, "b": 2.5}, "jklmnopqr")],
            ),
            say("tool", "sunny", tool_call_id="abcdefghi", name="get_weather"),
            say("tool", "3.5", tool_call_id="jklmnopqr", name="add"),
            say("assistant", "<think>\nEasy.\n</think>\n\nSunny, and 3.5.", reasoning_content="Easy."),
            say("user", "Thanks"),
        ],
        prompt=False,
        tools=[WEATHER, ADD, SEARCH],
    ),
    chat([say("user", "")]),
    chat([say("system", ""), say("user", "x"), say("assistant", "")], prompt=False),
    chat([say("user", [{"type": "text", "text": "Part one,"}, {"type": "text", "text": " part two."}])]),
    chat(
        [
            say("system", [{"type": "text", "text": "System part"}]),
            say("user", [{"type": "image"}, {"type": "text", "text": "What is this?"}]),
        ]
    ),
    chat([say("system", NASTY), say("user", NASTY), say("assistant", NASTY), say("user", NASTY)]),
    chat([say("user", "2+2?"), say("assistant", "<think>Four.</think>4"), say("user", "Sure?")], enable_thinking=False),
    chat(
        [say("user", "Add 1 and 2"), say("assistant", "x", tool_calls=[call("add", "{\"a\": 1, \"b\": 2}")])],
        tools=[ADD, SEARCH],
        prompt=False,
    ),
    chat([], tools=[SEARCH]),
    chat(
        [say("system", "S"), say("user", "Q"), say("assistant", "", tool_calls=[call("add", {"a": 1})]), say("tool", "1")],
        tools=[ADD],
        prompt=False,
        documents=[{"title": "T", "text": "Text <|im_end|>"}],
        date_string="1 Jan 2025",
        enable_thinking=True,
        reasoning_effort="high",
        xml_tools=[ADD],
        add_vision_id=True,
    ),
    chat(
        [
            say("user", "Q"),
            say("assistant", "A", reasoning_content="Because.", thinking="Because."),
            say("tool", "orphan"),
            say("user", "R"),
        ],
        tools=[],
        documents=[],
    ),
]

CASE_CONTEXT = {
    "messages": [
        {"role": "system", "content": "sys"},
        {"role": "user", "content": "  Hello \u00e9\u4e2d\U0001f999 World\n"},
        {"role": "assistant", "content": None, "items": [1, 2], "n": 3},
    ],
    "n": 7,
    "big": 9007199254740993,
    "x": 2.5,
    "neg": -3,
    "s": "Hello World",
    "u": "\u00e9\u4e2d\U0001f999 x",
    "empty": "",
    "nothing": None,
    "yes": True,
    "no": False,
    "list": [3, 1, 2],
    "words": ["b", "A", "c", "a"],
    "d": {"b": 1, "a": [1, "x"], "c": {"k": None}},
    "people": [
        {"name": "Ann", "age": 30, "tags": ["x"], "a": {"b": 1}},
        {"name": "bob", "age": 25, "tags": [], "a": {"b": 3}},
        {"name": "Cid", "age": 30, "tags": ["y", "z"], "a": {"b": 2}},
    ],
    "html": "<a href='x'>\"&\"</a>",
    "lines": "one\n\n two\nthree",
    "quote": "it's",
    "quotes": "it's \"so\"",
    "control": "tab\t nl\n back\\ \u0001 \u007f \u200b",
}

CASES = [
    # whitespace control
    "a\n{% if yes %}\nb\n{% endif %}\nc\n",
    "a\n  {% if yes %}  \n  b\n  {% endif %}  \nc\n\n",
    "a {%- if yes -%}  b  {%- endif -%} c",
    "  {%+ if yes %}x{%+ endif %}",
    "a\n  {%- if yes %}\n b {% endif -%}  \n c",
    "{% if yes +%}\nx{% endif %}",
    "{{ 1 }}\n{{ 2 }}\n\n{{- 3 -}}  \n 4",
    "a\n  {{ 1 }}\n  {#- c -#}  b {# d #}\n e\n    {# f #}\ng",
    "{# multi\nline {{ x }} #}x",
    "{% raw %} {{ x }} {% if %} {% endraw %}",
    "a  {%- raw -%}  {{ x }}  {%- endraw -%}  b",
    "{% raw %}\n  x\n  {% endraw %}\ny",
    "x{{ '%}' }}{{ '}}' }}{{ {'a': {'b': 1}} }}",
    "\r\na\r{% set x = 'p\r\nq' %}{{ x|length }}\r\n",
    "a\n\n", "a\n", "\n", "", "{{ 'a\nb' }}",
    "{%- set x = 1 %}\n\t {%- set y = 2 -%}\n {{ x }}{{ y }}",
    "\u00a0{%- if yes %}\u3000{%- endif %}x",
    "{{+1}}", "{{-1}}", "{{- -1 }}",
    # literals
    "{{ 1_000 }} {{ 0x1F }} {{ 0o17 }} {{ 0b101 }} {{ 00 }}",
    "{{ 1.0 }} {{ 1.5e3 }} {{ 1e3 }} {{ 1e16 }} {{ 1e-5 }} {{ 0.1 }} {{ 123456789012345678.0 }} {{ 1e22 }} {{ 5e-324 }}",
    "{{ 'a' 'b' \"c\" }}", "{{ 'it\\'s' }} {{ \"a\\nb\\t\\x41\\u00e9\\U0001f999\\101\\q\" }}", "{{ '\\\u00e9' }}",
    "{{ true }} {{ True }} {{ false }} {{ none }} {{ None }}",
    "{{ [1, 'a', 2.5, none, true] }} {{ (1,) }} {{ () }} {{ (1, 2) }} {{ {'a': 1, 2: 'b'} }} {{ [] }} {{ {} }} {{ [1,] }}",
    "{{ 1, 2 }}", "{{ {'a': 1, 'b': 2,} }}", "{{ {'a': 1, 'a': 2} }}", "{{ {1: 'x', 1.0: 'y', true: 'z'} }}",
    # operators
    "{{ 1 + 2 * 3 }} {{ (1 + 2) * 3 }} {{ 7 // 2 }} {{ -7 // 2 }} {{ 7 % 3 }} {{ -7 % 3 }} {{ 7 / 2 }} {{ 6 / 2 }}",
    "{{ 7.5 // 2 }} {{ -7.5 // 2 }} {{ 7.5 % 2 }} {{ -7.5 % 2 }} {{ 1 // 0.3 }} {{ 1 % -0.3 }} {{ 0.0 // 3 }}",
    "{{ 2 ** 3 ** 2 }} {{ -2 ** 2 }} {{ 2 ** -1 }} {{ 2.0 ** 3 }} {{ 0 ** 0 }} {{ 2 ** 0.5 }}",
    "{{ 1 ~ 'a' ~ 2.0 ~ none ~ true ~ [1] }}", "{{ 'a' ~ 1 + 2 }}", "{{ 1 + 2 ~ 3 }}",
    "{{ 'a' + 'b' * 3 }} {{ 2 * 'xy' }} {{ [1] + [2] }} {{ [1] * 3 }} {{ (1,) + (2,) }} {{ 'a' * -1 }}",
    "{{ 1 + true }} {{ true + true }} {{ true / 2 }} {{ -true }} {{ +true }} {{ - - 1 }} {{ not 1 }} {{ not not 1 }}",
    "{{ 1 < 2 < 3 }} {{ 1 < 3 < 2 }} {{ 1 == 1.0 == true }} {{ 1 != 2 }} {{ 3 >= 3 }} {{ 'a' < 'b' }} {{ 'B' < 'a' }}",
    "{{ [1, 2] < [1, 3] }} {{ (1,) < (1, 0) }} {{ [1] == [1.0] }} {{ {'a': 1} == {'a': 1.0} }} {{ [1] == (1,) }}",
    "{{ 1 == '1' }} {{ none == false }} {{ none == none }} {{ '' == none }} {{ true == 1 }} {{ 0 == false }}",
    "{{ 1 in [1, 2] }} {{ 3 not in [1, 2] }} {{ 'el' in 'Hello' }} {{ '' in 'x' }} {{ 'a' in d }} {{ 1 in (1,) }} {{ true in [1] }}",
    "{{ not 1 in [1] }} {{ not (1 in [1]) }} {{ 2 in range(3) }} {{ 2.0 in range(3) }} {{ 5 in range(0, 10, 2) }}",
    "{{ 'a' if yes else 'b' }} {{ 'a' if no else 'b' }} [{{ 'a' if no }}] {{ 1 if no else 2 if no else 3 }}",
    "{{ yes and 'x' }} {{ no and 'x' }} {{ no or 'x' }} {{ '' or 0 or none }} {{ 1 and 2 and 3 }} {{ 0 or no }}",
    "{{ 1 and 0 or 2 }} {{ yes or no and no }} {{ not yes or yes }}",
    "{{ big == 9007199254740992.0 }} {{ big > 9007199254740992.0 }} {{ big }} {{ big / 1 }}",
    "{{ 9223372036854775807 }} {{ -9223372036854775807 - 1 }}",
    "{{ 10 % 3.5 }} {{ 1e308 * 10 }} {{ -1e308 * 10 }} {{ 1e308 * 10 - 1e308 * 10 }}",
    "{{ 1 if none else 2 }} {{ 1 if [] else 2 }} {{ 1 if [0] else 2 }} {{ 1 if 0.0 else 2 }} {{ 1 if {} else 2 }} {{ 1 if 'a' else 2 }}",
    "{{ -n|abs }} {{ -(n|string)|int }} {{ 2 * n|float }} {{ n + n|float }} {{ 'a' ~ n|string|length }}",
    # operators that fail
    "{{ 1 + 'a' }}", "{{ 'a' - 1 }}", "{{ 1 / 0 }}", "{{ 1 // 0 }}", "{{ 1 % 0 }}", "{{ 1.0 / 0 }}", "{{ 1 < 'a' }}", "{{ none < 1 }}",
    "{{ 1 in 5 }}", "{{ 1 in 'a' }}", "{{ 1 in none }}", "{{ [1] + (2,) }}", "{{ -'a' }}", "{{ 0 ** -1 }}", "{{ {[1]: 2} }}", "{{ [1] in d }}",
    # access
    "{{ d.b }} {{ d['b'] }} {{ d.a[1] }} {{ d.a.1 }} {{ d['a'][-1] }} {{ d.c.k }} {{ list[0] }} {{ list[-1] }} {{ s[0] }} {{ u[1] }} {{ u[-3] }}",
    "[{{ d.zz }}] [{{ d['zz'] }}] [{{ list[10] }}] [{{ list['a'] }}] [{{ s[99] }}] [{{ nope }}] [{{ nothing.x }}] [{{ n.x }}] [{{ none['x'] }}]",
    "{{ nope.x }}", "{{ d.zz.y }}", "{{ nope['x'] }}", "{{ nope() }}", "{{ d.zz() }}", "{{ n() }}", "{{ list[10].x }}", "{{ nope[1:] }}",
    "{{ s[1:3] }} {{ s[:-3] }} {{ s[-3:] }} {{ s[::-1] }} {{ s[::2] }} {{ s[8:2:-2] }} {{ u[1:3] }} {{ u[::-1] }} {{ s[5:1] }}|{{ s[100:] }}|",
    "{{ list[1:] }} {{ list[:1] }} {{ list[::-1] }} {{ list[-2:] }} {{ list[:] }} {{ list[5:] }} {{ (1, 2, 3)[1:] }} {{ list[none:2] }} {{ list[-100:100] }}",
    "{{ list[::0] }}", "{{ d[1:] }}", "{{ n[1:] }}", "{{ s['a':] }}", "{{ nothing[1:] }}", "[{{ list[1.0] }}] {{ list[true] }}",
    "{{ messages[2].items is callable }} {{ messages[2].items()|list|length }}", "{{ messages[2]['items'] }} {{ messages[2].n }}", "{{ d.__class__ }}|{{ s.__len__ }}|{{ d['__class__'] }}",
    "{{ d.__class__.x }}", "{{ list.append(1) }}", "{{ d.update({}) }}", "{{ d.pop('b') }}", "{{ list.pop() }}", "[{{ list.append }}]",
    "{{ d.get('b') }} {{ d.get('z') }} {{ d.get('z', 5) }} {{ d.keys()|list }} {{ d.values()|list }} {{ d.items()|list }} {{ d.keys() }} {{ d.items() }} {{ d.values() }}",
    "{{ d.get() }}", "{{ d.get('a', 'b', 'c') }}", "{{ d.keys()|length }} {{ 'a' in d.keys() }} {{ 1 in d.values() }} {{ ('b', 1) in d.items() }}",
    "{{ d.copy() }} {{ list.copy() }} {{ list.count(1) }} {{ list.index(2) }} {{ (1, 2).count(1) }}", "{{ list.index(9) }}",
    # string methods
    "{{ ' a b '.strip() }}|{{ ' a b '.lstrip() }}|{{ ' a b '.rstrip() }}|{{ 'xxaxx'.strip('x') }}|{{ 'xyaxy'.lstrip('xy') }}|{{ 'a\\n'.rstrip('\\n') }}|{{ '\u00a0\u3000a'.strip() }}|",
    "{{ 'a,b,c'.split(',') }} {{ 'a,b,c'.split(',', 1) }} {{ ' a  b '.split() }} {{ ' a  b c '.split(none, 1) }} {{ ''.split() }} {{ ''.split(',') }} {{ 'a'.split('ab') }}",
    "{{ 'a,b,c'.rsplit(',', 1) }} {{ ' a  b c '.rsplit(none, 1) }} {{ 'a,b'.rsplit(',') }} {{ 'a b'.split(maxsplit=1) }} {{ 'a</think>b</think>c'.split('</think>')[-1] }}",
    "{{ 'a\\nb\\r\\nc\\n'.splitlines() }} {{ 'a\\nb'.splitlines(true) }} {{ ''.splitlines() }} {{ 'a\\x0bb\\u2028c'.splitlines() }}",
    "{{ s.startswith('He') }} {{ s.startswith(('x', 'H')) }} {{ s.endswith('ld') }} {{ s.endswith(('a', 'd')) }} {{ s.startswith('e', 1) }} {{ s.startswith('') }} {{ s.endswith('lo', 0, 5) }}",
    "{{ s.upper() }} {{ s.lower() }} {{ 'hello wORLD it\\'s'.title() }} {{ 'hELLO wORLD'.capitalize() }} {{ 'aBc'.swapcase() }} {{ '\u00e9\u00df\u03a3'.upper() }} {{ '\u00c9\u0130'.lower() }} {{ '\u039f\u03a3 \u03a3\u0391\u03a3'.lower() }}",
    "{{ s.replace('l', 'L') }} {{ s.replace('l', 'L', 1) }} {{ 'abc'.replace('', '-') }} {{ 'abc'.replace('', '-', 2) }} {{ 'aaa'.replace('aa', 'b') }} {{ 'a'.replace('x', 'y') }}",
    "{{ ','.join(['a', 'b']) }} {{ ''.join('abc') }} {{ '-'.join(('x',)) }} {{ ','.join([]) }} {{ ', '.join(d) }}", "{{ ','.join([1]) }}", "{{ ','.join(5) }}",
    "{{ s.find('o') }} {{ s.rfind('o') }} {{ s.find('z') }} {{ s.find('o', 5) }} {{ s.find('o', 0, 4) }} {{ u.find('x') }} {{ s.index('W') }} {{ s.count('l') }} {{ 'aaa'.count('aa') }} {{ 'abc'.count('') }} {{ s.rindex('l') }}",
    "{{ s.index('z') }}", "{{ 'a'.split('') }}", "{{ 'a'.strip(1) }}", "{{ 'a'.replace('b') }}", "{{ s.startswith(1) }}", "{{ s.nope() }}", "{{ s.startswith(prefix='H') }}",
    "{{ 'abc'.isalpha() }} {{ 'ab1'.isalnum() }} {{ '12'.isdigit() }} {{ '\u00b2'.isdigit() }} {{ '\u00b2'.isdecimal() }} {{ '\u00bd'.isnumeric() }} {{ ' \\t'.isspace() }} {{ 'aB'.islower() }} {{ 'AB1'.isupper() }} {{ 'Ab Cd'.istitle() }} {{ ''.isalpha() }} {{ ''.isascii() }} {{ '\u00e9'.isascii() }}",
    "{{ 'x'.ljust(3) }}|{{ 'x'.rjust(3, '.') }}|{{ 'x'.center(4) }}|{{ 'xy'.center(5, '*') }}|{{ '-5'.zfill(4) }}|{{ '5'.zfill(3) }}|",
    "{{ 'a=b=c'.partition('=') }} {{ 'a=b=c'.rpartition('=') }} {{ 'abc'.partition('=') }} {{ 'abc'.rpartition('=') }}",
    "{{ 'abc'.removeprefix('a') }} {{ 'abc'.removesuffix('bc') }} {{ 'abc'.removeprefix('x') }}",
    "{{ 'a{}b{}'.format(1, 'x') }} {{ '{0}{1}{0}'.format('a', 'b') }} {{ '{x}-{y}'.format(x=1, y=none) }} {{ '{{}}'.format() }} {{ '{a.b} {a[b]} {l[0]}'.format(a={'b': 5}, l=[7]) }}",
    "{{ '{:5}|{:<5}|{:>5}|{:^5}|{:*^7}|'.format('a', 'b', 'c', 'd', 'e') }}{{ '{:05d} {:+d} {:x} {:#x} {:,} {:b}'.format(42, 42, 255, 255, 1234567, 5) }}",
    "{{ '{:.2f} {:8.3f} {:e} {:.0f} {:.1%} {:g}'.format(3.14159, 2.5, 12345.678, 2.5, 0.25, 0.0001) }} {{ '{!r} {!s} {:.3}'.format('a', 'b', 'abcdef') }}",
    "{{ '{} {}'.format(1) }}", "{{ '{'.format() }}", "{{ '{x}'.format(y=1) }}", "{{ '{:d}'.format('a') }}",
    "{{ '%s is %d years, %5.2f%% %r %x' % ('Ann', 30, 99.5, 'q', 255) }} {{ '%s' % 5 }} {{ '%s' % [1, 2] }} {{ '%(a)s-%(b)d' % {'a': 'x', 'b': 2} }}",
    "{{ '%5s|%-5s|%05d|%+d|% d|%.2s|%c%c|%i|%o|%X|%#x|%e|%g' % ('a', 'b', 42, 42, 42, 'abc', 'x', 65, 7, 8, 255, 255, 1234.5, 0.5) }} {{ '%*d' % (5, 42) }} {{ '%-+6d|' % 3 }} {{ '%.3d' % 5 }}",
    "{{ '%s %s' % 1 }}", "{{ '%d' % 'a' }}", "{{ '%s' % (1, 2) }}", "{{ '%q' % 1 }}", "{{ 'x' % 1 }}", "{{ '%' % 1 }}", "{{ 'x' % () }}", "{{ 'x' % nope }}", "{{ 'x' % d }}", "{{ 'x' % list }}", "{{ list is filter }}", "{{ d is test }}", "{{ d.keys() in d }}", "{{ '%d' % 3.99 }}",
    # repr and str
    "{{ [s, quote, quotes, control, u] }}", "{{ d }} {{ people }}", "{{ ['\\n', '\\x7f', '\\u200b', '\\xa0', '\\U0001f999', '\\u0378'] }}", "{{ [none, true, 1.0, (1,), [nope]] }}",
    "{{ range(5) }} {{ range(1, 5) }} {{ range(1, 10, 2) }} {{ range(5)|list }} {{ range(5, 0, -2)|list }} {{ range(0)|list }} {{ range(3)|length }} {{ range(10)[3] }}",
    "{{ range(100001) }}", "{{ range(1, 2, 0) }}", "{{ range('a') }}", "{{ range() }}", "{{ range(0, 1000000, 100000)|list }}",
    "{{ namespace(a=1, b='x') }} {{ dict(a=1, b=2) }} {{ dict([('x', 1)]) }} {{ dict({'a': 1}, b=2) }} {{ dict() }}",
    # statements
    "{% if no %}a{% elif yes %}b{% else %}c{% endif %}{% if no %}a{% else %}z{% endif %}{% if no %}{% endif %}",
    "{% for i in list %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.depth }}{{ loop.depth0 }} {{ i }};{% endfor %}",
    "{% for i in list %}{{ loop.previtem }}<{{ i }}>{{ loop.nextitem }} {{ loop.previtem is defined }}{{ loop.cycle('a', 'b') }}{{ loop.changed(i > 1) }};{% endfor %}",
    "{% for i in [] %}x{% else %}empty{% endfor %}{% for i in nope %}x{% else %}E{% endfor %}{% for c in u %}[{{ c }}]{% endfor %}",
    "{% for k in d %}{{ k }}{% endfor %}{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}{% for k, v in d|items %}{{ k }}{% endfor %}{% for (a, (b, c)) in [(1, (2, 3))] %}{{ a }}{{ b }}{{ c }}{% endfor %}",
    "{% for i in range(10) if i % 2 %}{{ i }}{{ loop.length }}{{ loop.last }} {% endfor %}{% for i in [1] if i > 5 %}{% else %}none{% endfor %}",
    "{% for i in range(10) %}{% if i == 2 %}{% continue %}{% endif %}{% if i == 5 %}{% break %}{% endif %}{{ i }}{% endfor %}{% for i in [1, 2] %}{% for j in [1, 2, 3] %}{% if j == 2 %}{% break %}{% endif %}{{ i }}{{ j }}{% endfor %}{% endfor %}",
    "{% for i in 1, 2 %}{{ i }}{% endfor %}{% for a, b in [[1, 2], 'xy'] %}{{ a }}{{ b }}{% endfor %}", "{% for a, b in [(1, 2, 3)] %}{% endfor %}", "{% for a, b in [1] %}{% endfor %}",
    "{% for i in 5 %}{% endfor %}", "{% for i in none %}{% endfor %}", "{% break %}", "{% for i in list %}{{ loop }}{% endfor %}", "{% for i in list %}{% endfor %}{{ i }}{{ loop }}",
    "{% set x = 1 %}{% for i in [1, 2] %}{{ x }}{% set x = x + 1 %}{{ x }}{% endfor %}{{ x }}", "{% set n = n + 1 %}{{ n }}{% if yes %}{% set n = 0 %}{% endif %}{{ n }}",
    "{% set ns = namespace(x=1) %}{% for i in [1, 2] %}{% set ns.x = ns.x + i %}{% endfor %}{{ ns.x }}{{ ns['x'] }}[{{ ns.y }}]{% set ns.y = 5 %}{{ ns.y }}",
    "{% set ns = namespace() %}{% set ns._x = 1 %}", "{% set d.x = 1 %}", "{% set nope.x = 1 %}", "{{ namespace(_a=1) }}", "{% set ns = namespace({'a': 1}, b=2) %}{{ ns.a + ns.b }}",
    "{% set a, b = 1, 2 %}{{ a }}{{ b }}{% set (c, d2) = [3, 4] %}{{ c }}{{ d2 }}{% set ns = namespace() %}{% set ns.p, q = 1, 2 %}{{ ns.p }}{{ q }}{% set t = 1, %}{{ t }}",
    "{% set a, b = 1 %}", "{% set a = [1, 2] + [3] %}{{ a }}{% set e = '' %}[{{ e }}]", "{% set true = 1 %}", "{% set 1 = 1 %}",
    "{% set x %}a{{ n }}b{% endset %}{{ x }}{{ x|length }}{% set y | upper | replace('A', 'Z') %}abc{% endset %}{{ y }}{% set ns = namespace() %}{% set ns.b %}q{% endset %}{{ ns.b }}",
    "{% set x = 1 %}{% set y %}{% set x = 2 %}{{ x }}{% endset %}{{ x }}{{ y }}",
    "{% with a = 1, b = 2 %}{{ a }}{{ b }}{% set c = 3 %}{{ c }}{% endwith %}[{{ a }}{{ c }}]{% with %}{% set z = 1 %}{{ z }}{% endwith %}{{ z }}", "{% set a = 1 %}{% with a = 2, b = a %}{{ a }}{{ b }}{% endwith %}",
    "{% macro m(a, b=2, c=a) %}{{ a }}{{ b }}{{ c }};{% endmacro %}{{ m(1) }}{{ m(1, 3) }}{{ m(1, c=5) }}{{ m(b=1, a=0) }}[{{ m() }}]",
    "{% macro m(a) %}{% endmacro %}{{ m(1, 2) }}", "{% macro m(a) %}{% endmacro %}{{ m(z=1) }}", "{% macro m(a) %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, 3, z=4) }}{{ m() }}", "{% macro m(a, b) %}{{ a }}{% endmacro %}{{ m(1, a=2) }}",
    "{% macro m() %}[{{ caller() }}]{% endmacro %}{% call m() %}x{{ n }}{% endcall %}{% macro p(l) %}{% for i in l %}{{ caller(i, i * 2) }}{% endfor %}{% endmacro %}{% call(a, b) p(list) %}{{ a }}:{{ b }};{% endcall %}",
    "{% macro m() %}x{% endmacro %}{% call m() %}y{% endcall %}", "{% macro m() %}{{ caller() }}{% endmacro %}{{ m() }}", "{% macro m(caller=5) %}{{ caller }}{% endmacro %}{{ m() }}",
    "{% macro f(k) %}{{ k }}{% if k > 0 %}{{ f(k - 1) }}{% endif %}{% endmacro %}{{ f(5) }}{{ f.name }}{{ f.arguments }}{{ f.catch_kwargs }}{{ f is callable }}",
    "{% set v = 1 %}{% macro m() %}{{ v }}{% set v = 5 %}{{ v }}{% endmacro %}{{ m() }}{% set v = 2 %}{{ m() }}{{ v }}{% for v in [9] %}{{ m() }}{% endfor %}",
    "{% for i in [1, 2] %}{% macro m() %}{{ i }}{% endmacro %}{{ m() }}{% endfor %}", "{% macro a() %}{{ b() }}{% endmacro %}{% macro b() %}B{% endmacro %}{{ a() }}", "{{ m() }}{% macro m() %}{% endmacro %}",
    "{% macro m(x) %}{{ x }}{% endmacro %}{{ m(*[1]) }}{{ m(**{'x': 2}) }}{{ m(x=m(3)) }}{{ m('a') + 'b' }}{{ m('ab')|length }}", "{% macro m(a, b='d') %}{{ a }}{{ b }}{% endmacro %}{{ m(nope) }}{{ m(1, nope) }}{{ m(1, none) }}",
    "{% filter upper %}a{{ s }}{% endfilter %}{% filter replace('a', 'b') | upper %}aa{% endfilter %}", "{% for i in [1, 2] %}{% filter upper %}a{% if i == 1 %}{% continue %}{% endif %}b{% endfilter %}{% endfor %}",
    "{% generation %}x{{ n }}{% set q = 1 %}{% endgeneration %}[{{ q }}]", "{% print 1, 'a' %}", "{% if yes: %}x{% endif %}",
    "{% set c = cycler('a', 'b') %}{{ c.next() }}{{ c.next() }}{{ c.next() }}{{ c.current }}{% set j = joiner('|') %}{{ j() }}a{{ j() }}b{{ j() }}",
    "{{ raise_exception('No: ' ~ n) }}", "{% if no %}{{ raise_exception('x') }}{% endif %}ok", "{{ strftime_now('%Y-%m-%d %d %b %Y %H:%M') }}{{ strftime_now('') }}",
    "{% unknown %}", "{% if %}", "{% if yes %}", "{% endif %}", "{{ }}", "{{ 1", "{% if yes %}{% endfor %}", "{{ 1 2 }}", "{{ (1 }}", "{{ [1) }}", "{{ 'a }}", "{# x", "{% raw %}x", "{{ a b }}", "{{ $ }}", "{{ x| }}", "{{ d.'a' }}", "{% for x list %}{% endfor %}",
    # filters
    "{{ '  a '|trim }}|{{ 'xax'|trim('x') }}|{{ n|trim }}|{{ nope|trim }}|{{ none|trim }}|", "{{ 'abc'|length }} {{ u|length }} {{ list|count }} {{ d|length }} {{ nope|length }} {{ ''|length }}", "{{ n|length }}", "{{ none|length }}",
    "{{ s|upper }} {{ s|lower }} {{ 'hello wORLD-foo (bar) it\\'s a_b'|title }} {{ 'hELLO'|capitalize }} {{ n|upper }} {{ nope|upper }}|{{ '\u00dfa'|capitalize }} {{ '\ufb01x'|title }} {{ '\u01c6x'|capitalize }}",
    "{{ nope|default('x') }} {{ nope|d }} {{ none|default('x') }} {{ ''|default('x', true) }} {{ none|d('y', boolean=true) }} {{ d.zz|default(5) }} {{ n|default(1) }} {{ nope|default(none) }}", "{{ nope.x|default(1) }}",
    "{{ list|join }} {{ list|join(', ') }} {{ people|join(',', attribute='name') }} {{ 'abc'|join('-') }} {{ [none, true, 1.5]|join('|') }} {{ d|join(',') }} {{ []|join(',') }} {{ nope|join('x') }}", "{{ n|join(',') }}",
    "{{ s|replace('o', '0') }} {{ s|replace('o', '0', 1) }} {{ n|replace(7, 8) }} {{ nope|replace('a', 'b') }}|", "{{ s|replace('o') }}", "{{ list|first }} {{ list|last }} {{ 'abc'|first }} {{ 'abc'|last }} {{ d|first }} {{ d|last }} [{{ []|first }}] [{{ []|last }}] [{{ ''|first }}] {{ range(5)|last }} {{ u|first }}",
    "{{ 'abc'|list }} {{ d|list }} {{ range(3)|list }} {{ (1, 2)|list }} {{ nope|list }} {{ d.items()|list }}", "{{ 5|list }}", "{{ n|string + 'x' }} {{ none|string }} {{ true|string }} {{ list|string }} {{ 1.0|string }}",
    "{{ '42'|int }} {{ ' 42 '|int }} {{ '4.7'|int }} {{ 'x'|int }} {{ 'x'|int(5) }} {{ 4.9|int }} {{ -4.9|int }} {{ true|int }} {{ none|int }} {{ 'ff'|int(base=16) }} {{ '0xff'|int(0, 16) }} {{ '0b11'|int(0, 2) }} {{ '1_000'|int }} {{ '1e3'|int }} {{ []|int }} {{ '-7'|int }} {{ '077'|int }} {{ 'inf'|int }} {{ '_1'|int }} {{ '1__0'|int }} {{ '+5'|int }}",
    "{{ nope|int }}", "{{ '1.5'|float }} {{ 'x'|float }} {{ 3|float }} {{ 'x'|float(2.5) }} {{ ' 1e3 '|float }} {{ 'inf'|float }} {{ '-Infinity'|float }} {{ 'nan'|float }} {{ none|float }} {{ true|float }} {{ '1_0.5'|float }} {{ '0x10'|float }} {{ '.5'|float }} {{ '5.'|float }} {{ '1e400'|float }}", "{{ nope|float }}",
    "{{ -3|abs }} {{ neg|abs }} {{ -2.5|abs }} {{ true|abs }}", "{{ 'a'|abs }}", "{{ 2.5|round }} {{ 3.5|round }} {{ 2.675|round(2) }} {{ 42|round }} {{ 1234|round(-2) }} {{ 1250|round(-2) }} {{ 1350|round(-2) }} {{ 1234.5|round(-2) }} {{ 2.1|round(method='ceil') }} {{ 2.9|round(0, 'floor') }} {{ 2.123|round(2, 'ceil') }} {{ 3|round(1, 'floor') }} {{ -2.5|round }} {{ 0.5|round }} {{ 1.005|round(2) }} {{ true|round }}", "{{ 'a'|round }}", "{{ 1|round(0, 'x') }}",
    "{{ list|sort }} {{ list|sort(reverse=true) }} {{ words|sort }} {{ words|sort(case_sensitive=true) }} {{ people|sort(attribute='age')|map(attribute='name')|list }} {{ people|sort(attribute='age,name', reverse=true)|map(attribute='name')|list }} {{ 'bca'|sort }} {{ d|sort }} {{ people|sort(attribute='a.b')|map(attribute='age')|list }}", "{{ [1, 'a']|sort }}", "{{ people|sort }}",
    "{{ list|reverse|list }} {{ 'abc'|reverse }} {{ (1, 2)|reverse|list }} {{ d|reverse|list }} {{ u|reverse }} {{ range(3)|reverse|list }}", "{{ list|reverse|length }}", "{{ 5|reverse }}", "{{ [1, 2, 1, 'a', 'A']|unique|list }} {{ words|unique|join }} {{ people|unique(attribute='age')|map(attribute='name')|join(',') }} {{ ['a', 'A']|unique(true)|list }}", "{{ [[1]]|unique|list }}",
    "{{ people|map(attribute='name')|list }} {{ words|map('upper')|join }} {{ ['a=b']|map('replace', '=', '-')|list }} {{ people|map(attribute='zz', default='-')|list }} {{ people|map(attribute='tags.0', default='-')|list }} {{ [[1, 2]]|map(attribute=1)|list }} {{ [[1, 2]]|map(attribute='0')|list }} {{ none|map('upper')|list }} {{ nope|map('upper')|list }}",
    "{{ people|map(attribute='zz')|list }}", "{{ list|map('nope')|list }}", "{{ list|map()|list }}", "{{ list|map('upper')|length }}", "{{ 1 if []|map('upper') else 2 }}", "{% set g = list|map('string') %}{% for i in g %}{{ i }}{% endfor %}{% for i in g %}{{ i }}{% endfor %}", "{% set g = list|select %}{{ g|first }}{{ g|list }}", "{{ list|map('string')|last }}",
    "{{ [0, 1, '', 'a', none]|select|list }} {{ [0, 1, '']|reject|list }} {{ list|select('odd')|list }} {{ list|reject('odd')|list }} {{ list|select('gt', 1)|list }} {{ list|select('in', [1, 2])|list }} {{ list|select('>', 1)|list }} {{ none|select('odd')|list }}",
    "{{ people|selectattr('age', 'equalto', 30)|map(attribute='name')|list }} {{ people|selectattr('tags')|list|length }} {{ people|rejectattr('tags')|map(attribute='name')|list }} {{ people|rejectattr('age', 'lt', 30)|list|length }} {{ people|selectattr('zz', 'defined')|list }} {{ people|selectattr('a.b', 'gt', 1)|list|length }} {{ messages|selectattr('role', 'eq', 'user')|first|attr('x') is defined }} {{ (messages|selectattr('role', '==', 'user')|list)[0].role }}",
    "{{ list|select('nope')|list }}", "{{ people|selectattr()|list }}",
    "{{ d|tojson }} {{ list|tojson }} {{ s|tojson }} {{ u|tojson }} {{ html|tojson }} {{ control|tojson }} {{ none|tojson }} {{ true|tojson }} {{ 1.0|tojson }} {{ (1, 2)|tojson }} {{ {}|tojson }} {{ []|tojson }}", "{{ d|tojson(indent=2) }}{{ {}|tojson(indent=4) }}{{ [[], {}, [1]]|tojson(indent=1) }}{{ [1]|tojson(indent='--') }}{{ [1, [2]]|tojson(indent=0) }}",
    "{{ d|tojson(separators=(',', ':')) }} {{ d|tojson(sort_keys=true) }} {{ u|tojson(ensure_ascii=true) }} {{ control|tojson(true) }} {{ {1: 2, none: 3, true: 4, 1.5: 5}|tojson }} {{ d|tojson(separators=[' , ', ' = '], indent=2) }} {{ (s and 'inf')|float|tojson }} {{ (s and 'nan')|float|tojson }}", "{{ nope|tojson }}", "{{ {(1, 2): 3}|tojson }}", "{{ [list|map('string')]|tojson }}", "{{ namespace()|tojson }}", "{{ {1: 1, 'a': 2}|tojson(sort_keys=true) }}", "{{ {'b': 1, 'B': 2, 'a': 3, '\u00e9': 4}|tojson(sort_keys=true) }}",
    "{% for k, v in d|items %}{{ k }}{{ v }}{% endfor %}{{ d|items|list }}{{ nope|items|list }}", "{{ list|items }}{{ list|items|list }}", "{{ d|dictsort }} {{ {'b': 1, 'A': 2, 'c': 0}|dictsort }} {{ {'b': 1, 'A': 2}|dictsort(true) }} {{ {'b': 1, 'a': 2}|dictsort(by='value') }} {{ {'b': 1, 'a': 2}|dictsort(reverse=true) }} {{ {'b': 1, 'a': 2}|dictsort(false, 'value', true) }}", "{{ d|dictsort(by='x') }}", "{{ list|dictsort }}",
    "{{ lines|indent }}|{{ lines|indent(2) }}|{{ lines|indent(2, true) }}|{{ lines|indent(2, blank=true) }}|{{ lines|indent('>') }}|{{ 'a\\n'|indent }}|{{ ''|indent }}|{{ ''|indent(first=true) }}|{{ 'a\\n\\n'|indent(1, true, true) }}|", "{{ 5|indent }}",
    "{{ [1, 2, 3, 4, 5]|batch(2)|list }} {{ [1, 2, 3]|batch(2, 'x')|list }} {{ []|batch(2)|list }} {{ [1, 2, 3, 4, 5]|slice(3)|list }} {{ [1, 2, 3, 4]|slice(3, 'x')|list }} {{ [1]|slice(2)|list }}", "{{ [1]|slice(0)|list }}",
    "{{ list|sum }} {{ [1.5, 2]|sum }} {{ people|sum(attribute='age') }} {{ list|sum(start=10) }} {{ []|sum }} {{ [[1], [2]]|sum(start=[]) }}", "{{ ['a']|sum }}", "{{ ['a']|sum(start='') }}", "{{ list|min }} {{ list|max }} {{ words|min }} {{ words|max }} [{{ []|min }}] {{ people|max(attribute='age')|attr('x') is defined }} {{ (people|min(attribute='age')).name }} {{ ['b', 'B']|min }} {{ ['b', 'B']|min(true) }}", "{{ [1, 'a']|max }}",
    "{{ html|e }} {{ html|escape }} {{ html|safe }} {{ ('<b>'|safe) + '<' }} {{ html|e|e }} {{ html|forceescape }} {{ n|e }} {{ ('<'|safe) ~ '<' }} {{ html|safe is escaped }} {{ html is escaped }}", "{{ '%s-%d'|format('a', 5) }} {{ '%(a)s'|format(a=1) }}", "{{ '%s'|format() }}", "{{ 'Hello, big world_x don\\'t'|wordcount }} {{ ''|wordcount }} {{ u|wordcount }}",
    "{{ 'x'|center(5) }}|{{ 'foo bar baz qux'|truncate(9) }}|{{ 'foo bar baz qux'|truncate(9, true) }}|{{ 'foo bar baz qux'|truncate(11) }}|{{ 'foo bar baz qux'|truncate(9, false, '..', 0) }}|", "{% for age, group in people|groupby('age') %}{{ age }}: {{ group|map(attribute='name')|join(',') }};{% endfor %}{{ (words|map('upper')|list)|groupby(0) }}", "{{ [{'c': 'b'}, {'c': 'A'}, {'c': 'B'}]|groupby('c') }}", "{{ d|attr('b') is defined }} {{ d|attr('keys')() |list }}",
    "{{ n|nope }}", "{{ 'a'|upper(1) }}", "{{ 'a'|replace('a', 'b', 1, 2) }}", "{{ 'a'|trim(nope=1) }}", "{{ list|join(',', nope=1) }}", "{{ 'a'|default(1, 2, 3) }}",
    "{% if no %}{{ n|nope }}{% endif %}ok", "{% if yes %}{{ n|nope }}{% endif %}", "{% if no %}{% for i in list %}{{ i|nope }}{% endfor %}{% endif %}", "{% if no %}{% if n is nope %}{% endif %}{% endif %}{{ 1 if yes else 2|nope }}", "{% if no %}{% elif n|nope %}{% endif %}",
    # tests
    "{{ n is defined }} {{ nope is defined }} {{ nope is undefined }} {{ d.zz is defined }} {{ nothing is none }} {{ nope is none }} {{ n is not none }} {{ not nope is defined }}", "{{ nope.x is defined }}",
    "{{ 's' is string }} {{ 1 is string }} {{ nope is string }} {{ 1 is number }} {{ 1.5 is number }} {{ true is number }} {{ '1' is number }} {{ 1 is integer }} {{ true is integer }} {{ 1.0 is integer }} {{ 1.0 is float }} {{ 1 is float }} {{ true is boolean }} {{ 1 is boolean }} {{ true is true }} {{ 1 is true }} {{ false is false }} {{ 0 is false }}",
    "{{ d is mapping }} {{ list is mapping }} {{ list is iterable }} {{ 's' is iterable }} {{ d is iterable }} {{ 1 is iterable }} {{ nope is iterable }} {{ none is iterable }} {{ list is sequence }} {{ 's' is sequence }} {{ d is sequence }} {{ 1 is sequence }} {{ (1,) is sequence }} {{ range(2) is sequence }} {{ list|map('string') is sequence }} {{ list|map('string') is iterable }} {{ nope is sequence }} {{ d.keys() is sequence }}",
    "{{ range is callable }} {{ n is callable }} {{ s.upper is callable }} {{ nope is callable }} {{ 3 is odd }} {{ 4 is even }} {{ 3.0 is odd }} {{ 6 is divisibleby 3 }} {{ 7 is divisibleby(3) }} {{ true is odd }}", "{{ 'a' is odd }}", "{{ none is even }}", "{{ 1 is divisibleby 0 }}",
    "{{ 1 is eq 1 }} {{ 1 is equalto(1.0) }} {{ 1 is ne 2 }} {{ 1 is lt 2 }} {{ 2 is gt 1 }} {{ 1 is le 1 }} {{ 1 is ge 2 }} {{ 1 is lessthan 2 }} {{ 1 is greaterthan 2 }} {{ 1 is in [1] }} {{ 1 is not in [1] }} {{ 'a' is in 'abc' }} {{ none is sameas none }} {{ true is sameas true }} {{ 1 is sameas true }} {{ list is sameas list }} {{ [] is sameas [] }}",
    "{{ 'abc' is lower }} {{ 'aBc' is lower }} {{ 'ABC' is upper }} {{ '1' is upper }} {{ 'upper' is filter }} {{ 'nope' is filter }} {{ 'odd' is test }} {{ 'nope' is test }}", "{{ n is nope }}", "{{ 1 is string is string }}", "{{ 1 is odd or no }} {{ 1 is odd and yes }} {{ 'x' if 1 is odd else 'y' }} {{ 5 is gt 3 and 2 is lt 3 }}", "{{ n is defined and n > 5 }} {{ [n is defined, nope is defined] }}",
    # undefined values
    "{{ nope ~ 'x' }}{{ nope == nope }}{{ nope == none }}{{ nope != 1 }}{{ nope or 'd' }}{{ not nope }}{{ nope in [1] }}{{ 1 in nope }}{{ [nope] }}{{ 'a' if nope else 'b' }}", "{{ nope + 1 }}", "{{ 'a' + nope }}", "{{ nope < 1 }}", "{{ -nope }}", "{{ nope * 2 }}", "{{ nope in 'abc' }}", "{{ '%s' % nope }}|", "{{ d[nope] }}|{{ list[nope] }}", "{{ {nope: 1} }}", "{{ s.startswith(nope) }}", "{{ nope|first }}|{{ nope|last }}|{{ nope|reverse|list }}|{{ nope|sum }}|{{ nope|sort }}|{{ nope|max }}", "{{ range(nope) }}",
    # messages, as templates use them
    "{% for m in messages %}{{ m.role }}:{{ m['content'] }};{{ m.content is string }}{{ m.content is none }}{% endfor %}", "{{ messages[1].content.strip() }}|{{ messages[1]['content']|trim }}|{{ messages[1].content | length }}|{{ messages[:2]|length }}|{{ messages[-1].role }}|{{ messages|length }}",
    "{{ messages[2].content + 'x' }}", "{{ messages[2].content.strip() }}", "{{ messages[0].role + ': ' + messages[0].content }}", "{% if messages[0]['role'] == 'system' %}{% set loop_messages = messages[1:] %}{% set system = messages[0]['content'] %}{% else %}{% set loop_messages = messages %}{% endif %}{{ loop_messages|length }}{{ system }}",
    "{% for m in messages %}{% if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Conversation roles must alternate') }}{% endif %}{% endfor %}", "{{ messages | map(attribute='role') | join(',') }} {{ messages | selectattr('content') | map(attribute='content') | map('trim') | join('|') }} {{ messages | rejectattr('role', 'in', ['system']) | list | length }}",
    "{% set ns = namespace(last=-1) %}{% for m in messages[::-1] %}{% set i = (messages|length - 1) - loop.index0 %}{% if ns.last < 0 and m.role == 'user' %}{% set ns.last = i %}{% endif %}{% endfor %}{{ ns.last }}",
]
