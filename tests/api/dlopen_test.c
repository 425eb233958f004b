/* The shared library opened at run time, as plugins and other languages do it: by its exported
 * names alone. */
#include <dlfcn.h>
#include <string.h>

#include "reprise/reprise.h"
#include "test.h"

/* POSIX lets a function's address come out of a void pointer; C itself does not. */
#define LOAD(name)                                                                                 \
    __typeof__(&name) name##_;                                                                     \
    *(void **)&name##_ = dlsym(library, #name);                                                    \
    if (!name##_) fail_msg("%s is not exported", #name)

RP_TEST(api, shared_library_answers_through_dlopen) {
    void *library = dlopen(RP_BUILD_DIR "/libreprise.so", RTLD_NOW | RTLD_LOCAL);
    if (!library) fail_msg("%s", dlerror());
    LOAD(rp_version);
    LOAD(rp_engine_options_default);
    LOAD(rp_engine_create);
    LOAD(rp_engine_destroy);
    LOAD(rp_request_options_default);
    LOAD(rp_engine_submit_n);
    LOAD(rp_request_wait);
    LOAD(rp_request_release);
    LOAD(rp_status_name);
    LOAD(rp_free);
    assert_string_equal(rp_version_(), RP_VERSION);
    assert_string_equal(rp_status_name_(RP_EQUEUE), "RP_EQUEUE");
    rp_error err = {0};
    rp_engine *e;
    rp_request *r[2];
    rp_engine_options o = rp_engine_options_default_();
    o.model = rp_test_path("fixtures/models/table64.gguf");
    assert_ok(rp_engine_create_(&o, &e, &err), err);
    rp_request_options q = rp_request_options_default_();
    q.prompt = "e";
    q.max_tokens = 4;
    q.sampling.temperature = 0;
    assert_ok(rp_engine_submit_n_(e, &q, 2, r, &err), err);
    for (int i = 0; i < 2; i++) {
        char *text;
        assert_ok(rp_request_wait_(r[i], &text, NULL, &err), err);
        assert_string_equal(text, "fghi");
        rp_free_(text);
        rp_request_release_(r[i]);
    }
    rp_engine_destroy_(e);
    dlclose(library);
}
