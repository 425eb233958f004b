/* `reprise bench machine`: what the machine can do at most, as a table or JSON. The library
 * measures; this file shows. */
#include "base/alloc.h"
#include "base/fail.h"
#include "base/json_writer.h"
#include "cli/bench.h"
#include "cli/cli.h"

typedef struct machine_bench {
    rp_machine_row *rows;
    size_t n_rows;
    bool failed;
} machine_bench;

static bool is_read(const rp_machine_row *r) {
    return r->what[0] == 'r';
}

static bool on_row(void *user, const rp_machine_row *row) {
    machine_bench *b = user;
    rp_machine_row *rows = rp__realloc_array(b->rows, b->n_rows + 1, sizeof *rows);
    b->failed = !rows;
    if (!rows) return true;
    b->rows = rows;
    rows[b->n_rows++] = *row;
    if (!rp__cli_is_quiet())
        rp__cli_status_line("%s, %s, %d threads", row->what, row->how, row->n_threads);
    return rp__cli_interrupted();
}

static void write_table(rp__bytes *out, const machine_bench *b, size_t read_bytes) {
    rp__bytes_printf(out, "reads of %zu MiB; the best of some rounds each\n\n", read_bytes >> 20);
    rp__bytes_add_str(out, "| what | how        | threads |          rate |\n"
                           "|------|------------|--------:|--------------:|\n");
    for (size_t i = 0; i < b->n_rows; i++) {
        const rp_machine_row *r = &b->rows[i];
        rp__bytes_printf(out, "| %-4s | %-10s | %7d | %7.1f %-5s |\n", r->what, r->how,
                         r->n_threads, r->per_second * 1e-9, is_read(r) ? "GB/s" : "GOP/s");
    }
}

static void write_json(rp__bytes *out, const machine_bench *b, size_t read_bytes) {
    rp__json_open(out, NULL, '{');
    rp__json_uint(out, "read_bytes", read_bytes);
    rp__json_open(out, "rows", '[');
    for (size_t i = 0; i < b->n_rows; i++) {
        const rp_machine_row *r = &b->rows[i];
        rp__json_open(out, NULL, '{');
        rp__json_str(out, "what", r->what);
        rp__json_str(out, "how", r->how);
        rp__json_int(out, "threads", r->n_threads);
        rp__json_num(out, "per_second", r->per_second);
        rp__json_close(out, '}');
    }
    rp__json_close(out, ']');
    rp__json_close(out, '}');
    rp__bytes_add_char(out, '\n');
}

static int show(const machine_bench *b, const rp__options *o, size_t read_bytes) {
    rp__bytes out = {0};
    if (rp__options_on(o, RP_OPT_JSON))
        write_json(&out, b, read_bytes);
    else
        write_table(&out, b, read_bytes);
    bool is_whole = !out.failed;
    if (is_whole) rp__cli_write(out.p, out.n);
    rp__bytes_clear(&out);
    return is_whole ? RP_CLI_OK : rp__cli_out_of_memory();
}

int rp__cli_bench_machine(rp__options *o) {
    machine_bench b = {0};
    rp_error err = {0};
    int code;
    if (!rp__cli_no_more_arguments(o)) return RP_CLI_USAGE;
    rp_bench_machine_options q = rp_bench_machine_options_default();
    q.device = rp__options_str(o, RP_OPT_DEVICE);
    q.device_options = rp__options_str(o, RP_OPT_DEVICE_OPTIONS);
    if (rp__options_int(o, RP_OPT_THREADS) > 0)
        q.n_threads = (int)rp__options_int(o, RP_OPT_THREADS);
    q.read_bytes = (size_t)rp__options_int(o, RP_OPT_READ_MIB) << 20;
    q.on_row = on_row;
    q.user = &b;
    rp__cli_interrupt_init();
    rp_status s = rp_bench_machine(&q, &err);
    rp__cli_status_line(NULL);
    if (s == RP_ECANCELLED && rp__cli_interrupted())
        code = RP_CLI_INTERRUPTED;
    else if (b.failed)
        code = rp__cli_out_of_memory();
    else
        code = s < 0 ? rp__cli_fail(&err) : show(&b, o, q.read_bytes);
    rp__free(b.rows);
    return rp__cli_finish_output(code);
}
