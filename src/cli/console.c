/* What the person sees and types: error lines, log, colour, the standard output, whole files,
 * Ctrl-C. */
#include <errno.h>
#include <stdarg.h>
#include <string.h>
#include <unistd.h>

#include "base/fail.h"
#include "base/utf8.h"
#include "cli/cli.h"

static struct console {
    bool is_quiet, is_verbose, color_out, color_err;
    bool ends_line;  /* the last byte on the standard output was a line end, or there is none */
    int write_errno; /* of the first failed write */
} console = {.ends_line = true};

/* ---- standard error ---- */

/* On a terminal a progress line may stand where the sentence goes. */
static void clear_line(void) {
    if (isatty(STDERR_FILENO)) fputs("\r\033[K", stderr);
}

void rp__cli_status_line(const char *fmt, ...) {
    if (!isatty(STDERR_FILENO)) return;
    clear_line();
    if (!fmt) return;
    va_list ap;
    va_start(ap, fmt);
    vfprintf(stderr, fmt, ap);
    va_end(ap);
}

int rp__cli_usage(const char *fmt, ...) {
    rp_error err = {.code = RP_EINVAL};
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(err.message, sizeof err.message, fmt, ap);
    va_end(ap);
    rp__cli_fail(&err);
    return RP_CLI_USAGE;
}

int rp__cli_fail(const rp_error *err) {
    const char *who = err->code == RP_ETEMPLATE ? "the chat template refused: " : "";
    clear_line();
    fprintf(stderr, "reprise: %s%s\n", who, err->message);
    return RP_CLI_FAILED;
}

int rp__cli_out_of_memory(void) {
    return rp__cli_fail(&(rp_error){.code = RP_ENOMEM, .message = "out of memory"});
}

static void on_log(void *user, rp_log_level level, const char *line) {
    static const char *const names[] = {"debug", "info", "warning", "error"};
    (void)user;
    clear_line();
    fprintf(stderr, "%s: %s\n", names[level], line);
}

static bool wants_color(const rp__options *o, int fd) {
    const char *when = rp__options_str(o, RP_OPT_COLOR);
    if (when && !strcmp(when, "always")) return true;
    if (when && !strcmp(when, "never")) return false;
    const char *term = rp__options_env("TERM");
    return isatty(fd) && !rp__options_env("NO_COLOR") && term && strcmp(term, "dumb");
}

void rp__cli_console_init(const rp__options *o) {
    console.is_quiet = rp__options_on(o, RP_OPT_QUIET);
    console.is_verbose = rp__options_on(o, RP_OPT_VERBOSE);
    console.color_out = wants_color(o, STDOUT_FILENO);
    console.color_err = wants_color(o, STDERR_FILENO);
    if (rp__options_on(o, RP_OPT_LOG_DISABLE)) return;
    rp_log_set(on_log, NULL, rp__options_on(o, RP_OPT_VERBOSE) ? RP_LOG_DEBUG : RP_LOG_WARN);
}

bool rp__cli_is_quiet(void) {
    return console.is_quiet;
}
bool rp__cli_is_verbose(void) {
    return console.is_verbose;
}

static const char *escape_if(bool out, const char *sequence) {
    return (out ? console.color_out : console.color_err) ? sequence : "";
}
const char *rp__cli_bold(bool out) {
    return escape_if(out, "\033[1;32m");
}
const char *rp__cli_dim(bool out) {
    return escape_if(out, "\033[2m");
}
const char *rp__cli_plain(bool out) {
    return escape_if(out, "\033[0m");
}

const char *rp__cli_simulated(const char *description, bool is_simulated) {
    return is_simulated && !strstr(description, "simulated") ? " (times are simulated)" : "";
}

/* ---- standard output ---- */

bool rp__cli_write(const void *p, size_t n) {
    if (console.write_errno) return false;
    if (!n) return true;
    errno = 0;
    if (fwrite(p, 1, n, stdout) != n || fflush(stdout)) {
        console.write_errno = errno ? errno : EIO;
        return false;
    }
    console.ends_line = ((const char *)p)[n - 1] == '\n';
    return true;
}

bool rp__cli_write_str(const char *s) {
    return rp__cli_write(s, strlen(s));
}

int rp__cli_finish_output(int status) {
    if (!console.ends_line && isatty(STDOUT_FILENO)) rp__cli_write("\n", 1);
    if (!console.write_errno) return status;
    if (console.write_errno != EPIPE) {
        rp_error err;
        rp__fail(&err, RP_EIO, "cannot write to the standard output: %s",
                 strerror(console.write_errno));
        rp__cli_fail(&err);
    }
    return status ? status : RP_CLI_FAILED;
}

/* ---- input ---- */

enum { INPUT_MOST = 256 << 20 }; /* bytes; far above any context, far below what hurts */

static rp_status read_stream(FILE *f, const char *name, rp__bytes *out, rp_error *err) {
    char chunk[1 << 14];
    for (size_t n; (n = fread(chunk, 1, sizeof chunk, f)) > 0;) {
        if (out->n + n > INPUT_MOST)
            return rp__fail(err, RP_ELIMIT, "%s is longer than %d bytes", name, INPUT_MOST);
        if (!rp__bytes_add(out, chunk, n))
            return rp__fail(err, RP_ENOMEM, "out of memory reading %s", name);
    }
    if (ferror(f)) return rp__fail(err, RP_EIO, "cannot read %s: %s", name, strerror(errno));
    return RP_OK;
}

rp_status rp__cli_read_file(const char *path, rp__bytes *out, rp_error *err) {
    if (!strcmp(path, "-")) return read_stream(stdin, "the standard input", out, err);
    FILE *f = fopen(path, "rb");
    if (!f)
        return rp__fail(err, errno == ENOENT ? RP_ENOTFOUND : RP_EIO, "cannot open %s: %s", path,
                        strerror(errno));
    rp_status s = read_stream(f, path, out, err);
    fclose(f);
    return s;
}

rp_status rp__cli_check_utf8(const char *what, const char *p, size_t n, rp_error *err) {
    for (size_t at = 0; at < n;) {
        uint32_t cp;
        size_t took = rp__utf8_decode(p + at, n - at, &cp);
        if (cp == RP_UTF8_BAD)
            return rp__fail(err, RP_EINVAL, "%s is not valid UTF-8: byte 0x%02X at offset %zu",
                            what, (unsigned char)p[at], at);
        at += took;
    }
    return RP_OK;
}

const char *rp__cli_take_argument(rp__options *o) {
    if (!o->n_positional) return NULL;
    const char *first = o->positional[0];
    o->n_positional--;
    memmove(o->positional, o->positional + 1, o->n_positional * sizeof *o->positional);
    return first;
}

bool rp__cli_take_word(rp__options *o, const char *word) {
    if (!o->n_positional || strcmp(o->positional[0], word)) return false;
    rp__cli_take_argument(o);
    return true;
}

const char *rp__cli_take_model(rp__options *o) {
    const char *model = rp__options_str(o, RP_OPT_MODEL);
    if (o->values[RP_OPT_MODEL].origin != RP_ORIGIN_ARG && o->n_positional)
        model = rp__cli_take_argument(o);
    if (!model || !*model) {
        rp__cli_usage("no model: give -m MODEL, a .gguf file, a model folder, or a short name");
        return NULL;
    }
    return model;
}

bool rp__cli_no_more_arguments(const rp__options *o) {
    if (!o->n_positional) return true;
    rp__cli_usage("unexpected argument \"%s\"", o->positional[0]);
    return false;
}

/* The words of the prompt or the path it is read from: what an argument says comes before the
 * environment. */
static int find_prompt(rp__options *o, const char **words, const char **path) {
    const rp__option_value *text = &o->values[RP_OPT_PROMPT], *file = &o->values[RP_OPT_FILE];
    if (text->text && file->text && text->origin == file->origin)
        return rp__cli_usage("the prompt was given twice, by --prompt and by --file");
    if (text->origin == RP_ORIGIN_ARG)
        *words = text->text;
    else if (file->origin == RP_ORIGIN_ARG)
        *path = file->text;
    else if (o->n_positional)
        *words = rp__cli_take_argument(o);
    else {
        *words = text->text;
        *path = file->text;
    }
    if (*words && !strcmp(*words, "-")) *words = NULL, *path = "-";
    if (!*words && !*path && isatty(STDIN_FILENO))
        return rp__cli_usage("no prompt: give -p TEXT, -f FILE, or text on the standard input");
    return RP_CLI_OK;
}

int rp__cli_take_prompt(rp__options *o, rp__bytes *out, bool *from_file) {
    const char *words = NULL, *path = NULL;
    rp_error err = {0};
    int code = find_prompt(o, &words, &path);
    if (from_file) *from_file = !words;
    if (code) return code;
    if (words) return rp__bytes_add_str(out, words) ? RP_CLI_OK : rp__cli_out_of_memory();
    return rp__cli_read_file(path ? path : "-", out, &err) ? rp__cli_fail(&err) : RP_CLI_OK;
}
