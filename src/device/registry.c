/* Devices by name: one line each.
 *
 * Owns: the table of devices built in, of those that come with Reprise as shared objects, of those
 * known and not built, and the list of shared objects that the user named.
 *
 * Threads: the path is set once at start; opening is thread safe after that. */
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/bytes.h"
#include "base/fail.h"
#include "device/cpu/cpu.h"
#include "device/device_impl.h"
#include "device/emu/emu.h"

static const rp_device_api *const built_in[] = {
    &rp__cpu_api,
    &rp__emu_api,
};

/* Shared objects that are built and installed with the rest: what they need besides is looked for
 * when they are opened. */
static const struct {
    const char *name, *file;
} beside[] = {
    {"tenstorrent", "libreprise_tenstorrent.so"},
};

/* Known by name, so that the answer can say more than "not found". */
static const char *const not_built[] = {"vulkan", "cuda", "metal"};

enum {
    N_BUILT_IN = sizeof built_in / sizeof *built_in,
    N_BESIDE = sizeof beside / sizeof *beside,
    N_NOT_BUILT = sizeof not_built / sizeof *not_built
};

/* ---- REPRISE_DEVICE_PATH ---- */

static char *path_text; /* items parted by zeros */
static size_t n_path;   /* items */

static const char *path_at(size_t i) {
    if (i >= n_path) return NULL;
    const char *p = path_text;
    while (i--) p += strlen(p) + 1;
    return p;
}

rp_status rp__device_set_path(const char *list, rp_error *err) {
    char *copy = rp__calloc(strlen(list ? list : "") + 2, 1);
    if (!copy) return rp__fail(err, RP_ENOMEM, "no memory for the list of devices");
    char *to = copy;
    size_t n = 0;
    for (const char *p = list ? list : ""; *p;) {
        size_t len = strcspn(p, ":");
        if (len) {
            memcpy(to, p, len);
            to += len + 1;
            n++;
        }
        p += len + (p[len] == ':');
    }
    rp__free(path_text);
    path_text = n ? copy : NULL;
    n_path = n;
    if (!n) rp__free(copy);
    return RP_OK;
}

const char *rp__device_name_at(size_t i) {
    if (i < N_BUILT_IN) return built_in[i]->name;
    i -= N_BUILT_IN;
    return i < N_BESIDE ? beside[i].name : path_at(i - N_BESIDE);
}

/* ---- opening ---- */

static rp_status fail_unknown(const char *name, rp_error *err) {
    rp__bytes names = {0};
    const char *each;
    for (size_t i = 0; (each = rp__device_name_at(i)); i++)
        rp__bytes_printf(&names, "%s%s", i ? ", " : "", each);
    rp__fail(err, RP_ENOTFOUND, "no device \"%s\"; there are: %s", name, names.p ? names.p : "?");
    rp__bytes_clear(&names);
    return RP_ENOTFOUND;
}

static rp_status open_plugin(const char *path, const rp_device_config *config, rp_device **out,
                             rp_error *err) {
    const rp_device_api *api;
    void *library;
    RP_TRY(rp__plugin_load(path, &api, &library, err));
    rp_status status = rp__device_open_api(api, config, out, err);
    if (status < 0) {
        rp__plugin_unload(library);
        return rp__fail_context(err, status, "%s", path);
    }
    (*out)->library = library;
    return RP_OK;
}

/* The device in REPRISE_DEVICE_PATH that calls itself `name`; *out stays NULL when none does. A
 * path that cannot be loaded is not the one looked for: opening it by its path says what is wrong
 * with it. */
static rp_status open_from_path(const char *name, const rp_device_config *config, rp_device **out,
                                rp_error *err) {
    const char *path;
    for (size_t i = 0; (path = path_at(i)); i++) {
        const rp_device_api *api;
        void *library;
        if (rp__plugin_load(path, &api, &library, NULL) < 0) continue;
        bool is_it = api->abi == RP_DEVICE_ABI && api->name && !strcmp(api->name, name);
        rp__plugin_unload(library);
        if (is_it) return open_plugin(path, config, out, err);
    }
    return RP_OK;
}

/* The shared object of a device that comes with Reprise: beside the executable, as in a build
 * folder, or where it is installed to. */
static rp_status open_beside(const char *name, const char *file, const rp_device_config *config,
                             rp_device **out, rp_error *err) {
    static const char *const places[] = {"", "../" RP_DEVICE_DIR "/"};
    char self[PATH_MAX], path[2 * PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    self[n > 0 ? n : 0] = 0;
    char *slash = strrchr(self, '/');
    if (slash) slash[1] = 0;
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        snprintf(path, sizeof path, "%s%s%s", self, places[i], file);
        if (access(path, R_OK) == 0) return open_plugin(path, config, out, err);
    }
    return rp__fail(err, RP_ENOTFOUND,
                    "device \"%s\" is in %s, which is neither in %s nor in %s"
                    "; REPRISE_DEVICE_PATH names it where it is elsewhere",
                    name, file, self, places[1]);
}

rp_status rp__device_open(const char *name, const rp_device_config *config, rp_device **out,
                          rp_error *err) {
    *out = NULL;
    if (strchr(name, '/')) return open_plugin(name, config, out, err);
    for (size_t i = 0; i < N_BUILT_IN; i++)
        if (!strcmp(name, built_in[i]->name))
            return rp__device_open_api(built_in[i], config, out, err);
    RP_TRY(open_from_path(name, config, out, err));
    if (*out) return RP_OK;
    for (size_t i = 0; i < N_BESIDE; i++)
        if (!strcmp(name, beside[i].name))
            return open_beside(name, beside[i].file, config, out, err);
    for (size_t i = 0; i < N_NOT_BUILT; i++)
        if (!strcmp(name, not_built[i]))
            return rp__fail(err, RP_EUNSUPPORTED, "device \"%s\" is not built yet", name);
    return fail_unknown(name, err);
}
