/* Devices in shared objects. The table's contents are checked where every table is (device.c). */
#include <dlfcn.h>
#include <string.h>

#include "base/fail.h"
#include "device/device_impl.h"

static const char entry_name[] = "reprise_device";

rp_status rp__plugin_load(const char *path, const rp_device_api **api, void **library,
                          rp_error *err) {
    *api = NULL;
    *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!*library) return rp__fail(err, RP_ENOTFOUND, "device library %s: %s", path, dlerror());
    const rp_device_api *(*entry)(void);
    void *symbol = dlsym(*library, entry_name);
    rp_status status = RP_OK;
    if (!symbol) {
        status = rp__fail(err, RP_EVERSION, "%s exports no %s()", path, entry_name);
    } else {
        memcpy(&entry, &symbol,
               sizeof entry); /* ISO C converts no object pointer to a function pointer */
        *api = entry();
        if (!*api) status = rp__fail(err, RP_EUNSUPPORTED, "%s offers no device here", path);
    }
    if (status < 0) {
        rp__plugin_unload(*library);
        *library = NULL;
    }
    return status;
}

void rp__plugin_unload(void *library) {
    if (library) dlclose(library);
}
