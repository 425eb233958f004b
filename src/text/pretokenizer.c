/* The pre-tokenisers that models use: name in GGUF, patterns, and recognising the same patterns in
 * tokenizer.json.
 *
 * Facts: every pattern is the one of the model's own tokenizer.json. Where GGUF tools adapted one
 * to their regex engines, the original counts, as it is what the model was trained with. Patterns
 * say \s as the set of White_Space, since PCRE2's \s has U+180E too. (?i:'s) takes U+017F for an s,
 * as Oniguruma, the reference's engine, does. */
#include "text/tokenizer_impl.h"

#include <string.h>

#include "base/utf8.h"

#define WS                                                                                         \
    "\\t-\\r "                                                                                     \
    "\\x{85}\\x{A0}\\x{1680}\\x{2000}-\\x{200A}\\x{2028}\\x{2029}\\x{202F}\\x{205F}\\x{3000}"
#define S  "[" WS "]"
#define NS "[^" WS "]"

#define CONTRACTION     "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define SPACES          "|" S "+(?!" NS ")|" S "+"
#define NEWLINES_SPACES "|" S "*[\\r\\n]+" SPACES
#define OTHERS          "| ?[^" WS "\\p{L}\\p{N}]+"
#define UPPER           "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER           "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define LEAD            "[^\\r\\n\\p{L}\\p{N}]?"

const char rp__pattern_gpt2[] = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+" OTHERS SPACES;
const char rp__pattern_digit[] = "\\p{N}";
const char rp__pattern_digits[] = "\\p{N}+";
/* tokenizer.json's "Punctuation": Unicode's punctuation and the symbols of ASCII. */
const char rp__pattern_punctuation[] = "[\\p{P}\\$\\+<=>\\^~\\|`]+";

static const char llama3[] =
    CONTRACTION "|" LEAD "\\p{L}+|\\p{N}{1,3}" OTHERS "[\\r\\n]*" NEWLINES_SPACES;
static const char qwen2[] =
    CONTRACTION "|" LEAD "\\p{L}+|\\p{N}" OTHERS "[\\r\\n]*" NEWLINES_SPACES;
static const char qwen35[] = CONTRACTION "|" LEAD "[\\p{L}\\p{M}]+|\\p{N}| ?[^" WS
                                         "\\p{L}\\p{M}\\p{N}]+[\\r\\n]*" NEWLINES_SPACES;
static const char tekken[] =
    LEAD UPPER "*" LOWER "+|" LEAD UPPER "+" LOWER "*|\\p{N}" OTHERS "[\\r\\n/]*" NEWLINES_SPACES;
static const char gpt4o[] =
    LEAD UPPER "*" LOWER "+" CONTRACTION "?|" LEAD UPPER "+" LOWER "*" CONTRACTION
               "?|\\p{N}{1,3}" OTHERS "[\\r\\n/]*" NEWLINES_SPACES;

static const char three_ascii_digits[] = "[0-9][0-9][0-9]";
static const char three_digits[] = "\\p{N}{1,3}";
/* Without the grave accent, which the tokenizer.json behind "falcon" has. */
static const char default_punctuation[] = "[\\p{P}\\$\\+<=>\\^~\\|]+";

static const char newline[] = "[\\r\\n]";
static const char deepseek_space_letters[] = S "?\\p{L}+";
static const char deepseek_space_punctuation[] = S "?\\p{P}+";
static const char deepseek_cjk[] = "[\\x{4E00}-\\x{9FA5}\\x{800}-\\x{4E00}\\x{AC00}-\\x{D7FF}]+";
static const char deepseek3_cjk[] = "[\\x{4E00}-\\x{9FA5}\\x{3040}-\\x{309F}\\x{30A0}-\\x{30FF}]+";
static const char deepseek3[] =
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?"
    "[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\\r\\n]*" NEWLINES_SPACES;

#define GPT2(name)                                                                                 \
    { name, {rp__pattern_gpt2}, false, false }
#define DIGITS(name)                                                                               \
    { name, {rp__pattern_digit, rp__pattern_gpt2}, false, false }
#define LLAMA3(name)                                                                               \
    { name, {llama3}, true, true }
#define QWEN2(name)                                                                                \
    { name, {qwen2}, false, false }

static const rp__pretokenizer known[] = {
    {"default",
     {default_punctuation, rp__pattern_gpt2, rp__pattern_digits, three_ascii_digits},
     false,
     false},
    GPT2("gpt-2"),
    GPT2("gpt2"),
    GPT2("phi-2"),
    GPT2("mpt"),
    GPT2("olmo"),
    GPT2("jais"),
    GPT2("mellum"),
    GPT2("exaone4"),
    GPT2("a.x-4.0"),
    GPT2("gigachat"),
    DIGITS("smollm"),
    DIGITS("starcoder"),
    DIGITS("refact"),
    DIGITS("command-r"),
    DIGITS("codeshell"),
    DIGITS("exaone"),
    DIGITS("minerva-7b"),
    LLAMA3("llama-bpe"),
    LLAMA3("llama3"),
    LLAMA3("llama-v3"),
    LLAMA3("falcon3"),
    LLAMA3("falcon-h1"),
    LLAMA3("pixtral"),
    LLAMA3("midm-2.0"),
    LLAMA3("lfm2"),
    {"dbrx", {llama3}, false, false},
    {"smaug-bpe", {llama3}, false, false},
    {"chatglm-bpe", {llama3}, false, false},
    {"glm4", {llama3}, true, false},
    QWEN2("qwen2"),
    QWEN2("deepseek-r1-qwen"),
    QWEN2("stablelm2"),
    QWEN2("hunyuan"),
    QWEN2("megrez"),
    QWEN2("solar-open"),
    QWEN2("grok-2"),
    {"qwen35", {qwen35}, false, false},
    {"tekken", {tekken}, true, true},
    {"gpt-4o", {gpt4o}, false, false},
    {"llama4", {gpt4o}, false, false},
    {"falcon", {rp__pattern_punctuation, rp__pattern_gpt2, three_ascii_digits}, false, false},
    {"deepseek-coder",
     {newline, deepseek_space_letters, deepseek_space_punctuation, deepseek_cjk, rp__pattern_digit},
     false,
     false},
    {"deepseek-v3", {three_digits, deepseek3_cjk, deepseek3}, false, false},
};

const rp__pretokenizer *rp__pretokenizer_find(rp__str name) {
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (rp__str_is(name, known[i].name)) return &known[i];
    return NULL;
}

bool rp__pattern_covers_all(const char *pattern) {
    size_t n = strlen(pattern), end = strlen(SPACES);
    return n > end && !strcmp(pattern + n - end, SPACES);
}

/* Writes a regex in this file's spelling: \s and \S as sets, line ends and characters beyond ASCII
 * as escapes. */
static void respell(rp__str regex, rp__bytes *out) {
    bool in_set = false;
    for (size_t i = 0; i < regex.n;) {
        uint32_t cp;
        size_t n = rp__utf8_decode(regex.p + i, regex.n - i, &cp);
        char next = i + 1 < regex.n ? regex.p[i + 1] : 0;
        if (cp == '\\' && next == 's') {
            rp__bytes_add_str(out, in_set ? WS : S);
            n = 2;
        } else if (cp == '\\' && next == 'S' && !in_set) {
            rp__bytes_add_str(out, NS);
            n = 2;
        } else if (cp == '\\' && next) {
            rp__bytes_add(out, regex.p + i, 2);
            n = 2;
        } else if (cp == '\r' || cp == '\n') {
            rp__bytes_add_str(out, cp == '\r' ? "\\r" : "\\n");
        } else if (cp >= 0x80) {
            rp__bytes_printf(out, "\\x{%X}", (unsigned)cp);
        } else {
            if (cp == '[') in_set = true;
            if (cp == ']') in_set = false;
            rp__bytes_add(out, regex.p + i, n);
        }
        i += n;
    }
}

const char *rp__pretokenizer_pattern(rp__str regex, bool *failed) {
    static const struct {
        const char *other, *pattern;
    } synonyms[] = {
        /* The contractions spelled otherwise; they match the same. */
        {"'(?i:[sdmt]|ll|ve|re)|" LEAD "\\p{L}+|\\p{N}{1,3}" OTHERS "[\\r\\n]*" NEWLINES_SPACES,
         llama3},
        {"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|" LEAD
         "\\p{L}+|\\p{N}{1,3}" OTHERS "[\\r\\n]*" NEWLINES_SPACES,
         llama3},
        {"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|" LEAD "\\p{L}+|\\p{N}" OTHERS
         "[\\r\\n]*" NEWLINES_SPACES,
         qwen2},
    };
    rp__bytes text = {0};
    respell(regex, &text);
    rp__str wanted = {text.p, text.n};
    *failed = text.failed;
    const char *found = NULL;
    for (size_t i = 0; i < sizeof known / sizeof *known && !found && !text.failed; i++)
        for (size_t k = 0; k < RP_MAX_STAGES && known[i].pattern[k]; k++)
            if (rp__str_is(wanted, known[i].pattern[k])) found = known[i].pattern[k];
    for (size_t i = 0; i < sizeof synonyms / sizeof *synonyms && !found && !text.failed; i++)
        if (rp__str_is(wanted, synonyms[i].other)) found = synonyms[i].pattern;
    rp__bytes_clear(&text);
    return found;
}
