/* Parsing of arguments and of the environment by the table of options_table.c. */
#include "base/options.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "base/options_impl.h"

/* ---- names ---- */

bool rp__option_word(const char **list, rp__str *word) {
    const char *p = *list;
    if (!p) return false;
    while (*p == ' ') p++;
    if (!*p) return false;
    size_t n = strcspn(p, " ");
    *word = (rp__str){p, n};
    *list = p + n;
    return true;
}

void rp__option_env_name(rp__str name, char out[RP_ENV_CAP]) {
    size_t n = 0;
    for (const char *prefix = "REPRISE_"; *prefix; prefix++) out[n++] = *prefix;
    for (size_t i = 0; i < name.n && n + 1 < RP_ENV_CAP; i++) {
        char c = name.p[i];
        out[n++] = c == '-' ? '_' : c >= 'a' && c <= 'z' ? (char)(c - 'a' + 'A') : c;
    }
    out[n] = 0;
}

static bool words_have(const char *list, rp__str name) {
    for (rp__str w; rp__option_word(&list, &w);)
        if (rp__str_eq(w, name)) return true;
    return false;
}

static bool is_long_name(const rp__option *o, rp__str name) {
    return rp__str_is(name, o->name) || words_have(o->aliases, name);
}

static const rp__option *row_at(size_t id) {
    return rp__option_of((rp__option_id)id);
}

/* The option of one of `commands` by its name; RP_N_OPTIONS when there is none. */
static size_t find_option(unsigned commands, bool is_long, rp__str name) {
    for (size_t id = 0; id < RP_N_OPTIONS; id++) {
        const rp__option *o = row_at(id);
        if (!(o->commands & commands)) continue;
        if (is_long ? is_long_name(o, name) : words_have(o->shorts, name)) return id;
    }
    return RP_N_OPTIONS;
}

/* ---- values ---- */

/* strtod and strtoll take blanks, hexadecimal, "inf" and more; a flag's value is plain decimal. */
static bool is_plain(const char *text, const char *allowed) {
    return *text && strspn(text, allowed) == strlen(text);
}

static rp_status fail_range(rp_error *err, const char *what, const char *text, const char *kind,
                            double min, double max) {
    if (max >= 9e18 && min <= -9e18)
        return rp__fail(err, RP_EINVAL, "%s needs %s, not \"%s\"", what, kind, text);
    if (max >= 9e18)
        return rp__fail(err, RP_EINVAL, "%s needs %s of at least %.15g, not \"%s\"", what, kind,
                        min, text);
    return rp__fail(err, RP_EINVAL, "%s needs %s from %.15g to %.15g, not \"%s\"", what, kind, min,
                    max, text);
}

rp_status rp__parse_int(const char *what, const char *text, double min, double max, int64_t *out,
                        rp_error *err) {
    char *end = NULL;
    errno = 0;
    long long v = is_plain(text, "+-0123456789") ? strtoll(text, &end, 10) : 0;
    if (!end || end == text || *end || errno || (double)v < min || (double)v > max)
        return fail_range(err, what, text, "a whole number", min, max);
    *out = v;
    return RP_OK;
}

rp_status rp__parse_number(const char *what, const char *text, double min, double max, double *out,
                           rp_error *err) {
    char *end = NULL;
    double v = is_plain(text, "+-.eE0123456789") ? strtod(text, &end) : 0;
    if (!end || end == text || *end || !isfinite(v) || v < min || v > max)
        return fail_range(err, what, text, "a number", min, max);
    *out = v;
    return RP_OK;
}

static rp_status parse_bool(const char *what, const char *text, bool *out, rp_error *err) {
    static const char yes[] = "1 true on yes enabled", no[] = "0 false off no disabled";
    rp__str t = rp__str_of(text);
    if (!words_have(yes, t) && !words_have(no, t))
        return rp__fail(err, RP_EINVAL, "%s needs on or off, not \"%s\"", what, text);
    *out = words_have(yes, t);
    return RP_OK;
}

/* Takes the next item of "a,b,c" as a number; *list moves past it. */
static rp_status next_int(const char *what, const rp__option *o, const char **list, int64_t *out,
                          rp_error *err) {
    char item[24] = "";
    size_t n = strcspn(*list, ",");
    if (n < sizeof item) memcpy(item, *list, n);
    if (n >= sizeof item || rp__parse_int(what, item, o->min, o->max, out, NULL))
        return fail_range(err, what, *list, "whole numbers with commas between,", o->min, o->max);
    *list += n;
    if (**list == ',' && !*++*list)
        return fail_range(err, what, ",", "a number after the comma,", o->min, o->max);
    return RP_OK;
}

static rp_status check_ints(const char *what, const rp__option *o, const char *text,
                            rp_error *err) {
    const char *p = text;
    int64_t v;
    do RP_TRY(next_int(what, o, &p, &v, err));
    while (*p);
    return RP_OK;
}

static rp_status check_choice(const char *what, const rp__option *o, const char *text,
                              rp_error *err) {
    size_t n = strlen(text);
    for (const char *p = o->choices; *p; p += strcspn(p, "|"), p += *p == '|')
        if (strcspn(p, "|") == n && !memcmp(p, text, n)) return RP_OK;
    return rp__fail(err, RP_EINVAL, "%s needs one of %s, not \"%s\"", what, o->choices, text);
}

static rp_status add_item(rp__option_value *v, const char *text, rp_error *err) {
    const char **items = rp__realloc_array(v->items, v->n_items + 1, sizeof *items);
    if (!items) return rp__fail(err, RP_ENOMEM, "out of memory for the options");
    v->items = items;
    v->items[v->n_items++] = text;
    return RP_OK;
}

/* Gives option `id` the value `text`; `what` is how the user wrote it: the flag or the environment
 * variable. */
static rp_status set_value(rp__options *all, size_t id, rp__option_origin origin, const char *what,
                           const char *text, rp_error *err) {
    const rp__option *o = row_at(id);
    rp__option_value *v = &all->values[id];
    switch ((rp__option_kind)o->kind) {
    case RP_OPT_FLAG:
    case RP_OPT_ACTION:
        RP_TRY(parse_bool(what, text, &v->is_on, err));
        break;
    case RP_OPT_STRING:
        break;
    case RP_OPT_STRINGS:
        RP_TRY(add_item(v, text, err));
        break;
    case RP_OPT_INT:
        RP_TRY(rp__parse_int(what, text, o->min, o->max, &v->number_int, err));
        break;
    case RP_OPT_NUMBER:
        RP_TRY(rp__parse_number(what, text, o->min, o->max, &v->number, err));
        break;
    case RP_OPT_INTS:
        RP_TRY(check_ints(what, o, text, err));
        break;
    case RP_OPT_CHOICE:
        RP_TRY(check_choice(what, o, text, err));
        break;
    }
    v->origin = origin;
    v->text = text;
    return RP_OK;
}

/* ---- arguments ---- */

typedef struct arg_reader {
    int argc, at;
    char *const *argv;
} arg_reader;

/* The sentence for a name that `command` does not know. */
static rp_status fail_unknown(rp__command command, const char *written, bool is_long, rp__str name,
                              rp_error *err) {
    size_t elsewhere = find_option(~0u, is_long, name);
    if (elsewhere < RP_N_OPTIONS) {
        unsigned has = row_at(elsewhere)->commands;
        const rp__command_info *owner = rp__command_at((size_t)__builtin_ctz(has));
        if (command == RP_CMD_HELP)
            return rp__fail(err, RP_EINVAL, "%s comes after a command: reprise %s %s ...", written,
                            owner->name, written);
        return rp__fail(err, RP_EINVAL, "%s is an option of `reprise %s`, not of this command",
                        written, owner->name);
    }
    for (const rp__foreign_option *f = rp__foreign_options; f->names; f++)
        if (words_have(f->names, rp__str_of(written)))
            return rp__fail(err, RP_EINVAL, "%s is not an option here: %s", written, f->sentence);
    char plain[RP_ENV_CAP] = "";
    if (name.n < sizeof plain) memcpy(plain, name.p, name.n);
    rp__str near = rp__option_suggest(command, plain);
    if (near.n)
        return rp__fail(err, RP_EINVAL, "unknown option %s; did you mean --%.*s?", written,
                        (int)near.n, near.p);
    return rp__fail(err, RP_EINVAL, "unknown option %s; see `reprise %s --help`", written,
                    rp__command_at((size_t)__builtin_ctz(command))->name);
}

/* A flag alone is "on"; any other option takes what follows "=" or the next argument, whatever it
 * looks like. */
static rp_status take_value(rp__options *all, size_t id, const char *what, const char *joined,
                            bool negated, arg_reader *r, rp_error *err) {
    const rp__option *o = row_at(id);
    bool is_flag = o->kind == RP_OPT_FLAG || o->kind == RP_OPT_ACTION;
    if (negated && joined)
        return rp__fail(err, RP_EINVAL, "%s takes no value, but got \"%s\"", what, joined);
    if (is_flag && !joined) joined = negated ? "off" : "on";
    if (!joined) {
        if (r->at >= r->argc)
            return rp__fail(err, RP_EINVAL, "%s needs a value: %s", what, o->value);
        joined = r->argv[r->at++];
    }
    return set_value(all, id, RP_ORIGIN_ARG, what, joined, err);
}

/* "--no-x" of a flag "x", unless "no-x" is itself a name. */
static size_t find_negated(rp__command command, rp__str name) {
    rp__str no = RP_STR("no-");
    if (!rp__str_starts(name, no)) return RP_N_OPTIONS;
    size_t id = find_option(command, true, (rp__str){name.p + no.n, name.n - no.n});
    return id < RP_N_OPTIONS && row_at(id)->kind == RP_OPT_FLAG ? id : RP_N_OPTIONS;
}

static rp_status parse_option(rp__options *all, arg_reader *r, rp_error *err) {
    const char *arg = r->argv[r->at++];
    bool is_long = arg[1] == '-';
    const char *start = arg + (is_long ? 2 : 1), *joined = strchr(start, '=');
    char written[128], name[120] = "";
    size_t n = joined ? (size_t)(joined - start) : strlen(start);
    if (n >= sizeof name) return rp__fail(err, RP_EINVAL, "unknown option %.60s...", arg);
    memcpy(name, start, n);
    memcpy(written, arg, (size_t)(start - arg) + n);
    written[(size_t)(start - arg) + n] = 0;
    for (char *p = name; *p; p++)
        if (is_long && *p == '_') *p = '-';
    rp__str key = {name, n};
    size_t id = find_option(all->command, is_long, key);
    bool negated = false;
    if (id == RP_N_OPTIONS && is_long) {
        id = find_negated(all->command, key);
        negated = id < RP_N_OPTIONS;
    }
    if (id == RP_N_OPTIONS) return fail_unknown(all->command, written, is_long, key, err);
    return take_value(all, id, written, joined ? joined + 1 : NULL, negated, r, err);
}

static rp_status parse_arguments(rp__options *all, int argc, char *const *argv, rp_error *err) {
    arg_reader r = {.argc = argc, .argv = argv};
    all->positional = rp__calloc((size_t)argc + 1, sizeof *all->positional);
    if (!all->positional) return rp__fail(err, RP_ENOMEM, "out of memory for the options");
    bool options_ended = false;
    while (r.at < argc) {
        const char *arg = argv[r.at];
        if (!options_ended && !strcmp(arg, "--")) {
            options_ended = true;
            r.at++;
        } else if (!options_ended && arg[0] == '-' && arg[1]) {
            RP_TRY(parse_option(all, &r, err));
        } else {
            all->positional[all->n_positional++] = arg;
            r.at++;
        }
    }
    return RP_OK;
}

/* ---- environment ---- */

/* The variable of the option's main name comes first, then those of its other long names. */
static const char *find_env(const rp__option *o, char variable[RP_ENV_CAP]) {
    rp__option_env_name(rp__str_of(o->name), variable);
    const char *text = getenv(variable), *aliases = o->aliases;
    for (rp__str w; (!text || !*text) && rp__option_word(&aliases, &w);) {
        rp__option_env_name(w, variable);
        text = getenv(variable);
    }
    return text && *text ? text : NULL;
}

static rp_status read_environment(rp__options *all, rp_error *err) {
    for (size_t id = 0; id < RP_N_OPTIONS; id++) {
        const rp__option *o = row_at(id);
        bool is_wanted = (o->commands & all->command) && o->kind != RP_OPT_ACTION;
        if (!is_wanted || all->values[id].origin == RP_ORIGIN_ARG) continue;
        char variable[RP_ENV_CAP];
        const char *text = find_env(o, variable);
        if (text) RP_TRY(set_value(all, id, RP_ORIGIN_ENV, variable, text, err));
    }
    return RP_OK;
}

const char *rp__options_env(const char *variable) {
    const char *text = getenv(variable);
    return text && *text ? text : NULL;
}

rp_status rp__options_export(const rp__options *o, rp__option_id id, rp_error *err) {
    char variable[RP_ENV_CAP];
    rp__option_env_name(rp__str_of(rp__option_of(id)->name), variable);
    if (!rp__options_given(o, id)) return RP_OK;
    if (setenv(variable, o->values[id].text, 1))
        return rp__fail(err, RP_ENOMEM, "cannot set %s", variable);
    return RP_OK;
}

/* ---- the whole ---- */

static void set_defaults(rp__options *all) {
    for (size_t id = 0; id < RP_N_OPTIONS; id++) {
        const rp__option *o = row_at(id);
        if (!o->default_text) continue;
        rp_error err = {0};
        rp_status s = set_value(all, id, RP_ORIGIN_DEFAULT, o->name, o->default_text, &err);
        rp__assert(s == RP_OK, "default of --%s: %s", o->name, err.message);
    }
}

rp_status rp__options_parse(rp__options *options, rp__command command, int argc, char *const *argv,
                            rp_error *err) {
    *options = (rp__options){.command = command};
    set_defaults(options);
    RP_TRY(parse_arguments(options, argc, argv, err));
    return read_environment(options, err);
}

void rp__options_clear(rp__options *options) {
    for (size_t id = 0; id < RP_N_OPTIONS; id++) rp__free(options->values[id].items);
    rp__free(options->positional);
    *options = (rp__options){0};
}

const char *rp__options_str(const rp__options *o, rp__option_id id) {
    return o->values[id].text;
}
int64_t rp__options_int(const rp__options *o, rp__option_id id) {
    return o->values[id].number_int;
}
double rp__options_number(const rp__options *o, rp__option_id id) {
    return o->values[id].number;
}
bool rp__options_on(const rp__options *o, rp__option_id id) {
    return o->values[id].is_on;
}
bool rp__options_given(const rp__options *o, rp__option_id id) {
    return o->values[id].origin != RP_ORIGIN_DEFAULT;
}

size_t rp__options_ints(const rp__options *o, rp__option_id id, int64_t *out, size_t cap) {
    const char *p = rp__options_str(o, id);
    size_t n = 0;
    while (p && *p) {
        int64_t v;
        if (next_int("", rp__option_of(id), &p, &v, NULL)) break;
        if (n < cap) out[n] = v;
        n++;
    }
    return n;
}
