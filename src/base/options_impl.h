/* Shared by the files of the options module only: the table's ends, names, and the distance for
 * suggestions. */
#ifndef RP_BASE_OPTIONS_IMPL_H
#define RP_BASE_OPTIONS_IMPL_H

#include "base/options.h"

enum { RP_ENV_CAP = 64 }; /* bytes of the longest variable name; a test walks the table */

extern const char *const rp__option_groups[]; /* titles, in the order help shows them; NULL ends */

/* Options other engines have and this one answers in its own way: the sentence says which. */
typedef struct rp__foreign_option {
    const char *names; /* as written with dashes, space separated */
    const char *sentence;
} rp__foreign_option;
extern const rp__foreign_option rp__foreign_options[]; /* names NULL ends */

/* Takes the next word of a space-separated list; false at its end. */
bool rp__option_word(const char **list, rp__str *word);

/* "max-tokens" -> "REPRISE_MAX_TOKENS"; cuts at RP_ENV_CAP. */
void rp__option_env_name(rp__str name, char out[RP_ENV_CAP]);

/* Edits (insert, delete, replace, swap of neighbours) from a to b; names are short. */
size_t rp__option_distance(const char *a, rp__str b);

/* The long name of `command`'s options nearest to `name` (without dashes), empty when none is near.
 */
rp__str rp__option_suggest(rp__command command, const char *name);

#endif
