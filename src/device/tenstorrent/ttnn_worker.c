/* ttnn in a process of its own, driven over a socket. The only file that knows there is a Python.
 *
 * The ttnn wheel has no C++ headers, so ttnn is reached through its Python module, by the script
 * tenstorrent_glue.py that this file carries. It runs beside the engine rather than inside it: ttnn
 * ends the whole process on some errors, and so does its simulator; its teardown at exit may crash;
 * interpreters come without a shared library. So a failure there is a lost device here, which is
 * opened again, and the engine's process has no interpreter in it.
 *
 * Requests are collected and leave together with the first one that wants an answer, or at a flush.
 * The process ends when the socket closes, so it never outlives the engine. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/bytes.h"
#include "base/fail.h"
#include "base/json_writer.h"
#include "device/tenstorrent/glue.h"
#include "device/tenstorrent/ttnn.h"

enum {
    CHILD_SOCKET = 3, /* descriptors of the child */
    CHILD_SCRIPT = 4,
    FIRST_FREE = 10, /* ours lie above the child's, so that moving one never covers the other */
    FLUSH_BYTES = 1 << 20, /* so much is collected at most */
    LINE_CAP = 64          /* of the head of an answer */
};

struct rp__ttnn {
    int socket;
    pid_t pid;           /* 0: not running */
    rp__bytes line, out; /* the call being written, the calls collected */
    rp_error lost;       /* code not 0: the process is gone */
};

/* ---- starting ---- */

static int move_up(int fd) {
    if (fd < 0) return fd;
    int moved = fcntl(fd, F_DUPFD_CLOEXEC, FIRST_FREE);
    close(fd);
    return moved;
}

/* The script as a file without a name. */
static int open_script(void) {
    int fd = move_up(memfd_create("tenstorrent_glue.py", MFD_CLOEXEC));
    if (fd < 0) return fd;
    for (size_t at = 0; at < rp__tt_glue_bytes;) {
        ssize_t n = write(fd, rp__tt_glue + at, rp__tt_glue_bytes - at);
        if (n <= 0) {
            close(fd);
            return -1;
        }
        at += (size_t)n;
    }
    return fd;
}

static int spawn(rp__ttnn *t, const char *python, int socket, int script) {
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attr;
    sigset_t none, defaults;
    char socket_text[8], script_path[32];
    char *argv[] = {(char *)(uintptr_t)python, script_path, socket_text, NULL};
    snprintf(socket_text, sizeof socket_text, "%d", CHILD_SOCKET);
    snprintf(script_path, sizeof script_path, "/dev/fd/%d", CHILD_SCRIPT);
    posix_spawn_file_actions_init(&files);
    posix_spawnattr_init(&attr);
    posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    /* What ttnn prints must not mix with an answer on standard output. */
    posix_spawn_file_actions_adddup2(&files, STDERR_FILENO, STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&files, socket, CHILD_SOCKET);
    posix_spawn_file_actions_adddup2(&files, script, CHILD_SCRIPT);
    /* A group of its own: Ctrl-C is the engine's to answer. */
    sigemptyset(&none);
    sigemptyset(&defaults);
    sigaddset(&defaults, SIGPIPE);
    posix_spawnattr_setsigmask(&attr, &none);
    posix_spawnattr_setsigdefault(&attr, &defaults);
    posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK |
                                        POSIX_SPAWN_SETSIGDEF);
    int rc = posix_spawnp(&t->pid, python, &files, &attr, argv, environ);
    posix_spawn_file_actions_destroy(&files);
    posix_spawnattr_destroy(&attr);
    if (rc) t->pid = 0;
    return rc;
}

static rp_status start(rp__ttnn *t, const char *python, rp_error *err) {
    int pair[2] = {-1, -1}, script = open_script(), rc = 0;
    if (script >= 0 && socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0) rc = errno;
    for (int i = 0; i < 2; i++) pair[i] = move_up(pair[i]);
    bool is_open = script >= 0 && pair[0] >= 0 && pair[1] >= 0;
    if (is_open) rc = spawn(t, python, pair[1], script);
    if (script >= 0) close(script);
    if (pair[1] >= 0) close(pair[1]);
    t->socket = pair[0];
    if (!is_open)
        return rp__fail(err, RP_EIO, "no socket or memory file for the ttnn process: %s",
                        strerror(rc ? rc : errno));
    if (rc)
        return rp__fail(err, RP_ENOTFOUND,
                        "the Python interpreter \"%s\" cannot be started (%s); "
                        "REPRISE_TTNN_PYTHON names the one that has ttnn",
                        python, strerror(rc));
    return RP_OK;
}

/* ---- losing it ---- */

static void how_it_ended(rp__ttnn *t, char *out, size_t cap) {
    int status = 0;
    if (t->pid && waitpid(t->pid, &status, 0) == t->pid && WIFSIGNALED(status))
        snprintf(out, cap, "was ended by signal %d", WTERMSIG(status));
    else
        snprintf(out, cap, "ended with status %d", WEXITSTATUS(status));
    t->pid = 0;
}

static rp_status note_lost(rp__ttnn *t, rp_error *err) {
    if (!t->lost.code) {
        char how[64];
        shutdown(t->socket, SHUT_RDWR);
        how_it_ended(t, how, sizeof how);
        rp__fail(&t->lost, RP_EDEVICE_LOST, "the ttnn process %s; what it printed says more", how);
    }
    if (err) *err = t->lost;
    return t->lost.code;
}

/* ---- sending ---- */

static void add_ids(rp__bytes *b, const rp__ttnn_id *ids, int n) {
    rp__json_open(b, NULL, '[');
    for (int i = 0; i < n; i++) rp__json_uint(b, NULL, ids[i]);
    rp__json_close(b, ']');
}

static void write_line(rp__bytes *b, const rp__ttnn_call *c, bool wants_answer) {
    rp__bytes_reset(b);
    rp__json_open(b, NULL, '[');
    rp__json_str(b, NULL, c->function);
    add_ids(b, c->in, c->n_in);
    add_ids(b, c->out, c->n_out);
    rp__json_open(b, NULL, '[');
    for (int i = 0; i < c->n_ints; i++) rp__json_int(b, NULL, c->ints[i]);
    rp__json_close(b, ']');
    rp__json_open(b, NULL, '[');
    for (int i = 0; i < c->n_floats; i++) rp__json_num(b, NULL, c->floats[i]);
    rp__json_close(b, ']');
    rp__json_str(b, NULL, c->text ? c->text : "");
    rp__json_uint(b, NULL, c->bytes);
    rp__json_bool(b, NULL, wants_answer);
    rp__json_close(b, ']');
    rp__bytes_add_char(b, '\n');
}

static bool send_all(rp__ttnn *t, const void *data, size_t n) {
    const char *p = data;
    while (n) {
        ssize_t k = send(t->socket, p, n, MSG_NOSIGNAL);
        if (k < 0 && errno == EINTR) continue;
        if (k <= 0) return false;
        p += k, n -= (size_t)k;
    }
    return true;
}

rp_status rp__ttnn_flush(rp__ttnn *t, rp_error *err) {
    if (t->lost.code) return note_lost(t, err);
    bool is_sent = send_all(t, t->out.p, t->out.n);
    rp__bytes_reset(&t->out);
    return is_sent ? RP_OK : note_lost(t, err);
}

static rp_status send_call(rp__ttnn *t, const rp__ttnn_call *c, bool wants_answer, rp_error *err) {
    if (t->lost.code) return note_lost(t, err);
    size_t before = t->out.n;
    bool is_large = c->bytes > FLUSH_BYTES;
    write_line(&t->line, c, wants_answer);
    rp__bytes_add(&t->out, t->line.p, t->line.n);
    if (c->bytes && !is_large) rp__bytes_add(&t->out, c->data, c->bytes);
    if (t->line.failed || t->out.failed) {
        t->line.failed = t->out.failed = false;
        t->out.n = before;
        return rp__fail(err, RP_ENOMEM, "out of memory for a call of ttnn");
    }
    if (is_large || t->out.n > FLUSH_BYTES) RP_TRY(rp__ttnn_flush(t, err));
    return !is_large || send_all(t, c->data, c->bytes) ? RP_OK : note_lost(t, err);
}

rp_status rp__ttnn_send(rp__ttnn *t, const rp__ttnn_call *call, rp_error *err) {
    return send_call(t, call, false, err);
}

/* ---- answers ---- */

static bool receive_all(rp__ttnn *t, void *data, size_t n) {
    char *p = data;
    while (n) {
        ssize_t k = recv(t->socket, p, n, 0);
        if (k < 0 && errno == EINTR) continue;
        if (k <= 0) return false;
        p += k, n -= (size_t)k;
    }
    return true;
}

/* "ok 12", "error 40" or "missing 30": what the word says, and how many bytes follow. */
static bool receive_head(rp__ttnn *t, rp_status *said, size_t *n) {
    char line[LINE_CAP];
    for (size_t at = 0; at < sizeof line; at++) {
        if (!receive_all(t, line + at, 1)) return false;
        if (line[at] != '\n') continue;
        line[at] = 0;
        char *space = strchr(line, ' ');
        if (!space) return false;
        *said = *line == 'o' ? RP_OK : *line == 'm' ? RP_ENOTFOUND : RP_EDEVICE;
        *n = strtoull(space + 1, NULL, 10);
        return true;
    }
    return false;
}

static rp_status receive_error(rp__ttnn *t, rp_status said, size_t n, rp_error *err) {
    char text[sizeof err->message];
    size_t take = n < sizeof text - 1 ? n : sizeof text - 1;
    if (!receive_all(t, text, take)) return note_lost(t, err);
    text[take] = 0;
    for (char c; take < n; take++)
        if (!receive_all(t, &c, 1)) return note_lost(t, err);
    return rp__fail(err, said, "ttnn: %s", text);
}

/* Waits for the answer's length, which must be at most `cap`. */
static rp_status wait_for(rp__ttnn *t, const rp__ttnn_call *call, size_t cap, size_t *n,
                          rp_error *err) {
    rp_status said;
    RP_TRY(send_call(t, call, true, err));
    RP_TRY(rp__ttnn_flush(t, err));
    if (!receive_head(t, &said, n)) return note_lost(t, err);
    if (said < 0) return receive_error(t, said, *n, err);
    if (*n <= cap) return RP_OK;
    note_lost(t, NULL);
    return rp__fail(err, RP_EDEVICE_LOST, "ttnn answered %s with %zu bytes where %zu fit",
                    call->function, *n, cap);
}

rp_status rp__ttnn_ask(rp__ttnn *t, const rp__ttnn_call *call, void *answer, size_t n,
                       rp_error *err) {
    size_t found;
    RP_TRY(wait_for(t, call, n, &found, err));
    if (!receive_all(t, answer, found)) return note_lost(t, err);
    return found == n ? RP_OK
                      : rp__fail(err, RP_EDEVICE, "ttnn answered %s with %zu bytes of %zu",
                                 call->function, found, n);
}

rp_status rp__ttnn_ask_text(rp__ttnn *t, const rp__ttnn_call *call, char *answer, size_t cap,
                            rp_error *err) {
    size_t n;
    RP_TRY(wait_for(t, call, cap - 1, &n, err));
    if (!receive_all(t, answer, n)) return note_lost(t, err);
    answer[n] = 0;
    return RP_OK;
}

/* ---- life ---- */

static void take_word(const char *text, const char *key, char *out, size_t cap) {
    size_t n = strlen(key);
    for (const char *line = text; line && *line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, key, n) || line[n] != ' ') continue;
        snprintf(out, cap, "%.*s", (int)strcspn(line + n + 1, "\n"), line + n + 1);
        return;
    }
}

static void read_info(const char *text, rp__ttnn_info *info) {
    char memory[32] = "0";
    *info = (rp__ttnn_info){0};
    take_word(text, "arch", info->arch, sizeof info->arch);
    take_word(text, "grid", info->grid, sizeof info->grid);
    take_word(text, "kind", info->kind, sizeof info->kind);
    take_word(text, "ttnn", info->ttnn, sizeof info->ttnn);
    take_word(text, "python", info->python, sizeof info->python);
    take_word(text, "memory", memory, sizeof memory);
    info->memory_bytes = strtoull(memory, NULL, 10);
}

rp_status rp__ttnn_open(const rp__ttnn_config *config, rp__ttnn **out, rp__ttnn_info *info,
                        rp_error *err) {
    const char *python = config->python ? config->python : "python3";
    rp__ttnn *t = rp__calloc(1, sizeof *t);
    *out = NULL;
    if (!t) return rp__fail(err, RP_ENOMEM, "out of memory for the ttnn process");
    char text[512];
    rp__ttnn_call open = {.function = "open", .n_ints = 1};
    open.ints[0] = (int64_t)config->trace_region_bytes;
    rp_status st = start(t, python, err);
    if (st >= 0) st = rp__ttnn_ask_text(t, &open, text, sizeof text, err);
    if (st < 0) {
        rp__ttnn_close(t);
        return st;
    }
    read_info(text, info);
    *out = t;
    return RP_OK;
}

void rp__ttnn_close(rp__ttnn *t) {
    if (!t) return;
    if (t->pid && !t->lost.code)
        rp__ttnn_ask(t, &(rp__ttnn_call){.function = "close"}, NULL, 0, NULL);
    if (t->socket >= 0) close(t->socket);
    if (t->pid) waitpid(t->pid, NULL, 0);
    rp__bytes_clear(&t->line);
    rp__bytes_clear(&t->out);
    rp__free(t);
}
