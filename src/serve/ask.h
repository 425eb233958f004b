/* What a client asks for: a request's JSON, checked field by field against one table.
 *
 * Every field is honoured, ignored as documented, or refused by name; docs/serving.md has the
 * table. Strings are views of the parsed JSON, which the ask keeps. Pure but for that memory. */
#ifndef RP_SERVE_ASK_H
#define RP_SERVE_ASK_H

#include <jansson.h>

#include "base/arena.h"
#include "base/bytes.h"
#include "reprise/reprise.h"
#include "serve/problem.h"

/* What a field may be part of. */
typedef enum rp__ask_kind {
    RP_ASK_CHAT = 1 << 0,
    RP_ASK_COMPLETION = 1 << 1,
    RP_ASK_TOKENIZE = 1 << 2,
    RP_ASK_DETOKENIZE = 1 << 3,
    RP_ASK_TEMPLATE = 1 << 4
} rp__ask_kind;

typedef struct rp__prompt {
    rp__str text; /* p NULL: ids */
    int32_t *ids;
    size_t n_ids;
} rp__prompt;

typedef struct rp__ask {
    rp__ask_kind kind;
    json_t *root;
    rp__arena arena;
    int32_t max_id; /* of tokens */

    const char *model; /* NULL: not said */
    char *messages;    /* JSON; NULL: none */
    char *template_kwargs;
    rp__prompt *prompts; /* of a completion */
    size_t n_prompts;
    rp_request_options options; /* all but the prompt */
    int n;                      /* choices per prompt */
    bool has_seed, stream, include_usage, echo, include_stop;
    bool prompt_only;           /* echo of a prompt and no answer: max_tokens 0 */
    bool with_token_ids;        /* log probabilities name tokens by number */
    bool has_logprobs;          /* chat: `logprobs` is true */
    bool has_generation_prompt; /* add_generation_prompt was given */
    int n_top;                  /* chat: top_logprobs; -1: not given */

    bool add_special, parse_special, with_pieces; /* tokenize */
} rp__ask;

typedef struct rp__ask_limits {
    size_t max_depth;
    int32_t n_vocab;
    bool ignore_unknown;
} rp__ask_limits;

/* Parses `text`, which it may change. The ask must be cleared after success and failure alike. */
rp_status rp__ask_parse(rp__ask *ask, rp__ask_kind kind, rp__bytes *text,
                        const rp__ask_limits *limits, rp__problem *p);
void rp__ask_clear(rp__ask *ask);

/* OpenAI's: the model's own distribution, unless the client says otherwise. */
rp_sampling rp__ask_default_sampling(void);

/* ---- between the files of this module ---- */

/* messages.c: OpenAI's message shapes to {role, content, ...} with string contents; refused by
 * place ("messages[1].content[0].type"). */
rp_status rp__ask_take_messages(rp__ask *ask, const json_t *value, rp__problem *p);

/* JSON as text (rp__alloc); NULL: out of memory. */
char *rp__ask_dump(const json_t *value);

/* fields.c: takes every field of ask->root. */
rp_status rp__ask_take_fields(rp__ask *ask, const rp__ask_limits *limits, rp__problem *p);

#endif
