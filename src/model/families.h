/* Every model family: one line here, one row in model.c, one file. */
#ifndef RP_MODEL_FAMILIES_H
#define RP_MODEL_FAMILIES_H

#include "model/model.h"

extern const rp__family rp__family_llama;

#endif
