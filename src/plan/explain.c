/* A program as text: what runs, where its operands stand, what crosses per step. */
#include <stdio.h>
#include <string.h>

#include "plan/program.h"
#include "tensor/view.h"

static bool is_of_later_layer(const char *label) {
    int layer = 0;
    return label && sscanf(label, "blk.%d.", &layer) == 1 && layer > 0;
}

static bool print_slots(const rp__program *p, rp__slot_kind kind, const char *title, size_t bytes,
                        rp__bytes *out) {
    bool ok = rp__bytes_printf(out, "  %s, %zu bytes in one transfer per step:", title, bytes);
    for (int32_t i = 0; i < p->n_slots && ok; i++) {
        char text[96];
        if (p->slots[i].kind != kind) continue;
        ok = rp__bytes_printf(out, " %s %s,", p->slots[i].name,
                              rp__tensor_text(&p->slots[i].tensor, text, sizeof text));
    }
    if (ok && out->p[out->n - 1] == ',') out->p[--out->n] = 0;
    return ok && rp__bytes_add_char(out, '\n');
}

static bool print_op(const rp__program *p, int32_t i, rp__bytes *out) {
    char text[320];
    rp__op_cost cost = rp__op_cost_of(&p->ops[i]);
    return rp__bytes_printf(out, "    %4d  %-9s %8.3f MFLOP %9.1f KiB  %s\n", (int)i,
                            rp__device_name(p->device), cost.flops / 1e6, cost.bytes / 1024,
                            rp__op_text(&p->ops[i], text, sizeof text));
}

static const char *per_what(const rp__program *p) {
    return rp__device_props(p->device)->has_live_rows ? " per token" : " per step";
}

static bool print_segment(const rp__program *p, int32_t s, bool all_ops, rp__bytes *out) {
    const rp__segment *g = &p->segments[s];
    bool has_run = g->n_eager + g->n_replays + g->n_captures > 0;
    bool ok = rp__bytes_printf(out, "  segment %d: ops %d to %d, %s%s", (int)s, (int)g->first_op,
                               (int)(g->first_op + g->n_ops - 1),
                               !has_run                     ? "never run"
                               : g->why >= RP_WHY_ON        ? "replay: "
                               : g->graph && !g->is_decided ? "measuring: "
                                                            : "eager: ",
                               has_run ? rp__run_why_text(g->why) : "");
    if (g->refusal) ok = ok && rp__bytes_printf(out, " (%s)", rp_status_text(g->refusal));
    if (g->is_decided)
        ok = ok && rp__bytes_printf(out, " (eager %.1f us, replay %.1f us%s)", g->decided_eager_us,
                                    g->decided_replay_us, per_what(p));
    ok = ok && rp__bytes_printf(out, "; captures %llu, replays %llu, eager steps %llu\n",
                                (unsigned long long)g->n_captures, (unsigned long long)g->n_replays,
                                (unsigned long long)g->n_eager);
    int32_t left_out = 0;
    for (int32_t i = g->first_op; i < g->first_op + g->n_ops && ok; i++) {
        if (!all_ops && is_of_later_layer(p->ops[i].label))
            left_out++;
        else {
            if (left_out)
                ok = rp__bytes_printf(out, "          ... %d ops of the other layers\n",
                                      (int)left_out);
            left_out = 0;
            ok = ok && print_op(p, i, out);
        }
    }
    return ok;
}

bool rp__program_explain(const rp__program *p, bool all_ops, rp__bytes *out) {
    char name[64];
    rp__op_cost total = {0};
    for (int32_t i = 0; i < p->n_ops; i++) {
        rp__op_cost c = rp__op_cost_of(&p->ops[i]);
        total.flops += c.flops;
        total.bytes += c.bytes;
    }
    bool ok = rp__bytes_printf(out,
                               "\n%s: %d ops in %d segment%s, %.1f MFLOP, %.1f MiB moved; "
                               "temporaries %zu bytes in an arena "
                               "of %zu\n",
                               rp__bucket_text(&p->bucket, name, sizeof name), (int)p->n_ops,
                               (int)p->n_segments, p->n_segments == 1 ? "" : "s", total.flops / 1e6,
                               total.bytes / (1 << 20), p->temp_bytes, p->arena_bytes);
    ok = ok && print_slots(p, RP_SLOT_INPUT, "inputs in", p->input_bytes, out);
    ok = ok && print_slots(p, RP_SLOT_OUTPUT, "outputs out", p->output_bytes, out);
    for (int32_t s = 0; s < p->n_segments && ok; s++) ok = print_segment(p, s, all_ops, out);
    return ok;
}
