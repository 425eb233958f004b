#include "cli/bench.h"

#include "cli/cli.h"
#include "base/json_writer.h"

/* "off" is eager; "on" replays whatever can be. */
static const char *mode_name(rp_capture_mode m) {
    return m == RP_CAPTURE_OFF ? "off" : m == RP_CAPTURE_ON ? "on" : "auto";
}

static const char *test_prefix(const rp__bench_row *r) {
    return r->is_prompt ? "pp" : "tg";
}

void rp__bench_write_table(rp__bytes *out, const rp__bench_header *h, const rp__bench_row *rows,
                           size_t n) {
    const rp_engine_info *i = h->info;
    rp__bytes_printf(out, "%s, %s, %.1f M parameters, %.1f MiB, on %s%s\n\n", i->model_name,
                     i->quantization, (double)i->n_params / 1e6,
                     (double)i->weight_bytes / (1 << 20), i->device,
                     rp__cli_simulated(i->device, i->is_simulated));
    if (h->n_seqs > 1) rp__bytes_printf(out, "%d sequences at once, tokens of all\n\n", h->n_seqs);
    if (h->n_depth) rp__bytes_printf(out, "tg after %d tokens of context\n\n", h->n_depth);
    rp__bytes_add_str(out, "| test     | capture |  tokens/s |    lowest |   highest | captures | "
                           "replays | eager steps |\n");
    rp__bytes_add_str(out, "|----------|---------|----------:|----------:|----------:|---------:|"
                           "--------:|------------:|\n");
    for (size_t k = 0; k < n; k++) {
        const rp__bench_row *r = &rows[k];
        rp__bytes_printf(out,
                         "| %s%-6d | %-7s | %9.2f | %9.2f | %9.2f | %8llu | %7llu | %11llu |\n",
                         test_prefix(r), r->n_tokens, mode_name(r->capture), r->median, r->least,
                         r->most, (unsigned long long)r->n_captures,
                         (unsigned long long)r->n_replays, (unsigned long long)r->n_eager_steps);
    }
}

static void add_row(rp__bytes *out, const rp__bench_header *h, const rp__bench_row *r) {
    rp__bytes name = {0};
    rp__bytes_printf(&name, "%s%d", test_prefix(r), r->n_tokens);
    rp__json_open(out, NULL, '{');
    rp__json_strn(out, "test", name.p, name.n);
    rp__json_str(out, "capture", mode_name(r->capture));
    rp__json_num(out, "tokens_per_second", r->median);
    rp__json_num(out, "lowest", r->least);
    rp__json_num(out, "highest", r->most);
    rp__json_open(out, "samples", '[');
    for (size_t i = 0; i < r->n_samples; i++) rp__json_num(out, NULL, r->samples[i]);
    rp__json_close(out, ']');
    rp__json_int(out, "n_prompt", r->is_prompt ? r->n_tokens : 0);
    rp__json_int(out, "n_gen", r->is_prompt ? 0 : r->n_tokens);
    rp__json_int(out, "n_depth", r->is_prompt ? 0 : h->n_depth);
    rp__json_int(out, "n_seqs", h->n_seqs);
    rp__json_uint(out, "captures", r->n_captures);
    rp__json_uint(out, "replays", r->n_replays);
    rp__json_uint(out, "eager_steps", r->n_eager_steps);
    rp__json_str(out, "model", h->info->model_name);
    rp__json_str(out, "quantization", h->info->quantization);
    rp__json_int(out, "n_params", h->info->n_params);
    rp__json_uint(out, "weight_bytes", h->info->weight_bytes);
    rp__json_str(out, "device", h->info->device);
    rp__json_int(out, "threads", h->n_threads);
    rp__json_bool(out, "times_are_simulated", h->info->is_simulated);
    rp__json_close(out, '}');
    if (name.failed) out->failed = true;
    rp__bytes_clear(&name);
}

/* One row per line, so that a diff of two runs reads well. */
void rp__bench_write_json(rp__bytes *out, const rp__bench_header *h, const rp__bench_row *rows,
                          size_t n) {
    rp__bytes_add_char(out, '[');
    for (size_t i = 0; i < n; i++) {
        rp__bytes row = {0};
        add_row(&row, h, &rows[i]);
        rp__bytes_add_str(out, i ? ",\n " : "\n ");
        if (row.failed)
            out->failed = true;
        else
            rp__bytes_add(out, row.p, row.n);
        rp__bytes_clear(&row);
    }
    rp__bytes_add_str(out, "\n]\n");
}

void rp__bench_write_csv(rp__bytes *out, const rp__bench_header *h, const rp__bench_row *rows,
                         size_t n) {
    (void)h;
    rp__bytes_add_str(
        out, "test,capture,tokens_per_second,lowest,highest,captures,replays,eager_steps\n");
    for (size_t i = 0; i < n; i++) {
        const rp__bench_row *r = &rows[i];
        rp__bytes_printf(out, "%s%d,%s,%.4f,%.4f,%.4f,%llu,%llu,%llu\n", test_prefix(r),
                         r->n_tokens, mode_name(r->capture), r->median, r->least, r->most,
                         (unsigned long long)r->n_captures, (unsigned long long)r->n_replays,
                         (unsigned long long)r->n_eager_steps);
    }
}
