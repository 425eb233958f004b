/* What the files of the tokenizer share; tokenizer.h is the face.
 *
 * A text becomes ids in five steps, one file each: special tokens are cut out (specials.c), what
 * lies between is normalised (normalizer.c) and split into words (splitter.c, with the patterns of
 * pretokenizer.c), and the symbols of a word are merged (merges.c). encode.c drives them. pieces.c
 * is the vocabulary. Everything here is written while a tokenizer is built and only read
 * afterwards. */
#ifndef RP_TEXT_TOKENIZER_IMPL_H
#define RP_TEXT_TOKENIZER_IMPL_H

#include "base/fail.h"
#include "text/tokenizer.h"

/* ---- pieces: the vocabulary ---- */

enum { /* flags of a piece; those of tokenizer.json's added tokens are named as there */
       RP_PIECE_LSTRIP = 1,      /* takes the white space before it */
       RP_PIECE_RSTRIP = 2,      /* takes the white space after it */
       RP_PIECE_SINGLE_WORD = 4, /* only between characters that are no part of a word */
       RP_PIECE_NORMALIZED = 8,  /* is looked for in the normalised text */
       RP_PIECE_EOG = 16         /* ends a generation */
};

typedef struct rp__piece {
    rp__str text;  /* as the vocabulary writes it */
    rp__str bytes; /* what it stands for */
    float score;
    uint8_t type; /* rp__token_type */
    uint8_t flags;
} rp__piece;

static inline bool rp__piece_is_control(const rp__piece *p) {
    return p->type == RP_TOKEN_CONTROL || p->type == RP_TOKEN_UNKNOWN;
}

/* Ordinary text may become this piece. */
static inline bool rp__piece_is_text(const rp__piece *p) {
    return !rp__piece_is_control(p) && p->type != RP_TOKEN_BYTE;
}

/* How a piece's text stands for bytes. */
typedef enum rp__piece_form {
    RP_FORM_BYTE_LEVEL,   /* every byte is one printable character (GPT-2's table) */
    RP_FORM_METASPACE,    /* U+2581 stands for a space; user-defined pieces are literal (GGUF) */
    RP_FORM_METASPACE_ALL /* as above, user-defined pieces too (tokenizer.json) */
} rp__piece_form;

typedef struct rp__pieces {
    rp__piece *p;
    size_t n;
    size_t longest; /* bytes of the longest text */
    uint64_t
        *index; /* text -> id: high half of the hash << 32 | id + 1, 0 is empty; open addressing */
    size_t index_cap; /* a power of two */
    uint64_t seed;
    int32_t byte_id[256]; /* the piece of a single byte; -1: none */
    char *pool;           /* all texts, then all bytes */
} rp__pieces;

/* Copies the texts. `types` and `scores` may be NULL. An empty text is allowed (a hole), a repeated
 * one is not. */
rp_status rp__pieces_init(rp__pieces *v, const char *source, const rp__str *texts, size_t n,
                          const int32_t *types, const float *scores, rp__piece_form form,
                          rp_error *err);
void rp__pieces_clear(rp__pieces *v);
int32_t rp__pieces_find(const rp__pieces *v, rp__str text); /* -1 when absent */
/* As above, only pieces that ordinary text may become. */
int32_t rp__pieces_find_text(const rp__pieces *v, rp__str text);

/* GPT-2's character for a byte, as UTF-8. Returns its length, 1 or 2. */
size_t rp__byte_level_char(unsigned char byte, char out[4]);

/* ---- merges ---- */

typedef struct rp__merges { /* (left id, right id) -> rank and the id of both together */
    struct rp__merge_slot *slots;
    size_t n, cap;
    uint64_t seed;
    int32_t last; /* what the latest merge made */
} rp__merges;

bool rp__merges_reserve(rp__merges *m, size_t n);
void rp__merges_put(rp__merges *m, int32_t left, int32_t right, uint32_t rank,
                    int32_t both); /* the first one stays */
/* One merge of a file into the table: both parts, and both together, must be pieces. One that
 * concerns control tokens is left out. */
rp_status rp__merges_add(rp__merges *m, const rp__pieces *v, const char *source, size_t rank,
                         rp__str left, rp__str right, rp_error *err);
void rp__merges_clear(rp__merges *m);

/* What a word's first symbols are and what joins them. */
typedef enum rp__merge_model {
    RP_MERGE_BYTES, /* bytes, joined by rank */
    RP_MERGE_CHARS, /* characters (bytes where the vocabulary lacks one), joined by rank */
    RP_MERGE_SCORES /* characters, joined by the score of the piece they make */
} rp__merge_model;

typedef struct rp__merger { /* working memory of one encode call; zeroed is ready */
    struct rp__symbol *symbols;
    size_t n_symbols, symbols_cap;
    struct rp__candidate *heap;
    size_t n_heap, heap_cap;
    rp__bytes scratch;
} rp__merger;

/* Appends the ids of one word. false when out of memory. O(n log n) in the length of the word. */
bool rp__merge_word(const rp__tokenizer *t, rp__merger *m, rp__str word, rp__ids *out);
/* Appends one byte that belongs to no character: its own piece, the unknown one, or nothing. */
bool rp__merge_byte(const rp__tokenizer *t, unsigned char byte, rp__ids *out);
void rp__merger_clear(rp__merger *m);

/* ---- splitting into words ---- */

enum { RP_MAX_STAGES = 6 };

typedef enum rp__stage_kind {
    RP_STAGE_REGEX,    /* matches and what lies between them are words */
    RP_STAGE_METASPACE /* a word begins at every U+2581 */
} rp__stage_kind;

typedef struct rp__splitter {
    struct {
        rp__stage_kind kind;
        void *code;
    } stage[RP_MAX_STAGES]; /* code: pcre2_code */
    size_t n_stages;
    void *general, *limits; /* pcre2_general_context, pcre2_match_context */
} rp__splitter;

rp_status rp__splitter_add_regex(rp__splitter *s, const char *pattern, rp_error *err);
rp_status rp__splitter_add_metaspace(rp__splitter *s, rp_error *err);
void rp__splitter_clear(rp__splitter *s);

typedef rp_status rp__word_fn(void *user, rp__str word, rp_error *err);
/* Gives every word of `text` (well-formed UTF-8 where there is a regex) to `fn`, in order, nothing
 * left out. RP_ELIMIT when the text cannot be matched within the limits. */
rp_status rp__splitter_run(const rp__splitter *s, rp__str text, rp__word_fn *fn, void *user,
                           rp_error *err);

/* ---- pre-tokenisers by name ---- */

typedef struct rp__pretokenizer {
    const char *name;                   /* of tokenizer.ggml.pre */
    const char *pattern[RP_MAX_STAGES]; /* stages; NULL ends */
    bool ignore_merges;                 /* a word that is a piece is taken whole */
    bool add_bos;                       /* when the file does not say */
} rp__pretokenizer;

const rp__pretokenizer *rp__pretokenizer_find(rp__str name); /* NULL: not known */
/* The known pattern that a regex of tokenizer.json means; NULL: not known. Sets *failed when out of
 * memory. */
const char *rp__pretokenizer_pattern(rp__str regex, bool *failed);
/* Every text is matched from end to end: nothing lies between two matches. */
bool rp__pattern_covers_all(const char *pattern);
extern const char rp__pattern_gpt2[], rp__pattern_digit[], rp__pattern_digits[],
    rp__pattern_punctuation[];

/* ---- normalising ---- */

enum { RP_MAX_NORMALIZERS = 8 };

typedef enum rp__normalizer_kind {
    RP_NORM_PREPEND,        /* `to` before every stretch of text */
    RP_NORM_PREPEND_UNLESS, /* unless it begins with `to` already */
    RP_NORM_PREPEND_FIRST,  /* as above, and only at the beginning of the whole text */
    RP_NORM_REPLACE,        /* every `from` by `to` */
    RP_NORM_UNICODE         /* a normalisation form: `form` holds utf8proc's options */
} rp__normalizer_kind;

typedef struct rp__normalizer {
    struct {
        rp__normalizer_kind kind;
        char from[16], to[16];
        int form;
    } op[RP_MAX_NORMALIZERS];
    size_t n;
} rp__normalizer;

/* RP_ELIMIT when there are too many operations or a string is too long; `from` may be empty. */
rp_status rp__normalizer_add(rp__normalizer *z, rp__normalizer_kind kind, rp__str from, rp__str to,
                             int form, rp_error *err);
bool rp__normalizer_is_empty(const rp__normalizer *z);
/* *text becomes the normalised text, a view of itself or of one of the two buffers. false when out
 * of memory. `is_first`: the stretch begins the whole text. Ill-formed bytes are kept. */
bool rp__normalizer_run(const rp__normalizer *z, bool is_first, rp__str *text, rp__bytes buffer[2]);

/* ---- special tokens ---- */

typedef struct rp__special {
    rp__str text; /* what is looked for */
    int32_t id;
    bool is_control;
} rp__special;

typedef struct rp__specials {
    rp__special *p; /* sorted by text, for a search that narrows byte by byte */
    size_t n;
    uint32_t first[257]; /* entries whose text begins with byte b: [first[b], first[b + 1]) */
    rp__bytes pool;
} rp__specials;

/* Those pieces of `v` that are looked for in raw text (`z` NULL), or in text that `z` has
 * normalised. */
rp_status rp__specials_init(rp__specials *s, const rp__pieces *v, const rp__normalizer *z,
                            rp_error *err);
void rp__specials_clear(rp__specials *s);
/* The longest one at text[at]; a control token only when it ends at or before `control_end`. NULL:
 * none. */
const rp__special *rp__specials_match(const rp__specials *s, rp__str text, size_t at,
                                      size_t control_end);

bool rp__is_white_space(uint32_t cp); /* Unicode's White_Space */

/* ---- the whole ---- */

enum { RP_MAX_FRAME_IDS = 8 };

struct rp__tokenizer {
    rp__pieces pieces;
    rp__merges merges;
    rp__merge_model model;
    rp__normalizer
        normalizer; /* of the text, before the special tokens of normalised text are cut out */
    rp__normalizer prefix; /* of what lies between those */
    rp__splitter splitter;
    rp__specials raw, normalized;
    int32_t bos, eos, unk;
    bool ignore_merges; /* a word that is a piece is taken whole */
    bool fuse_unk;      /* neighbouring unknown characters become one */
    bool strips_space;  /* decoding drops the space before the first word */
    int32_t prefix_ids[RP_MAX_FRAME_IDS],
        suffix_ids[RP_MAX_FRAME_IDS]; /* what add_special puts around a text */
    size_t n_prefix, n_suffix;
};

/* Marks the pieces that end a generation and builds the search for special tokens: the last step of
 * building. */
rp_status rp__tokenizer_finish(rp__tokenizer *t, int32_t eot, rp_error *err);

#endif
