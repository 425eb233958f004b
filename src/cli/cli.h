/* Shared by the subcommands of `reprise`: talking to the person, starting an engine, streaming an
 * answer.
 *
 * Rules of the command line, kept here in one place: the standard output carries what was asked for
 * and nothing else; everything else goes to the standard error; a failure is one line `reprise:
 * SENTENCE`; exit status 0 ok, 1 failed at run time, 2 wrong usage, 130 interrupted. Thread safety:
 * the main thread only, but for the signal handler. */
#ifndef RP_CLI_CLI_H
#define RP_CLI_CLI_H

#include <stdbool.h>
#include <stdio.h>

#include "base/options.h"
#include "reprise/reprise.h"

typedef enum rp__cli_exit {
    RP_CLI_OK = 0,
    RP_CLI_FAILED = 1,
    RP_CLI_USAGE = 2,
    RP_CLI_INTERRUPTED = 130 /* 128 + SIGINT, as shells have it */
} rp__cli_exit;

/* One per command: main.c gives it the parsed options, it returns the exit status. */
int rp__cli_run(rp__options *o);
int rp__cli_chat(rp__options *o);
int rp__cli_tokenize(rp__options *o);
int rp__cli_inspect(rp__options *o);
int rp__cli_explain(rp__options *o);
int rp__cli_devices(rp__options *o);
int rp__cli_bench(rp__options *o);
int rp__cli_tune(rp__options *o);
int rp__cli_bench_serve(rp__options *o);
int rp__cli_serve(rp__options *o);

/* ---- console ---- */

int rp__cli_usage(const char *fmt, ...) RP_PRINTF(1, 2); /* prints the sentence; RP_CLI_USAGE */
int rp__cli_fail(const rp_error *err);                   /* prints its sentence; RP_CLI_FAILED */
int rp__cli_out_of_memory(void);

void rp__cli_console_init(const rp__options *o); /* log callback, colour */
bool rp__cli_is_quiet(void);
bool rp__cli_is_verbose(void);
/* On a terminal, replaces the last line of the standard error; NULL clears it. Elsewhere nothing.
 */
void rp__cli_status_line(const char *fmt, ...) RP_PRINTF(1, 2);

/* Escape sequences, empty where colour is off (`out`: for the standard output, else for the
 * standard error). */
const char *rp__cli_bold(bool out);
const char *rp__cli_dim(bool out);
const char *rp__cli_plain(bool out);

/* Writes to the standard output at once. After a failure every further call returns false too. */
bool rp__cli_write(const void *p, size_t n);
bool rp__cli_write_str(const char *s);
/* Ends a last line on a terminal, flushes. The exit status: `status`, or RP_CLI_FAILED when
 * something was not written (with a sentence, unless the reader just went away). */
int rp__cli_finish_output(int status);

/* What follows a device's description when its times are not real, unless the description says so
 * itself. */
const char *rp__cli_simulated(const char *description, bool is_simulated);

/* ---- input ---- */

/* A whole file, "-" for the standard input. */
rp_status rp__cli_read_file(const char *path, rp__bytes *out, rp_error *err);
rp_status rp__cli_check_utf8(const char *what, const char *p, size_t n, rp_error *err);
/* The model of -m or of the first positional argument, which is then taken; NULL after printing a
 * sentence. */
const char *rp__cli_take_model(rp__options *o);
const char *rp__cli_take_argument(rp__options *o); /* the next positional one; NULL: none left */
/* Whether the next positional argument is this word, which is then taken. */
bool rp__cli_take_word(rp__options *o, const char *word);
bool rp__cli_no_more_arguments(const rp__options *o); /* false after printing a sentence */
/* The text of -p, -f, the next positional argument or the standard input, whichever was given most
 * directly. *from_file (may be NULL): it was read, not written on the command line. 0 or an exit
 * status. */
int rp__cli_take_prompt(rp__options *o, rp__bytes *out, bool *from_file);

/* ---- interrupts ---- */

/* On a terminal: whether typed characters show. Off while an answer is written, so that nothing
 * mixes with it; the end of the program and a second Ctrl-C bring it back. */
void rp__cli_set_echo(bool on);
/* A whole line was typed ahead, unseen. What was typed of a further one is dropped, as it could not
 * be seen either. */
bool rp__cli_typed_ahead(void);

/* From now on Ctrl-C is counted; one more before it was reset ends the process at once. */
void rp__cli_interrupt_init(void);
/* From now on SIGTERM counts as Ctrl-C does, and either ends a wait. */
void rp__cli_terminate_init(void);
/* Waits until one of them came, at most so long; whether it did. */
bool rp__cli_wait_interrupt(int timeout_ms);
bool rp__cli_interrupted(void);
void rp__cli_interrupt_reset(void);
/* The next byte of the standard input, unbuffered; -1 at its end, and after a Ctrl-C, also one that
 * came just before. */
int rp__cli_getc(void);

/* ---- engine ---- */

/* Starts the engine that the options describe, with progress on the standard error. 0 or an exit
 * status. `default_seqs`: sequences when -np was not given. */
int rp__cli_start(const rp__options *o, const char *model, int default_seqs, rp_engine **out);
uint64_t rp__cli_new_seed(void); /* for this run only, and short enough to type again */
/* Sampling, stop strings and length from the options; strings borrowed from them. */
rp_request_options rp__cli_request_options(const rp__options *o);
/* The closing lines on the standard error. */
void rp__cli_print_figures(rp_engine *engine, const rp_usage *usage, rp_finish finish,
                           uint64_t seed);

/* ---- answer ---- */

typedef struct rp__cli_answer {
    rp_finish finish;
    rp_usage usage;
    rp__bytes text;
    bool interrupted; /* by Ctrl-C */
} rp__cli_answer;

typedef void (*rp__cli_token_fn)(void *user, const rp_event *event);

/* Submits and follows a request to its end. The text goes to the standard output as it comes when
 * `show`; `on_token` (may be NULL) sees every event. Ctrl-C or a reader that went away cancels it.
 */
rp_status rp__cli_answer_take(rp_engine *engine, const rp_request_options *options, bool show,
                              rp__cli_token_fn on_token, void *user, rp__cli_answer *out,
                              rp_error *err);
/* The same of a request that was submitted already; the caller releases it. */
rp_status rp__cli_answer_follow(rp_request *request, bool show, rp__cli_token_fn on_token,
                                void *user, rp__cli_answer *out, rp_error *err);
void rp__cli_answer_clear(rp__cli_answer *a);

#endif
