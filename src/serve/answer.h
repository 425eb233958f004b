/* The answer to a chat or a completion: its choices, each a request in the engine.
 *
 * The engine's thread adds what comes (text, log probabilities, the end) to a choice; the sockets'
 * thread takes it away, for a stream as it comes, else when all choices are done. What waits for a
 * slow reader is joined into one chunk, so that it takes little, and is bounded: past that the
 * answer is cancelled. Everything is under the exchange's lock but create, start and destroy. */
#ifndef RP_SERVE_ANSWER_H
#define RP_SERVE_ANSWER_H

#include "serve/ask.h"
#include "serve/exchange.h"

/* Arrays of the JSON of log probabilities: chat has one list, completions four. */
enum { RP_LOGPROB_LISTS = 4 };

typedef struct rp__choice {
    rp__answer *answer;
    int index;
    rp__str echo;   /* the prompt's text, given first */
    rp__bytes text; /* not yet sent */
    rp__bytes logprobs[RP_LOGPROB_LISTS];
    size_t n_chars; /* of the answer before the next token, for text_offset */
    char cut[4];    /* bytes of a character that is not whole yet */
    size_t n_cut;
    uint64_t token_ns; /* of the last token */
    bool has_token;
    bool is_begun;         /* its first chunk was sent */
    bool is_done, is_told; /* ended; and the stream said so */
    rp_finish finish;
    rp_usage usage;
} rp__choice;

struct rp__answer {
    rp__exchange *exchange;
    rp__ask ask;
    char id[160];
    int64_t created;
    rp__choice *choices;
    rp_request **requests;                 /* of each choice */
    size_t n_choices, n_submitted, n_open; /* n_open: submitted and not done */
    bool is_started;                       /* every choice was submitted */
    bool is_finished;                      /* the stream's last bytes are made */
    rp__problem failure;                   /* http 0: there is none */
    rp__bytes out;                         /* of a stream: made and not yet given away */
    size_t n_given;
    double first_token_seconds; /* < 0: none came */
};

/* Takes the ask (also when it fails). NULL: out of memory. */
rp__answer *rp__answer_create(rp__exchange *x, rp__ask *take);
/* Submits every choice; what comes is the exchange's reply from then on. On failure the problem is
 * set, and what was submitted is cancelled. */
rp_status rp__answer_start(rp__answer *a, rp_engine *engine, rp__problem *p);
void rp__answer_destroy(rp__answer *a); /* waits for its requests; NULL is fine */

void rp__answer_cancel(rp__answer *a);
bool rp__answer_is_streaming(const rp__answer *a);
bool rp__answer_is_whole(const rp__answer *a);  /* not a stream, and every choice is done */
rp_usage rp__answer_usage(const rp__answer *a); /* the prompts counted once, all choices' tokens */
const char *rp__answer_finish(const rp__answer *a); /* of the first choice; "" while it runs */

/* The object of a whole answer; or the problem it ended with. */
void rp__answer_write(rp__answer *a, rp__bytes *out, rp__problem *p);

/* sse.c: the next bytes of the stream: how many, 0 when there are none yet, or one of MHD's codes
 * for the end. */
ssize_t rp__answer_read(rp__answer *a, char *buf, size_t cap);

/* reply.c: objects and chunks. */
void rp__reply_write(const rp__answer *a, rp__bytes *out);
/* A chunk with what the choice has; takes it out of the choice. */
void rp__reply_chunk(rp__answer *a, rp__choice *c, rp__bytes *out);
void rp__reply_last_chunk(rp__answer *a, rp__choice *c, rp__bytes *out);
void rp__reply_usage_chunk(rp__answer *a, rp__bytes *out);

/* logprob.c: one token's entries, appended to the choice's lists. */
void rp__logprob_add(rp__choice *c, rp_engine *engine, const rp_event *event);
/* Those of an echoed prompt, which come before. */
void rp__logprob_add_prompt(rp__choice *c, rp_engine *engine, rp_request *request);
void rp__logprob_write(rp__bytes *out, const rp__choice *c); /* the member "logprobs" */

#endif
