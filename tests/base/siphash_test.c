/* Against values made by OpenSSL:
 *
 *     printf '\000\001\002' | openssl mac -macopt hexkey:000102030405060708090a0b0c0d0e0f \
 *         -macopt size:16 SIPHASH
 */
#include "base/siphash.h"

#include "test.h"

RP_TEST(base, siphash_as_openssl_has_it) {
    static const struct {
        size_t n;
        rp__hash128 want;
    } rows[] = {
        {0, {0xe6a825ba047f81a3, 0x930255c71472f66d}},
        {1, {0x44af996bd8c187da, 0x45fc229b11597634}},
        {7, {0x53c1dbd8beebf1a1, 0x3982f01fa64ab8c0}},
        {8, {0x61f55862baa9623b, 0xb49714f364e2830f}},
        {15, {0x11a8b03399e99354, 0xd9c3cf970fec087e}},
        {63, {0x4a83502f77d15051, 0x7cbd3f979a063e50}},
    };
    const rp__hash128 key = {0x0706050403020100, 0x0f0e0d0c0b0a0908};
    unsigned char data[64];
    for (size_t i = 0; i < sizeof data; i++) data[i] = (unsigned char)i;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        rp__hash128 h = rp__siphash128(key, data, rows[i].n);
        assert_int_equal(h.lo, rows[i].want.lo);
        assert_int_equal(h.hi, rows[i].want.hi);
    }
}
