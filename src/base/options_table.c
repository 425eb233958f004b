/* The rows: commands, options in both dialects, and options of other engines that are answered with
 * a sentence. */
#include "base/options.h"

#include <stddef.h>

#include "base/fail.h"
#include "base/options_impl.h"

enum { IS_ALL = -1, INT_MOST = 2147483647 };

/* Which commands take an option. */
enum {
    LOADS =
        RP_CMD_RUN | RP_CMD_CHAT | RP_CMD_EXPLAIN | RP_CMD_BENCH, /* those that start an engine */
    ASKS = RP_CMD_RUN | RP_CMD_CHAT,
    READS = LOADS | RP_CMD_TOKENIZE | RP_CMD_INSPECT,
    FITS = LOADS | RP_CMD_INSPECT /* those that size the KV cache */
};

enum {
    IN_MODEL,
    IN_PROMPT,
    IN_ANSWER,
    IN_SAMPLING,
    IN_DEVICE,
    IN_MEMORY,
    IN_CAPTURE,
    IN_BENCH,
    IN_OUTPUT,
    IN_GENERAL
};
const char *const rp__option_groups[] = {[IN_MODEL] = "Model",
                                         [IN_PROMPT] = "Prompt",
                                         [IN_ANSWER] = "Answer",
                                         [IN_SAMPLING] = "Sampling",
                                         [IN_DEVICE] = "Device",
                                         [IN_MEMORY] = "Context and memory",
                                         [IN_CAPTURE] = "Capture and replay",
                                         [IN_BENCH] = "Benchmark",
                                         [IN_OUTPUT] = "Output",
                                         [IN_GENERAL] = "General",
                                         NULL};

static const rp__command_info commands[] = {
    /* In the order of the bits of rp__command. */
    {RP_CMD_RUN, "run", "reprise run -m MODEL -p PROMPT [options]", "answer one prompt"},
    {RP_CMD_CHAT, "chat", "reprise chat -m MODEL [options]", "talk with a model"},
    {RP_CMD_TOKENIZE, "tokenize", "reprise tokenize -m MODEL -p TEXT [options]",
     "text to token ids, and back"},
    {RP_CMD_INSPECT, "inspect", "reprise inspect MODEL [options]",
     "what a model file holds and needs"},
    {RP_CMD_EXPLAIN, "explain", "reprise explain MODEL [options]",
     "the recorded program of a model"},
    {RP_CMD_DEVICES, "devices", "reprise devices [--json]", "the devices there are"},
    {RP_CMD_BENCH, "bench", "reprise bench [capture] MODEL [options]",
     "measure speed; `bench capture`: eager against replay"},
    {RP_CMD_VERSION, "version", "reprise version", "the version"},
    {RP_CMD_HELP, "help", "reprise help [COMMAND]", "help on a command"},
};

const rp__command_info *rp__command_at(size_t i) {
    return i < sizeof commands / sizeof *commands ? &commands[i] : NULL;
}

/* One option, one block. */
/* clang-format off */
static const rp__option rows[RP_N_OPTIONS] = {
    /* ---- model ---- */
    [RP_OPT_MODEL] = {.name = "model", .shorts = "m", .kind = RP_OPT_STRING, .value = "MODEL",
        .help = "a .gguf file, a model folder, or the short name of a model in the cache",
        .group = IN_MODEL, .commands = READS},
    [RP_OPT_CHAT_TEMPLATE] = {.name = "chat-template", .kind = RP_OPT_STRING, .value = "JINJA",
        .help = "Jinja text used instead of the model's own chat template",
        .group = IN_MODEL, .commands = ASKS},
    [RP_OPT_CHAT_TEMPLATE_FILE] = {.name = "chat-template-file", .kind = RP_OPT_STRING,
        .value = "FILE",
        .help = "the same, from a file", .group = IN_MODEL, .commands = ASKS},
    [RP_OPT_CHAT_TEMPLATE_KWARGS] = {.name = "chat-template-kwargs", .kind = RP_OPT_STRING,
        .value = "JSON",
        .help = "a JSON object of further variables for the chat template",
        .group = IN_MODEL, .commands = ASKS},
    [RP_OPT_CACHE] = {.name = "cache", .kind = RP_OPT_STRING, .value = "FOLDER",
        .help = "folder of models by short name; without it ~/.cache/reprise",
        .group = IN_MODEL, .commands = READS},

    /* ---- prompt ---- */
    [RP_OPT_PROMPT] = {.name = "prompt", .shorts = "p", .kind = RP_OPT_STRING, .value = "TEXT",
        .help = "the prompt; - reads it from the standard input",
        .group = IN_PROMPT, .commands = RP_CMD_RUN | RP_CMD_TOKENIZE},
    [RP_OPT_FILE] = {.name = "file", .shorts = "f", .kind = RP_OPT_STRING, .value = "FILE",
        .help = "the prompt from a file; - for the standard input. `run` drops a line end at its end",
        .group = IN_PROMPT, .commands = RP_CMD_RUN | RP_CMD_TOKENIZE},
    [RP_OPT_SYSTEM] = {.name = "system-prompt", .shorts = "sys", .aliases = "system",
        .kind = RP_OPT_STRING,
        .value = "TEXT", .help = "the system message, for models with a chat template",
        .group = IN_PROMPT, .commands = ASKS},
    [RP_OPT_RAW] = {.name = "raw", .shorts = "no-cnv", .aliases = "no-conversation",
        .kind = RP_OPT_FLAG,
        .help = "continue the prompt as it stands, without chat template",
        .group = IN_PROMPT, .commands = RP_CMD_RUN},
    [RP_OPT_NO_BOS] = {.name = "no-bos", .kind = RP_OPT_FLAG,
        .help = "no beginning-of-sequence token, even where the model wants one",
        .group = IN_PROMPT, .commands = RP_CMD_RUN | RP_CMD_TOKENIZE},
    [RP_OPT_PARSE_SPECIAL] = {.name = "parse-special", .kind = RP_OPT_FLAG, .default_text = "on",
        .help = "special tokens written in raw text become tokens (and are shown with "
                "--detokenize); --no-parse-special leaves them text",
        .group = IN_PROMPT, .commands = RP_CMD_RUN | RP_CMD_TOKENIZE},

    /* ---- answer ---- */
    [RP_OPT_MAX_TOKENS] = {.name = "max-tokens", .shorts = "n", .aliases = "n-predict predict",
        .kind = RP_OPT_INT,
        .value = "N", .default_text = "-1", .min = -1, .max = INT_MOST,
        .help = "most tokens to generate; -1: until the model ends or the context is full",
        .group = IN_ANSWER, .commands = ASKS},
    [RP_OPT_STOP] = {.name = "stop", .kind = RP_OPT_STRINGS, .value = "TEXT",
        .help = "end the answer before this text; may be given several times",
        .group = IN_ANSWER, .commands = ASKS},
    [RP_OPT_IGNORE_EOS] = {.name = "ignore-eos", .kind = RP_OPT_FLAG,
        .help = "go on where the model would end", .group = IN_ANSWER, .commands = ASKS},

    /* ---- sampling ---- */
    [RP_OPT_SEED] = {.name = "seed", .shorts = "s", .kind = RP_OPT_INT, .value = "N",
        .default_text = "-1",
        .min = -1, .max = 9.3e18, .help = "same seed, same answer; -1: a new one each time",
        .group = IN_SAMPLING, .commands = ASKS},
    [RP_OPT_TEMPERATURE] = {.name = "temperature", .aliases = "temp", .kind = RP_OPT_NUMBER,
        .value = "T",
        .default_text = "0.8", .min = 0, .max = 100, .help = "0: always the likeliest token",
        .group = IN_SAMPLING, .commands = ASKS},
    [RP_OPT_TOP_K] = {.name = "top-k", .kind = RP_OPT_INT, .value = "K", .default_text = "40",
        .min = -1,
        .max = INT_MOST, .help = "choose among the K likeliest tokens; 0 or -1: off",
        .group = IN_SAMPLING, .commands = ASKS},
    [RP_OPT_TOP_P] = {.name = "top-p", .kind = RP_OPT_NUMBER, .value = "P",
        .default_text = "0.95", .min = 0, .max = 1,
        .help = "choose among the fewest tokens that together have probability P; 1: off",
        .group = IN_SAMPLING, .commands = ASKS},
    [RP_OPT_MIN_P] = {.name = "min-p", .kind = RP_OPT_NUMBER, .value = "P",
        .default_text = "0.05", .min = 0, .max = 1,
        .help = "drop tokens less likely than P times the likeliest; 0: off",
        .group = IN_SAMPLING, .commands = ASKS},
    [RP_OPT_REPEAT_PENALTY] = {.name = "repetition-penalty", .aliases = "repeat-penalty",
        .kind = RP_OPT_NUMBER,
        .value = "X", .default_text = "1", .min = 0.01, .max = 100,
        .help = "above 1: make tokens already seen less likely; 1: off",
        .group = IN_SAMPLING, .commands = ASKS},
    [RP_OPT_REPEAT_LAST_N] = {.name = "repeat-last-n", .kind = RP_OPT_INT, .value = "N",
        .default_text = "64",
        .min = -1, .max = INT_MOST,
        .help = "how far back the repetition penalty looks; -1: everywhere",
        .group = IN_SAMPLING, .commands = ASKS},
    [RP_OPT_PRESENCE_PENALTY] = {.name = "presence-penalty", .kind = RP_OPT_NUMBER, .value = "X",
        .default_text = "0",
        .min = -100, .max = 100,
        .help = "taken once from the logit of each token already generated",
        .group = IN_SAMPLING, .commands = ASKS},
    [RP_OPT_FREQUENCY_PENALTY] = {.name = "frequency-penalty", .kind = RP_OPT_NUMBER,
        .value = "X", .default_text = "0",
        .min = -100, .max = 100, .help = "taken for each time the token was already generated",
        .group = IN_SAMPLING, .commands = ASKS},

    /* ---- device ---- */
    [RP_OPT_DEVICE] = {.name = "device", .shorts = "dev", .kind = RP_OPT_STRING, .value = "NAME",
        .default_text = "cpu", /* lint-allow: cpu, the default shown to users */
        .help = "a name of `reprise devices`, or the path of a device's shared object",
        .group = IN_DEVICE, .commands = FITS},
    [RP_OPT_DEVICE_OPTIONS] = {.name = "device-options", .kind = RP_OPT_STRING,
        .value = "KEY=VALUE,...",
        .help = "settings of that device", .group = IN_DEVICE, .commands = FITS},
    [RP_OPT_DEVICE_PATH] = {.name = "device-path", .kind = RP_OPT_STRING, .value = "FILE:...",
        .help = "shared objects of further devices, with colons between",
        .group = IN_DEVICE, .commands = FITS | RP_CMD_DEVICES},
    [RP_OPT_LIST_DEVICES] = {.name = "list-devices", .kind = RP_OPT_ACTION,
        .help = "show the devices and end",
        .group = IN_DEVICE, .commands = LOADS | RP_CMD_HELP},
    [RP_OPT_ISA] = {.name = "isa", .kind = RP_OPT_STRING, .value = "NAME",
        .help = "instruction set to use instead of the best one found (the device option `isa`)",
        .group = IN_DEVICE, .commands = LOADS},
    [RP_OPT_THREADS] = {.name = "threads", .shorts = "t", .kind = RP_OPT_INT, .value = "N",
        .default_text = "0",
        .min = -1, .max = 4096,
        .help = "threads of the processor; 0 or -1: the cores that may be used",
        .group = IN_DEVICE, .commands = LOADS},

    /* ---- context and memory ---- */
    [RP_OPT_MAX_MODEL_LEN] = {.name = "max-model-len", .shorts = "c", .aliases = "ctx-size",
        .kind = RP_OPT_INT,
        .value = "N", .default_text = "0", .min = 0, .max = INT_MOST,
        .help = "most positions of one sequence, prompt and answer together; 0: the model's own, "
                "at most 8192",
        .group = IN_MEMORY, .commands = FITS},
    [RP_OPT_MAX_NUM_SEQS] = {.name = "max-num-seqs", .shorts = "np", .aliases = "parallel",
        .kind = RP_OPT_INT,
        .value = "N", .default_text = "8", .min = 1, .max = 4096,
        .help = "most sequences that step together; `explain` takes it, the others "
                "use 1 unless told otherwise",
        .group = IN_MEMORY, .commands = FITS},
    [RP_OPT_MAX_BATCH_TOKENS] = {.name = "max-num-batched-tokens", .shorts = "b ub",
        .aliases = "batch-size ubatch-size",
        .kind = RP_OPT_INT, .value = "N", .default_text = "512", .min = 1, .max = 1048576,
        .help = "most tokens of one step: longer prompts are taken in chunks of it",
        .group = IN_MEMORY, .commands = LOADS},
    [RP_OPT_BLOCK_SIZE] = {.name = "block-size", .kind = RP_OPT_INT, .value = "N",
        .default_text = "32", .min = 1,
        .max = 65536, .help = "positions per block of the KV cache", .group = IN_MEMORY,
        .commands = LOADS},
    [RP_OPT_NUM_BLOCKS] = {.name = "num-blocks", .aliases = "num-gpu-blocks-override",
        .kind = RP_OPT_INT, .value = "N",
        .default_text = "0", .min = 0, .max = INT_MOST,
        .help = "blocks of the KV cache in all; 0: enough for every sequence at full length",
        .group = IN_MEMORY, .commands = LOADS},
    [RP_OPT_KV_CACHE_DTYPE] = {.name = "kv-cache-dtype", .kind = RP_OPT_CHOICE, .value = "TYPE",
        .default_text = "auto", .choices = "auto|f16|bf16|f32",
        .help = "type of keys and values together: auto (f16), f16, bf16 or f32",
        .group = IN_MEMORY, .commands = FITS},
    [RP_OPT_CACHE_TYPE_K] = {.name = "cache-type-k", .shorts = "ctk", .kind = RP_OPT_CHOICE,
        .value = "TYPE",
        .default_text = "f16", .choices = "f16|bf16|f32",
        .help = "type of the keys: f16, bf16 or f32",
        .group = IN_MEMORY, .commands = FITS},
    [RP_OPT_CACHE_TYPE_V] = {.name = "cache-type-v", .shorts = "ctv", .kind = RP_OPT_CHOICE,
        .value = "TYPE",
        .default_text = "f16", .choices = "f16|bf16|f32",
        .help = "type of the values: f16, bf16 or f32",
        .group = IN_MEMORY, .commands = FITS},
    [RP_OPT_ACTIVATIONS] = {.name = "activations", .kind = RP_OPT_CHOICE, .value = "TYPE",
        .default_text = "f32", .choices = "f32|q8",
        .help = "what matmuls with block-quantised weights take: f32, or q8: rounded to blocks of 8 bits as "
                "llama.cpp does, faster and noisier",
        .group = IN_MEMORY, .commands = LOADS},

    /* ---- capture ---- */
    [RP_OPT_CAPTURE] = {.name = "capture", .kind = RP_OPT_CHOICE, .value = "MODE",
        .default_text = "auto",
        .choices = "auto|on|off",
        .help = "auto: replay a recorded step where that was measured to win; on: always; off: never. "
                "The tokens are the same. `bench` shows off and on side by side unless told",
        .group = IN_CAPTURE, .commands = LOADS},
    [RP_OPT_ENFORCE_EAGER] = {.name = "enforce-eager", .kind = RP_OPT_FLAG,
        .help = "the same as --capture off",
        .group = IN_CAPTURE, .commands = LOADS},
    [RP_OPT_CAPTURE_AT_START] = {.name = "capture-at-start", .kind = RP_OPT_FLAG,
        .help = "record every step size before the first prompt instead of on first use",
        .group = IN_CAPTURE, .commands = LOADS},
    [RP_OPT_MAX_GRAPHS] = {.name = "max-graphs", .kind = RP_OPT_INT, .value = "N",
        .default_text = "32", .min = 1,
        .max = 65536, .help = "recorded steps kept at once; the least recently used goes first",
        .group = IN_CAPTURE, .commands = LOADS},

    /* ---- bench ---- */
    [RP_OPT_BENCH_PROMPT] = {.name = "n-prompt", .shorts = "p", .kind = RP_OPT_INTS,
        .value = "N,...",
        .default_text = "512", .min = 0, .max = 1048576,
        .help = "lengths of the prompts to measure (rows ppN); 0: none",
        .group = IN_BENCH, .commands = RP_CMD_BENCH},
    [RP_OPT_BENCH_GEN] = {.name = "n-gen", .shorts = "n", .kind = RP_OPT_INTS, .value = "N,...",
        .default_text = "128", .min = 0, .max = 1048576,
        .help = "tokens to generate one by one (rows tgN); 0: none",
        .group = IN_BENCH, .commands = RP_CMD_BENCH},
    [RP_OPT_REPETITIONS] = {.name = "repetitions", .shorts = "r", .kind = RP_OPT_INT, .value = "N",
        .default_text = "5", .min = 1, .max = 1000, .help = "measurements of each row, interleaved",
        .group = IN_BENCH, .commands = RP_CMD_BENCH},
    [RP_OPT_OUTPUT] = {.name = "output", .shorts = "o", .kind = RP_OPT_CHOICE, .value = "FORM",
        .default_text = "md",
        .choices = "md|json|csv", .help = "md: a table; json; csv", .group = IN_OUTPUT,
        .commands = RP_CMD_BENCH},

    [RP_OPT_SVG] = {.name = "svg", .kind = RP_OPT_STRING, .value = "FILE",
        .help = "with `bench capture`: write a plot of it too", .group = IN_OUTPUT,
        .commands = RP_CMD_BENCH},

    /* ---- output ---- */
    [RP_OPT_FIT] = {.name = "fit", .kind = RP_OPT_FLAG,
        .help = "say whether the model fits on --device, and the largest context that would",
        .group = IN_MEMORY, .commands = RP_CMD_INSPECT},
    [RP_OPT_TENSORS] = {.name = "tensors", .kind = RP_OPT_FLAG, .help = "list every tensor",
        .group = IN_OUTPUT, .commands = RP_CMD_INSPECT},
    [RP_OPT_VOCAB] = {.name = "vocab", .kind = RP_OPT_FLAG, .help = "list the vocabulary",
        .group = IN_OUTPUT, .commands = RP_CMD_INSPECT},
    [RP_OPT_ALL_OPS] = {.name = "all", .kind = RP_OPT_FLAG,
        .help = "every op of every layer and step size",
        .group = IN_OUTPUT, .commands = RP_CMD_EXPLAIN},
    [RP_OPT_PIECES] = {.name = "pieces", .kind = RP_OPT_FLAG,
        .help = "one token per line with its text",
        .group = IN_OUTPUT, .commands = RP_CMD_TOKENIZE},
    [RP_OPT_DETOKENIZE] = {.name = "detokenize", .shorts = "d", .kind = RP_OPT_FLAG,
        .help = "the input is token ids: print their text", .group = IN_OUTPUT,
        .commands = RP_CMD_TOKENIZE},
    [RP_OPT_JSON] = {.name = "json", .kind = RP_OPT_FLAG, .help = "print JSON",
        .group = IN_OUTPUT,
        .commands = RP_CMD_RUN | RP_CMD_TOKENIZE | RP_CMD_INSPECT | RP_CMD_DEVICES | RP_CMD_BENCH |
                    RP_CMD_VERSION},
    [RP_OPT_LOGPROBS] = {.name = "logprobs", .kind = RP_OPT_INT, .value = "N",
        .default_text = "0", .min = 0, .max = 20,
        .help = "with --json: the N likeliest tokens of every step with their log probabilities",
        .group = IN_OUTPUT, .commands = RP_CMD_RUN},
    [RP_OPT_QUIET] = {.name = "quiet", .shorts = "q", .kind = RP_OPT_FLAG,
        .help = "no progress and no closing figures on the standard error",
        .group = IN_OUTPUT, .commands = LOADS},
    [RP_OPT_VERBOSE] = {.name = "verbose", .shorts = "v", .kind = RP_OPT_FLAG,
        .help = "the engine's whole log on the standard error", .group = IN_OUTPUT,
        .commands = READS},
    [RP_OPT_LOG_DISABLE] = {.name = "log-disable", .kind = RP_OPT_FLAG,
        .help = "no log, not even warnings",
        .group = IN_OUTPUT, .commands = READS},
    [RP_OPT_COLOR] = {.name = "color", .kind = RP_OPT_CHOICE, .value = "WHEN",
        .default_text = "auto",
        .choices = "auto|always|never", .help = "auto: on a terminal, unless NO_COLOR is set",
        .group = IN_OUTPUT, .commands = ASKS},

    /* ---- general ---- */
    [RP_OPT_HELP] = {.name = "help", .shorts = "h", .kind = RP_OPT_ACTION, .help = "this text",
        .group = IN_GENERAL, .commands = (unsigned)IS_ALL},
    [RP_OPT_VERSION] = {.name = "version", .kind = RP_OPT_ACTION, .help = "the version",
        .group = IN_GENERAL, .commands = RP_CMD_HELP},
    [RP_OPT_BASH_COMPLETION] = {.name = "bash-completion", .aliases = "completion-bash",
        .kind = RP_OPT_ACTION,
        .help = "a completion script: source <(reprise --bash-completion)",
        .group = IN_GENERAL, .commands = RP_CMD_HELP},
};
/* clang-format on */

const rp__option *rp__option_of(rp__option_id id) {
    rp__assert((unsigned)id < RP_N_OPTIONS, "option %u", (unsigned)id);
    return &rows[id];
}

const rp__foreign_option rp__foreign_options[] = {
    {"-ngl --gpu-layers --n-gpu-layers --tensor-split --main-gpu",
     "the whole model runs on the device of --device"},
    {"-fa --flash-attn", "attention never writes its scores to memory; there is nothing to switch"},
    {"--jinja --no-jinja", "the model's own template is always run"},
    {"-hf --hf-repo --hf-file",
     "tools/fetch_model.py fetches models; give their path or short name to -m"},
    {"-tb --threads-batch", "-t sets the threads of prompt and generation alike"},
    {"--mmap --no-mmap --mlock -lm --load-mode", "model files are always mapped"},
    {"--gpu-memory-utilization", "memory is planned exactly; -c, -np and --num-blocks set it"},
    {"--dtype", "weights keep the type of the model file"},
    {"--grammar --grammar-file -j --json-schema -jf", "constrained answers are not built yet"},
    {"--host --port --api-key -a --alias --served-model-name", "the server is not built yet"},
    {"-cnv --conversation", "`reprise chat` talks with a model"},
    {"--log-file --log-colors --log-timestamps --log-prefix -lv --verbosity",
     "the log goes to the standard error"},
    {NULL, NULL},
};
