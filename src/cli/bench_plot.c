#include <math.h>

#include "base/fail.h"
#include "cli/bench.h"
#include "cli/cli.h"

const char *rp__bench_duration(double us, char *out, size_t cap) {
    const char *unit = us < 1e3 ? "us" : us < 1e6 ? "ms" : "s";
    double v = us < 1e3 ? us : us < 1e6 ? us / 1e3 : us / 1e6;
    snprintf(out, cap, "%.*f %s", v < 10 ? 2 : v < 100 ? 1 : 0, v, unit);
    return out;
}

void rp__plot_begin(rp__bytes *out, int width, int height, int left, const char *title,
                    const char *subtitle) {
    rp__bytes_printf(out,
                     "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
                     "viewBox=\"0 0 %d %d\" font-family=\"sans-serif\" font-size=\"13\">\n"
                     "<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n",
                     width, height, width, height);
    rp__plot_text(out, left, 26, "font-size=\"16\" font-weight=\"bold\"", title);
    rp__plot_text(out, left, 45, "font-size=\"12\" fill=\"#444\"", subtitle);
}

void rp__plot_end(rp__bytes *out) {
    rp__bytes_add_str(out, "</svg>\n");
}

void rp__plot_text(rp__bytes *out, double x, double y, const char *attributes, const char *text) {
    rp__bytes_printf(out, "<text x=\"%.1f\" y=\"%.1f\" %s>", x, y, attributes);
    for (const char *c = text; *c; c++) {
        const char *entity = *c == '<' ? "&lt;" : *c == '>' ? "&gt;" : *c == '&' ? "&amp;" : NULL;
        if (entity)
            rp__bytes_add_str(out, entity);
        else
            rp__bytes_add_char(out, *c);
    }
    rp__bytes_add_str(out, "</text>\n");
}

double rp__plot_next_round(double v) {
    double power = pow(10, floor(log10(v * 1.001)));
    return v < 1.5 * power ? 2 * power : v < 3 * power ? 5 * power : 10 * power;
}

int rp__bench_save(const char *path, const rp__bytes *text) {
    rp_error err = {0};
    if (text->failed) return rp__cli_out_of_memory();
    FILE *f = fopen(path, "wb");
    bool is_written = f && fwrite(text->p, 1, text->n, f) == text->n;
    if (f && fclose(f)) is_written = false;
    if (is_written) return RP_CLI_OK;
    rp__fail(&err, RP_EIO, "%s cannot be written", path);
    return rp__cli_fail(&err);
}
