#!/usr/bin/env python3
"""Makes expected token ids with Hugging Face's `tokenizers`.

    tools/make_token_golden.py                  the fixtures in tests/fixtures/tokens
    tools/make_token_golden.py --vocab FOLDER   for whole vocabularies that tools/fetch_vocab.py brought

Fixtures: `texts.json` is a list of texts, `NAME.json` a small tokenizer.json of one kind (trained here on the same
texts), `NAME.ids.json` the ids of every text. Whole vocabularies: `random.json` is a list of 2,000 texts,
`NAME.random.json` their ids. Fixed seed; needs the test environment (tools/venv.sh).
"""

import argparse
import json
import sys
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, processors, trainers
from tokenizers import pre_tokenizers as pre

from token_strings import strings

FIXTURES = Path(__file__).resolve().parent.parent / "tests" / "fixtures" / "tokens"

# ---- the pre-tokenisers of model families, as their tokenizer.json says them ----

CONTRACTION = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
TAIL = r"\s*[\r\n]+|\s+(?!\S)|\s+"
LLAMA3 = CONTRACTION + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|" + TAIL
QWEN2 = CONTRACTION + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|" + TAIL
QWEN35 = CONTRACTION + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|" + TAIL
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
LEAD = r"[^\r\n\p{L}\p{N}]?"
TEKKEN = rf"{LEAD}{UPPER}*{LOWER}+|{LEAD}{UPPER}+{LOWER}*|\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|" + TAIL
GPT4O = (
    rf"{LEAD}{UPPER}*{LOWER}+{CONTRACTION}?|{LEAD}{UPPER}+{LOWER}*{CONTRACTION}?"
    rf"|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|" + TAIL
)
DEEPSEEK3 = [
    r"\p{N}{1,3}",
    "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"""
    r"""| ?[\p{P}\p{S}]+[\r\n]*|""" + TAIL,
]


def byte_level(use_regex, add_prefix_space=False):
    return pre.ByteLevel(add_prefix_space=add_prefix_space, use_regex=use_regex)


def split(*regexes, behavior="isolated", invert=False):
    parts = [pre.Split(Regex(r), behavior=behavior, invert=invert) for r in regexes]
    return pre.Sequence([*parts, byte_level(False)])


PRE = {
    "gpt-2": byte_level(True),
    "smollm": pre.Sequence([pre.Digits(individual_digits=True), byte_level(True)]),
    "llama-bpe": split(LLAMA3),
    "qwen2": split(QWEN2),
    "qwen35": split(QWEN35),
    "tekken": split(TEKKEN),
    "gpt-4o": split(GPT4O),
    "deepseek-v3": split(*DEEPSEEK3),
    "falcon": pre.Sequence(
        [
            pre.Punctuation("contiguous"),
            byte_level(True),
            pre.Digits(individual_digits=False),
            pre.Split(Regex("[0-9][0-9][0-9]"), "isolated"),
        ]
    ),
}

# ---- fixtures ----

BAR = "\u2581"
SPACE_AND_BYTES = decoders.Sequence(
    [decoders.Replace(BAR, " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
)
ADDED = [  # told apart by their flags
    AddedToken("<|im_start|>", special=True, normalized=False),
    AddedToken("<|im_end|>", special=True, normalized=False),
    AddedToken("<left>", special=True, normalized=False, lstrip=True),
    AddedToken("<right>", special=True, normalized=False, rstrip=True),
    AddedToken("<both>", special=False, normalized=False, lstrip=True, rstrip=True),
    AddedToken("word", special=False, normalized=False, single_word=True),
    AddedToken("<normal>", special=False, normalized=True),
    AddedToken("   ", special=False, normalized=True),
]
WITH_ADDED = [
    "a <|im_start|>user\nhi<|im_end|>\n<|im_start|>",
    "a  <left>  b  <right>  c  <both>  d",
    "<right>\n\n<left>\n\n<both>\u3000\u00a0<both>",
    "<left><right><both>",
    "word sword wordy _word word_ (word) \u00e9word word\u0301 word",
    "x<normal>y <normal> z   three    four",
    "<|im_start|",
    "<|im_<|im_end|>",
    " leading",
    "  two leading and trailing  ",
    "\u2581bar and \u2581\u2581 bars",
    "fi\ufb01 \u00bd e\u0301",
]


def frame(tok, text):
    names = sorted({w for w in text.split() if not w.startswith("$")})
    return processors.TemplateProcessing(single=text, special_tokens=[(n, tok.token_to_id(n)) for n in names])


def train(tok, texts, size, specials, alphabet):
    trainer = trainers.BpeTrainer(
        vocab_size=size, special_tokens=specials, initial_alphabet=alphabet, show_progress=False
    )
    tok.train_from_iterator(texts * 3, trainer)


def byte_level_fixture(name, texts, prefix=None, ignore_merges=False, normalizer=None, pre_tokenizer=None):
    tok = Tokenizer(models.BPE(ignore_merges=ignore_merges))
    tok.pre_tokenizer = pre_tokenizer or PRE[name]
    tok.decoder = decoders.ByteLevel()
    if normalizer:
        tok.normalizer = normalizer
    train(tok, texts, 420, ["<|begin|>", "<|end|>"], pre.ByteLevel.alphabet())
    tok.add_tokens(ADDED)
    tok.post_processor = processors.ByteLevel(trim_offsets=False)
    if prefix:
        tok.post_processor = processors.Sequence([tok.post_processor, frame(tok, prefix)])
    return tok


def char_fixture(texts, normalizer, pre_tokenizer, byte_fallback=True, fuse_unk=True, decoder=SPACE_AND_BYTES):
    specials = ["<unk>", "<s>", "</s>"]
    if byte_fallback:
        specials += [f"<0x{b:02X}>" for b in range(256)]
    tok = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=fuse_unk, byte_fallback=byte_fallback))
    if normalizer:
        tok.normalizer = normalizer
    if pre_tokenizer:
        tok.pre_tokenizer = pre_tokenizer
    tok.decoder = decoder
    plain = [t for t in texts if t.isascii()]
    train(tok, plain, len(specials) + 220, specials, [])
    tok = Tokenizer.from_str(without_byte_specials(tok))
    tok.add_tokens(ADDED)
    tok.post_processor = frame(tok, "<s> $A")
    return tok


def without_byte_specials(tok):
    """Training makes added tokens of the byte pieces; models keep them as pieces only."""
    data = json.loads(tok.to_str())
    data["added_tokens"] = [t for t in data["added_tokens"] if not t["content"].startswith("<0x")]
    return json.dumps(data)


def fixtures(texts):
    prepend = normalizers.Sequence([normalizers.Prepend(BAR), normalizers.Replace(" ", BAR)])
    metaspace = decoders.Metaspace(replacement=BAR, prepend_scheme="always")
    yield "gpt2-prefix-space", byte_level_fixture("", texts, pre_tokenizer=byte_level(True, True))
    yield "smollm", byte_level_fixture("smollm", texts)
    yield "llama3", byte_level_fixture("llama-bpe", texts, "<|begin|> $A", ignore_merges=True)
    yield "qwen2-nfc", byte_level_fixture("qwen2", texts, normalizer=normalizers.NFC())
    yield "qwen35", byte_level_fixture("qwen35", texts)
    yield "tekken", byte_level_fixture("tekken", texts, "<|begin|> $A <|end|>")
    yield "gpt-4o", byte_level_fixture(
        "", texts, pre_tokenizer=split(GPT4O, behavior="removed", invert=True)
    )
    yield "deepseek-v3", byte_level_fixture("deepseek-v3", texts)
    yield "llama2", char_fixture(texts, prepend, None)
    yield "metaspace-first", char_fixture(texts, None, pre.Metaspace(BAR, "first", split=False))
    yield (
        "metaspace-nfkc-unk",
        char_fixture(texts, normalizers.NFKC(), pre.Metaspace(BAR, "always", split=True), False, False, metaspace),
    )
    yield (
        "gemma",
        char_fixture(
            texts, normalizers.Replace(" ", BAR), pre.Split(" ", "merged_with_previous"),
            decoder=decoders.Sequence([decoders.Replace(BAR, " "), decoders.ByteFallback(), decoders.Fuse()]),
        ),
    )


def dump(path, value):
    path.write_text(json.dumps(value, separators=(",", ":")) + "\n")


def make_fixtures():
    FIXTURES.mkdir(parents=True, exist_ok=True)
    texts = WITH_ADDED + strings(180, 8)
    dump(FIXTURES / "texts.json", texts)
    for name, tok in fixtures(texts):
        (FIXTURES / f"{name}.json").write_text(tok.to_str() + "\n")
        dump(FIXTURES / f"{name}.ids.json", [tok.encode(t).ids for t in texts])


# ---- whole vocabularies ----


def read_gguf(path):
    from gguf import GGUFReader

    reader = GGUFReader(path)

    def get(key):
        field = reader.fields.get(f"tokenizer.ggml.{key}")
        return field.contents() if field else None

    return {k: get(k) for k in ("model", "pre", "tokens", "token_type", "scores", "merges")}


def special_tokens(v, *types):
    is_special = types != (4,)
    return [
        AddedToken(text, special=is_special, normalized=False)
        for text, kind in zip(v["tokens"], v["token_type"])
        if kind in types
    ]


def byte_level_from_gguf(v):
    vocab = {text: i for i, text in enumerate(v["tokens"])}
    merges = [tuple(m.split(" ")) for m in v["merges"]]
    tok = Tokenizer(models.BPE(vocab=vocab, merges=merges, ignore_merges=v["pre"] == "llama-bpe"))
    tok.pre_tokenizer = PRE[v["pre"]]
    tok.decoder = decoders.ByteLevel()
    return tok


def scores_from_gguf(v):
    """Every way to put a piece together is a merge; a piece's score ranks it."""
    scores = {t: s for t, s, kind in zip(v["tokens"], v["scores"], v["token_type"]) if kind == 1}
    ids = {text: i for i, text in enumerate(v["tokens"])}
    merges = []
    for text, score in scores.items():
        parts = [(text[:k], text[k:]) for k in range(1, len(text))]
        parts = [p for p in parts if p[0] in scores and p[1] in scores]
        merges += [(-score, p) for p in sorted(parts, key=lambda p: (ids[p[0]], ids[p[1]]))]
    merges.sort(key=lambda m: m[0])
    tok = Tokenizer(
        models.BPE(vocab=ids, merges=[p for _, p in merges], unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    )
    tok.normalizer = normalizers.Sequence([normalizers.Prepend(BAR), normalizers.Replace(" ", BAR)])
    tok.decoder = SPACE_AND_BYTES
    return tok


def make_random(folder):
    texts = strings(2000)
    dump(folder / "random.json", texts)
    paths = [folder / f"ggml-vocab-{n}.gguf" for n in ("llama-bpe", "qwen2", "gpt-2", "falcon", "llama-spm")]
    paths.append(folder.parent / "models" / "smollm2.gguf")
    for path in sorted(p for p in paths if p.is_file()):
        v = read_gguf(path)
        out = folder / f"{path.stem}.random.json"
        tok = scores_from_gguf(v) if v["model"] == "llama" else byte_level_from_gguf(v)
        for added in (special_tokens(v, 4), special_tokens(v, 2, 3)):
            if added:
                tok.add_tokens(added)
        dump(out, [tok.encode(t, add_special_tokens=False).ids for t in texts])
        print(f"make_token_golden.py: {out.name}", file=sys.stderr, flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vocab", type=Path, help="folder with whole vocabularies")
    args = parser.parse_args()
    make_random(args.vocab) if args.vocab else make_fixtures()


if __name__ == "__main__":
    main()
