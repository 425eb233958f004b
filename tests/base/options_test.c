#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/map.h"
#include "base/options_impl.h"

/* Parses up to 12 words given as one NULL-ended list. */
static rp_status parse(rp__options *o, rp__command command, rp_error *err, const char *first, ...) {
    char *argv[12];
    int argc = 0;
    va_list ap;
    va_start(ap, first);
    for (const char *s = first; s && argc < 12; s = va_arg(ap, const char *))
        argv[argc++] = (char *)(uintptr_t)s;
    va_end(ap);
    return rp__options_parse(o, command, argc, argv, err);
}
#define PARSE(o, command, err, ...) parse(o, command, err, __VA_ARGS__, (const char *)NULL)

static void expect_refusal(rp__command command, const char *a, const char *b, const char *part) {
    rp__options o;
    rp_error err = {0};
    assert_int_equal(parse(&o, command, &err, a, b, (const char *)NULL), RP_EINVAL);
    assert_message(err, part);
    rp__options_clear(&o);
}

RP_TEST(options, both_dialects_are_one_option) {
    static const char *const names[] = {"-n", "--max-tokens", "--predict", "--n-predict",
                                        "--n_predict"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        rp__options o;
        rp_error err = {0};
        assert_ok(PARSE(&o, RP_CMD_RUN, &err, names[i], "17"), err);
        assert_int_equal(rp__options_int(&o, RP_OPT_MAX_TOKENS), 17);
        rp__options_clear(&o);
    }
}

RP_TEST(options, values_of_every_kind) {
    rp__options o;
    rp_error err = {0};
    assert_ok(PARSE(&o, RP_CMD_RUN, &err, "-m=a.gguf", "--temp", "0.25", "--stop", "x", "--stop=y",
                    "-n", "-1", "--capture=off", "--ignore-eos", "--no-parse-special", "word"),
              err);
    assert_string_equal(rp__options_str(&o, RP_OPT_MODEL), "a.gguf");
    assert_true(rp__options_number(&o, RP_OPT_TEMPERATURE) == 0.25);
    assert_int_equal(o.values[RP_OPT_STOP].n_items, 2);
    assert_string_equal(o.values[RP_OPT_STOP].items[0], "x");
    assert_string_equal(o.values[RP_OPT_STOP].items[1], "y");
    assert_int_equal(rp__options_int(&o, RP_OPT_MAX_TOKENS), -1);
    assert_string_equal(rp__options_str(&o, RP_OPT_CAPTURE), "off");
    assert_true(rp__options_on(&o, RP_OPT_IGNORE_EOS));
    assert_false(rp__options_on(&o, RP_OPT_PARSE_SPECIAL));
    assert_int_equal(o.n_positional, 1);
    assert_string_equal(o.positional[0], "word");
    assert_false(rp__options_given(&o, RP_OPT_TOP_K));
    assert_int_equal(rp__options_int(&o, RP_OPT_TOP_K), 40);
    rp__options_clear(&o);
}

RP_TEST(options, lists_of_numbers) {
    rp__options o;
    rp_error err = {0};
    int64_t v[2];
    assert_ok(PARSE(&o, RP_CMD_BENCH, &err, "-p", "16,512,1024"), err);
    assert_int_equal(rp__options_ints(&o, RP_OPT_BENCH_PROMPT, v, 2), 3);
    assert_int_equal(v[0], 16);
    assert_int_equal(v[1], 512);
    assert_int_equal(rp__options_ints(&o, RP_OPT_BENCH_GEN, v, 2), 1);
    assert_int_equal(v[0], 128);
    rp__options_clear(&o);
    expect_refusal(RP_CMD_BENCH, "-p", "16,,32", "-p needs whole numbers");
    expect_refusal(RP_CMD_BENCH, "-p", "16,", "-p needs a number after the comma");
    expect_refusal(RP_CMD_BENCH, "-p", "", "-p needs whole numbers");
}

RP_TEST(options, two_dashes_end_the_options) {
    rp__options o;
    rp_error err = {0};
    assert_ok(PARSE(&o, RP_CMD_RUN, &err, "-", "--", "--prompt", "-n"), err);
    assert_int_equal(o.n_positional, 3);
    assert_string_equal(o.positional[0], "-");
    assert_string_equal(o.positional[1], "--prompt");
    rp__options_clear(&o);
}

RP_TEST(options, bad_values_name_flag_value_and_range) {
    expect_refusal(RP_CMD_RUN, "-n", "12x",
                   "-n needs a whole number from -1 to 2147483647, not \"12x\"");
    expect_refusal(RP_CMD_RUN, "--n-predict", "", "--n-predict needs a whole number");
    expect_refusal(RP_CMD_RUN, "-n", " 1", "not \" 1\"");
    expect_refusal(RP_CMD_RUN, "-n", "0x10", "not \"0x10\"");
    expect_refusal(RP_CMD_RUN, "-n", "-2", "from -1");
    expect_refusal(RP_CMD_RUN, "-n", "99999999999999999999", "not \"99999999999999999999\"");
    expect_refusal(RP_CMD_RUN, "--seed", "9223372036854775808",
                   "--seed needs a whole number of at least -1");
    expect_refusal(RP_CMD_RUN, "--temp", "nan", "--temp needs a number from 0 to 100, not \"nan\"");
    expect_refusal(RP_CMD_RUN, "--temp", "inf", "not \"inf\"");
    expect_refusal(RP_CMD_RUN, "--temp", "1e999", "not \"1e999\"");
    expect_refusal(RP_CMD_RUN, "--top-p", "1.5", "--top-p needs a number from 0 to 1, not \"1.5\"");
    expect_refusal(RP_CMD_RUN, "--capture", "maybe",
                   "--capture needs one of auto|on|off, not \"maybe\"");
    expect_refusal(RP_CMD_RUN, "--ignore-eos=maybe", NULL,
                   "--ignore-eos needs on or off, not \"maybe\"");
    expect_refusal(RP_CMD_RUN, "--no-ignore-eos=on", NULL, "--no-ignore-eos takes no value");
    expect_refusal(RP_CMD_RUN, "-p", NULL, "-p needs a value: TEXT");
}

RP_TEST(options, unknown_names_get_a_suggestion) {
    expect_refusal(RP_CMD_RUN, "--promt", "x", "unknown option --promt; did you mean --prompt?");
    expect_refusal(RP_CMD_RUN, "--tmep", "1", "did you mean --temp?");
    expect_refusal(RP_CMD_RUN, "--n-predcit=3", NULL,
                   "unknown option --n-predcit; did you mean --n-predict?");
    expect_refusal(RP_CMD_RUN, "--zzzzqqq", NULL, "see `reprise run --help`");
    expect_refusal(RP_CMD_CHAT, "--tensors", NULL,
                   "--tensors is an option of `reprise inspect`, not of this command");
    expect_refusal(RP_CMD_RUN, "-ngl", "99", "-ngl is not an option here: the whole model runs on");
}

RP_TEST(options, distance_counts_edits) { /* by hand: kitten/sitting 3, one swap 1 */
    assert_int_equal(rp__option_distance("kitten", RP_STR("sitting")), 3);
    assert_int_equal(rp__option_distance("tmep", RP_STR("temp")), 1);
    assert_int_equal(rp__option_distance("", RP_STR("abc")), 3);
    assert_int_equal(rp__option_distance("abc", RP_STR("abc")), 0);
}

RP_TEST(options, environment_mirrors_and_arguments_win) {
    rp__options o;
    rp_error err = {0};
    setenv("REPRISE_MAX_TOKENS", "5", 1);
    setenv("REPRISE_TEMP", "0.5", 1); /* a variable of an alias */
    setenv("REPRISE_IGNORE_EOS", "true", 1);
    assert_ok(PARSE(&o, RP_CMD_RUN, &err, "-n", "6"), err);
    assert_int_equal(rp__options_int(&o, RP_OPT_MAX_TOKENS), 6);
    assert_true(rp__options_number(&o, RP_OPT_TEMPERATURE) == 0.5);
    assert_true(rp__options_on(&o, RP_OPT_IGNORE_EOS));
    assert_int_equal(o.values[RP_OPT_TEMPERATURE].origin, RP_ORIGIN_ENV);
    rp__options_clear(&o);
    setenv("REPRISE_TEMPERATURE", "0.75", 1); /* the main name comes before an alias */
    setenv("REPRISE_MAX_TOKENS", "", 1);      /* empty is unset */
    assert_ok(PARSE(&o, RP_CMD_RUN, &err, "--no-ignore-eos"), err);
    assert_true(rp__options_number(&o, RP_OPT_TEMPERATURE) == 0.75);
    assert_int_equal(rp__options_int(&o, RP_OPT_MAX_TOKENS), -1);
    assert_false(rp__options_on(&o, RP_OPT_IGNORE_EOS));
    rp__options_clear(&o);
    setenv("REPRISE_TEMPERATURE", "hot", 1);
    expect_refusal(RP_CMD_RUN, "-n", "1",
                   "REPRISE_TEMPERATURE needs a number from 0 to 100, not \"hot\"");
    assert_ok(PARSE(&o, RP_CMD_INSPECT, &err, "m"), err); /* not this command's option: not read */
    rp__options_clear(&o);
    unsetenv("REPRISE_TEMPERATURE");
    unsetenv("REPRISE_TEMP");
    unsetenv("REPRISE_IGNORE_EOS");
    unsetenv("REPRISE_MAX_TOKENS");
}

RP_TEST(options, an_argument_reaches_the_library_by_the_environment) {
    rp__options o;
    rp_error err = {0};
    unsetenv("REPRISE_CACHE");
    assert_null(rp__options_env("REPRISE_CACHE"));
    assert_ok(PARSE(&o, RP_CMD_RUN, &err, "--cache", "/x"), err);
    assert_ok(rp__options_export(&o, RP_OPT_CACHE, &err), err);
    assert_string_equal(rp__options_env("REPRISE_CACHE"), "/x");
    rp__options_clear(&o);
    unsetenv("REPRISE_CACHE");
}

/* Within a command every name means one option, and the table is complete and fits its limits. */
RP_TEST(options, table_is_sound) {
    for (size_t c = 0; rp__command_at(c); c++) {
        unsigned command = rp__command_at(c)->command;
        assert_int_equal(command, 1u << c);
        assert_ptr_equal(rp__command_find(rp__command_at(c)->name), rp__command_at(c));
        rp__map seen = {0};
        for (size_t id = 0; id < RP_N_OPTIONS; id++) {
            const rp__option *o = rp__option_of((rp__option_id)id);
            assert_non_null(o->name);
            assert_non_null(o->help);
            assert_true(o->commands != 0);
            assert_true(!o->value == (o->kind == RP_OPT_FLAG || o->kind == RP_OPT_ACTION));
            assert_true(strlen(o->name) + sizeof "REPRISE_" <= RP_ENV_CAP);
            if (!(o->commands & command)) continue;
            const char *lists[] = {o->name, o->aliases, o->shorts};
            for (size_t l = 0; l < 3; l++)
                for (rp__str w; rp__option_word(&lists[l], &w);) {
                    uint64_t other;
                    if (rp__map_get(&seen, w, &other))
                        fail_msg("%.*s names two options", (int)w.n, w.p);
                    assert_true(rp__map_put(&seen, w, id));
                }
        }
        rp__map_clear(&seen);
    }
}

static size_t longest_line(const char *text) {
    size_t most = 0;
    for (; *text; text += strcspn(text, "\n"), text += *text == '\n') {
        size_t n = strcspn(text, "\n");
        if (n > most) most = n;
    }
    return most;
}

RP_TEST(options, help_shows_names_defaults_and_variables) {
    rp__bytes b = {0};
    assert_true(rp__options_help(&b, RP_CMD_RUN, 90));
    assert_non_null(strstr(b.p, "-n, --max-tokens, --n-predict, --predict N"));
    assert_non_null(strstr(b.p, "-c, --max-model-len, --ctx-size N"));
    assert_non_null(strstr(b.p, "[default 40, env REPRISE_TOP_K]"));
    assert_null(strstr(b.p, "--tensors"));
    assert_true(longest_line(b.p) <= 90);
    rp__bytes_reset(&b);
    assert_true(rp__options_help(&b, RP_CMD_HELP, 90));
    for (size_t i = 0; rp__command_at(i); i++)
        assert_non_null(strstr(b.p, rp__command_at(i)->summary));
    rp__bytes_clear(&b);
}

RP_TEST(options, out_of_memory_is_a_clean_status) {
    for (uint64_t n = 1; n <= 4; n++) {
        rp__options o;
        rp_error err = {0};
        rp__alloc_fail_at(n, true);
        rp_status s = PARSE(&o, RP_CMD_RUN, &err, "--stop", "a", "--stop", "b");
        rp__alloc_fail_at(0, false);
        assert_int_equal(s, n <= 3 ? RP_ENOMEM : RP_OK); /* positional list and two stops */
        rp__options_clear(&o);
        rp__bytes b = {0};
        rp__alloc_fail_at(n, true);
        assert_false(rp__options_help(&b, RP_CMD_RUN, 90));
        rp__alloc_fail_at(0, false);
        rp__bytes_clear(&b);
    }
}
