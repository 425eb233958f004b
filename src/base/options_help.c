/* Text made from the table: help, suggestions, shell completion. */
#include "base/options.h"

#include <string.h>

#include "base/options_impl.h"

enum { HELP_COLUMN = 32 }; /* where the sentences start */
#define HARD_BLANK "\x1f"  /* a blank where no line breaks */

/* ---- nearest names ---- */

static size_t least(size_t a, size_t b) {
    return a < b ? a : b;
}

/* Optimal string alignment: row by row, with the two rows before kept. Names longer than a row are
 * never near. */
size_t rp__option_distance(const char *a, rp__str b) {
    enum { CAP = 48 };
    size_t n_a = strlen(a), rows[3][CAP + 1];
    if (n_a > CAP || b.n > CAP) return CAP;
    size_t *before = rows[0], *last = rows[1], *row = rows[2];
    for (size_t j = 0; j <= b.n; j++) before[j] = last[j] = j;
    for (size_t i = 1; i <= n_a; i++) {
        row[0] = i;
        for (size_t j = 1; j <= b.n; j++) {
            row[j] = least(least(last[j], row[j - 1]) + 1, last[j - 1] + (a[i - 1] != b.p[j - 1]));
            if (i > 1 && j > 1 && a[i - 1] == b.p[j - 2] && a[i - 2] == b.p[j - 1])
                row[j] = least(row[j], before[j - 2] + 1);
        }
        size_t *old = before;
        before = last;
        last = row;
        row = old;
    }
    return last[b.n];
}

/* A third of the letters may differ, at least one: "--promt" finds "--prompt", "--x" finds nothing.
 */
static bool is_near(size_t distance, size_t n) {
    return n >= 3 && distance <= (n + 1) / 3;
}

rp__str rp__option_suggest(rp__command command, const char *name) {
    rp__str best = {"", 0};
    size_t best_distance = SIZE_MAX;
    for (size_t id = 0; id < RP_N_OPTIONS; id++) {
        const rp__option *o = rp__option_of((rp__option_id)id);
        if (!(o->commands & command)) continue;
        const char *more = o->aliases;
        rp__str word = rp__str_of(o->name);
        do {
            size_t d = rp__option_distance(name, word);
            if (d < best_distance && is_near(d, strlen(name))) {
                best_distance = d;
                best = word;
            }
        } while (rp__option_word(&more, &word));
    }
    return best;
}

const rp__command_info *rp__command_find(const char *name) {
    for (size_t i = 0; rp__command_at(i); i++)
        if (!strcmp(rp__command_at(i)->name, name)) return rp__command_at(i);
    return NULL;
}

const char *rp__command_suggest(const char *name) {
    const char *best = NULL;
    size_t best_distance = SIZE_MAX;
    for (size_t i = 0; rp__command_at(i); i++) {
        size_t d = rp__option_distance(name, rp__str_of(rp__command_at(i)->name));
        if (d >= best_distance || !is_near(d, strlen(name))) continue;
        best_distance = d;
        best = rp__command_at(i)->name;
    }
    return best;
}

/* ---- help ---- */

static void pad_to(rp__bytes *out, size_t line_start, size_t column) {
    while (out->n - line_start < column && rp__bytes_add_char(out, ' ')) {
    }
}

/* Words of `text` from `column` on; the first line goes on where `out` stands. */
static void add_wrapped(rp__bytes *out, size_t line_start, size_t column, size_t width,
                        const char *text) {
    pad_to(out, line_start, column);
    bool is_first = true;
    for (rp__str w; rp__option_word(&text, &w); is_first = false) {
        if (!is_first && out->n - line_start + 1 + w.n > width) {
            rp__bytes_add_char(out, '\n');
            line_start = out->n;
            pad_to(out, line_start, column);
        } else if (!is_first) {
            rp__bytes_add_char(out, ' ');
        }
        for (size_t i = 0; i < w.n; i++)
            rp__bytes_add_char(out, w.p[i] == *HARD_BLANK ? ' ' : w.p[i]);
    }
    rp__bytes_add_char(out, '\n');
}

static void add_names(rp__bytes *out, const rp__option *o) {
    const char *shorts = o->shorts, *aliases = o->aliases;
    rp__bytes_add_str(out, o->shorts ? "  " : "      ");
    for (rp__str w; rp__option_word(&shorts, &w);) rp__bytes_printf(out, "-%.*s, ", (int)w.n, w.p);
    rp__bytes_printf(out, "--%s", o->name);
    for (rp__str w; rp__option_word(&aliases, &w);)
        rp__bytes_printf(out, ", --%.*s", (int)w.n, w.p);
    if (o->value) rp__bytes_printf(out, " %s", o->value);
}

static void add_option(rp__bytes *out, const rp__option *o, size_t width) {
    size_t line_start = out->n;
    add_names(out, o);
    if (out->n - line_start > HELP_COLUMN - 2) {
        rp__bytes_add_char(out, '\n');
        line_start = out->n;
    }
    char variable[RP_ENV_CAP];
    rp__option_env_name(rp__str_of(o->name), variable);
    rp__bytes text = {0};
    rp__bytes_add_str(&text, o->help);
    if (o->kind != RP_OPT_ACTION) {
        rp__bytes_add_str(&text, " [");
        if (o->default_text)
            rp__bytes_printf(&text, "default" HARD_BLANK "%s," HARD_BLANK, o->default_text);
        rp__bytes_printf(&text, "env" HARD_BLANK "%s]", variable);
    }
    if (text.failed)
        out->failed = true;
    else
        add_wrapped(out, line_start, HELP_COLUMN, width, text.p);
    rp__bytes_clear(&text);
}

static void add_group(rp__bytes *out, rp__command command, size_t group, size_t width) {
    bool has_title = false;
    for (size_t id = 0; id < RP_N_OPTIONS; id++) {
        const rp__option *o = rp__option_of((rp__option_id)id);
        if (o->group != group || !(o->commands & command)) continue;
        if (!has_title) rp__bytes_printf(out, "\n%s\n", rp__option_groups[group]);
        has_title = true;
        add_option(out, o, width);
    }
}

static void add_commands(rp__bytes *out) {
    rp__bytes_add_str(out, "usage: reprise COMMAND [options]\n\nCommands\n");
    for (size_t i = 0; rp__command_at(i); i++)
        rp__bytes_printf(out, "  %-11s %s\n", rp__command_at(i)->name, rp__command_at(i)->summary);
}

bool rp__options_help(rp__bytes *out, rp__command command, size_t width) {
    const rp__command_info *info = rp__command_at((size_t)__builtin_ctz(command));
    if (command == RP_CMD_HELP) {
        rp__bytes_add_str(out, "Reprise: LLM inference, a step recorded once and replayed.\n\n");
        add_commands(out);
    } else {
        rp__bytes_printf(out, "reprise %s: %s\n\nusage: %s\n", info->name, info->summary,
                         info->usage);
    }
    for (size_t group = 0; rp__option_groups[group]; group++) add_group(out, command, group, width);
    if (command == RP_CMD_HELP)
        rp__bytes_add_str(out, "\n`reprise help COMMAND` shows a command's options. Arguments win "
                               "over environment variables.\n");
    return !out->failed;
}

/* ---- completion ---- */

static void add_completion_words(rp__bytes *out, rp__command command) {
    for (size_t id = 0; id < RP_N_OPTIONS; id++) {
        const rp__option *o = rp__option_of((rp__option_id)id);
        if (!(o->commands & command)) continue;
        const char *shorts = o->shorts, *aliases = o->aliases;
        rp__bytes_printf(out, " --%s", o->name);
        for (rp__str w; rp__option_word(&aliases, &w);)
            rp__bytes_printf(out, " --%.*s", (int)w.n, w.p);
        for (rp__str w; rp__option_word(&shorts, &w);)
            rp__bytes_printf(out, " -%.*s", (int)w.n, w.p);
    }
}

/* A choice's values are offered after its long name, files everywhere else. */
static void add_completion_choices(rp__bytes *out) {
    for (size_t id = 0; id < RP_N_OPTIONS; id++) {
        const rp__option *o = rp__option_of((rp__option_id)id);
        if (!o->choices) continue;
        rp__bytes_printf(out, "        --%s) words=\"", o->name);
        for (const char *p = o->choices; *p; p++) rp__bytes_add_char(out, *p == '|' ? ' ' : *p);
        rp__bytes_add_str(out, "\" ;;\n");
    }
}

bool rp__options_completion(rp__bytes *out) {
    rp__bytes_add_str(out, "_reprise() {\n    local word=${COMP_WORDS[COMP_CWORD]} words=\n"
                           "    if ((COMP_CWORD == 1)); then\n        words=\"");
    for (size_t i = 0; rp__command_at(i); i++)
        rp__bytes_printf(out, "%s ", rp__command_at(i)->name);
    add_completion_words(out, RP_CMD_HELP);
    rp__bytes_add_str(out,
                      "\"\n    elif [[ $word == -* ]]; then\n        case ${COMP_WORDS[1]} in\n");
    for (size_t i = 0; rp__command_at(i); i++) {
        rp__bytes_printf(out, "        %s) words=\"", rp__command_at(i)->name);
        add_completion_words(out, rp__command_at(i)->command);
        rp__bytes_add_str(out, "\" ;;\n");
    }
    rp__bytes_add_str(out,
                      "        esac\n    else\n        case ${COMP_WORDS[COMP_CWORD - 1]} in\n");
    add_completion_choices(out);
    rp__bytes_add_str(
        out, "        esac\n    fi\n    COMPREPLY=($(compgen -W \"$words\" -- \"$word\"))\n}\n"
             "complete -o default -F _reprise reprise\n");
    return !out->failed;
}
