/* What the files of the engine share. The engine thread owns everything here but what the comments
 * name otherwise. */
#ifndef RP_ENGINE_ENGINE_IMPL_H
#define RP_ENGINE_ENGINE_IMPL_H

#include <pthread.h>
#include <stdatomic.h>

#include "engine/sample.h"
#include "engine/sched.h"
#include "engine/step.h"
#include "engine/stop.h"
#include "text/template.h"
#include "text/tokenizer.h"

struct rp_request {
    rp_engine *engine;
    struct rp_request *next; /* in the list of submitted requests */

    /* Set by submit, then read only. */
    rp_sampling sampling;
    rp_logit_bias *logit_bias;
    rp__str *stop_strings;
    char *stop_memory;
    size_t n_stops;
    int32_t *stop_ids;
    size_t n_stop_ids;
    bool ignore_eos;
    size_t n_bans, min_tokens; /* the first n_bans of logit_bias hold until then */
    int n_logprobs, n_prompt_logprobs;
    rp_event_fn on_event;
    void *user;
    size_t n_prompt, max_new;

    /* The engine thread's. */
    int32_t *history; /* prompt, then answer; room for n_prompt + max_new */
    rp__task task;    /* how far it is */
    rp__detokenizer detokenizer;
    rp__stops stops;
    rp__bytes piece;
    uint64_t first_token_ns;
    bool is_released;         /* in a callback: nobody hears of it any more, its end frees it */
    atomic_bool is_cancelled; /* set by anyone */

    /* The answer so far; written by the engine thread, read by others: under engine->lock. */
    pthread_cond_t changed;
    size_t n_tokens;             /* published TOKEN events */
    float *logprobs;             /* [max_new] */
    size_t *text_ends;           /* [max_new] end in `text` of what each token completed */
    rp_top_logprob *tops;        /* [max_new * n_logprobs] */
    float *prompt_logprobs;      /* [n_prompt] of the prompt; NULL: not asked for */
    rp_top_logprob *prompt_tops; /* [n_prompt * n_prompt_logprobs] */
    size_t n_prompt_known;       /* from token 1 on */
    rp__bytes text;
    bool is_done;
    rp_finish finish;
    const char *stop_hit;
    rp_usage usage;
    rp_error error;

    /* The reader's (rp_request_next). */
    size_t n_read, text_read;
    bool done_given;
    rp__bytes event_text;
};

/* Something another thread wants done on the engine's. */
typedef rp_status (*rp__engine_job_fn)(rp_engine *e, void *arg, rp_error *err);
typedef struct rp__engine_job {
    rp__engine_job_fn run;
    void *arg;
    rp_status status;
    rp_error error;
    bool is_done;
} rp__engine_job;

struct rp_engine {
    rp__checkpoint *checkpoint;
    rp__tokenizer *tokenizer;
    rp__template *chat_template; /* NULL: the model has none */
    rp_device *device;
    rp__model *model;
    rp__stepper stepper;
    rp__kv kv;
    rp__sched sched;
    rp__sampler sampler;
    rp_engine_info info;
    int32_t max_seqs, max_open; /* max_open: requests at once, with those that wait */
    int32_t *eog_ids;           /* [n_eog] that end an answer */
    size_t n_eog;

    pthread_t thread;
    bool has_thread, has_lock;
    pthread_mutex_t lock; /* guards what follows, and the published part of every request */
    pthread_cond_t wake, job_done, idle; /* idle: n_open is 0 */
    rp__engine_job *job;
    rp_request *queue, **queue_end; /* submitted, not yet seen by the thread */
    int32_t n_open;                 /* accepted and not done */
    bool is_stopping, is_draining, has_cancels;
    uint64_t step_start_ns; /* 0: no step is in progress */
    rp_capture_mode mode;
    rp_engine_stats stats;
    rp_error failure; /* code != 0: the device failed; further work is refused with this */
};

static inline rp_request *rp__request_of(rp__task *t) {
    return (rp_request *)(void *)((char *)t - offsetof(rp_request, task));
}

/* loop.c */
void *rp__engine_thread(void *engine);
/* publish.c: what the engine thread tells the reader of a request. `token` takes the text of a
 * token that was appended to the history; true when a stop string is complete. `done` gives back
 * its blocks and place first; afterwards the request belongs to its owner. */
bool rp__publish_token(rp_engine *e, rp_request *r, int32_t id, float logprob);
void rp__publish_done(rp_engine *e, rp_request *r, rp_finish finish, const rp_error *error);
/* request.c */
void rp__request_free(rp_request *r); /* NULL is fine */
/* events.c */
void rp__cond_init(pthread_cond_t *c);      /* waits by the monotonic clock */
struct timespec rp__deadline_after(int ms); /* on that clock */
/* What others may ask about, as it is now. Under the lock, or before the thread is there. */
void rp__engine_copy_stats(rp_engine *e);
/* Whether this is a callback's thread, which must not wait for itself. */
bool rp__is_engine_thread(const rp_engine *e);
rp_status rp__refuse_engine_thread(const rp_engine *e, rp_error *err); /* RP_ESTATE when it is */
/* Runs on the engine thread while no request is there; waits for it. RP_EBUSY: there are requests.
 */
rp_status rp__engine_do(rp_engine *e, rp__engine_job_fn run, void *arg, rp_error *err);

/* chat.c: the prompt text that messages become, with the spans that are not the template's own. */
rp_status rp__chat_render(const rp_engine *e, const rp_request_options *o, rp__rendered *out,
                          rp_error *err);
/* The model's own template, NULL when it has none (rp__alloc). */
rp_status rp__chat_template_source(const rp__checkpoint *c, char **out, rp_error *err);

/* Devices listed in REPRISE_DEVICE_PATH are there from the first call on; before a device is opened
 * or listed. */
void rp__devices_prepare(void);

/* `folder`/`name` in the cache folder (REPRISE_CACHE, or the user's own); false: out of memory. */
bool rp__cache_path(rp__bytes *out, const char *folder, const char *name);

/* A model's path from what the user wrote: the path itself, or a short name in the cache folder
 * (rp__alloc). */
rp_status rp__model_path(const char *name, char **out, rp_error *err);

#endif
