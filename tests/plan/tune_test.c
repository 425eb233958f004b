/* Tuned profiles: what is written is read again, and every defect is one sentence. */
#include "plan/tune.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "tensor/view.h"
#include "test.h"

static const rp__tune_about about = {.build = "1.2.3",
                                     .device = "emu",
                                     .identity = "a card, simulated times",
                                     .host = "a host, 2 threads",
                                     .model = 0x123456789abcdef0};

static const char head[] = "reprise-tune 1\nbuild 1.2.3\ndevice emu\n"
                           "identity a card, simulated times\nhost a host, 2 threads\n"
                           "model 123456789abcdef0\n";

static rp_status read_text(const char *text, size_t n, rp__placement *p, rp_error *err) {
    *p = (rp__placement){0};
    return rp__tune_read("p.txt", (rp__str){text, n}, &about, p, err);
}

static char side_of(const rp__placement *p, rp_op_kind kind, int64_t rows, int64_t width) {
    rp_op op = {.kind = kind, .n_in = 1, .n_out = 1};
    op.in[0] = op.out[0] = rp__tensor_make(NULL, 0, RP_F32, 2, (int64_t[]){rows, width});
    const rp__place_rule *r = rp__placement_find(p, &op);
    return !r ? '-' : r->side == RP_SIDE_HOST ? 'h' : 'd';
}

RP_TEST(tune, what_is_written_is_read) {
    rp__tune_row rows[] = {{RP_OP_ROPE, 8, 64, 10, 20},
                           {RP_OP_RMS_NORM, 32, 64, 10, 11},
                           {RP_OP_RMS_NORM, 1, 64, 10, 9},
                           {RP_OP_RMS_NORM, 1, 128, 10, 9.999},
                           {RP_OP_RMS_NORM, 4, 64, 10, 9.9999}}; /* the same to the nanosecond */
    rp__bytes text = {0};
    rp__placement p;
    rp_error err = {0};
    rp__tune_sort(rows, 5);
    assert_true(rp__tune_write(&about, rows, 5, &text));
    assert_true(rp__str_starts((rp__str){text.p, text.n}, RP_STR(head)));
    assert_non_null(strstr(text.p, "row rms_norm rows 1 width 64 device_us 10.000 host_us 9.000 "
                                   "place host\n"));
    assert_ok(read_text(text.p, text.n, &p, &err), err);
    assert_int_equal(p.n_rules, 5);
    /* Between two rows the smaller one counts. */
    assert_int_equal(side_of(&p, RP_OP_RMS_NORM, 1, 64), 'h');
    assert_int_equal(side_of(&p, RP_OP_RMS_NORM, 3, 64), 'h');
    assert_int_equal(side_of(&p, RP_OP_RMS_NORM, 4, 64), 'd');
    assert_int_equal(side_of(&p, RP_OP_RMS_NORM, 1000, 64), 'd');
    assert_int_equal(side_of(&p, RP_OP_RMS_NORM, 5, 128), 'h');
    assert_int_equal(side_of(&p, RP_OP_RMS_NORM, 1, 65), '-');
    assert_int_equal(side_of(&p, RP_OP_ROPE, 7, 64), '-');
    assert_int_equal(side_of(&p, RP_OP_ROPE, 8, 64), 'd');
    rp__bytes_clear(&text);
    rp__placement_clear(&p);
}

#define ROW1 "row act rows 1 width 64 device_us 2.000 host_us 1.000 place host\n"
#define ROW2 "row act rows 2 width 64 device_us 2.000 host_us 3.000 place device\n"

/* The right text with one part replaced: the sentence names file, line, field, value and what was
 * expected. */
static const struct {
    const char *part, *by, *message;
} defects[] = {
    {"reprise-tune 1\n", "reprise-tune 2\n",
     "p.txt, line 1: reprise-tune is \"2\", expected \"1\": this build reads no other format"},
    {"reprise-tune 1\n", "# a profile\n",
     "p.txt, line 1: the line is \"# a profile\", expected \"reprise-tune ...\""},
    {"build 1.2.3", "build 1.2.2",
     "p.txt, line 2: build is \"1.2.2\", expected \"1.2.3\": the profile is stale, tune again"},
    {"device emu\n", "device cuda\n",
     "p.txt, line 3: device is \"cuda\", expected \"emu\": it was measured on another device"},
    {"identity a card", "identity another card",
     "p.txt, line 4: identity is \"another card, simulated times\", expected \"a card, simulated "
     "times\": it was measured on another device"},
    {"host a host, 2", "host a host, 4",
     "p.txt, line 5: host is \"a host, 4 threads\", expected \"a host, 2 threads\": it was measured "
     "beside another host"},
    {"model 1234", "model 0234",
     "p.txt, line 6: model is \"023456789abcdef0\", expected \"123456789abcdef0\": it was measured "
     "with a model of another shape"},
    {"device emu\n", "", "p.txt, line 3: the line is \"identity a card, simulated times\", "
                         "expected \"device ...\""},
    {"row act rows 1", "row cat rows 1", "p.txt, line 7: op is \"cat\", expected an op that"},
    {"row act rows 1", "row attention rows 1", "p.txt, line 7: op is \"attention\", expected"},
    {"rows 1", "rows 0", "p.txt, line 7: rows is \"0\", expected a whole number from 1 on"},
    {"rows 1", "rows +1", "rows is \"+1\""},
    {"rows 1", "rows 1.5", "rows is \"1.5\""},
    {"width 64", "width -64", "p.txt, line 7: width is \"-64\", expected a whole number"},
    {"device_us 2.000", "device_us nan", "p.txt, line 7: device_us is \"nan\", expected micro"},
    {"device_us 2.000", "device_us 1e99", "device_us is \"1e99\""},
    {"host_us 1.000", "host_us -1", "host_us is \"-1\", expected microseconds from 0 on"},
    {"place host", "place device",
     "p.txt, line 7: place is \"device\", expected host, which is faster by its times"},
    {"place host", "place card", "place is \"card\", expected host"},
    {" place host", "", "p.txt, line 7: the line is \"row act rows 1 width 64 device_us 2.000 "
                        "host_us 1.000\", expected \"row OP rows N width N"},
    {"place host", "place host host", "expected \"row OP rows N width N"},
    {"act rows", "act  rows", "expected \"row OP rows N width N"},
    {"width 64", "cols 64", "expected \"row OP rows N width N"},
    {ROW1 ROW2, ROW2 ROW1, "p.txt, line 8: row act of 1 rows, width 64, does not come after"},
    {ROW1 ROW2, ROW1 ROW1, "does not come after the one before"},
    {"end 2\n", "", "p.txt, line 9: the file is cut short: no line \"end\""},
    {"end 2\n", "end 2", "p.txt, line 9: the file is cut short"},
    {"end 2", "end 3", "p.txt, line 9: the line is \"end 3\", expected end 2"},
    {ROW2, "", "p.txt, line 8: the line is \"end 2\", expected end 1"},
    {"end 2\n", "end 2\n\n", "p.txt, line 10: 1 bytes after the end"},
    {"end 2\n", "end 2\nrow\n", "p.txt, line 10: 4 bytes after the end"},
    {"row act", "row\tact", "p.txt, line 7: byte 4 is a control character (9)"},
    {"\nrow act rows 1", "\r\nrow act rows 1", "p.txt, line 6: byte 23 is a control character"},
};

RP_TEST(tune, every_defect_is_one_sentence) {
    char whole[2048], text[2048];
    rp__placement p;
    rp_error err = {0};
    snprintf(whole, sizeof whole, "%s" ROW1 ROW2 "end 2\n", head);
    assert_ok(read_text(whole, strlen(whole), &p, &err), err);
    rp__placement_clear(&p);
    for (size_t i = 0; i < sizeof defects / sizeof *defects; i++) {
        const char *at = strstr(whole, defects[i].part);
        assert_non_null(at);
        snprintf(text, sizeof text, "%.*s%s%s", (int)(at - whole), whole, defects[i].by,
                 at + strlen(defects[i].part));
        assert_int_equal(read_text(text, strlen(text), &p, &err), RP_EFORMAT);
        assert_message(err, defects[i].message);
        rp__placement_clear(&p);
    }
}

RP_TEST(tune, long_lines_and_zero_bytes_are_refused) {
    char text[1024];
    rp__placement p;
    rp_error err = {0};
    memset(text, 'x', sizeof text);
    text[sizeof text - 1] = '\n';
    assert_int_equal(read_text(text, sizeof text, &p, &err), RP_EFORMAT);
    assert_message(err, "p.txt, line 1: 1023 bytes long, expected at most 399");
    memcpy(text, head, sizeof head);
    text[3] = 0;
    assert_int_equal(read_text(text, sizeof head - 1, &p, &err), RP_EFORMAT);
    assert_message(err, "byte 4 is a control character (0)");
    assert_int_equal(read_text("", 0, &p, &err), RP_EFORMAT);
    assert_message(err, "p.txt, line 1: the file is cut short");
}

/* Any change of a byte is refused, or changes nothing but times. */
RP_TEST(tune, changed_bytes) {
    char text[1024];
    uint64_t seed = 7;
    rp__placement p;
    rp_error err = {0};
    size_t n = (size_t)snprintf(text, sizeof text, "%s" ROW1 ROW2 "end 2\n", head);
    for (int round = 0; round < 20000; round++) {
        char copy[1024];
        memcpy(copy, text, n);
        for (uint64_t k = 1 + rp_test_rand(&seed) % 2; k--;)
            copy[rp_test_rand(&seed) % n] = (char)rp_test_rand(&seed);
        rp_status st = read_text(copy, n - rp_test_rand(&seed) % 3 / 2, &p, &err);
        if (st == RP_OK)
            assert_int_equal(p.n_rules, 2);
        else
            assert_int_equal(st, RP_EFORMAT);
        rp__placement_clear(&p);
    }
}
