/* JSON out of model files: untrusted text, parsed by jansson behind a bound on nesting, with a
 * sentence that names the place. Pure functions; jansson allocates for itself. */
#ifndef RP_FILE_JSON_H
#define RP_FILE_JSON_H

#include <jansson.h>

#include "base/bytes.h"

typedef struct rp__json_source {
    const char *name; /* of the file, for messages */
    size_t offset;    /* where the text begins in it */
    size_t max_depth; /* of arrays and objects within each other */
    bool unique_keys; /* a key that is there twice is refused; otherwise the last one counts, as in
                         Python */
} rp__json_source;

/* Parses `text` whole; *out must be an object, and is the caller's (json_decref). */
rp_status rp__json_parse(const rp__json_source *src, rp__str text, json_t **out, rp_error *err);

/* Reads and parses a file of at most `limit` bytes. Integers beyond 64 bits become reals
 * (tokenizer_config.json has 10^30 for "no limit"). Absent: RP_ENOTFOUND. */
rp_status rp__json_read(const char *path, size_t limit, json_t **out, rp_error *err);

#endif
