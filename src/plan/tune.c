#include "plan/tune.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/options.h"
#include "device/op.h"

enum { FORMAT = 1, LONGEST_LINE = 400, WORDS = 12 };
#define MOST_US 1e12

bool rp__tune_takes(rp_op_kind kind) {
    return kind != RP_OP_KV_WRITE && kind != RP_OP_ATTENTION && kind != RP_OP_ADVANCE &&
           kind != RP_OP_FEED;
}

/* In nanoseconds, as the text has them: a profile that was read back decides the same. */
rp__side rp__tune_side(const rp__tune_row *row) {
    return llround(row->host_us * 1e3) < llround(row->device_us * 1e3) ? RP_SIDE_HOST
                                                                       : RP_SIDE_DEVICE;
}

/* ---- writing ---- */

static int in_order(const void *a, const void *b) {
    const rp__tune_row *x = a, *y = b;
    if (x->kind != y->kind) return x->kind < y->kind ? -1 : 1;
    if (x->width != y->width) return x->width < y->width ? -1 : 1;
    return x->rows < y->rows ? -1 : x->rows > y->rows;
}

void rp__tune_sort(rp__tune_row *rows, size_t n) {
    qsort(rows, n, sizeof *rows, in_order);
}

bool rp__tune_write(const rp__tune_about *a, const rp__tune_row *rows, size_t n, rp__bytes *out) {
    rp__bytes_printf(out, "reprise-tune %d\nbuild %s\ndevice %s\nidentity %s\nhost %s\n", FORMAT,
                     a->build, a->device, a->identity, a->host);
    rp__bytes_printf(out, "model %016" PRIx64 "\n", a->model);
    for (size_t i = 0; i < n; i++)
        rp__bytes_printf(
            out, "row %s rows %" PRId64 " width %" PRId64 " device_us %.3f host_us %.3f place %s\n",
            rp__op_name(rows[i].kind), rows[i].rows, rows[i].width, rows[i].device_us,
            rows[i].host_us, rp__side_name(rp__tune_side(&rows[i])));
    return rp__bytes_printf(out, "end %zu\n", n);
}

/* ---- reading ---- */

typedef struct reader {
    const char *source;
    rp__str rest;
    int line;
    char text[LONGEST_LINE]; /* of the line read last */
    rp_error *err;
} reader;

static rp_status fail_field(reader *r, const char *field, const char *found, const char *expected) {
    return rp__fail(r->err, RP_EFORMAT, "%s, line %d: %s is \"%.100s\", expected %s", r->source,
                    r->line, field, found, expected);
}

/* The next line into r->text, without its end. Everything in it is printable ASCII or UTF-8. */
static rp_status next_line(reader *r) {
    const char *end = r->rest.n ? memchr(r->rest.p, '\n', r->rest.n) : NULL;
    r->line++;
    if (!end)
        return rp__fail(r->err, RP_EFORMAT, "%s, line %d: the file is cut short: no line \"end\"",
                        r->source, r->line);
    size_t n = (size_t)(end - r->rest.p);
    if (n >= sizeof r->text)
        return rp__fail(r->err, RP_EFORMAT, "%s, line %d: %zu bytes long, expected at most %d",
                        r->source, r->line, n, LONGEST_LINE - 1);
    memcpy(r->text, r->rest.p, n);
    r->text[n] = 0;
    r->rest = (rp__str){end + 1, r->rest.n - n - 1};
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)r->text[i] < ' ')
            return rp__fail(r->err, RP_EFORMAT, "%s, line %d: byte %zu is a control character (%d)",
                            r->source, r->line, i + 1, r->text[i]);
    return RP_OK;
}

/* "key value": the value as it stands must be `expected`. `why` says what it means when not. */
static rp_status expect(reader *r, const char *key, const char *expected, const char *why) {
    size_t n = strlen(key);
    char quoted[LONGEST_LINE + 160];
    RP_TRY(next_line(r));
    if (strncmp(r->text, key, n) || r->text[n] != ' ') {
        snprintf(quoted, sizeof quoted, "\"%s ...\"", key);
        return fail_field(r, "the line", r->text, quoted);
    }
    if (!strcmp(r->text + n + 1, expected)) return RP_OK;
    snprintf(quoted, sizeof quoted, "\"%.100s\": %s", expected, why);
    return fail_field(r, key, r->text + n + 1, quoted);
}

static rp_status read_about(reader *r, const rp__tune_about *a) {
    char format[8], model[24];
    snprintf(format, sizeof format, "%d", FORMAT);
    snprintf(model, sizeof model, "%016" PRIx64, a->model);
    RP_TRY(expect(r, "reprise-tune", format, "this build reads no other format"));
    RP_TRY(expect(r, "build", a->build, "the profile is stale, tune again"));
    RP_TRY(expect(r, "device", a->device, "it was measured on another device"));
    RP_TRY(expect(r, "identity", a->identity, "it was measured on another device"));
    RP_TRY(expect(r, "host", a->host, "it was measured beside another host"));
    return expect(r, "model", model, "it was measured with a model of another shape");
}

/* Parts r->text at single blanks. False when there are more or fewer than n words. */
static bool part_words(reader *r, char *word[], int n) {
    int found = 0;
    for (char *p = r->text; p; found++) {
        if (found == n) return false;
        word[found] = p;
        if ((p = strchr(p, ' '))) *p++ = 0;
    }
    return found == n;
}

static rp_status read_kind(reader *r, const char *name, rp_op_kind *kind) {
    for (int i = 0; i < RP_N_OPS; i++)
        if (!strcmp(name, rp__op_name((rp_op_kind)i)) && rp__tune_takes((rp_op_kind)i)) {
            *kind = (rp_op_kind)i;
            return RP_OK;
        }
    return fail_field(r, "op", name, "an op that is placed by its size");
}

static rp_status read_size(reader *r, const char *field, const char *text, int64_t *out) {
    if (text[0] != '+' && rp__parse_int(field, text, 1, 1e15, out, NULL) == RP_OK) return RP_OK;
    return fail_field(r, field, text, "a whole number from 1 on");
}

static rp_status read_us(reader *r, const char *field, const char *text, double *out) {
    if (rp__parse_number(field, text, 0, MOST_US, out, NULL) == RP_OK) return RP_OK;
    return fail_field(r, field, text, "microseconds from 0 on");
}

static const char row_form[] = "\"row OP rows N width N device_us T host_us T place PLACE\"";

static rp_status read_row(reader *r, rp__tune_row *row) {
    static const char *const keys[WORDS] = {"row",       NULL, "rows",    NULL, "width", NULL,
                                            "device_us", NULL, "host_us", NULL, "place", NULL};
    char *word[WORDS], whole[LONGEST_LINE];
    snprintf(whole, sizeof whole, "%s", r->text);
    if (!part_words(r, word, WORDS)) return fail_field(r, "the line", whole, row_form);
    for (int i = 0; i < WORDS; i += 2)
        if (strcmp(word[i], keys[i])) return fail_field(r, "the line", whole, row_form);
    RP_TRY(read_kind(r, word[1], &row->kind));
    RP_TRY(read_size(r, keys[2], word[3], &row->rows));
    RP_TRY(read_size(r, keys[4], word[5], &row->width));
    RP_TRY(read_us(r, keys[6], word[7], &row->device_us));
    RP_TRY(read_us(r, keys[8], word[9], &row->host_us));
    const char *place = rp__side_name(rp__tune_side(row));
    if (strcmp(word[11], place)) {
        char expected[64];
        snprintf(expected, sizeof expected, "%s, which is faster by its times", place);
        return fail_field(r, keys[10], word[11], expected);
    }
    return RP_OK;
}

static rp_status add_rule(reader *r, const rp__tune_row *row, rp__placement *out) {
    char rule[128];
    snprintf(rule, sizeof rule, "%s:rows>=%" PRId64 ",width=%" PRId64 "=%s", rp__op_name(row->kind),
             row->rows, row->width, rp__side_name(rp__tune_side(row)));
    return rp__placement_add(out, rule, RP_PLACE_TUNED, r->err);
}

/* Rows up to the line that counts them. */
static rp_status read_rows(reader *r, rp__placement *out) {
    rp__tune_row last = {0}, row;
    char end[32];
    for (size_t n = 0;; n++) {
        RP_TRY(next_line(r));
        snprintf(end, sizeof end, "end %zu", n);
        if (!strncmp(r->text, "end", 3) && strcmp(r->text, end))
            return fail_field(r, "the line", r->text, end);
        if (!strcmp(r->text, end)) break;
        RP_TRY(read_row(r, &row));
        if (n && in_order(&last, &row) >= 0)
            return rp__fail(r->err, RP_EFORMAT,
                            "%s, line %d: row %s of %" PRId64 " rows, width %" PRId64
                            ", does not come after the one before: rows stand by op, width, rows",
                            r->source, r->line, rp__op_name(row.kind), row.rows, row.width);
        RP_TRY(add_rule(r, &row, out));
        last = row;
    }
    if (!r->rest.n) return RP_OK;
    return rp__fail(r->err, RP_EFORMAT, "%s, line %d: %zu bytes after the end", r->source,
                    r->line + 1, r->rest.n);
}

rp_status rp__tune_read(const char *source, rp__str text, const rp__tune_about *expected,
                        rp__placement *out, rp_error *err) {
    rp_error local;
    reader r = {.source = source, .rest = text, .err = err ? err : &local};
    RP_TRY(read_about(&r, expected));
    return read_rows(&r, out);
}
