/* `reprise chat`: a conversation. The history lies here as messages; every turn submits all of it,
 * and the engine finds what it computed before by its prefix. Lines come from the terminal as it
 * edits them. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "cli/cli.h"
#include "base/json_writer.h"

typedef struct message {
    bool from_model;
    char *text;
    size_t n;
} message;

typedef struct chat {
    rp__options *o;
    rp_engine *engine;
    message *messages;
    size_t n_messages;
    rp__bytes system;
    rp__bytes line;
    rp_request_options request;
    rp_usage usage;   /* of the last answer */
    rp_finish finish; /* RP_FINISH_NONE: there was none */
    bool on_terminal, is_over;
} chat;

/* ---- history ---- */

static void forget_from(chat *c, size_t n) {
    while (c->n_messages > n) rp__free(c->messages[--c->n_messages].text);
}

static bool remember(chat *c, bool from_model, const char *p, size_t n) {
    message *all = rp__realloc_array(c->messages, c->n_messages + 1, sizeof *all);
    if (!all) return false;
    c->messages = all;
    char *text = rp__strndup(n ? p : "", n);
    if (!text) return false;
    c->messages[c->n_messages++] = (message){from_model, text, n};
    return true;
}

static void add_message(rp__bytes *b, const char *role, const char *p, size_t n) {
    rp__json_open(b, NULL, '{');
    rp__json_str(b, "role", role);
    rp__json_strn(b, "content", p, n);
    rp__json_close(b, '}');
}

static void write_history(const chat *c, rp__bytes *b) {
    rp__json_open(b, NULL, '[');
    if (c->system.n) add_message(b, "system", c->system.p, c->system.n);
    for (size_t i = 0; i < c->n_messages; i++)
        add_message(b, c->messages[i].from_model ? "assistant" : "user", c->messages[i].text,
                    c->messages[i].n);
    rp__json_close(b, ']');
}

/* ---- turns ---- */

static void note(const char *text) {
    fprintf(stderr, "%s%s%s\n", rp__cli_dim(false), text, rp__cli_plain(false));
}

static void end_answer(chat *c, const rp__cli_answer *a) {
    if (!a->text.n || a->text.p[a->text.n - 1] != '\n') rp__cli_write("\n", 1);
    if (a->interrupted)
        note("[stopped]");
    else if (a->finish == RP_FINISH_LENGTH &&
             (int64_t)a->usage.n_generated == c->request.max_tokens)
        note("[cut: --max-tokens is reached]");
    else if (a->finish == RP_FINISH_LENGTH)
        note("[cut: the context is full; /clear starts over]");
    if (c->on_terminal) rp__cli_write("\n", 1);
    c->usage = a->usage;
    c->finish = a->finish;
}

/* Answers the history, whose last message is the user's. A failure drops that message and the talk
 * goes on. */
static void answer(chat *c) {
    rp__bytes history = {0};
    rp__cli_answer a = {0};
    rp_error err = {0};
    write_history(c, &history);
    c->request.messages = history.p;
    rp_status s = history.failed
                      ? rp__fail(&err, RP_ENOMEM, "out of memory")
                      : rp__cli_answer_take(c->engine, &c->request, true, NULL, NULL, &a, &err);
    if (!s && !remember(c, true, a.text.p, a.text.n))
        s = rp__fail(&err, RP_ENOMEM, "out of memory");
    if (s < 0) {
        rp__cli_fail(&err);
        if (s == RP_ECONTEXT) note("/clear starts over");
        forget_from(c, c->n_messages - 1);
    } else {
        end_answer(c, &a);
    }
    if (!s && !a.text.n && a.interrupted)
        forget_from(c, c->n_messages - 2); /* as if it was never said */
    rp__cli_interrupt_reset();
    rp__cli_answer_clear(&a);
    rp__bytes_clear(&history);
}

static void say(chat *c, const char *text, size_t n) {
    rp_error err = {0};
    if (rp__cli_check_utf8("the message", text, n, &err))
        rp__cli_fail(&err);
    else if (!remember(c, false, text, n))
        rp__cli_out_of_memory();
    else
        answer(c);
}

/* ---- commands ---- */

static void do_help(chat *c, const char *rest) {
    (void)c, (void)rest;
    note("/help          this list\n"
         "/clear         forget the conversation\n"
         "/system TEXT   set the system message and start over; without TEXT show it\n"
         "/regen         answer the last message again\n"
         "/stats         figures of the last answer\n"
         "/exit          end (so do Ctrl-D, and Ctrl-C at the prompt)\n"
         "A backslash at a line's end goes on in the next line; // at the start sends a slash.\n"
         "Ctrl-C stops an answer; twice, it ends the program.");
}

static void do_clear(chat *c, const char *rest) {
    (void)rest;
    forget_from(c, 0);
    note("[the conversation starts over]");
}

static void do_system(chat *c, const char *rest) {
    rp_error err = {0};
    if (!*rest) {
        note(c->system.n ? c->system.p : "[no system message]");
        return;
    }
    if (rp__cli_check_utf8("the system message", rest, strlen(rest), &err)) {
        rp__cli_fail(&err);
        return;
    }
    rp__bytes_reset(&c->system);
    if (!rp__bytes_add_str(&c->system, rest)) rp__cli_out_of_memory();
    do_clear(c, "");
}

static void do_regen(chat *c, const char *rest) {
    (void)rest;
    if (c->n_messages && c->messages[c->n_messages - 1].from_model)
        forget_from(c, c->n_messages - 1);
    if (!c->n_messages) {
        note("[nothing to answer again]");
        return;
    }
    c->request.sampling.seed++; /* the same seed gives the same answer */
    answer(c);
}

static void print_figures(chat *c) {
    rp__cli_print_figures(c->engine, &c->usage, c->finish, c->request.sampling.seed);
}

static void do_stats(chat *c, const char *rest) {
    (void)rest;
    if (c->finish == RP_FINISH_NONE)
        note("[no answer yet]");
    else
        print_figures(c);
}

static void do_exit(chat *c, const char *rest) {
    (void)rest;
    c->is_over = true;
}

static const struct chat_command {
    const char *name;
    void (*fn)(chat *c, const char *rest);
} chat_commands[] = {{"help", do_help},   {"clear", do_clear}, {"system", do_system},
                     {"regen", do_regen}, {"stats", do_stats}, {"exit", do_exit},
                     {"quit", do_exit},   {"bye", do_exit}};

static void run_chat_command(chat *c, const char *line) {
    size_t n = strcspn(line, " \t");
    const char *rest = line + n + strspn(line + n, " \t");
    for (size_t i = 0; i < sizeof chat_commands / sizeof *chat_commands; i++)
        if (rp__str_is((rp__str){line, n}, chat_commands[i].name)) {
            chat_commands[i].fn(c, rest);
            return;
        }
    fprintf(stderr, "%sunknown command /%.*s; /help lists them%s\n", rp__cli_dim(false), (int)n,
            line, rp__cli_plain(false));
}

/* ---- input ---- */

static void show_prompt(const chat *c, bool is_first) {
    if (!c->on_terminal) return;
    rp__cli_write_str(rp__cli_bold(true));
    rp__cli_write_str(is_first ? "> " : ". ");
    rp__cli_write_str(rp__cli_plain(true));
}

/* Appends a line without its end; false at the end of the input or on Ctrl-C. */
static bool read_piece(chat *c) {
    size_t before = c->line.n;
    for (int ch; (ch = rp__cli_getc()) != '\n';) {
        if (ch < 0 && rp__cli_interrupted()) return false;
        if (ch < 0) return c->line.n > before;
        if (!rp__bytes_add_char(&c->line, (char)ch)) return false;
    }
    return true;
}

/* A line at the prompt; one that was typed while nothing was echoed is shown now. */
static bool read_line(chat *c, bool is_first) {
    bool ahead = c->on_terminal && rp__cli_typed_ahead();
    size_t before = c->line.n;
    rp__cli_set_echo(!ahead);
    show_prompt(c, is_first);
    bool has_line = read_piece(c);
    rp__cli_set_echo(false);
    if (ahead && has_line) {
        rp__cli_write(c->line.p + before, c->line.n - before);
        rp__cli_write("\n", 1);
    }
    return has_line;
}

/* One message of one line, or of several with backslashes at their ends. */
static bool read_message(chat *c) {
    rp__bytes_reset(&c->line);
    for (bool is_first = true; read_line(c, is_first); is_first = false) {
        if (!c->line.n || c->line.p[c->line.n - 1] != '\\') return true;
        c->line.p[c->line.n - 1] = '\n';
    }
    return false;
}

static bool is_blank(const rp__bytes *b) {
    return !b->n || strspn(b->p, " \t\r\n") == b->n;
}

static void talk(chat *c) {
    while (!c->is_over && read_message(c)) {
        const char *line = c->line.p;
        if (is_blank(&c->line)) continue;
        if (line[0] == '/' && line[1] == '/')
            say(c, line + 1, c->line.n - 1);
        else if (line[0] == '/')
            run_chat_command(c, line + 1);
        else
            say(c, line, c->line.n);
    }
    if (c->on_terminal && !c->is_over) rp__cli_write("\n", 1);
}

/* ---- the command ---- */

static int check_model(chat *c) {
    rp_engine_info info = {.bytes = sizeof info};
    rp_error err = {0};
    rp_engine_get_info(c->engine, &info);
    if (!info.has_chat_template) {
        rp__fail(&err, RP_EINVAL,
                 "%s has no chat template; give one with --chat-template-file, or use `reprise run "
                 "--raw`",
                 info.model_name);
        return rp__cli_fail(&err);
    }
    if (c->on_terminal && !rp__cli_is_quiet())
        fprintf(stderr, "%s%s, %s, on %s. /help lists the commands.%s\n\n", rp__cli_dim(false),
                info.model_name, info.quantization, info.device, rp__cli_plain(false));
    return RP_CLI_OK;
}

static int take_system(chat *c) {
    rp_error err = {0};
    const char *system = rp__options_str(c->o, RP_OPT_SYSTEM);
    if (!system) return RP_CLI_OK;
    if (rp__cli_check_utf8("the system prompt", system, strlen(system), &err))
        return rp__cli_fail(&err);
    return rp__bytes_add_str(&c->system, system) ? RP_CLI_OK : rp__cli_out_of_memory();
}

int rp__cli_chat(rp__options *o) {
    chat c = {.o = o, .on_terminal = isatty(STDIN_FILENO) && isatty(STDOUT_FILENO)};
    const char *model = rp__cli_take_model(o);
    if (!model || !rp__cli_no_more_arguments(o)) return RP_CLI_USAGE;
    rp__cli_interrupt_init();
    if (c.on_terminal) rp__cli_set_echo(false);
    int code = take_system(&c);
    if (!code) code = rp__cli_start(o, model, 1, &c.engine);
    if (!code) code = check_model(&c);
    if (!code) {
        c.request = rp__cli_request_options(o);
        c.request.template_kwargs = rp__options_str(o, RP_OPT_CHAT_TEMPLATE_KWARGS);
        talk(&c);
        if (c.finish != RP_FINISH_NONE && !c.on_terminal) print_figures(&c);
    }
    rp_engine_destroy(c.engine);
    forget_from(&c, 0);
    rp__free(c.messages);
    rp__bytes_clear(&c.system);
    rp__bytes_clear(&c.line);
    return rp__cli_finish_output(code);
}
