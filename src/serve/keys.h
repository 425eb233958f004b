/* API keys: which are right, told in time that does not depend on how nearly one was guessed. */
#ifndef RP_SERVE_KEYS_H
#define RP_SERVE_KEYS_H

#include <stdbool.h>
#include <stddef.h>

/* Whether the value of an Authorization header ("Bearer KEY"; NULL: there is none) carries one of
 * the keys; always when there are no keys. */
bool rp__keys_allow(const char *const *keys, size_t n_keys, const char *authorization);

#endif
