/* `reprise tokenize`: text to token ids, and back. */
#include <string.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "base/utf8.h"
#include "cli/cli.h"
#include "base/json_writer.h"

/* ---- text to ids ---- */

/* The bytes a token stands for inside a text. At a text's start some vocabularies drop a blank, so
 * the token is put twice and the second one taken. */
static void add_token_bytes(rp__bytes *out, rp_vocab *v, int32_t id) {
    char *once = NULL, *twice = NULL;
    size_t n_once = 0, n_twice = 0;
    if (rp_vocab_detokenize(v, &id, 1, true, &once, &n_once, NULL) == RP_OK &&
        rp_vocab_detokenize(v, (int32_t[]){id, id}, 2, true, &twice, &n_twice, NULL) == RP_OK)
        rp__bytes_add(out, twice + n_once, n_twice - n_once);
    rp_free(once);
    rp_free(twice);
}

/* In quotes on one line; a byte that is not part of a character here as \xNN. */
static void add_quoted(rp__bytes *b, const char *p, size_t n) {
    rp__bytes_add_char(b, '"');
    while (n) {
        uint32_t cp;
        size_t took = rp__utf8_decode(p, n, &cp);
        if (cp == '\n')
            rp__bytes_add_str(b, "\\n");
        else if (cp == '"' || cp == '\\')
            rp__bytes_printf(b, "\\%c", (int)cp);
        else if (cp != RP_UTF8_BAD && cp >= 0x20 && cp != 0x7f)
            rp__bytes_add(b, p, took);
        else
            for (size_t i = 0; i < took; i++) rp__bytes_printf(b, "\\x%02X", (unsigned char)p[i]);
        p += took;
        n -= took;
    }
    rp__bytes_add_char(b, '"');
}

static void add_token_json(rp__bytes *b, rp_vocab *v, int32_t id) {
    size_t n_piece = 0;
    const char *piece = rp_vocab_piece(v, id, &n_piece);
    rp__bytes text = {0};
    add_token_bytes(&text, v, id);
    rp__json_open(b, NULL, '{');
    rp__json_int(b, "id", id);
    rp__json_strn(b, "piece", piece ? piece : "", piece ? n_piece : 0);
    rp__json_open(b, "bytes", '[');
    for (size_t i = 0; i < text.n; i++) rp__json_int(b, NULL, (unsigned char)text.p[i]);
    rp__json_close(b, ']');
    rp__json_close(b, '}');
    if (text.failed) b->failed = true;
    rp__bytes_clear(&text);
}

static void add_token_line(rp__bytes *b, rp_vocab *v, int32_t id) {
    rp__bytes text = {0};
    add_token_bytes(&text, v, id);
    rp__bytes_printf(b, "%d\t", (int)id);
    add_quoted(b, text.p, text.n);
    rp__bytes_add_char(b, '\n');
    if (text.failed) b->failed = true;
    rp__bytes_clear(&text);
}

static void add_ids_json(rp__bytes *b, rp_vocab *v, const int32_t *ids, size_t n, bool pieces) {
    rp__json_open(b, NULL, '[');
    for (size_t i = 0; i < n; i++) {
        if (pieces)
            add_token_json(b, v, ids[i]);
        else
            rp__json_int(b, NULL, ids[i]);
    }
    rp__json_close(b, ']');
    rp__bytes_add_char(b, '\n');
}

static void add_ids_text(rp__bytes *b, rp_vocab *v, const int32_t *ids, size_t n, bool pieces) {
    for (size_t i = 0; i < n; i++) {
        if (pieces)
            add_token_line(b, v, ids[i]);
        else
            rp__bytes_printf(b, "%s%d", i ? " " : "", (int)ids[i]);
    }
    if (!pieces) rp__bytes_add_char(b, '\n');
}

static int print_ids(const rp__options *o, rp_vocab *v, const rp__bytes *text) {
    rp_error err = {0};
    int32_t *ids = NULL;
    size_t n = 0;
    rp__bytes out = {0};
    bool pieces = rp__options_on(o, RP_OPT_PIECES), bos = !rp__options_on(o, RP_OPT_NO_BOS);
    const char *p = text->p ? text->p : "";
    if (rp__cli_check_utf8("the text", p, text->n, &err)) return rp__cli_fail(&err);
    if (rp_vocab_tokenize(v, p, text->n, bos, rp__options_on(o, RP_OPT_PARSE_SPECIAL), &ids, &n,
                          &err) < 0)
        return rp__cli_fail(&err);
    if (rp__options_on(o, RP_OPT_JSON))
        add_ids_json(&out, v, ids, n, pieces);
    else
        add_ids_text(&out, v, ids, n, pieces);
    bool is_whole = !out.failed;
    if (is_whole) rp__cli_write(out.p, out.n);
    rp__bytes_clear(&out);
    rp_free(ids);
    return is_whole ? RP_CLI_OK : rp__cli_out_of_memory();
}

/* ---- ids to text ---- */

/* "1 2,3", "[1, 2]": numbers with blanks, commas or brackets between. */
static int parse_ids(const char *text, int32_t **out, size_t *n_out) {
    static const char between[] = " \t\r\n,[]";
    size_t cap = strlen(text) / 2 + 1, n = 0;
    rp_error err = {0};
    int32_t *ids = rp__realloc_array(NULL, cap, sizeof *ids);
    if (!ids) return rp__cli_out_of_memory();
    for (const char *p = text + strspn(text, between); *p; p += strspn(p, between)) {
        char word[24] = "";
        size_t n_word = strcspn(p, between);
        int64_t v = 0;
        memcpy(word, p, n_word < sizeof word ? n_word : sizeof word - 1);
        if (rp__parse_int("a token id", word, 0, INT32_MAX, &v, &err)) {
            rp__free(ids);
            return rp__cli_fail(&err);
        }
        ids[n++] = (int32_t)v;
        p += n_word;
    }
    *out = ids;
    *n_out = n;
    return RP_CLI_OK;
}

static int print_text(const rp__options *o, rp_vocab *v, const rp__bytes *input) {
    rp_error err = {0};
    int32_t *ids = NULL;
    char *text = NULL;
    size_t n = 0, n_text = 0;
    int code = parse_ids(input->p ? input->p : "", &ids, &n);
    if (code) return code;
    if (rp_vocab_detokenize(v, ids, n, rp__options_on(o, RP_OPT_PARSE_SPECIAL), &text, &n_text,
                            &err) < 0)
        code = rp__cli_fail(&err);
    else if (rp__options_on(o, RP_OPT_JSON)) {
        rp__bytes out = {0};
        rp__json_add_text(&out, text, n_text);
        rp__bytes_add_char(&out, '\n');
        if (out.failed)
            code = rp__cli_out_of_memory();
        else
            rp__cli_write(out.p, out.n);
        rp__bytes_clear(&out);
    } else {
        rp__cli_write(text, n_text);
    }
    rp_free(text);
    rp__free(ids);
    return code;
}

int rp__cli_tokenize(rp__options *o) {
    rp_error err = {0};
    rp_vocab *v = NULL;
    rp__bytes text = {0};
    const char *model = rp__cli_take_model(o);
    if (!model) return RP_CLI_USAGE;
    int code = rp__cli_take_prompt(o, &text, NULL);
    if (!code && !rp__cli_no_more_arguments(o)) code = RP_CLI_USAGE;
    if (!code && rp_vocab_open(model, &v, &err) < 0) code = rp__cli_fail(&err);
    if (!code)
        code =
            rp__options_on(o, RP_OPT_DETOKENIZE) ? print_text(o, v, &text) : print_ids(o, v, &text);
    rp_vocab_close(v);
    rp__bytes_clear(&text);
    return rp__cli_finish_output(code);
}
