/* Vocabularies for tests: whole ones that tools/fetch_vocab.py put into the cache (not in the
 * repository), and what several test files do with a tokenizer. */
#ifndef RP_TESTS_TEXT_VOCAB_FILES_H
#define RP_TESTS_TEXT_VOCAB_FILES_H

#include "text/tokenizer.h"

/* Path of a file in the cache (static buffer of the thread); NULL when it is not there. */
const char *vocab_file(const char *folder, const char *name);
/* Opens the tokenizer of a GGUF file; skips the test when the file is not there. */
rp__tokenizer *vocab_open(const char *folder, const char *name);
/* Encodes, failing the test on an error. Cleared with rp__ids_clear. */
rp__ids vocab_encode(const rp__tokenizer *t, rp__str text, bool parse_special, bool add_special);
/* The ids written as "1 2 3" in a static buffer of the thread. */
const char *vocab_ids_text(const rp__ids *ids);
rp__bytes vocab_read(const char *path); /* a whole file; empty when it cannot be read */

#endif
