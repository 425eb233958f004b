/* The vocabulary: what each id is written as, which bytes it stands for, and the way back from a
 * text to its id.
 *
 * Refuses: a text that two ids share, a type number outside the table, a score that is not a
 * number, a byte piece not written <0xXX>. */
#include "text/tokenizer_impl.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/map.h"
#include "base/utf8.h"

/* GPT-2 shows the bytes that print in Latin-1 as themselves, and the other 68 as U+0100 and up, in
 * order: 0x00..0x20, 0x7F..0xA0 and 0xAD. */
static uint32_t shown_as(unsigned byte) {
    if (byte <= 0x20) return 0x100 + byte;
    if (byte >= 0x7F && byte <= 0xA0) return 0x121 + (byte - 0x7F);
    return byte == 0xAD ? 0x143 : byte;
}

size_t rp__byte_level_char(unsigned char byte, char out[4]) {
    return rp__utf8_encode(shown_as(byte), out);
}

/* The way back: byte of each character below U+0144, -1 where there is none. */
static void fill_shown(int16_t byte_of[0x144]) {
    for (unsigned i = 0; i < 0x144; i++) byte_of[i] = -1;
    for (unsigned b = 0; b < 256; b++) byte_of[shown_as(b)] = (int16_t)b;
}

/* Writes the bytes that `text` shows; text as it is when a character shows none. Returns how many.
 */
static size_t unshow(const int16_t byte_of[0x144], rp__str text, char *out) {
    size_t n = 0;
    for (size_t i = 0; i < text.n;) {
        uint32_t cp;
        i += rp__utf8_decode(text.p + i, text.n - i, &cp);
        if (cp >= 0x144 || byte_of[cp] < 0) {
            memcpy(out, text.p, text.n);
            return text.n;
        }
        out[n++] = (char)byte_of[cp];
    }
    return n;
}

static size_t unescape_metaspace(rp__str text, char *out) {
    size_t n = 0;
    for (size_t i = 0; i < text.n; i++) {
        if (text.n - i >= 3 && !memcmp(text.p + i, "\xE2\x96\x81", 3)) {
            out[n++] = ' ';
            i += 2;
        } else {
            out[n++] = text.p[i];
        }
    }
    return n;
}

static int hex_digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return -1;
}

/* The byte of "<0x0A>"; -1 when not written so. */
static int byte_of_piece(rp__str s) {
    if (s.n != 6 || memcmp(s.p, "<0x", 3) || s.p[5] != '>') return -1;
    int hi = hex_digit(s.p[3]), lo = hex_digit(s.p[4]);
    return hi < 0 || lo < 0 ? -1 : hi * 16 + lo;
}

/* Fills p->bytes from p->text; returns how many bytes of `out` it took. */
static size_t decode_piece(rp__piece *p, rp__piece_form form, const int16_t byte_of[0x144],
                           char *out) {
    bool is_literal = rp__piece_is_control(p) ||
                      (p->type == RP_TOKEN_USER_DEFINED && form != RP_FORM_METASPACE_ALL);
    if (is_literal) {
        p->bytes = p->text;
        return 0;
    }
    size_t n;
    if (p->type == RP_TOKEN_BYTE) {
        *out = (char)byte_of_piece(p->text);
        n = 1;
    } else if (form == RP_FORM_BYTE_LEVEL) {
        n = unshow(byte_of, p->text, out);
    } else {
        n = unescape_metaspace(p->text, out);
    }
    p->bytes = (rp__str){out, n};
    return n;
}

static rp_status set_piece(rp__piece *p, const char *source, size_t i, const int32_t *types,
                           const float *scores, rp_error *err) {
    int32_t type = types ? types[i] : RP_TOKEN_NORMAL;
    if (type == 0) type = RP_TOKEN_NORMAL; /* GGUF's "undefined" */
    if (type < 0 || type > RP_TOKEN_BYTE)
        return rp__fail(err, RP_EFORMAT, "%s: token %zu has type %d, which is not in 1..6", source,
                        i, type);
    p->type = (uint8_t)type;
    p->score = scores ? scores[i] : 0;
    if (isnan(p->score))
        return rp__fail(err, RP_EFORMAT, "%s: the score of token %zu is not a number", source, i);
    if (type == RP_TOKEN_BYTE && byte_of_piece(p->text) < 0)
        return rp__fail(err, RP_EFORMAT,
                        "%s: token %zu is a byte but is written \"%.*s\", not <0xXX>", source, i,
                        (int)(p->text.n < 40 ? p->text.n : 40), p->text.p);
    return RP_OK;
}

/* ---- the way back ---- */

/* A slot is 8 bytes, as loading looks up every part of every merge and most of that time is cache
 * misses. Returns the slot of `text`, or the empty one where it belongs. */
static uint64_t *find_slot(const rp__pieces *v, rp__str text, uint64_t *tag) {
    uint64_t h = rp__hash_bytes(text.p, text.n, v->seed);
    *tag = h >> 32;
    for (size_t i = h & (v->index_cap - 1);; i = (i + 1) & (v->index_cap - 1)) {
        uint64_t *slot = &v->index[i];
        if (!*slot || (*slot >> 32 == *tag && rp__str_eq(v->p[(uint32_t)*slot - 1].text, text)))
            return slot;
    }
}

static bool make_index(rp__pieces *v, size_t n) {
    size_t cap = 16;
    while (cap / 2 < n)
        if (!rp__mul_ok(cap, 2, &cap)) return false;
    v->index = rp__calloc(cap, sizeof *v->index);
    v->index_cap = cap;
    /* Where memory lies is not known to whoever wrote the file, so neither is what collides. */
    v->seed = rp__hash_bytes(&v->index, sizeof v->index, 0);
    return v->index != NULL;
}

static rp_status index_piece(rp__pieces *v, const char *source, size_t i, rp_error *err) {
    rp__str text = v->p[i].text;
    if (text.n == 0) return RP_OK;
    uint64_t tag, *slot = find_slot(v, text, &tag);
    if (*slot)
        return rp__fail(err, RP_EFORMAT, "%s: tokens %u and %zu are both \"%.*s\"", source,
                        (uint32_t)*slot - 1, i, (int)(text.n < 40 ? text.n : 40), text.p);
    *slot = tag << 32 | (i + 1);
    if (text.n > v->longest) v->longest = text.n;
    return RP_OK;
}

int32_t rp__pieces_find(const rp__pieces *v, rp__str text) {
    uint64_t tag;
    if (text.n == 0 || text.n > v->longest) return -1;
    return (int32_t)(uint32_t)*find_slot(v, text, &tag) - 1;
}

int32_t rp__pieces_find_text(const rp__pieces *v, rp__str text) {
    int32_t id = rp__pieces_find(v, text);
    return id >= 0 && rp__piece_is_text(&v->p[id]) ? id : -1;
}

/* ---- building ---- */

static void find_bytes(rp__pieces *v, rp__piece_form form) {
    static const char hex[] = "0123456789ABCDEF";
    for (unsigned b = 0; b < 256; b++) {
        char text[8] = {'<', '0', 'x', hex[b >> 4], hex[b & 15], '>'};
        size_t n = 6;
        if (form == RP_FORM_BYTE_LEVEL) n = rp__byte_level_char((unsigned char)b, text);
        int32_t id = rp__pieces_find(v, (rp__str){text, n});
        bool fits = id >= 0 && (form == RP_FORM_BYTE_LEVEL ? !rp__piece_is_control(&v->p[id])
                                                           : v->p[id].type == RP_TOKEN_BYTE);
        v->byte_id[b] = fits ? id : -1;
    }
}

rp_status rp__pieces_init(rp__pieces *v, const char *source, const rp__str *texts, size_t n,
                          const int32_t *types, const float *scores, rp__piece_form form,
                          rp_error *err) {
    size_t total = 0, pool_bytes;
    for (size_t i = 0; i < n; i++)
        if (!rp__add_ok(total, texts[i].n, &total))
            return rp__fail(err, RP_ELIMIT, "%s: texts too long", source);
    if (!rp__mul_ok(total, 2, &pool_bytes))
        return rp__fail(err, RP_ELIMIT, "%s: texts too long", source);
    v->p = rp__calloc(n, sizeof *v->p);
    v->pool = rp__alloc(pool_bytes + 1);
    if (!v->p || !v->pool || !make_index(v, n))
        return rp__fail(err, RP_ENOMEM, "%s: out of memory for %zu tokens", source, n);
    v->n = n;
    int16_t byte_of[0x144];
    fill_shown(byte_of);
    char *text = v->pool, *bytes = v->pool + total;
    for (size_t i = 0; i < n; i++) {
        rp__piece *p = &v->p[i];
        if (texts[i].n) memcpy(text, texts[i].p, texts[i].n);
        p->text = (rp__str){text, texts[i].n};
        text += texts[i].n;
        RP_TRY(set_piece(p, source, i, types, scores, err));
        RP_TRY(index_piece(v, source, i, err));
        bytes += decode_piece(p, form, byte_of, bytes);
    }
    find_bytes(v, form);
    return RP_OK;
}

void rp__pieces_clear(rp__pieces *v) {
    rp__free(v->index);
    rp__free(v->p);
    rp__free(v->pool);
    *v = (rp__pieces){0};
}
