/* One request followed to its end: the stream on the standard output, Ctrl-C, a reader that went
 * away. */
#include "cli/cli.h"

#include "base/fail.h"

enum { LOOK_MS = 50 }; /* how often Ctrl-C is looked for while no token comes */

/* RP_END after the last event; *show turns false when nobody reads any more. */
static rp_status take_event(const rp_event *event, bool *show, rp__cli_answer *out, rp_error *err) {
    if (event->text_bytes && !rp__bytes_add(&out->text, event->text, event->text_bytes))
        return rp__fail(err, RP_ENOMEM, "out of memory for the answer");
    if (*show && event->text_bytes) *show = rp__cli_write(event->text, event->text_bytes);
    if (event->kind != RP_EVENT_DONE) return RP_OK;
    out->finish = event->finish;
    out->usage = event->usage;
    if (event->finish != RP_FINISH_ERROR) return RP_END;
    *err = event->error;
    return event->error.code < 0 ? event->error.code : RP_EINTERNAL;
}

rp_status rp__cli_answer_follow(rp_request *request, bool show, rp__cli_token_fn on_token,
                                void *user, rp__cli_answer *out, rp_error *err) {
    bool is_cancelled = false, was_shown = show;
    *out = (rp__cli_answer){0};
    for (;;) {
        rp_event event = {0};
        rp_status s = rp_request_next(request, LOOK_MS, &event);
        if (s == RP_OK) {
            if (on_token) on_token(user, &event);
            s = take_event(&event, &show, out, err);
            if (s != RP_OK) return s == RP_END ? RP_OK : s;
        } else if (s != RP_AGAIN) {
            return s < 0 ? rp__fail(err, s, "%s", rp_status_text(s)) : RP_OK;
        }
        out->interrupted = rp__cli_interrupted();
        if (is_cancelled || (!out->interrupted && show == was_shown)) continue;
        rp_request_cancel(request);
        is_cancelled = true;
    }
}

rp_status rp__cli_answer_take(rp_engine *engine, const rp_request_options *options, bool show,
                              rp__cli_token_fn on_token, void *user, rp__cli_answer *out,
                              rp_error *err) {
    rp_request *request = NULL;
    *out = (rp__cli_answer){0};
    RP_TRY(rp_engine_submit(engine, options, &request, err));
    rp_status s = rp__cli_answer_follow(request, show, on_token, user, out, err);
    rp_request_release(request);
    return s;
}

void rp__cli_answer_clear(rp__cli_answer *a) {
    rp__bytes_clear(&a->text);
    *a = (rp__cli_answer){0};
}
