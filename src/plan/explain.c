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
    bool ok =
        rp__bytes_printf(out, "  %s, at most %zu bytes in one transfer per step:", title, bytes);
    for (int32_t i = 0; i < p->n_slots && ok; i++) {
        char text[96];
        if (p->slots[i].kind != kind) continue;
        ok = rp__bytes_printf(out, " %s %s,", p->slots[i].name,
                              rp__tensor_text(&p->slots[i].tensor, text, sizeof text));
    }
    if (ok && out->p[out->n - 1] == ',') out->p[--out->n] = 0;
    return ok && rp__bytes_add_char(out, '\n');
}

/* What a visit of greedy steps reads in place of the outputs. */
static bool print_picked(const rp__program *p, rp__bytes *out) {
    if (p->feed_op < 0) return true;
    const rp_tensor *past = &p->ops[p->feed_op].out[1];
    char text[96];
    return rp__bytes_printf(out, "  or, where only the best tokens are wanted: past %s\n",
                            rp__tensor_text(past, text, sizeof text));
}

static bool print_traffic(const rp__program *p, rp__bytes *out) {
    const rp__traffic *t = &p->traffic;
    if (!t->n_host_ops) return rp__bytes_printf(out, "  on the host: nothing; no other transfer\n");
    return rp__bytes_printf(out,
                            "  on the host: %d ops; per step %d transfers down, %zu bytes, and %d "
                            "up, %zu bytes; temporaries there in an arena of %zu bytes\n",
                            (int)t->n_host_ops, (int)t->n_downloads, t->download_bytes,
                            (int)t->n_uploads, t->upload_bytes, p->bytes[RP_SIDE_HOST].arena);
}

static bool print_why(const rp__op_place *place, rp__bytes *out) {
    if (place->rule)
        return rp__bytes_printf(out, "  [%s: %s]\n", rp__place_why_text(place->why),
                                place->rule->text);
    if (place->why) return rp__bytes_printf(out, "  [%s]\n", rp__place_why_text(place->why));
    return rp__bytes_add_char(out, '\n');
}

static bool print_transfer(const rp__program *p, int32_t i, rp__bytes *out) {
    const rp_tensor *t = &p->ops[i].in[0];
    char text[96];
    bool is_down = p->places[i].side == RP_SIDE_HOST;
    return rp__bytes_printf(out, "    %4d  %-9s %14s %9.1f KiB  %s %s\n", (int)i,
                            is_down ? "down" : "up", "", (double)rp__tensor_span(t) / 1024,
                            p->ops[i].label, rp__tensor_text(t, text, sizeof text));
}

static bool print_op(const rp__program *p, int32_t i, rp__bytes *out) {
    char text[320];
    const rp__op_place *place = &p->places[i];
    if (place->is_transfer) return print_transfer(p, i, out);
    rp__op_cost cost = rp__op_cost_of(&p->ops[i]);
    return rp__bytes_printf(out, "    %4d  %-9s %8.3f MFLOP %9.1f KiB  %s", (int)i,
                            place->side == RP_SIDE_HOST ? "host" : rp__device_name(p->device),
                            cost.flops / 1e6, cost.bytes / 1024,
                            rp__op_text(&p->ops[i], text, sizeof text)) &&
           print_why(place, out);
}

static const char *per_what(const rp__program *p) {
    return rp__device_props(p->device)->has_live_rows ? " per token" : " per step";
}

static const char *state_of(const rp__segment *g) {
    if (!(g->n_eager + g->n_replays + g->n_captures)) return "never run";
    if (g->why >= RP_WHY_ON) return "replay: ";
    return g->graph && !g->duel.is_decided ? "measuring: " : "eager: ";
}

static bool print_segment_head(const rp__program *p, int32_t s, rp__bytes *out) {
    const rp__segment *g = &p->segments[s];
    const rp__duel *d = &g->duel;
    bool ok =
        rp__bytes_printf(out, "  segment %d, %s: ops %d to %d", (int)s, rp__side_name(g->side),
                         (int)g->first_op, (int)(g->first_op + g->n_ops - 1));
    if (g->side == RP_SIDE_HOST) return ok && rp__bytes_add_char(out, '\n');
    const char *state = state_of(g);
    ok = ok && rp__bytes_printf(out, ", %s%s", state,
                                strcmp(state, "never run") ? rp__run_why_text(g->why) : "");
    if (g->refusal) ok = ok && rp__bytes_printf(out, " (%s)", rp_status_text(g->refusal));
    if (d->is_decided)
        ok = ok && rp__bytes_printf(out, " (eager %.1f us, replay %.1f us%s)",
                                    d->decided_us[RP_EAGER], d->decided_us[RP_REPLAY], per_what(p));
    return ok && rp__bytes_printf(out, "; captures %llu, replays %llu, eager steps %llu\n",
                                  (unsigned long long)g->n_captures,
                                  (unsigned long long)g->n_replays, (unsigned long long)g->n_eager);
}

/* Ops that were left out are told before the next one that is shown. */
static bool print_left_out(int32_t *n_left, rp__bytes *out) {
    int32_t n = *n_left;
    *n_left = 0;
    return !n || rp__bytes_printf(out, "          ... %d ops of the other layers\n", (int)n);
}

static bool print_segment(const rp__program *p, int32_t s, bool all_ops, int32_t *n_left,
                          rp__bytes *out) {
    const rp__segment *g = &p->segments[s];
    bool has_head = false, ok = true;
    for (int32_t i = g->first_op; i < g->first_op + g->n_ops && ok; i++) {
        if (!all_ops && is_of_later_layer(p->ops[i].label)) {
            ++*n_left;
            continue;
        }
        if (!has_head) ok = print_left_out(n_left, out) && print_segment_head(p, s, out);
        has_head = true;
        ok = ok && print_left_out(n_left, out) && print_op(p, i, out);
    }
    return ok;
}

static bool print_head(const rp__program *p, rp__bytes *out) {
    char name[64];
    rp__op_cost total = {0};
    int32_t n_ops = 0;
    for (int32_t i = 0; i < p->n_ops; i++) {
        if (p->places[i].is_transfer) continue;
        rp__op_cost c = rp__op_cost_of(&p->ops[i]);
        total.flops += c.flops;
        total.bytes += c.bytes;
        n_ops++;
    }
    return rp__bytes_printf(
        out,
        "\n%s%s%s: %d ops in %d segment%s, %.1f MFLOP, %.1f MiB moved; temporaries %zu bytes in "
        "an arena of %zu\n",
        rp__bucket_text(&p->bucket, name, sizeof name), p->placement ? ", " : "",
        p->placement ? p->placement->name : "", (int)n_ops, (int)p->n_segments,
        p->n_segments == 1 ? "" : "s", total.flops / 1e6, total.bytes / (1 << 20), p->temp_bytes,
        p->bytes[RP_SIDE_DEVICE].arena);
}

bool rp__program_explain(const rp__program *p, bool all_ops, rp__bytes *out) {
    const rp__side_bytes *b = &p->bytes[RP_SIDE_DEVICE];
    int32_t n_left = 0;
    bool ok = print_head(p, out) && print_slots(p, RP_SLOT_INPUT, "inputs in", b->inputs, out) &&
              print_slots(p, RP_SLOT_OUTPUT, "outputs out", b->outputs, out) &&
              print_picked(p, out) && print_traffic(p, out);
    for (int32_t s = 0; s < p->n_segments && ok; s++)
        ok = print_segment(p, s, all_ops, &n_left, out);
    return ok && print_left_out(&n_left, out);
}
