"""Vocabularies of the test models: byte-level BPE, spelled as GPT-2 spells bytes.

A special token comes first, then one token per byte, then longer pieces. Nothing here needs more
than the standard library; `add_to_gguf` takes the writer of the `gguf` package."""

NORMAL, CONTROL, UNUSED = 1, 3, 5  # GGUF's token types

SPECIALS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
END, IM_START, IM_END = range(3)

CHATML = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)


def byte_spelling():
    """The printable character that stands for each byte: itself where it is printable, else U+0100
    and up."""
    own = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    spelling, extra = {}, 0
    for byte in range(256):
        if byte in own:
            spelling[byte] = chr(byte)
        else:
            spelling[byte] = chr(0x100 + extra)
            extra += 1
    return spelling


SPELLING = byte_spelling()


def spell(raw):
    return "".join(SPELLING[b] for b in raw)


class Vocab:
    """Tokens by id. `size` fills up with unused tokens; `merges` are pairs of byte strings."""

    def __init__(self, alphabet=range(256), pieces=(), merges=(), size=None):
        self.raw = [s.encode() for s in SPECIALS] + [bytes([b]) for b in alphabet]
        self.merges = list(merges)
        for piece in [*pieces, *(a + b for a, b in self.merges)]:
            if piece not in self.raw:
                self.raw.append(piece)
        self.tokens = list(SPECIALS) + [spell(r) for r in self.raw[len(SPECIALS) :]]
        self.types = [CONTROL] * len(SPECIALS) + [NORMAL] * (len(self.tokens) - len(SPECIALS))
        for i in range(len(self.tokens), size or 0):
            self.tokens.append(f"[UNUSED_{i}]")
            self.types.append(UNUSED)
            self.raw.append(b"")

    def __len__(self):
        return len(self.tokens)

    def merges_spelled(self):
        return [f"{spell(a)} {spell(b)}" for a, b in self.merges]

    def id(self, piece):
        """Of a special token's text, a piece of text or bytes, or an id itself."""
        if isinstance(piece, int):
            return piece
        raw = piece.encode() if isinstance(piece, str) else piece
        if raw not in self.raw:
            raise KeyError(f"{piece!r} is no token of this vocabulary")
        return self.raw.index(raw)

    def bytes_of(self, ids):
        return b"".join(self.raw[i] for i in ids)


def byte_vocab(pieces=(), size=None):
    """Every byte, and the given pieces. One merge, of two bytes no text has, since readers want
    the list."""
    return Vocab(pieces=pieces, merges=[(b"\x00", b"\x01")], size=size)


def small_vocab():
    """64 tokens: the specials, lower case letters, digits, what JSON is written with, and one
    merge."""
    text = "abcdefghijklmnopqrstuvwxyz0123456789 \n.,:;!?'\"()-<>|_/{}[]=+"
    return Vocab(alphabet=text.encode(), merges=[(b"<", b">")], size=64)


def add_to_gguf(writer, tokens, types, merges, bos=IM_START, eos=IM_END, pad=END, template=CHATML):
    """`merges`: "left right" in the spelling of the tokens."""
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    if merges:
        writer.add_token_merges(merges)
    writer.add_bos_token_id(bos)
    writer.add_eos_token_id(eos)
    writer.add_pad_token_id(pad)
    writer.add_add_bos_token(False)
    writer.add_chat_template(template)
