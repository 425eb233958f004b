/* Tokenizers: byte-level BPE and SentencePiece BPE with byte fallback, from GGUF arrays or
 * tokenizer.json.
 *
 * Owns: the vocabulary, its merges, special tokens, pre-tokeniser. Read-only after create: may be
 * shared by threads. Untrusted input: vocabularies come from files. */
#ifndef RP_TEXT_TOKENIZER_H
#define RP_TEXT_TOKENIZER_H

#include "base/bytes.h"

typedef struct rp__tokenizer rp__tokenizer;

typedef enum rp__token_type { /* GGUF's numbers */
                              RP_TOKEN_NORMAL = 1,
                              RP_TOKEN_UNKNOWN,
                              RP_TOKEN_CONTROL,
                              RP_TOKEN_USER_DEFINED,
                              RP_TOKEN_UNUSED,
                              RP_TOKEN_BYTE
} rp__token_type;

/* What GGUF says (tokenizer.ggml.*). All views are copied or kept as the tokenizer needs; the
 * caller keeps its own. */
typedef struct rp__tokenizer_spec {
    const char *source; /* file name for messages */
    rp__str
        model;   /* "gpt2" (byte-level BPE), "llama" (SentencePiece BPE); others refused by name */
    rp__str pre; /* "llama-bpe", "smollm", "qwen2", "default", ...; unknown ones refused by name */
    const rp__str *tokens;
    size_t n_tokens;
    const float *scores;   /* NULL: none */
    const int32_t *types;  /* rp__token_type; NULL: all normal */
    const rp__str *merges; /* "left right" */
    size_t n_merges;
    int32_t bos, eos, eot, unk, pad; /* -1: none */
    int add_bos, add_eos,
        add_space_prefix;     /* -1: the file does not say, the model's default holds */
    bool strip_after_special; /* white space after a special token belongs to it (Phi-3, which GGUF
                                 cannot say) */
} rp__tokenizer_spec;

rp_status rp__tokenizer_create(const rp__tokenizer_spec *spec, rp__tokenizer **out, rp_error *err);
/* From the text of tokenizer.json and (may be empty) tokenizer_config.json. Pre-tokenisers,
 * normalisers, decoders and post-processors that are not understood are refused by name. */
rp_status rp__tokenizer_create_json(const char *source, rp__str tokenizer_json,
                                    rp__str tokenizer_config, rp__tokenizer **out, rp_error *err);
void rp__tokenizer_destroy(rp__tokenizer *t); /* NULL is fine */
/* One more id that ends a generation (generation_config.json names them). Before the tokenizer is
 * shared; false when the id is not in the vocabulary. */
bool rp__tokenizer_add_eog(rp__tokenizer *t, int32_t id);

typedef struct rp__ids { /* growing list of token ids; zeroed is ready; cleared with rp__ids_clear
                          */
    int32_t *p;
    size_t n, cap;
} rp__ids;
bool rp__ids_add(rp__ids *v, int32_t id);
void rp__ids_clear(rp__ids *v);

typedef struct rp__span {
    size_t begin, end;
} rp__span; /* bytes [begin, end) of a text */

typedef struct rp__encode_options {
    bool parse_special; /* the literal text of special tokens becomes those tokens */
    bool add_special; /* BOS/EOS as the model wants them; BOS is never doubled when the text already
                         begins with it */
    /* Where special tokens are not recognised (what a user wrote inside a template); sorted,
     * disjoint. */
    const rp__span *literal;
    size_t n_literal;
} rp__encode_options;

/* Appends the ids of `text` (any bytes; ill-formed UTF-8 is encoded byte by byte). */
rp_status rp__tokenizer_encode(const rp__tokenizer *t, rp__str text, const rp__encode_options *o,
                               rp__ids *out, rp_error *err);

int32_t rp__tokenizer_size(const rp__tokenizer *t);
int32_t rp__tokenizer_bos(const rp__tokenizer *t); /* -1: none */
int32_t rp__tokenizer_eos(const rp__tokenizer *t);
bool rp__tokenizer_adds_bos(const rp__tokenizer *t);
bool rp__tokenizer_is_eog(const rp__tokenizer *t,
                          int32_t id); /* ends a generation: EOS, EOT, <|im_end|>, ... */
bool rp__tokenizer_is_special(const rp__tokenizer *t, int32_t id); /* control tokens */
int32_t rp__tokenizer_find(const rp__tokenizer *t,
                           rp__str piece); /* id of the token written so in the vocabulary; -1 */
rp__str rp__tokenizer_text(const rp__tokenizer *t,
                           int32_t id); /* as the vocabulary writes it; for display */
/* The raw bytes the token stands for (may be part of a character). Special tokens give their
 * literal text. */
rp__str rp__tokenizer_bytes(const rp__tokenizer *t, int32_t id);

/* ---- ids back to text ---- */

/* Streaming: turns ids into whole characters. Zero it, set `tokenizer`, then add ids. Bytes that
 * can never become a character come out as U+FFFD; a character cut at the end waits until finish.
 * The leading space that SentencePiece models put before the first word is removed when `at_start`
 * is true. */
typedef struct rp__detokenizer {
    const rp__tokenizer *tokenizer;
    bool show_special; /* false: control tokens give nothing */
    bool at_start;     /* the next id begins a text */
    char pending[8];
    size_t n_pending;
} rp__detokenizer;

/* Appends what became complete. false when out of memory. */
bool rp__detokenizer_add(rp__detokenizer *d, int32_t id, rp__bytes *out);
bool rp__detokenizer_finish(rp__detokenizer *d, rp__bytes *out); /* the waiting rest, as U+FFFD */

/* Whole texts: exact bytes, no replacement (decode(encode(x)) == x for byte-level vocabularies). */
bool rp__tokenizer_decode(const rp__tokenizer *t, const int32_t *ids, size_t n, bool show_special,
                          rp__bytes *out);

#endif
