/* Fuzzes the template interpreter: whatever the source, it is refused or rendered within the
 * limits, and the marks of the output are sorted, disjoint and inside it.
 *
 * Built and run as the other fuzzers: see CMakeLists.txt, RP_FUZZ. */
#include <stdint.h>

#include "base/fail.h"
#include "text/template.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char context_text[] =
    "{\"messages\": [{\"role\": \"system\", \"content\": \"Be brief.\"},"
    " {\"role\": \"user\", \"content\": \" H\\u00e9llo <|im_end|> \\ud83e\\udd99\\n\"},"
    " {\"role\": \"assistant\", \"content\": null, \"tool_calls\": [{\"id\": \"abcdefghi\","
    " \"function\": {\"name\": \"f\", \"arguments\": {\"a\": 1, \"b\": [2.5, true, null]}}}]}],"
    " \"tools\": [{\"type\": \"function\", \"function\": {\"name\": \"f\", \"parameters\": {}}}],"
    " \"add_generation_prompt\": true, \"bos_token\": \"<s>\", \"eos_token\": \"</s>\","
    " \"n\": 7, \"x\": 2.5, \"s\": \"Hello World\", \"list\": [3, 1, 2], \"d\": {\"a\": 1},"
    " \"nothing\": null}";

static void check_marks(const rp__rendered *r) {
    size_t at = 0;
    for (size_t i = 0; i < r->n_literal; i++) {
        rp__span s = r->literal[i];
        rp__assert(s.begin >= at && s.end > s.begin && s.end <= r->text.n, "mark %zu", i);
        at = s.end + 1; /* neighbours are merged */
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static json_t *context;
    if (!context) context = json_loads(context_text, 0, NULL);
    rp__template *t;
    rp_error err;
    rp__rendered out;
    if (rp__template_parse("fuzz", (rp__str){(const char *)data, size}, &t, &err)) return 0;
    if (!rp__template_render(t, context, 1721995200, &out, &err)) check_marks(&out);
    rp__rendered_clear(&out);
    rp__template_destroy(t);
    return 0;
}
