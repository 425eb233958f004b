/* Completes a text: complete MODEL TEXT [MAX_TOKENS]
 *
 *     cc examples/complete.c $(pkg-config --cflags --libs reprise) -o complete
 *     ./complete smollm2 "The capital of France is"
 *
 * MODEL is a .gguf file, a model folder, or the short name of a model in ~/.cache/reprise/models.
 */
#include <reprise/reprise.h>

#include <stdio.h>
#include <stdlib.h>

static int fail(const char *doing, const rp_error *err) {
    fprintf(stderr, "complete: %s: %s\n", doing, err->message);
    return 1;
}

/* Prints the text as it comes. Returns the exit status. */
static int follow(rp_request *request) {
    for (;;) {
        rp_event event;
        if (rp_request_next(request, -1, &event) != RP_OK) return 1;
        fwrite(event.text, 1, event.text_bytes, stdout);
        fflush(stdout);
        if (event.kind != RP_EVENT_DONE) continue;
        if (event.finish == RP_FINISH_ERROR) return fail("the answer stopped", &event.error);
        printf("\n");
        fprintf(stderr, "%u prompt tokens, %u generated, ended by %s\n",
                (unsigned)event.usage.n_prompt, (unsigned)event.usage.n_generated,
                rp_finish_name(event.finish));
        return 0;
    }
}

int main(int argc, char **argv) {
    if (argc < 3 || argc > 4) {
        fprintf(stderr, "usage: %s MODEL TEXT [MAX_TOKENS]\n", argv[0]);
        return 2;
    }
    rp_error err = {0};
    rp_engine_options engine_options = rp_engine_options_default();
    rp_engine *engine = NULL;
    engine_options.model = argv[1];
    engine_options.max_seqs = 1;
    if (rp_engine_create(&engine_options, &engine, &err) < 0) return fail("cannot load", &err);

    rp_request_options options = rp_request_options_default();
    rp_request *request = NULL;
    options.prompt = argv[2];
    options.max_tokens = argc == 4 ? atoi(argv[3]) : 64;
    options.sampling.temperature = 0; /* always the likeliest token */
    int status = 1;
    if (rp_engine_submit(engine, &options, &request, &err) < 0)
        fail("cannot start", &err);
    else
        status = follow(request);

    rp_request_release(request);
    rp_engine_destroy(engine);
    return status;
}
