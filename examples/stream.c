/* Two answers to one question, streamed side by side: stream MODEL QUESTION [MAX_TOKENS]
 *
 *     cc examples/stream.c $(pkg-config --cflags --libs reprise) -o stream
 *     ./stream smollm2 "Name a colour."
 *
 * Events come by callback, on the engine's own thread. The prompt is computed once for both.
 */
#include <reprise/reprise.h>

#include <stdio.h>
#include <stdlib.h>

enum { N_CHOICES = 2 };

typedef struct answers {
    rp_request *requests[N_CHOICES];
} answers;

/* Must return soon: while it runs, nobody's answer goes on. */
static void on_event(void *user, rp_request *request, const rp_event *event) {
    const answers *a = user;
    int i = 0;
    while (a->requests[i] != request) i++; /* filled in before the first event */
    if (event->text_bytes) printf("%d: %.*s\n", i + 1, (int)event->text_bytes, event->text);
    if (event->kind == RP_EVENT_DONE) printf("%d: (%s)\n", i + 1, rp_finish_name(event->finish));
}

/* The question as a chat; only '"' and '\' need care in JSON, as control bytes do not come here. */
static void write_messages(char *out, size_t cap, const char *question) {
    size_t n = (size_t)snprintf(out, cap, "[{\"role\":\"user\",\"content\":\"");
    for (; *question && n + 8 < cap; question++) {
        if (*question == '"' || *question == '\\') out[n++] = '\\';
        out[n++] = *question;
    }
    snprintf(out + n, cap - n, "\"}]");
}

static int fail(const char *doing, const rp_error *err) {
    fprintf(stderr, "stream: %s: %s\n", doing, err->message);
    return 1;
}

int main(int argc, char **argv) {
    static char messages[8192];
    if (argc < 3 || argc > 4) {
        fprintf(stderr, "usage: %s MODEL QUESTION [MAX_TOKENS]\n", argv[0]);
        return 2;
    }
    rp_error err = {0};
    rp_engine_options engine_options = rp_engine_options_default();
    rp_engine *engine = NULL;
    engine_options.model = argv[1];
    if (rp_engine_create(&engine_options, &engine, &err) < 0) return fail("cannot load", &err);

    answers a = {{0}};
    rp_request_options options = rp_request_options_default();
    write_messages(messages, sizeof messages, argv[2]);
    options.messages = messages;
    options.max_tokens = argc == 4 ? atoi(argv[3]) : 32;
    options.on_event = on_event;
    options.user = &a;
    int status = 0;
    if (rp_engine_submit_n(engine, &options, N_CHOICES, a.requests, &err) < 0)
        status = fail("cannot start", &err);
    for (int i = 0; i < N_CHOICES && !status; i++)
        if (rp_request_wait(a.requests[i], NULL, NULL, &err) < 0) status = fail("stopped", &err);
    for (int i = 0; i < N_CHOICES; i++) rp_request_release(a.requests[i]);
    rp_engine_destroy(engine);
    return status;
}
