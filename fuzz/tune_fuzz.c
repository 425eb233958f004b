/* Fuzzes the reader of tuned profiles, and placement rules: whatever the text, it is read or
 * refused with a sentence; what was read decides for any op.
 *
 * The expected header is the corpus's own, so that mutations reach the rows. */
#include <stdint.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "plan/tune.h"
#include "tensor/view.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const rp__tune_about about = {
    .build = "b", .device = "d", .identity = "i", .host = "h", .model = 1};

static void ask(const rp__placement *p) {
    for (int kind = 0; kind < RP_N_OPS; kind++) {
        rp_op op = {.kind = (rp_op_kind)kind, .n_in = 1, .n_out = 1};
        op.in[0] = op.out[0] = rp__tensor_make(NULL, 0, RP_F32, 3, (int64_t[]){4, 2, 64});
        const rp__place_rule *r = rp__placement_find(p, &op);
        rp__assert(!r || (r->kinds >> kind & 1), "a rule for another op");
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    rp__placement profile = {0}, rules = {0};
    rp_error err = {0};
    rp_status st =
        rp__tune_read("profile", (rp__str){(const char *)data, size}, &about, &profile, &err);
    rp__assert(st == RP_OK || (st == RP_EFORMAT && err.message[0]), "status %d", (int)st);
    if (st == RP_OK) ask(&profile);
    char *text = rp__strndup((const char *)data, size);
    if (text) {
        st = rp__placement_add(&rules, text, RP_PLACE_OVERRIDE, &err);
        rp__assert(st == RP_OK || st == RP_EINVAL, "status %d", (int)st);
        ask(&rules);
    }
    rp__free(text);
    rp__placement_clear(&profile);
    rp__placement_clear(&rules);
    return 0;
}
