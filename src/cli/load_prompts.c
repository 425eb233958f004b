/* Prompts of a wanted length that no cache has seen: random words of a fixed list, each of which
 * most vocabularies have as one token with its blank. */
#include <jansson.h>
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "base/json_writer.h"
#include "cli/cli.h"
#include "cli/load.h"

static const char *const words[64] = {
    "time",     "year",   "people",     "way",    "day",     "man",     "thing",    "woman",
    "life",     "child",  "world",      "school", "state",   "family",  "group",    "country",
    "hand",     "part",   "place",      "case",   "week",    "company", "system",   "program",
    "question", "work",   "government", "number", "night",   "point",   "home",     "water",
    "room",     "mother", "area",       "money",  "story",   "fact",    "month",    "lot",
    "right",    "study",  "book",       "eye",    "job",     "word",    "business", "issue",
    "side",     "kind",   "head",       "house",  "service", "friend",  "father",   "power",
    "hour",     "game",   "line",       "end",    "member",  "law",     "car",      "city"};

uint64_t rp__load_random(uint64_t *state) {
    *state ^= *state >> 12, *state ^= *state << 25, *state ^= *state >> 27;
    return *state * 0x2545F4914F6CDD1DULL;
}

static void add_word(rp__bytes *out, uint64_t *random) {
    if (out->n) rp__bytes_add_char(out, ' ');
    rp__bytes_add_str(out, words[rp__load_random(random) >> 58]);
}

static void drop_word(rp__bytes *text) {
    while (text->n && text->p[text->n - 1] != ' ') text->n--;
    if (text->n) text->n--;
    text->p[text->n] = 0;
}

/* How many tokens the server makes of a text; -1 when it does not say. */
static int count_tokens(const rp__load_config *c, const rp__bytes *text) {
    rp__bytes body = {0}, answer = {0};
    rp__json_open(&body, NULL, '{');
    rp__json_strn(&body, "content", text->p, text->n);
    rp__json_close(&body, '}');
    int n = -1;
    if (!body.failed && !rp__load_fetch(c, "/tokenize", body.p, &answer, NULL)) {
        json_t *root = json_loadb(answer.p ? answer.p : "", answer.n, 0, NULL);
        const json_t *tokens = json_object_get(root, "tokens");
        if (json_is_array(tokens)) n = (int)json_array_size(tokens);
        json_decref(root);
    }
    rp__bytes_clear(&answer);
    rp__bytes_clear(&body);
    return n;
}

static int count_words(const rp__bytes *text) {
    int n = text->n > 0;
    for (size_t i = 0; i < text->n; i++) n += text->p[i] == ' ';
    return n;
}

/* Adds words, and takes some away, until `text` has n tokens. A word may be several tokens, so
 * each step goes as far as the words so far let expect. */
static bool fit_words(const rp__load_config *c, rp__bytes *text, int n, rp__prompt_unit *unit,
                      uint64_t *random) {
    enum { TRIES = 40 }; /* words of one and two tokens need a few by chance */
    while (count_words(text) < n && !text->failed) add_word(text, random);
    for (int i = 0; *unit != RP_PROMPT_WORDS && !text->failed; i++) {
        int count = count_tokens(c, text);
        if (count < 0) *unit = RP_PROMPT_WORDS;
        if (count < 0 || count == n) break;
        if (i == TRIES) {
            *unit = RP_PROMPT_ABOUT_TOKENS;
            break;
        }
        double per_word = (double)count / count_words(text);
        int more = (int)lround((n - count) / per_word);
        if (!more) more = count < n ? 1 : -1;
        for (; more > 0; more--) add_word(text, random);
        for (; more < 0 && count_words(text) > 1; more++) drop_word(text);
    }
    return !text->failed;
}

static rp_status make_words(rp__load_config *c, const rp__prompt_plan *plan, rp__prompt_unit *unit,
                            rp_error *err) {
    rp__bytes shared = {0}, text = {0};
    uint64_t random = c->seed;
    rp_status s = RP_OK;
    bool is_whole = !plan->n_shared || fit_words(c, &shared, plan->n_shared, unit, &random);
    for (int i = 0; is_whole && !s && i < c->n_requests; i++) {
        if (!rp__cli_is_quiet())
            rp__cli_status_line("making prompt %d of %d", i + 1, c->n_requests);
        rp__bytes_reset(&text);
        if (shared.n) rp__bytes_add(&text, shared.p, shared.n);
        is_whole = fit_words(c, &text, plan->n_tokens, unit, &random);
        if (is_whole) c->prompts[c->n_prompts] = rp__strndup(text.p ? text.p : "", text.n);
        is_whole = is_whole && c->prompts[c->n_prompts++];
        if (rp__cli_interrupted()) s = rp__fail(err, RP_ECANCELLED, "interrupted");
    }
    rp__cli_status_line(NULL);
    rp__bytes_clear(&text);
    rp__bytes_clear(&shared);
    if (!is_whole) return rp__fail(err, RP_ENOMEM, "out of memory for the prompts");
    return s;
}

/* One prompt per line; blank lines are left out. */
static rp_status read_prompts(rp__load_config *c, const char *path, rp_error *err) {
    rp__bytes file = {0};
    rp_status s = rp__cli_read_file(path, &file, err);
    if (!s) s = rp__cli_check_utf8(path, file.p, file.n, err);
    for (size_t at = 0; !s && at < file.n && c->n_prompts < (size_t)c->n_requests;) {
        const char *end = memchr(file.p + at, '\n', file.n - at);
        size_t n = end ? (size_t)(end - (file.p + at)) : file.n - at, next = at + n + 1;
        if (n && file.p[at + n - 1] == '\r') n--;
        if (n) c->prompts[c->n_prompts] = rp__strndup(file.p + at, n);
        if (n && !c->prompts[c->n_prompts++])
            s = rp__fail(err, RP_ENOMEM, "out of memory for the prompts");
        at = next;
    }
    if (!s && !c->n_prompts) s = rp__fail(err, RP_EINVAL, "%s has no prompts", path);
    rp__bytes_clear(&file);
    return s;
}

rp_status rp__load_make_prompts(rp__load_config *c, const rp__prompt_plan *plan,
                                rp__prompt_unit *unit, rp_error *err) {
    *unit = RP_PROMPT_TOKENS;
    c->prompts = rp__calloc((size_t)c->n_requests, sizeof *c->prompts);
    if (!c->prompts) return rp__fail(err, RP_ENOMEM, "out of memory for the prompts");
    return plan->file ? read_prompts(c, plan->file, err) : make_words(c, plan, unit, err);
}

void rp__load_free_prompts(rp__load_config *c) {
    for (size_t i = 0; i < c->n_prompts; i++) rp__free(c->prompts[i]);
    rp__free(c->prompts);
    c->prompts = NULL;
    c->n_prompts = 0;
}
