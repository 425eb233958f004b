/* The tenstorrent device in tests: on the stand-in for ttnn (tests/tenstorrent/fake), or with
 * RP_TEST_TTNN=real in the environment on the ttnn that REPRISE_TTNN_PYTHON has. */
#ifndef RP_TESTS_DEVICE_TTNN_H
#define RP_TESTS_DEVICE_TTNN_H

#include <stdbool.h>

/* Device options that open it; NULL where no Python with numpy is found. */
const char *rp_test_ttnn(void);
bool rp_test_ttnn_is_real(void);

/* Skips the test, with the reason, where it cannot be opened. */
#define RP_NEED_TTNN()                                                                             \
    do {                                                                                           \
        if (!rp_test_ttnn()) RP_SKIP("no Python with numpy: make setup");                          \
    } while (0)

#endif
