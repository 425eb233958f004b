#define _GNU_SOURCE
#include "file/mapping.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fail.h"

const char *rp__path_tail(const char *path) {
    enum { LONGEST = 200 }; /* of the 508 bytes of a sentence */
    size_t n = strlen(path);
    if (n <= LONGEST) return path;
    const char *tail = path + n - LONGEST;
    while (((unsigned char)*tail & 0xC0) == 0x80) tail++; /* begin at a whole character */
    return tail;
}

static char *join(const char *dir, size_t n_dir, const char *name) {
    rp__bytes b = {0};
    rp__bytes_add(&b, dir, n_dir);
    if (n_dir && dir[n_dir - 1] != '/') rp__bytes_add_char(&b, '/');
    rp__bytes_add_str(&b, name);
    if (!b.failed) return rp__bytes_take(&b);
    rp__bytes_clear(&b);
    return NULL;
}

char *rp__path_join(const char *dir, const char *name) {
    return join(dir, strlen(dir), name);
}

char *rp__path_beside(const char *path, const char *name) {
    const char *slash = strrchr(path, '/');
    return join(path, slash ? (size_t)(slash - path) + 1 : 0, name);
}

static rp_status fail_errno(const char *path, const char *doing, int code, rp_error *err) {
    char text[128];
    /* The GNU strerror_r may return a constant of its own instead of filling `text`. */
    const char *why = strerror_r(code, text, sizeof text);
    rp_status status = code == ENOENT || code == ENOTDIR ? RP_ENOTFOUND
                       : code == ENOMEM                  ? RP_ENOMEM
                                                         : RP_EIO;
    return rp__fail(err, status, "%s: cannot %s: %s", rp__path_tail(path), doing, why);
}

/* Opens a regular file for reading and tells its size. */
static rp_status open_regular(const char *path, int *fd, size_t *size, rp_error *err) {
    /* Without O_NONBLOCK, opening a FIFO that nobody writes to would wait for ever. */
    *fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (*fd < 0) return fail_errno(path, "open", errno, err);
    struct stat st;
    rp_status status = RP_OK;
    if (fstat(*fd, &st) < 0)
        status = fail_errno(path, "stat", errno, err);
    else if (S_ISDIR(st.st_mode))
        status =
            rp__fail(err, RP_EINVAL, "%s: is a directory, a file is wanted", rp__path_tail(path));
    else if (!S_ISREG(st.st_mode))
        status = rp__fail(err, RP_EINVAL, "%s: is not a regular file", rp__path_tail(path));
    if (status < 0)
        close(*fd);
    else
        *size = (size_t)st.st_size;
    return status;
}

rp_status rp__mapping_open(rp__mapping *m, const char *path, rp_error *err) {
    *m = (rp__mapping){0};
    int fd;
    size_t size;
    RP_TRY(open_regular(path, &fd, &size, err));
    rp_status status = RP_OK;
    if (!size) {
        status = rp__fail(err, RP_EFORMAT, "%s: the file is empty", rp__path_tail(path));
        goto out;
    }
    m->path = rp__strdup(path);
    if (!m->path) {
        status = rp__fail(err, RP_ENOMEM, "%s: out of memory", rp__path_tail(path));
        goto out;
    }
    void *p = mmap(NULL, size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (p == MAP_FAILED) {
        status = fail_errno(path, "map", errno, err);
        rp__free(m->path);
        m->path = NULL;
        goto out;
    }
    m->p = p;
    m->n = size;
out:
    close(fd); /* a mapping outlives its descriptor */
    return status;
}

rp_status rp__mapping_borrow(rp__mapping *m, const char *name, const void *p, size_t n,
                             rp_error *err) {
    *m = (rp__mapping){.p = p, .n = n, .is_borrowed = true};
    m->path = rp__strdup(name);
    if (!m->path) return rp__fail(err, RP_ENOMEM, "%s: out of memory", rp__path_tail(name));
    return RP_OK;
}

void rp__mapping_close(rp__mapping *m) {
    if (m->p && !m->is_borrowed) munmap((void *)m->p, m->n);
    rp__free(m->path);
    *m = (rp__mapping){0};
}

void rp__mapping_drop(const rp__mapping *m, size_t offset, size_t n) {
    if (m->is_borrowed || offset >= m->n || !n) return;
    if (n > m->n - offset) n = m->n - offset;
    /* Border pages go too: a neighbour that still needs them gets them back from the file. */
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t begin = offset & ~(page - 1);
    madvise((void *)(m->p + begin), offset + n - begin, MADV_DONTNEED);
}

void rp__mapping_drop_at(const rp__mapping *m, size_t n_mappings, const void *p, size_t n) {
    const unsigned char *at = p;
    for (size_t i = 0; i < n_mappings; i++)
        if (at >= m[i].p && at < m[i].p + m[i].n) rp__mapping_drop(&m[i], (size_t)(at - m[i].p), n);
}

/* Reads until the end of the file, or until more than `limit` bytes have come. */
static rp_status read_all(int fd, const char *path, size_t limit, rp__bytes *out, rp_error *err) {
    for (;;) {
        if (out->n > limit)
            return rp__fail(err, RP_ELIMIT, "%s: larger than %zu bytes, the limit for this file",
                            rp__path_tail(path), limit);
        if (!rp__bytes_reserve(out, out->cap - out->n > 1 ? 1 : 4096))
            return rp__fail(err, RP_ENOMEM, "%s: out of memory", rp__path_tail(path));
        ssize_t n = read(fd, out->p + out->n, out->cap - out->n - 1);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return fail_errno(path, "read", errno, err);
        if (n == 0) break;
        out->n += (size_t)n;
    }
    out->p[out->n] = 0;
    return RP_OK;
}

rp_status rp__file_read(const char *path, size_t limit, rp__bytes *out, rp_error *err) {
    *out = (rp__bytes){0};
    int fd;
    size_t size;
    RP_TRY(open_regular(path, &fd, &size, err));
    rp_status status = RP_OK;
    if (size > limit)
        status = rp__fail(err, RP_ELIMIT, "%s: %zu bytes, at most %zu are read from this file",
                          rp__path_tail(path), size, limit);
    else if (!rp__bytes_reserve(out, size + 1))
        status = rp__fail(err, RP_ENOMEM, "%s: out of memory", rp__path_tail(path));
    else
        status = read_all(fd, path, limit, out, err);
    close(fd);
    if (status < 0) rp__bytes_clear(out);
    return status;
}
