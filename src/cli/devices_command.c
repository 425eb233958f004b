/* `reprise devices`: what there is, whether it opens here, and why not; and whether a replay sees
 * what was written just before it. */
#include "cli/cli.h"
#include "base/json_writer.h"

static void add_row(rp__bytes *b, const rp_device_info *d) {
    double gib = (double)d->memory_bytes / (1 << 30);
    rp__bytes_printf(b, "%-14s %-10s %-10s ", d->name, d->usable ? "usable" : "not usable",
                     d->has_capture ? "yes" : "no");
    if (d->memory_bytes)
        rp__bytes_printf(b, "%7.1f GiB  ", gib);
    else
        rp__bytes_printf(b, "%11s  ", "-");
    rp__bytes_printf(b, "%s%s", d->description, rp__cli_simulated(d->description, d->is_simulated));
    if (d->note[0]) rp__bytes_printf(b, "%s%s", d->description[0] ? ": " : "", d->note);
    rp__bytes_add_char(b, '\n');
}

static void add_object(rp__bytes *b, const rp_device_info *d) {
    rp__json_open(b, NULL, '{');
    rp__json_str(b, "name", d->name);
    rp__json_str(b, "description", d->description);
    rp__json_bool(b, "usable", d->usable);
    rp__json_str(b, "note", d->note);
    rp__json_bool(b, "capture", d->has_capture);
    rp__json_bool(b, "times_are_simulated", d->is_simulated);
    rp__json_uint(b, "memory_bytes", d->memory_bytes);
    rp__json_close(b, '}');
}

/* ---- the self-test ---- */

enum { SELFTEST_ROUNDS = 100000 };

static int test_device(const char *name) {
    rp_error err = {0};
    if (rp_device_selftest(name, NULL, SELFTEST_ROUNDS, &err) < 0) {
        fprintf(stderr, "reprise: %s: %s\n", name, err.message);
        return RP_CLI_FAILED;
    }
    printf("%s: %d replays of 1 and of 513 integers, each input was seen\n", name, SELFTEST_ROUNDS);
    fflush(stdout);
    return RP_CLI_OK;
}

/* All are tested, also after one has failed. */
static int test_devices(const rp__options *o) {
    rp_device_info d = {.bytes = sizeof d};
    int code = RP_CLI_OK;
    for (size_t i = 0; i < o->n_positional; i++)
        if (test_device(o->positional[i])) code = RP_CLI_FAILED;
    for (size_t i = 0; !o->n_positional && rp_device_info_at(i, &d); i++)
        if (d.usable && test_device(d.name)) code = RP_CLI_FAILED;
    return rp__cli_finish_output(code);
}

int rp__cli_devices(rp__options *o) {
    if (rp__options_on(o, RP_OPT_SELFTEST)) return test_devices(o);
    rp__bytes b = {0};
    rp_device_info d = {.bytes = sizeof d};
    bool as_json = rp__options_on(o, RP_OPT_JSON);
    if (!rp__cli_no_more_arguments(o)) return RP_CLI_USAGE;
    if (as_json)
        rp__json_open(&b, NULL, '[');
    else
        rp__bytes_printf(&b, "%-14s %-10s %-10s %11s  %s\n", "DEVICE", "STATE", "CAPTURE", "MEMORY",
                         "DESCRIPTION");
    for (size_t i = 0; rp_device_info_at(i, &d); i++) {
        if (as_json)
            add_object(&b, &d);
        else
            add_row(&b, &d);
        d = (rp_device_info){.bytes = sizeof d};
    }
    if (as_json) rp__bytes_add_str(&b, "]\n");
    bool is_whole = !b.failed;
    if (is_whole) rp__cli_write(b.p, b.n);
    rp__bytes_clear(&b);
    return is_whole ? rp__cli_finish_output(RP_CLI_OK) : rp__cli_out_of_memory();
}
