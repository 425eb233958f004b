/* Device memory of the emulated accelerator: one file mapped twice, and an allocator that can be
 * hostile.
 *
 * Invariants: live blocks never overlap and are sorted by offset; behind each lie RED bytes of a
 * known pattern, by which a kernel that writes too far is found when the block is freed. Only the
 * caller's thread allocates, while the device is idle. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "device/emu/emu_impl.h"

enum {
    RED = 64, /* bytes behind each block; keeps alignment */
    RED_BYTE = 0xC5,
    PUNCH_BYTES = 256 * 1024, /* freed blocks from this size on give their pages back to the host */
    PAGE = 4096,
};

/* Address space for a device whose addresses are never reused; pages are only taken when touched.
 */
static const size_t never_span = (size_t)64 << 30;

rp_status rp__emu_space_open(rp__emu_space *s, rp_error *err) {
    /* Twice the cap leaves room for fragmentation and red zones, so that alloc fails by the cap
     * alone. */
    s->span =
        s->reuse == RP_EMU_REUSE_NEVER ? never_span + s->cap : 2 * s->cap + ((size_t)64 << 20);
    s->span = (s->span + PAGE - 1) & ~(size_t)(PAGE - 1);
    s->fd = memfd_create("reprise-emu", MFD_CLOEXEC);
    if (s->fd < 0 || ftruncate(s->fd, (off_t)s->span) < 0)
        return rp__fail(err, RP_ENOMEM, "emu: no memory file of %zu bytes", s->span);
    void *base = mmap(NULL, s->span, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base != MAP_FAILED) s->base = base;
    void *kernel =
        mmap(NULL, s->span, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, s->fd, 0);
    if (kernel != MAP_FAILED) s->kernel = kernel;
    if (s->base && s->kernel) return RP_OK;
    return rp__fail(err, RP_ENOMEM, "emu: no address space of %zu bytes", s->span);
}

void rp__emu_space_clear(rp__emu_space *s) {
    if (s->base) munmap(s->base, s->span);
    if (s->kernel) munmap(s->kernel, s->span);
    if (s->fd >= 0) close(s->fd);
    rp__free(s->live);
    *s = (rp__emu_space){.fd = -1};
}

/* ---- finding room ---- */

/* Index of the first live block at or past `offset`. */
static size_t lower_bound(const rp__emu_space *s, size_t offset) {
    size_t lo = 0, hi = s->n_live;
    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        if (s->live[mid].offset < offset)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

static size_t end_of(const rp__emu_block *b) {
    return b->offset + ((b->bytes + RED + RP_EMU_ALIGN - 1) & ~(size_t)(RP_EMU_ALIGN - 1));
}

static bool is_room(const rp__emu_space *s, size_t offset, size_t need) {
    size_t i = lower_bound(s, offset);
    if (i > 0 && end_of(&s->live[i - 1]) > offset) return false;
    return i == s->n_live ? need <= s->span - offset : need <= s->live[i].offset - offset;
}

static bool first_fit(const rp__emu_space *s, size_t need, size_t *offset) {
    size_t at = 0;
    for (size_t i = 0; i < s->n_live; i++) {
        if (s->live[i].offset - at >= need) break;
        at = end_of(&s->live[i]);
    }
    *offset = at;
    return need <= s->span - at;
}

static bool last_freed(const rp__emu_space *s, size_t need, size_t *offset) {
    for (uint64_t i = 0; i < s->n_freed && i < RP_EMU_N_FREED; i++) {
        const rp__emu_block *b = &s->freed[(s->n_freed - 1 - i) % RP_EMU_N_FREED];
        *offset = b->offset;
        if (is_room(s, b->offset, need)) return true;
    }
    return false;
}

static bool find_room(const rp__emu_space *s, size_t need, size_t *offset) {
    if (s->reuse == RP_EMU_REUSE_NEVER) {
        *offset = s->high;
        return need <= s->span - s->high;
    }
    if (s->reuse == RP_EMU_REUSE_ALWAYS && last_freed(s, need, offset)) return true;
    return first_fit(s, need, offset);
}

/* ---- alloc and free ---- */

static bool reserve_live(rp__emu_space *s) {
    if (s->n_live < s->live_cap) return true;
    size_t cap = s->live_cap ? s->live_cap * 2 : 64;
    rp__emu_block *live = rp__realloc_array(s->live, cap, sizeof *live);
    if (!live) return false;
    s->live = live;
    s->live_cap = cap;
    return true;
}

rp_status rp__emu_space_alloc(rp__emu_space *s, size_t bytes, size_t *offset, rp_error *err) {
    if (bytes > s->cap - s->live_bytes)
        return rp__fail(err, RP_ENOMEM, "emu: %zu bytes wanted, %zu of %zu free", bytes,
                        s->cap - s->live_bytes, s->cap);
    if (!reserve_live(s))
        return rp__fail(err, RP_ENOMEM, "emu: no host memory for a block's record");
    rp__emu_block block = {.bytes = bytes, .serial = ++s->last_serial};
    if (!find_room(s, end_of(&block), offset))
        return rp__fail(err, RP_ENOMEM, "emu: no free range of %zu bytes", bytes);
    block.offset = *offset;
    size_t i = lower_bound(s, *offset);
    memmove(s->live + i + 1, s->live + i, (s->n_live - i) * sizeof *s->live);
    s->live[i] = block;
    s->n_live++;
    s->live_bytes += bytes;
    if (end_of(&block) > s->high) s->high = end_of(&block);
    if (s->has_fill) memset(s->kernel + *offset, 0xFF, bytes);
    memset(s->kernel + *offset + bytes, RED_BYTE, RED);
    return RP_OK;
}

static bool is_red(const char *p) {
    for (size_t i = 0; i < RED; i++)
        if ((unsigned char)p[i] != RED_BYTE) return false;
    return true;
}

/* Gives whole pages inside the block back to the host; best effort, the contents are undefined
 * anyway. */
static void punch(rp__emu_space *s, const rp__emu_block *b) {
    size_t from = (b->offset + PAGE - 1) & ~(size_t)(PAGE - 1),
           to = (b->offset + b->bytes) & ~(size_t)(PAGE - 1);
    if (b->bytes < PUNCH_BYTES) return;
    int failed = fallocate(s->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)from,
                           (off_t)(to - from));
    (void)failed;
}

bool rp__emu_space_free(rp__emu_space *s, size_t offset) {
    size_t i = lower_bound(s, offset);
    rp__assert(i < s->n_live && s->live[i].offset == offset,
               "emu: free of an unknown handle at %zu", offset);
    rp__emu_block block = s->live[i];
    memmove(s->live + i, s->live + i + 1, (s->n_live - i - 1) * sizeof *s->live);
    s->n_live--;
    s->live_bytes -= block.bytes;
    s->freed[s->n_freed++ % RP_EMU_N_FREED] = block;
    bool is_intact = is_red(s->kernel + offset + block.bytes);
    if (s->has_fill)
        memset(s->kernel + offset, 0xFF, block.bytes);
    else
        punch(s, &block);
    return is_intact;
}

const rp__emu_block *rp__emu_space_find(const rp__emu_space *s, size_t offset) {
    size_t i = lower_bound(s, offset + 1);
    if (i == 0) return NULL;
    const rp__emu_block *b = &s->live[i - 1];
    return offset - b->offset < b->bytes ? b : NULL;
}
