/* `reprise COMMAND`: finds the command, parses its options, hands over. */
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/fail.h"
#include "cli/cli.h"
#include "base/json_writer.h"

static size_t help_width(void) {
    enum { NARROW = 60, WIDE = 100 };
    struct winsize w;
    if (ioctl(STDERR_FILENO, TIOCGWINSZ, &w) || w.ws_col >= WIDE) return WIDE;
    return w.ws_col < NARROW ? NARROW : w.ws_col;
}

static int print_and_clear(rp__bytes *text) {
    bool is_whole = !text->failed && text->p;
    if (is_whole) rp__cli_write(text->p, text->n);
    rp__bytes_clear(text);
    return is_whole ? rp__cli_finish_output(RP_CLI_OK) : rp__cli_out_of_memory();
}

static int print_help(rp__command command) {
    rp__bytes text = {0};
    rp__options_help(&text, command, help_width());
    return print_and_clear(&text);
}

/* What someone sees who typed `reprise` alone. */
static int no_command(void) {
    rp__bytes text = {0};
    if (rp__options_help(&text, RP_CMD_HELP, help_width())) fputs(text.p, stderr);
    rp__bytes_clear(&text);
    return RP_CLI_USAGE;
}

static int print_version(const rp__options *o) {
    rp__bytes text = {0};
    if (rp__options_on(o, RP_OPT_JSON)) {
        rp__json_open(&text, NULL, '{');
        rp__json_str(&text, "version", rp_version());
        rp__json_close(&text, '}');
        rp__bytes_add_char(&text, '\n');
    } else {
        rp__bytes_printf(&text, "reprise %s\n", rp_version());
    }
    return print_and_clear(&text);
}

static int unknown_command(const char *name) {
    const char *near = rp__command_suggest(name);
    if (near) return rp__cli_usage("unknown command %s; did you mean %s?", name, near);
    return rp__cli_usage("unknown command %s; `reprise help` lists them", name);
}

/* `bench serve` has options of its own, so it is a command of its own. */
static const rp__command_info *find_command(const char *const *words, size_t n, size_t *n_words) {
    *n_words = 1 + (n > 1 && !strcmp(words[0], "bench") && !strcmp(words[1], "serve"));
    return rp__command_find(*n_words == 2 ? "bench-serve" : words[0]);
}

static int help_command(const rp__options *o) {
    size_t n_words;
    if (rp__options_on(o, RP_OPT_VERSION)) return print_version(o);
    if (rp__options_on(o, RP_OPT_BASH_COMPLETION)) {
        rp__bytes text = {0};
        rp__options_completion(&text);
        return print_and_clear(&text);
    }
    if (!o->n_positional) return print_help(RP_CMD_HELP);
    const rp__command_info *about = find_command(o->positional, o->n_positional, &n_words);
    return about ? print_help(about->command) : unknown_command(o->positional[0]);
}

static int dispatch(rp__options *o) {
    if (rp__options_on(o, RP_OPT_HELP)) return print_help(o->command);
    if (rp__options_on(o, RP_OPT_LIST_DEVICES)) return rp__cli_devices(o);
    switch (o->command) {
    case RP_CMD_RUN:
        return rp__cli_run(o);
    case RP_CMD_CHAT:
        return rp__cli_chat(o);
    case RP_CMD_TOKENIZE:
        return rp__cli_tokenize(o);
    case RP_CMD_INSPECT:
        return rp__cli_inspect(o);
    case RP_CMD_EXPLAIN:
        return rp__cli_explain(o);
    case RP_CMD_DEVICES:
        return rp__cli_devices(o);
    case RP_CMD_BENCH:
        return rp__cli_bench(o);
    case RP_CMD_TUNE:
        return rp__cli_tune(o);
    case RP_CMD_BENCH_SERVE:
        return rp__cli_bench_serve(o);
    case RP_CMD_SERVE:
        return rp__cli_serve(o);
    case RP_CMD_VERSION:
        return print_version(o);
    case RP_CMD_HELP:
        break;
    }
    return help_command(o);
}

static int run_command(const rp__command_info *info, int argc, char **argv) {
    rp__options o;
    rp_error err = {0};
    int code = RP_CLI_USAGE;
    rp_status s = rp__options_parse(&o, info->command, argc, argv, &err);
    if (!s) s = rp__options_export(&o, RP_OPT_CACHE, &err);
    if (!s) s = rp__options_export(&o, RP_OPT_DEVICE_PATH, &err);
    if (s == RP_EINVAL || s == RP_OK) rp__cli_console_init(&o);
    if (s < 0)
        rp__cli_fail(&err);
    else
        code = dispatch(&o);
    rp__options_clear(&o);
    return s == RP_ENOMEM ? RP_CLI_FAILED : code;
}

int main(int argc, char **argv) {
    signal(SIGPIPE, SIG_IGN); /* a reader that went away shows as a failed write */
    if (argc < 2) return no_command();
    if (argv[1][0] == '-') return run_command(rp__command_find("help"), argc - 1, argv + 1);
    size_t n;
    const rp__command_info *info =
        find_command((const char *const *)argv + 1, (size_t)argc - 1, &n);
    return info ? run_command(info, argc - 1 - (int)n, argv + 1 + n) : unknown_command(argv[1]);
}
