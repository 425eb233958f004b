/* The asynchronous queue of the emulated accelerator: a ring of commands and a thread that runs
 * them in order.
 *
 * Kernels run on this thread alone. The caller's thread touches device memory only after a drain.
 * One lock guards the ring's counters, events and the state "lost"; a slot's contents belong to the
 * caller until it is put, then to the thread until it is done. */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "device/emu/emu_impl.h"
#include "device/op.h"

static void lose(rp__emu *emu, const char *text) {
    if (emu->is_lost) return;
    emu->is_lost = true;
    snprintf(emu->lost_text, sizeof emu->lost_text, "%s", text);
}

/* Counts one op, and loses the device when it is the chosen one. False: the device is lost, the op
 * must not run. */
static bool count_run(rp__emu *emu) {
    pthread_mutex_lock(&emu->lock);
    emu->n_run++;
    if (emu->lose_at && emu->n_run == emu->lose_at) lose(emu, "the device stopped answering");
    bool is_lost = emu->is_lost;
    pthread_mutex_unlock(&emu->lock);
    return !is_lost;
}

static void run_kernel(rp__emu *emu, const rp__emu_kernel *k) {
    if (!count_run(emu)) return;
    if (k->temporary) memset(k->temporary, 0xA5, k->temporary_bytes);
    rp__body_args args = {.op = &k->op, .scratch = emu->scratch, .to = 1, .of = 1, .n_workers = 1};
    for (int i = 0; i < k->op.n_in; i++) args.in[i] = k->in[i];
    for (int i = 0; i < k->op.n_out; i++) args.out[i] = k->out[i];
    args.n_live = rp__op_rows(&k->op);
    if (k->live) {
        int32_t n;
        memcpy(&n, k->live, sizeof n);
        if (n < args.n_live) args.n_live = n < 0 ? 0 : n;
    }
    k->fn(&args);
}

static void wait_event(rp__emu *emu, uint64_t event) {
    pthread_mutex_lock(&emu->lock);
    while (emu->event_done[event % RP_EMU_MAX_QUEUES] < event && !emu->is_stopping && !emu->is_lost)
        pthread_cond_wait(&emu->changed, &emu->lock);
    pthread_mutex_unlock(&emu->lock);
}

static void signal_event(rp__emu *emu, uint64_t event) {
    pthread_mutex_lock(&emu->lock);
    emu->event_done[event % RP_EMU_MAX_QUEUES] = event;
    pthread_cond_broadcast(&emu->changed);
    pthread_mutex_unlock(&emu->lock);
}

static void run_command(rp__emu *emu, const rp__emu_cmd *cmd, const char *stage) {
    if (cmd->is_too_long) {
        pthread_mutex_lock(&emu->lock);
        lose(emu, "a submit was longer than the watchdog allows");
        pthread_mutex_unlock(&emu->lock);
        return;
    }
    switch (cmd->kind) {
    case RP_EMU_KERNEL:
        run_kernel(emu, &cmd->kernel);
        break;
    case RP_EMU_GRAPH:
        for (size_t i = 0; i < cmd->graph->n; i++) run_kernel(emu, &cmd->graph->kernels[i]);
        break;
    case RP_EMU_WRITE:
        memcpy(cmd->dst, stage, cmd->n);
        break;
    case RP_EMU_COPY:
        memmove(cmd->dst, cmd->src, cmd->n);
        break;
    case RP_EMU_SIGNAL:
        signal_event(emu, cmd->event);
        break;
    case RP_EMU_WAIT:
        wait_event(emu, cmd->event);
        break;
    }
}

static void *stream_main(void *arg) {
    rp__emu_stream *s = arg;
    rp__emu *emu = s->emu;
    pthread_mutex_lock(&emu->lock);
    for (;;) {
        while (s->done == s->put && !emu->is_stopping) pthread_cond_wait(&emu->changed, &emu->lock);
        if (s->done == s->put) break;
        size_t slot = s->done % RP_EMU_RING;
        bool is_lost = emu->is_lost;
        pthread_mutex_unlock(&emu->lock);
        if (!is_lost) run_command(emu, &s->ring[slot], s->stage + slot * RP_EMU_STAGE);
        pthread_mutex_lock(&emu->lock);
        s->done++;
        pthread_cond_broadcast(&emu->changed);
    }
    pthread_mutex_unlock(&emu->lock);
    return NULL;
}

rp_status rp__emu_stream_open(rp__emu *emu, uint32_t queue, rp_error *err) {
    rp__emu_stream *s = &emu->streams[queue];
    s->emu = emu;
    s->ring = rp__calloc(RP_EMU_RING, sizeof *s->ring);
    s->stage = rp__alloc((size_t)RP_EMU_RING * RP_EMU_STAGE);
    if (!s->ring || !s->stage)
        return rp__fail(err, RP_ENOMEM, "emu: no memory for queue %u", queue);
    if (pthread_create(&s->thread, NULL, stream_main, s))
        return rp__fail(err, RP_ENOMEM, "emu: no thread for queue %u", queue);
    s->is_started = true;
    return RP_OK;
}

void rp__emu_stream_close(rp__emu_stream *s) {
    if (s->is_started) pthread_join(s->thread, NULL);
    rp__free(s->ring);
    rp__free(s->stage);
    *s = (rp__emu_stream){0};
}

/* Only the caller's thread changes `put`, so it may read it without the lock. */
rp__emu_cmd *rp__emu_stream_slot(rp__emu_stream *s) {
    pthread_mutex_lock(&s->emu->lock);
    while (s->put - s->done == RP_EMU_RING) pthread_cond_wait(&s->emu->changed, &s->emu->lock);
    pthread_mutex_unlock(&s->emu->lock);
    return &s->ring[s->put % RP_EMU_RING];
}

char *rp__emu_stream_stage(rp__emu_stream *s) {
    return s->stage + s->put % RP_EMU_RING * RP_EMU_STAGE;
}

void rp__emu_stream_put(rp__emu_stream *s) {
    pthread_mutex_lock(&s->emu->lock);
    s->put++;
    pthread_cond_broadcast(&s->emu->changed);
    pthread_mutex_unlock(&s->emu->lock);
}

void rp__emu_stream_drain(rp__emu_stream *s) {
    if (!s->is_started) return;
    pthread_mutex_lock(&s->emu->lock);
    while (s->done != s->put) pthread_cond_wait(&s->emu->changed, &s->emu->lock);
    pthread_mutex_unlock(&s->emu->lock);
}
