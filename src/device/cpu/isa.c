#include "device/cpu/isa.h"

#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif
#include <stdio.h>
#include <strings.h>

#include "base/fail.h"

bool rp__isa_has_generic(void) {
    return true;
}

#if defined(__x86_64__)
/* clang 14 does not know the names "f16c" and "avxvnni". */
static bool has_f16c(void) {
    unsigned a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}

static bool has_avxvnni(void) {
    unsigned a, b, c, d;
    return __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a & 1u << 4);
}

bool rp__isa_has_avx2(void) {
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c() &&
           __builtin_cpu_supports("bmi2");
}
bool rp__isa_has_avxvnni(void) {
    return rp__isa_has_avx2() && has_avxvnni();
}
bool rp__isa_has_avx512(void) {
    return rp__isa_has_avx2() && __builtin_cpu_supports("avx512f") &&
           __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512dq");
}
bool rp__isa_has_avx512vnni(void) {
    return rp__isa_has_avx512() && __builtin_cpu_supports("avx512vnni");
}
#elif defined(__aarch64__)
bool rp__isa_has_neon(void) {
    return true; /* arm64's calling convention needs it */
}
bool rp__isa_has_neondot(void) {
    return getauxval(AT_HWCAP) & HWCAP_ASIMDDP;
}
bool rp__isa_has_neoni8mm(void) {
    return rp__isa_has_neondot() && (getauxval(AT_HWCAP2) & HWCAP2_I8MM);
}
#endif

/* Best first. */
static const rp__body_set *const sets[] = {
#if defined(__x86_64__)
    &rp__body_avx512vnni, &rp__body_avx512,    &rp__body_avxvnni, &rp__body_avx2,
#elif defined(__aarch64__)
    &rp__body_neoni8mm, &rp__body_neondot,   &rp__body_neon,
#endif
    &rp__body_generic,    &rp__body_reference,
};
enum { N_SETS = sizeof sets / sizeof *sets };

const rp__body_set *rp__body_at(int i) {
    return i < N_SETS ? sets[i] : NULL;
}

static rp_status fail_listing(rp_error *err, const char *isa) {
    char names[128] = "";
    size_t n = 0;
    for (int i = 0; i < N_SETS; i++)
        if (sets[i]->is_available())
            n +=
                (size_t)snprintf(names + n, sizeof names - n, "%s%s", n ? ", " : "", sets[i]->name);
    return rp__fail(err, RP_EINVAL, "cpu: isa \"%s\" is not available here (available: %s)", isa,
                    names);
}

rp_status rp__body_choose(const char *isa, const rp__body_set **out, rp_error *err) {
    for (int i = 0; i < N_SETS; i++) {
        if (!sets[i]->is_available() || (isa && strcasecmp(isa, sets[i]->name))) continue;
        *out = sets[i];
        return RP_OK;
    }
    return fail_listing(err, isa ? isa : "");
}
