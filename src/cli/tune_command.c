/* `reprise tune`: which ops of a model are faster on the host beside a device, as a table and as
 * the profile that --placement takes. The library measures; this file shows and saves. */
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fail.h"
#include "base/json_writer.h"
#include "cli/cli.h"

typedef struct tune_command {
    rp_engine_info info;
    rp__bytes out; /* table or JSON */
    bool as_json;
} tune_command;

/* ---- rows ---- */

static void add_table_row(tune_command *t, const rp_tune_row *r) {
    const rp_engine_info *m = &t->info;
    if (!t->out.n)
        rp__bytes_printf(
            &t->out,
            "%s, %s, on %s%s\n\n"
            "| op            |   rows |  width | %15s | %15s | faster\n"
            "|---------------|-------:|-------:|----------------:|----------------:|-------\n",
            m->model_name, m->quantization, m->device,
            rp__cli_simulated(m->device, m->is_simulated),
            r->is_simulated ? "device us, sim." : "device us",
            r->is_simulated ? "host us, sim." : "host us");
    rp__bytes_printf(&t->out, "| %-13s | %6lld | %6lld | %15.1f | %15.1f | %s\n", r->op,
                     (long long)r->rows, (long long)r->width, r->device_us, r->host_us,
                     r->is_host ? "host" : "device");
}

static void add_json_row(tune_command *t, const rp_tune_row *r) {
    if (!t->out.n) rp__json_open(&t->out, NULL, '[');
    rp__json_open(&t->out, NULL, '{');
    rp__json_str(&t->out, "op", r->op);
    rp__json_int(&t->out, "rows", r->rows);
    rp__json_int(&t->out, "width", r->width);
    rp__json_num(&t->out, "device_us", r->device_us);
    rp__json_num(&t->out, "host_us", r->host_us);
    rp__json_str(&t->out, "place", r->is_host ? "host" : "device");
    rp__json_bool(&t->out, "simulated", r->is_simulated);
    rp__json_close(&t->out, '}');
}

static bool on_row(void *user, const rp_tune_row *row, int i, int n) {
    tune_command *t = user;
    if (t->as_json)
        add_json_row(t, row);
    else
        add_table_row(t, row);
    if (!rp__cli_is_quiet())
        rp__cli_status_line("tuned %s of %lld rows, %d of %d", row->op, (long long)row->rows, i + 1,
                            n);
    return rp__cli_interrupted();
}

/* ---- the profile ---- */

/* Every folder of the path but the last part, which is the file's. */
static rp_status make_folders(char *path, rp_error *err) {
    for (char *p = path + 1; (p = strchr(p, '/')); p++) {
        *p = 0;
        bool is_there = mkdir(path, 0777) == 0 || access(path, F_OK) == 0;
        *p = '/';
        if (!is_there) return rp__fail(err, RP_EIO, "the folders of %s cannot be made", path);
    }
    return RP_OK;
}

static bool write_file(const char *path, const char *profile) {
    FILE *f = fopen(path, "wb");
    bool is_written = f && fputs(profile, f) >= 0;
    return f && fclose(f) ? false : is_written;
}

/* A device, a pipe, a link: what a rename would put a plain file in the place of. */
static bool is_special(const char *path) {
    struct stat st;
    return lstat(path, &st) == 0 && !S_ISREG(st.st_mode);
}

/* Written beside and then renamed: an interrupt leaves the old profile or the new one. */
static bool replace_file(const char *path, const char *profile) {
    rp__bytes part = {0};
    rp__bytes_printf(&part, "%s.part", path);
    bool is_written = !part.failed && write_file(part.p, profile) && rename(part.p, path) == 0;
    if (!is_written && !part.failed) unlink(part.p);
    rp__bytes_clear(&part);
    return is_written;
}

static rp_status save(const char *path, const char *profile, rp_error *err) {
    bool is_written = is_special(path) ? write_file(path, profile) : replace_file(path, profile);
    return is_written ? RP_OK : rp__fail(err, RP_EIO, "%s cannot be written", path);
}

static rp_status save_profile(rp_engine *engine, const char *asked, const char *profile,
                              rp_error *err) {
    char *path = NULL;
    rp_status s = RP_OK;
    if (!asked) {
        RP_TRY(rp_engine_tune_path(engine, &path, err));
        s = make_folders(path, err);
    }
    if (s >= 0) s = save(asked ? asked : path, profile, err);
    if (s >= 0 && !rp__cli_is_quiet()) fprintf(stderr, "the profile is %s\n", asked ? asked : path);
    rp_free(path);
    return s;
}

/* ---- the command ---- */

static rp_status measure(tune_command *t, rp_engine *engine, const rp__options *o, rp_error *err) {
    rp_tune_options q = rp_tune_options_default();
    char *profile = NULL;
    q.n_pairs = (int)rp__options_int(o, RP_OPT_REPETITIONS);
    q.on_row = on_row;
    q.user = t;
    rp_status s = rp_engine_tune(engine, &q, &profile, err);
    rp__cli_status_line(NULL);
    if (s >= 0) s = save_profile(engine, rp__options_str(o, RP_OPT_OUT), profile, err);
    rp_free(profile);
    return s;
}

static int show(tune_command *t) {
    if (t->as_json && t->out.n) rp__bytes_add_str(&t->out, "]\n");
    if (t->out.failed) return rp__cli_out_of_memory();
    if (t->out.n) rp__cli_write(t->out.p, t->out.n);
    return RP_CLI_OK;
}

int rp__cli_tune(rp__options *o) {
    tune_command t = {.info = {.bytes = sizeof t.info}, .as_json = rp__options_on(o, RP_OPT_JSON)};
    rp_engine *engine = NULL;
    rp_error err = {0};
    const char *model = rp__cli_take_model(o);
    if (!model || !rp__cli_no_more_arguments(o)) return RP_CLI_USAGE;
    rp__cli_interrupt_init();
    int code = rp__cli_start(o, model, (int)rp__options_int(o, RP_OPT_MAX_NUM_SEQS), &engine);
    if (code) return code;
    rp_engine_get_info(engine, &t.info);
    rp_status s = measure(&t, engine, o, &err);
    if (s == RP_ECANCELLED && rp__cli_interrupted())
        code = RP_CLI_INTERRUPTED;
    else
        code = s < 0 ? rp__cli_fail(&err) : show(&t);
    rp__bytes_clear(&t.out);
    rp_engine_destroy(engine);
    return rp__cli_finish_output(code);
}
