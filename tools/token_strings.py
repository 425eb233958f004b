"""Random texts that tokenizers are compared on: the same ones on every machine for a seed.

What goes wrong in tokenizers is in here: runs of digits and white space, every kind of line end, composed and
decomposed accents, scripts without spaces, emoji with joiners, separators that are white space to some and not to
others, private use, control characters and NUL, contractions in odd case.
"""

import random

WORDS = " the| Hello| world| don't| I'VE| we'll| na\u00efve| HTTPServer| foo_bar| 1234567|The|of|and".split("|")
ACCENTS = "\u00e9|e\u0301|\u00f1|n\u0303|\u00c5|A\u030a|\ufb01|\u017f|'\u017f|'S|'ll|'RE|\u212a".split("|")
LINE_ENDS = ["\r\n", "\r\n\r\n", "\r", "\n", " \r\n "]
EMOJI = [
    "\U0001f468\u200d\U0001f469\u200d\U0001f467",
    "\U0001f999",
    "\U0001f44d\U0001f3fd",
    "\U0001f1e9\U0001f1ea",
    "\u2764\ufe0f",
]
SPACES = list("\u2028\u2029\u0085\u00a0\u3000\u180e\u200b\u2003\ufeff")
ODD = list("\ua000\ua48c\uac00\u2167\u00bd\u00b2\u0663\u01c5\u02b0\u00aa\u0130\u00df\u1e9e") + ["\u3072\u3089"]
SIGNS = ["//", "...", "!?", "</", "<|", "|>", "==", "\\n", "/\n", ".\n", "$+", "^`~", "\u2581", "<0x0A>"]
RANGES = [  # first, last, how many at most
    (0x20, 0x7E, 8),
    (0x30, 0x39, 9),
    (0x4E00, 0x9FA5, 4),
    (0x621, 0x64A, 5),
    (0xE01, 0xE3A, 4),
    (0xE000, 0xE0FF, 1),
    (0xAC00, 0xD7A3, 3),
    (0x00, 0x1F, 1),
]


def piece(rng):
    lists = [WORDS, ACCENTS, LINE_ENDS, EMOJI, SPACES, ODD, SIGNS]
    kind = rng.randrange(len(lists) + len(RANGES) + 2)
    if kind < len(lists):
        return rng.choice(lists[kind])
    kind -= len(lists)
    if kind < len(RANGES):
        first, last, most = RANGES[kind]
        return "".join(chr(rng.randint(first, last)) for _ in range(rng.randint(1, most)))
    if kind == len(RANGES):
        return "".join(rng.choice(" \t\n") for _ in range(rng.randint(1, 5)))
    return "".join(rng.choice("aeiouABtrsnlTHE") for _ in range(rng.randint(1, 10)))


def strings(n, most=12, seed=28):
    rng = random.Random(seed)
    return ["".join(piece(rng) for _ in range(rng.randint(1, most))) for _ in range(n)]
