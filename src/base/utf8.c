#include "base/utf8.h"

/* Allowed range of the second byte by lead byte (Unicode 15, table 3-7); 0 needed bytes marks a bad
 * lead. */
static size_t lead_info(unsigned char c, unsigned char *lo, unsigned char *hi) {
    *lo = 0x80, *hi = 0xBF;
    if (c < 0x80) return 1;
    if (c < 0xC2) return 0;
    if (c < 0xE0) return 2;
    if (c < 0xF0) {
        if (c == 0xE0) *lo = 0xA0;
        if (c == 0xED) *hi = 0x9F;
        return 3;
    }
    if (c > 0xF4) return 0;
    if (c == 0xF0) *lo = 0x90;
    if (c == 0xF4) *hi = 0x8F;
    return 4;
}

/* Bytes of the longest well-formed beginning at p; *need is the whole sequence's length (0: bad
 * lead). */
static size_t well_formed(const unsigned char *p, size_t n, size_t *need) {
    unsigned char lo, hi;
    *need = lead_info(p[0], &lo, &hi);
    if (*need <= 1) return *need;
    size_t i = 1;
    for (; i < *need && i < n; i++) {
        if (p[i] < lo || p[i] > hi) break;
        lo = 0x80, hi = 0xBF;
    }
    return i;
}

size_t rp__utf8_decode(const char *s, size_t n, uint32_t *cp) {
    const unsigned char *p = (const unsigned char *)s;
    size_t need, got = well_formed(p, n, &need);
    if (need == 0 || got < need) {
        *cp = RP_UTF8_BAD;
        return got ? got : 1;
    }
    static const unsigned char mask[5] = {0, 0x7F, 0x1F, 0x0F, 0x07};
    uint32_t c = p[0] & mask[need];
    for (size_t i = 1; i < need; i++) c = c << 6 | (p[i] & 0x3F);
    *cp = c;
    return need;
}

size_t rp__utf8_encode(uint32_t cp, char out[4]) {
    if (cp < 0x80) return out[0] = (char)cp, 1;
    if (cp < 0x800) {
        out[0] = (char)(0xC0 | cp >> 6);
        out[1] = (char)(0x80 | (cp & 0x3F));
        return 2;
    }
    if (cp < 0x10000) {
        out[0] = (char)(0xE0 | cp >> 12);
        out[1] = (char)(0x80 | (cp >> 6 & 0x3F));
        out[2] = (char)(0x80 | (cp & 0x3F));
        return 3;
    }
    out[0] = (char)(0xF0 | cp >> 18);
    out[1] = (char)(0x80 | (cp >> 12 & 0x3F));
    out[2] = (char)(0x80 | (cp >> 6 & 0x3F));
    out[3] = (char)(0x80 | (cp & 0x3F));
    return 4;
}

bool rp__utf8_valid(const char *p, size_t n) {
    for (size_t i = 0; i < n;) {
        uint32_t cp;
        i += rp__utf8_decode(p + i, n - i, &cp);
        if (cp == RP_UTF8_BAD) return false;
    }
    return true;
}

size_t rp__utf8_complete(const char *p, size_t n) {
    for (size_t back = 1; back <= 3 && back <= n; back++) {
        size_t need, got = well_formed((const unsigned char *)p + n - back, back, &need);
        if (need > 1 && got == back && got < need) return n - back;
    }
    return n;
}
