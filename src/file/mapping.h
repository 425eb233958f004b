/* A file mapped read-only, or a range of it. The file must not shrink while it is mapped: a read
 * past its new end is a fault that no check here can see. */
#ifndef RP_FILE_MAPPING_H
#define RP_FILE_MAPPING_H

#include "base/bytes.h"
#include "reprise/status.h"

typedef struct rp__mapping {
    const unsigned char *p;
    size_t n;
    char *path;       /* owned */
    bool is_borrowed; /* the bytes belong to somebody else: close leaves them */
} rp__mapping;

/* Maps a regular file whole; a directory, an empty or an unreadable file is refused with its path
 * and the reason. */
rp_status rp__mapping_open(rp__mapping *m, const char *path, rp_error *err);
/* As if the n bytes at p were a file called `name`; they must outlive the mapping. */
rp_status rp__mapping_borrow(rp__mapping *m, const char *name, const void *p, size_t n,
                             rp_error *err);
void rp__mapping_close(rp__mapping *m); /* zeroed or closed is fine */
void rp__mapping_drop(const rp__mapping *m, size_t offset,
                      size_t n); /* these pages are not needed for now */

/* As drop, for n bytes at p in whichever of the mappings has them. */
void rp__mapping_drop_at(const rp__mapping *m, size_t n_mappings, const void *p, size_t n);

/* Reads a small text file whole (zero-terminated after n bytes); larger than `limit`: RP_ELIMIT. */
rp_status rp__file_read(const char *path, size_t limit, rp__bytes *out, rp_error *err);

/* `name` in the folder of `path`, or in `dir`; from rp__alloc, NULL when out of memory. */
char *rp__path_beside(const char *path, const char *name);
char *rp__path_join(const char *dir, const char *name);

/* The end of a path that is too long for a sentence, so that what follows it is not cut off. */
const char *rp__path_tail(const char *path);

#endif
