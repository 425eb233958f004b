/* The terminal's echo, and Ctrl-C. */
#define _GNU_SOURCE /* ppoll, pipe2 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <termios.h>
#include <unistd.h>

#include "cli/cli.h"

/* ---- echo ---- */

static struct termios first_state; /* of the terminal before echo was first switched off */
static volatile sig_atomic_t has_first_state;

/* Also called from the signal handler: tcsetattr is safe there. */
static void restore_terminal(void) {
    if (has_first_state) tcsetattr(STDIN_FILENO, TCSANOW, &first_state);
}

void rp__cli_set_echo(bool on) {
    struct termios t;
    if (tcgetattr(STDIN_FILENO, &t)) return; /* no terminal */
    if (!has_first_state) {
        first_state = t;
        has_first_state = 1;
        atexit(restore_terminal);
    }
    if (on)
        t = first_state;
    else
        t.c_lflag &= ~(tcflag_t)ECHO;
    tcsetattr(STDIN_FILENO, TCSANOW, &t);
}

bool rp__cli_typed_ahead(void) {
    struct pollfd p = {.fd = STDIN_FILENO,
                       .events = POLLIN}; /* the terminal gives whole lines only */
    if (poll(&p, 1, 0) > 0) return true;
    tcflush(STDIN_FILENO, TCIFLUSH);
    return false;
}

/* ---- interrupts ---- */

static volatile sig_atomic_t n_interrupts;
static int wake_pipe[2] = {-1, -1}; /* a byte for each, as any thread may have got the signal */

static void on_interrupt(int number) {
    int saved = errno;
    (void)number;
    if (wake_pipe[1] >= 0 && write(wake_pipe[1], "", 1) < 0) errno = saved; /* seen later then */
    errno = saved;
    if (++n_interrupts < 2) return;
    restore_terminal();
    _exit(RP_CLI_INTERRUPTED);
}

static void count_signal(int number) {
    /* Restarting keeps a write of the answer or of the log whole; ppoll, where the prompt waits,
     * ends all the same. */
    struct sigaction a = {.sa_handler = on_interrupt, .sa_flags = SA_RESTART};
    sigemptyset(&a.sa_mask);
    sigaction(number, &a, NULL);
}

void rp__cli_interrupt_init(void) {
    count_signal(SIGINT);
}

void rp__cli_terminate_init(void) {
    if (pipe2(wake_pipe, O_CLOEXEC | O_NONBLOCK)) wake_pipe[0] = wake_pipe[1] = -1;
    count_signal(SIGTERM);
}

bool rp__cli_wait_interrupt(int timeout_ms) {
    struct pollfd p = {.fd = wake_pipe[0], .events = POLLIN};
    if (!n_interrupts) poll(&p, 1, timeout_ms);
    return n_interrupts > 0;
}

bool rp__cli_interrupted(void) {
    return n_interrupts > 0;
}
void rp__cli_interrupt_reset(void) {
    n_interrupts = 0;
}

int rp__cli_getc(void) {
    unsigned char c;
    sigset_t only_interrupt, before;
    struct pollfd p = {.fd = STDIN_FILENO, .events = POLLIN};
    sigemptyset(&only_interrupt);
    sigaddset(&only_interrupt, SIGINT);
    pthread_sigmask(SIG_BLOCK, &only_interrupt, &before);
    /* A signal that came before this line is counted; one after it waits for ppoll, which it ends.
     */
    bool has_input = !n_interrupts && ppoll(&p, 1, NULL, &before) > 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return has_input && read(STDIN_FILENO, &c, 1) == 1 ? c : -1;
}
