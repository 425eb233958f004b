/* The emulated accelerator's options: "key=value,key=value" (emu.h lists them).
 *
 * Refuses unknown keys and values, naming them. The profile is read first, so that options given
 * beside it win. */
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "device/emu/emu_impl.h"
#include "device/op.h"

typedef struct emu_option {
    const char *key;
    rp_status (*set)(rp__emu *emu, const char *value, rp_error *err);
} emu_option;

/* ---- values ---- */

static rp_status fail_value(const char *value, const char *wanted, rp_error *err) {
    return rp__fail(err, RP_EINVAL, "\"%s\" is not %s", value, wanted);
}

/* Index of `value` in choices[n]. */
static rp_status read_choice(const char *value, const char *const *choices, int n, int *out,
                             const char *wanted, rp_error *err) {
    *out = 0;
    for (int i = 0; i < n; i++)
        if (!strcmp(value, choices[i])) {
            *out = i;
            return RP_OK;
        }
    return fail_value(value, wanted, err);
}

static rp_status read_bool(const char *value, bool *out, rp_error *err) {
    static const char *const choices[] = {"0", "1"};
    int i;
    RP_TRY(read_choice(value, choices, 2, &i, "0 or 1", err));
    *out = i == 1;
    return RP_OK;
}

static rp_status read_count(const char *value, uint64_t *out, rp_error *err) {
    char *end;
    errno = 0;
    *out = strtoull(value, &end, 10);
    if (isdigit((unsigned char)*value) && !*end && !errno) return RP_OK;
    return fail_value(value, "a number", err);
}

static rp_status read_size(const char *value, size_t *out, rp_error *err) {
    static const char units[] = "KMG";
    char *end;
    errno = 0;
    unsigned long long n = strtoull(value, &end, 10);
    const char *unit = *end ? strchr(units, *end) : NULL;
    int shift = unit ? 10 * (int)(unit - units + 1) : 0;
    if (isdigit((unsigned char)*value) && !errno && !end[unit ? 1 : 0] &&
        n <= (SIZE_MAX >> 8) >> shift) {
        *out = (size_t)n << shift;
        return RP_OK;
    }
    return fail_value(value, "a size like 512M", err);
}

/* ---- keys ---- */

static rp_status set_profile(rp__emu *emu, const char *value, rp_error *err) {
    (void)emu, (void)value, (void)err;
    return RP_OK; /* read before the others */
}

static rp_status set_bodies(rp__emu *emu, const char *value, rp_error *err) {
    if (strcmp(value, "reference")) return fail_value(value, "reference", err);
    emu->bodies = &rp__body_reference;
    return RP_OK;
}

static rp_status set_isa(rp__emu *emu, const char *value, rp_error *err) {
    return rp__body_choose(value, &emu->bodies, err);
}

static rp_status set_memory(rp__emu *emu, const char *value, rp_error *err) {
    return read_size(value, &emu->space.cap, err);
}

static rp_status set_reuse(rp__emu *emu, const char *value, rp_error *err) {
    static const char *const choices[] = {"normal", "always", "never"}; /* as in rp__emu_reuse */
    int i;
    RP_TRY(read_choice(value, choices, 3, &i, "normal, always or never", err));
    emu->space.reuse = (rp__emu_reuse)i;
    return RP_OK;
}

static rp_status set_fill(rp__emu *emu, const char *value, rp_error *err) {
    static const char *const choices[] = {"none", "ff"};
    int i;
    RP_TRY(read_choice(value, choices, 2, &i, "none or ff", err));
    emu->space.has_fill = i == 1;
    return RP_OK;
}

static rp_status set_record(rp__emu *emu, const char *value, rp_error *err) {
    static const char *const choices[] = {"run", "only"};
    int i;
    RP_TRY(read_choice(value, choices, 2, &i, "only or run", err));
    emu->records_only = i == 1;
    return RP_OK;
}

static rp_status set_capture(rp__emu *emu, const char *value, rp_error *err) {
    return read_bool(value, &emu->has_capture, err);
}

static rp_status set_graph_region(rp__emu *emu, const char *value, rp_error *err) {
    emu->graph_region = 0;
    return strcmp(value, "dynamic") ? read_size(value, &emu->graph_region, err) : RP_OK;
}

static rp_status set_hidden_temporaries(rp__emu *emu, const char *value, rp_error *err) {
    return read_bool(value, &emu->hides_temporaries, err);
}

static rp_status set_live_rows(rp__emu *emu, const char *value, rp_error *err) {
    return read_bool(value, &emu->has_live_rows, err);
}

static rp_status set_advance(rp__emu *emu, const char *value, rp_error *err) {
    return read_bool(value, &emu->advances_positions, err);
}

static rp_status set_prompt_align(rp__emu *emu, const char *value, rp_error *err) {
    uint64_t n;
    RP_TRY(read_count(value, &n, err));
    emu->prompt_align = (uint32_t)n;
    return RP_OK;
}

static rp_status set_picks(rp__emu *emu, const char *value, rp_error *err) {
    return read_bool(value, &emu->picks_tokens, err);
}

static rp_status set_queues(rp__emu *emu, const char *value, rp_error *err) {
    static const char *const choices[] = {"1", "2"};
    int i;
    RP_TRY(read_choice(value, choices, 2, &i, "1 or 2", err));
    emu->n_queues = (uint32_t)i + 1;
    return RP_OK;
}

static rp_status set_fail_alloc_at(rp__emu *emu, const char *value, rp_error *err) {
    return read_count(value, &emu->fail_alloc_at, err);
}

static rp_status set_launch_fail_at(rp__emu *emu, const char *value, rp_error *err) {
    return read_count(value, &emu->launch_fail_at, err);
}

static rp_status set_lost_at(rp__emu *emu, const char *value, rp_error *err) {
    return read_count(value, &emu->lose_at, err);
}

static rp_status set_watchdog_us(rp__emu *emu, const char *value, rp_error *err) {
    uint64_t n;
    RP_TRY(read_count(value, &n, err));
    emu->watchdog_us = (double)n;
    return RP_OK;
}

static rp_status set_estimates(rp__emu *emu, const char *value, rp_error *err) {
    bool has_estimates;
    RP_TRY(read_bool(value, &has_estimates, err));
    emu->hides_estimates = !has_estimates;
    return RP_OK;
}

static const emu_option options[] = {
    {"profile", set_profile},
    {"bodies", set_bodies},
    {"isa", set_isa},
    {"memory", set_memory},
    {"reuse", set_reuse},
    {"fill", set_fill},
    {"record", set_record},
    {"capture", set_capture},
    {"graph_region", set_graph_region},
    {"hidden_temporaries", set_hidden_temporaries},
    {"live_rows", set_live_rows},
    {"advance", set_advance},
    {"prompt_align", set_prompt_align},
    {"picks", set_picks},
    {"queues", set_queues},
    {"fail_alloc_at", set_fail_alloc_at},
    {"launch_fail_at", set_launch_fail_at},
    {"lost_at", set_lost_at},
    {"watchdog_us", set_watchdog_us},
    {"estimates", set_estimates},
};

/* ---- the list ---- */

enum { N_OPTIONS = sizeof options / sizeof *options, ITEM_BYTES = 512 };

/* Copies the next "key=value" and splits it. False at the end of the list. */
static bool next_item(const char **list, char item[ITEM_BYTES], char **value) {
    const char *p = *list;
    while (*p == ',') p++;
    if (!*p) return false;
    size_t n = strcspn(p, ",");
    *list = p + n;
    if (n >= ITEM_BYTES) n = ITEM_BYTES - 1;
    memcpy(item, p, n);
    item[n] = 0;
    *value = strchr(item, '=');
    if (*value) *(*value)++ = 0;
    return true;
}

static rp_status set_option(rp__emu *emu, const char *key, const char *value, rp_error *err) {
    for (int i = 0; i < N_OPTIONS; i++) {
        if (strcmp(key, options[i].key)) continue;
        if (!value) return rp__fail(err, RP_EINVAL, "emu: option \"%s\" has no value", key);
        rp_status status = options[i].set(emu, value, err);
        return status < 0 ? rp__fail_context(err, status, "emu: option \"%s\"", key) : RP_OK;
    }
    return rp__fail(err, RP_EINVAL, "emu: unknown option \"%s\"", key);
}

static void write_host_rules(rp__emu *emu) {
    size_t n = 0, cap = sizeof emu->host_rules;
    for (int op = 0; op < RP_N_OPS && n < cap; op++) {
        double rows = emu->profile.cost[RP_EMU_host_below][op];
        if (rows > 0)
            n += (size_t)snprintf(emu->host_rules + n, cap - n, "%s%s:rows<%.0f=host", n ? " " : "",
                                  rp__op_name((rp_op_kind)op), rows);
    }
}

static rp_status load_profile(rp__emu *emu, const char *list, rp_error *err) {
    char item[ITEM_BYTES], *value;
    const char *name = "none";
    while (next_item(&list, item, &value))
        if (!strcmp(item, "profile") && value) {
            name = value;
            break;
        }
    RP_TRY(rp__emu_profile_load(name, &emu->profile, err));
    emu->has_capture = emu->profile.cost[RP_EMU_capture][0] != 0;
    emu->records_only = emu->profile.cost[RP_EMU_records_only][0] != 0;
    emu->hides_temporaries = emu->profile.cost[RP_EMU_hides_temporaries][0] != 0;
    emu->watchdog_us = emu->profile.cost[RP_EMU_watchdog_us][0];
    write_host_rules(emu);
    return RP_OK;
}

rp_status rp__emu_configure(rp__emu *emu, const rp_device_config *config, rp_error *err) {
    const char *list = config->options ? config->options : "";
    emu->n_queues = 1;
    RP_TRY(rp__body_choose(NULL, &emu->bodies, err));
    RP_TRY(load_profile(emu, list, err));
    char item[ITEM_BYTES], *value;
    while (next_item(&list, item, &value)) RP_TRY(set_option(emu, item, value, err));
    /* A fault that was asked for happens once: a device that was reopened after it works. */
    if (config->is_reopen) emu->lose_at = emu->launch_fail_at = emu->fail_alloc_at = 0;
    return RP_OK;
}
