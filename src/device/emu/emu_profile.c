/* Cost profiles of the virtual clock: small texts of "key value" and "key op value" lines, '#'
 * starts a comment.
 *
 * Refuses: unknown keys and ops, numbers that are not finite or are negative, with source and line.
 * The shipped ones are the files in profiles/, embedded by the build as rp__emu_profile_texts. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "device/emu/emu_impl.h"
#include "device/op.h"

enum { MAX_PROFILE_BYTES = 64 * 1024 };

static const char *const cost_names[RP_EMU_N_COSTS] = {
#define RP_X(key) #key,
    RP_EMU_COSTS(RP_X)
#undef RP_X
};

const char *rp__emu_profile_at(size_t i, const char **text) {
    for (size_t at = 0; rp__emu_profile_texts[at].name; at++)
        if (at == i) {
            if (text) *text = rp__emu_profile_texts[at].text;
            return rp__emu_profile_texts[at].name;
        }
    return NULL;
}

/* ---- parsing ---- */

static bool find_cost(const char *key, rp__emu_cost *out) {
    for (int i = 0; i < RP_EMU_N_COSTS; i++)
        if (!strcmp(key, cost_names[i])) {
            *out = (rp__emu_cost)i;
            return true;
        }
    return false;
}

static bool find_op(const char *name, int *out) {
    for (int i = 0; i < RP_N_OPS; i++)
        if (!strcmp(name, rp__op_name((rp_op_kind)i))) {
            *out = i;
            return true;
        }
    return false;
}

static rp_status parse_number(const char *text, double *out, rp_error *err) {
    char *end;
    *out = strtod(text, &end);
    if (end != text && !*end && isfinite(*out) && *out >= 0) return RP_OK;
    return rp__fail(err, RP_EFORMAT, "\"%s\" is not a number from 0 on", text);
}

static rp_status parse_words(int n, char word[3][64], rp__emu_profile *out, rp_error *err) {
    rp__emu_cost cost;
    int op;
    double value;
    if (n < 2) return rp__fail(err, RP_EFORMAT, "\"%s\" has no value", word[0]);
    if (!find_cost(word[0], &cost)) return rp__fail(err, RP_EFORMAT, "unknown key \"%s\"", word[0]);
    RP_TRY(parse_number(word[n - 1], &value, err));
    if (n == 2) {
        for (op = 0; op < RP_N_OPS; op++) out->cost[cost][op] = value;
        return RP_OK;
    }
    if (!find_op(word[1], &op)) return rp__fail(err, RP_EFORMAT, "unknown op \"%s\"", word[1]);
    out->cost[cost][op] = value;
    return RP_OK;
}

static rp_status parse_line(const char *line, rp__emu_profile *out, rp_error *err) {
    char word[3][64], more[2];
    int n = sscanf(line, "%63s %63s %63s %1s", word[0], word[1], word[2], more);
    if (n <= 0) return RP_OK;
    if (n == 4) return rp__fail(err, RP_EFORMAT, "more than \"key op value\" at \"%s\"", more);
    return parse_words(n, word, out, err);
}

static void set_defaults(rp__emu_profile *p) {
    *p = (rp__emu_profile){0};
    for (int op = 0; op < RP_N_OPS; op++) {
        p->cost[RP_EMU_capture][op] = 1;
        p->cost[RP_EMU_records_only][op] = 1;
        p->cost[RP_EMU_tile_rows][op] = 1;
    }
}

rp_status rp__emu_profile_parse(const char *source, const char *text, rp__emu_profile *out,
                                rp_error *err) {
    set_defaults(out);
    snprintf(out->name, sizeof out->name, "%s", source);
    int number = 1;
    for (const char *p = text; *p; number++) {
        char line[256];
        size_t n = strcspn(p, "\n"), used = strcspn(p, "#\n");
        if (used >= sizeof line)
            return rp__fail(err, RP_EFORMAT, "profile %s, line %d is too long", source, number);
        memcpy(line, p, used);
        line[used] = 0;
        rp_status status = parse_line(line, out, err);
        if (status < 0) return rp__fail_context(err, status, "profile %s, line %d", source, number);
        p += n + (p[n] == '\n');
    }
    return RP_OK;
}

/* ---- loading ---- */

static rp_status load_file(const char *path, rp__emu_profile *out, rp_error *err) {
    FILE *f = fopen(path, "rb");
    if (!f) return rp__fail(err, RP_ENOTFOUND, "no profile file %s", path);
    char *text = rp__alloc(MAX_PROFILE_BYTES);
    size_t n = text ? fread(text, 1, MAX_PROFILE_BYTES, f) : 0;
    rp_status status = RP_OK;
    if (!text)
        status = rp__fail(err, RP_ENOMEM, "no memory to read profile %s", path);
    else if (ferror(f))
        status = rp__fail(err, RP_EIO, "profile %s cannot be read", path);
    else if (n == MAX_PROFILE_BYTES)
        status = rp__fail(err, RP_ELIMIT, "profile %s is 64 KiB or longer", path);
    fclose(f);
    if (status == RP_OK) {
        text[n] = 0;
        status = rp__emu_profile_parse(path, text, out, err);
    }
    rp__free(text);
    return status;
}

static rp_status fail_unknown(const char *name, rp_error *err) {
    char names[200] = "none";
    const char *each;
    for (size_t i = 0, n = 4; (each = rp__emu_profile_at(i, NULL)) && n < sizeof names; i++)
        n += (size_t)snprintf(names + n, sizeof names - n, ", %s", each);
    return rp__fail(err, RP_ENOTFOUND, "no profile \"%s\"; there are: %s, and paths of files", name,
                    names);
}

rp_status rp__emu_profile_load(const char *name, rp__emu_profile *out, rp_error *err) {
    const char *each, *text;
    if (!strcmp(name, "none")) return rp__emu_profile_parse("none", "", out, err);
    for (size_t i = 0; (each = rp__emu_profile_at(i, &text)); i++)
        if (!strcmp(each, name)) return rp__emu_profile_parse(name, text, out, err);
    return strpbrk(name, "/.") ? load_file(name, out, err) : fail_unknown(name, err);
}
