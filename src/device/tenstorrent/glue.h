/* The Python script that calls ttnn (tenstorrent_glue.py), carried by the shared object. */
#ifndef RP_DEVICE_TENSTORRENT_GLUE_H
#define RP_DEVICE_TENSTORRENT_GLUE_H

#include <stddef.h>

extern const char rp__tt_glue[];
extern const size_t rp__tt_glue_bytes;

#endif
