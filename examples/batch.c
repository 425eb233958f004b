/* Answers every line of the standard input, many at once: batch MODEL [MAX_TOKENS] < questions
 *
 *     cc examples/batch.c $(pkg-config --cflags --libs reprise) -o batch
 *     printf 'Say hello.\nCount to five.\n' | ./batch smollm2 32
 *
 * All lines are submitted first; the engine steps as many together as it has places for, and what
 * equal prompts have in common is computed once. Answers come out in the order of the lines.
 */
#include <reprise/reprise.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_LINES = 1000 };

static int fail(const char *doing, const rp_error *err) {
    fprintf(stderr, "batch: %s: %s\n", doing, err->message);
    return 1;
}

/* Returns how many requests there are. */
static int submit_lines(rp_engine *engine, int max_tokens, rp_request **requests) {
    static char line[4096];
    int n = 0;
    while (n < MOST_LINES && fgets(line, sizeof line, stdin)) {
        rp_request_options options = rp_request_options_default();
        rp_error err = {0};
        line[strcspn(line, "\n")] = 0;
        options.prompt = line; /* copied by submit */
        options.max_tokens = max_tokens;
        options.sampling.temperature = 0;
        if (rp_engine_submit(engine, &options, &requests[n], &err) >= 0)
            n++;
        else
            fail(line, &err); /* one bad line does not stop the others */
    }
    return n;
}

static int print_answer(rp_request *request) {
    rp_error err = {0};
    char *text = NULL;
    if (rp_request_wait(request, &text, NULL, &err) < 0) return fail("an answer stopped", &err);
    printf("%s\n", text);
    rp_free(text);
    return 0;
}

int main(int argc, char **argv) {
    if (argc < 2 || argc > 3) {
        fprintf(stderr, "usage: %s MODEL [MAX_TOKENS] < LINES\n", argv[0]);
        return 2;
    }
    rp_error err = {0};
    rp_engine_options options = rp_engine_options_default();
    rp_engine *engine = NULL;
    options.model = argv[1];
    options.max_seqs = 8; /* answered together; more lines wait for their turn */
    options.max_queue = MOST_LINES;
    if (rp_engine_create(&options, &engine, &err) < 0) return fail("cannot load", &err);

    static rp_request *requests[MOST_LINES];
    int n = submit_lines(engine, argc == 3 ? atoi(argv[2]) : 64, requests), status = 0;
    for (int i = 0; i < n; i++) {
        status |= print_answer(requests[i]);
        rp_request_release(requests[i]);
    }
    rp_engine_destroy(engine);
    return status;
}
