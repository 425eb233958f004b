#include "device/ttnn.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "device/device.h"

bool rp_test_ttnn_is_real(void) {
    const char *which = getenv("RP_TEST_TTNN");
    return which && !strcmp(which, "real");
}

/* The interpreter of the virtual environment that `make setup` makes. */
static const char *find_python(char *out, size_t cap) {
    const char *cache = getenv("REPRISE_CACHE"), *home = getenv("HOME");
    if (cache)
        snprintf(out, cap, "%s/venv/bin/python", cache);
    else
        snprintf(out, cap, "%s/.cache/reprise/venv/bin/python", home ? home : "");
    return access(out, X_OK) == 0 ? out : "python3";
}

static bool opens(const char *options) {
    rp_device_config config = {.bytes = sizeof config, .options = options};
    rp_device *dev;
    rp_error err = {0};
    if (rp__device_open("tenstorrent", &config, &dev, &err) < 0) {
        printf("%s\n", err.message); /* once: the tests that need it are skipped */
        return false;
    }
    rp__device_close(dev);
    return true;
}

const char *rp_test_ttnn(void) {
    static char options[512];
    static int found = -1;
    if (found < 0) {
        char python[448];
        if (!rp_test_ttnn_is_real()) {
            setenv("PYTHONPATH", RP_TESTS_DIR "/tenstorrent/fake", 1);
            setenv("PYTHONDONTWRITEBYTECODE", "1", 1);
            snprintf(options, sizeof options, "python=%s", find_python(python, sizeof python));
        } else {
            snprintf(options, sizeof options, "python=%s", getenv("REPRISE_TTNN_PYTHON"));
        }
        found = opens(options);
    }
    return found ? options : NULL;
}
