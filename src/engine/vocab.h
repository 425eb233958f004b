/* From a checkpoint's metadata to its tokenizer: the one place that knows the keys of GGUF and the
 * file names of a folder. Pure glue; keeps nothing. */
#ifndef RP_ENGINE_VOCAB_H
#define RP_ENGINE_VOCAB_H

#include "file/checkpoint.h"
#include "text/tokenizer.h"

/* The tokenizer of `c` (the caller destroys it). RP_EFORMAT names a key that is missing, of another
 * type or of another length; RP_EUNSUPPORTED names a model or pre-tokeniser that is not known. */
rp_status rp__vocab_from_checkpoint(const rp__checkpoint *c, rp__tokenizer **out, rp_error *err);

/* From GGUF alone (a vocabulary file without tensors too). */
rp_status rp__vocab_from_gguf(const rp__gguf *g, rp__tokenizer **out, rp_error *err);

#endif
