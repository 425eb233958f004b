/* Tokenizers from tokenizer.json. */
#include "text/tokenizer_impl.h"

rp_status rp__tokenizer_create_json(const char *source, rp__str tokenizer_json, rp__str tokenizer_config,
                                    rp__tokenizer **out, rp_error *err) {
    (void)tokenizer_json, (void)tokenizer_config;
    *out = NULL;
    return rp__fail(err, RP_EUNSUPPORTED, "%s: tokenizer.json is not implemented", source);
}
