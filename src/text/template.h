/* Chat templates: a small Jinja interpreter, as transformers configures it (trim_blocks,
 * lstrip_blocks, loop controls, immutable sandbox, tojson without escaping).
 *
 * Owns: parsed templates. Untrusted input: templates come from model files, values from requests;
 * steps, depth and output are bounded. An unsupported construct is refused at parse time (at render
 * time where it cannot be known earlier) with line and construct. Read-only after parse: may be
 * shared by threads. */
#ifndef RP_TEXT_TEMPLATE_H
#define RP_TEXT_TEMPLATE_H

#include <jansson.h>

#include "base/bytes.h"
#include "text/tokenizer.h"

typedef struct rp__template rp__template;

/* `name` is used in messages ("tokenizer.chat_template"). */
rp_status rp__template_parse(const char *name, rp__str source, rp__template **out, rp_error *err);
void rp__template_destroy(rp__template *t); /* NULL is fine */

typedef struct rp__rendered {
    rp__bytes text;
    /* Where strings of the context's "messages", "tools" and "documents" came out: not the
     * template's own text. Sorted, disjoint, not adjacent. */
    rp__span *literal;
    size_t n_literal;
} rp__rendered;
void rp__rendered_clear(rp__rendered *r);

/* Renders with the variables of `context` (an object: messages, tools, add_generation_prompt,
 * bos_token, ...). raise_exception gives RP_ETEMPLATE with the template's own text; a limit gives
 * RP_ELIMIT; an error at a line gives RP_EFORMAT or RP_EUNSUPPORTED. `now` is what strftime_now
 * sees (seconds since 1970, UTC). */
rp_status rp__template_render(const rp__template *t, const json_t *context, int64_t now,
                              rp__rendered *out, rp_error *err);

#endif
