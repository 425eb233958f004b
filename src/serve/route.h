/* The table of endpoints. */
#ifndef RP_SERVE_ROUTE_H
#define RP_SERVE_ROUTE_H

#include "serve/ask.h"
#include "serve/exchange.h"

/* The row of a method and path, NULL when there is none. *tail: of the path, behind a prefix
 * route's. *allow: the methods of a path that is there with others, else NULL. */
const rp__route *rp__route_find(const char *method, const char *path, const char **tail,
                                const char **allow);
const rp__route *rp__route_at(size_t i); /* NULL past the end */

/* answer_routes.c */
void rp__route_chat(rp__exchange *x);
void rp__route_completions(rp__exchange *x);
/* text_routes.c */
void rp__route_tokenize(rp__exchange *x);
void rp__route_detokenize(rp__exchange *x);
void rp__route_apply_template(rp__exchange *x);
/* info_routes.c */
void rp__route_page(rp__exchange *x);
void rp__route_health(rp__exchange *x);
void rp__route_version(rp__exchange *x);
void rp__route_props(rp__exchange *x);
void rp__route_metrics(rp__exchange *x);
void rp__route_models(rp__exchange *x);
void rp__route_model(rp__exchange *x);

/* Parses the body; false after a refusal. */
bool rp__route_parse(rp__exchange *x, rp__ask_kind kind, rp__ask *ask);

#endif
