/* A file mapped read-only, or a range of it. */
#ifndef RP_FILE_MAPPING_H
#define RP_FILE_MAPPING_H

#include "base/bytes.h"
#include "reprise/status.h"

typedef struct rp__mapping {
    const unsigned char *p;
    size_t n;
    char *path; /* owned */
} rp__mapping;

/* Maps a regular file whole; a directory, an empty or an unreadable file is refused with its path and the reason. */
rp_status rp__mapping_open(rp__mapping *m, const char *path, rp_error *err);
void rp__mapping_close(rp__mapping *m); /* zeroed or closed is fine */
void rp__mapping_drop(const rp__mapping *m, size_t offset, size_t n); /* these pages are not needed for now */

/* Reads a small text file whole (zero-terminated after n bytes); larger than `limit`: RP_ELIMIT. */
rp_status rp__file_read(const char *path, size_t limit, rp__bytes *out, rp_error *err);

#endif
