/* What tests and fuzzers reach besides safetensors.h. */
#ifndef RP_FILE_SAFETENSORS_IMPL_H
#define RP_FILE_SAFETENSORS_IMPL_H

#include "file/safetensors.h"

/* As rp__safetensors_open on one file with these bytes (borrowed until close). */
rp_status rp__safetensors_open_memory(const char *name, const void *p, size_t n,
                                      rp__safetensors **out, rp_error *err);

#endif
