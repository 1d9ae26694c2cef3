/* Packets on the wire, sealed and checked: probers/packet.py says what they are. Nothing here knows
 * Python or sockets; every function is bounded by the length that it is given.
 */
#ifndef SKELETONHUNTER_PACKET_H
#define SKELETONHUNTER_PACKET_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* The format of packets: probers/packet.py. */
#define VERSION 2
#define TYPE_AT 5
#define FLAGS_AT 6
#define NONCE_AT 8
#define T2_AT 16
#define T3_AT 24
#define REPLY_KEY_AT 32
#define TAG_AT 36
#define CRC_AT 44
#define HEADER_BYTES 48
#define TAG_BYTES 8
#define MIN_PACKET_BYTES 50
#define MAX_PACKET_BYTES 8972
#define QUOTE_BYTES 32
#define FLAG_T2_KERNEL 1
#define FLAG_SEALED 4
#define PROBE 1
#define REPLY 2
#define FOLLOW_UP 3
#define MAX_KEYS 4
#define KEY_BYTES 32

/* ---- BLAKE2s with a key (RFC 7693), for messages in two parts and tags of 4 to 32 bytes ---- */

static const uint32_t BLAKE_IV[8] = {0x6A09E667, 0xBB67AE85, 0x3C6EF372, 0xA54FF53A,
                                     0x510E527F, 0x9B05688C, 0x1F83D9AB, 0x5BE0CD19};
static const uint8_t BLAKE_SIGMA[10][16] = {
    {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15},
    {14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3},
    {11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4},
    {7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8},
    {9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13},
    {2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9},
    {12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11},
    {13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10},
    {6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5},
    {10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0}};
#define BLAKE_BLOCK 64

typedef struct {
    uint32_t h[8];
    uint64_t counted; /* bytes compressed so far */
    uint8_t block[BLAKE_BLOCK];
    size_t filled;
} Blake;

static uint32_t rotate(uint32_t x, unsigned n) { return (x >> n) | (x << (32 - n)); }

static uint32_t load32_le(const uint8_t *p) {
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static void blake_mix(uint32_t v[16], int a, int b, int c, int d, uint32_t x, uint32_t y) {
    v[a] = v[a] + v[b] + x;
    v[d] = rotate(v[d] ^ v[a], 16);
    v[c] = v[c] + v[d];
    v[b] = rotate(v[b] ^ v[c], 12);
    v[a] = v[a] + v[b] + y;
    v[d] = rotate(v[d] ^ v[a], 8);
    v[c] = v[c] + v[d];
    v[b] = rotate(v[b] ^ v[c], 7);
}

static void blake_compress(Blake *s, const uint8_t *block, int last) {
    uint32_t v[16], m[16];
    for (int i = 0; i < 16; i++)
        m[i] = load32_le(block + 4 * i);
    for (int i = 0; i < 8; i++) {
        v[i] = s->h[i];
        v[i + 8] = BLAKE_IV[i];
    }
    v[12] ^= (uint32_t)s->counted;
    v[13] ^= (uint32_t)(s->counted >> 32);
    if (last)
        v[14] = ~v[14];
    for (int round = 0; round < 10; round++) {
        const uint8_t *o = BLAKE_SIGMA[round];
        blake_mix(v, 0, 4, 8, 12, m[o[0]], m[o[1]]);
        blake_mix(v, 1, 5, 9, 13, m[o[2]], m[o[3]]);
        blake_mix(v, 2, 6, 10, 14, m[o[4]], m[o[5]]);
        blake_mix(v, 3, 7, 11, 15, m[o[6]], m[o[7]]);
        blake_mix(v, 0, 5, 10, 15, m[o[8]], m[o[9]]);
        blake_mix(v, 1, 6, 11, 12, m[o[10]], m[o[11]]);
        blake_mix(v, 2, 7, 8, 13, m[o[12]], m[o[13]]);
        blake_mix(v, 3, 4, 9, 14, m[o[14]], m[o[15]]);
    }
    for (int i = 0; i < 8; i++)
        s->h[i] ^= v[i] ^ v[i + 8];
}

static void blake_update(Blake *s, const uint8_t *data, size_t length) {
    while (length > 0) {
        if (s->filled == BLAKE_BLOCK) { /* more follows, so it is not the last block */
            s->counted += BLAKE_BLOCK;
            blake_compress(s, s->block, 0);
            s->filled = 0;
        }
        size_t part = BLAKE_BLOCK - s->filled;
        if (part > length)
            part = length;
        memcpy(s->block + s->filled, data, part);
        s->filled += part;
        data += part;
        length -= part;
    }
}

static void blake_keyed(const uint8_t key[KEY_BYTES], const uint8_t *head, size_t head_bytes,
                        const uint8_t *tail, size_t tail_bytes, uint8_t tag[TAG_BYTES]) {
    Blake s;
    memcpy(s.h, BLAKE_IV, sizeof s.h);
    s.h[0] ^= 0x01010000u ^ (uint32_t)KEY_BYTES << 8 ^ (uint32_t)TAG_BYTES;
    s.counted = 0;
    memcpy(s.block, key, KEY_BYTES); /* the key, filled up with zeros, is the first block */
    memset(s.block + KEY_BYTES, 0, BLAKE_BLOCK - KEY_BYTES);
    s.filled = BLAKE_BLOCK;
    blake_update(&s, head, head_bytes);
    blake_update(&s, tail, tail_bytes);
    s.counted += s.filled;
    memset(s.block + s.filled, 0, BLAKE_BLOCK - s.filled);
    blake_compress(&s, s.block, 1);
    for (int i = 0; i < TAG_BYTES; i++)
        tag[i] = (uint8_t)(s.h[i / 4] >> 8 * (i % 4));
}

/* ---- CRC-32 as zlib's, four bytes a step ---- */

static uint32_t CRC_TABLE[4][256];

static void crc_prepare(void) {
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t c = i;
        for (int bit = 0; bit < 8; bit++)
            c = c & 1 ? 0xEDB88320u ^ c >> 1 : c >> 1;
        CRC_TABLE[0][i] = c;
    }
    for (int t = 1; t < 4; t++)
        for (uint32_t i = 0; i < 256; i++)
            CRC_TABLE[t][i] = CRC_TABLE[t - 1][i] >> 8 ^ CRC_TABLE[0][CRC_TABLE[t - 1][i] & 0xFF];
}

static uint32_t crc_update(uint32_t crc, const uint8_t *data, size_t length) {
    crc = ~crc;
    for (; length >= 4; data += 4, length -= 4) {
        crc ^= load32_le(data);
        crc = CRC_TABLE[3][crc & 0xFF] ^ CRC_TABLE[2][crc >> 8 & 0xFF] ^
              CRC_TABLE[1][crc >> 16 & 0xFF] ^ CRC_TABLE[0][crc >> 24];
    }
    for (; length > 0; data++, length--)
        crc = crc >> 8 ^ CRC_TABLE[0][(crc ^ *data) & 0xFF];
    return ~crc;
}

/* ---- Numbers in network order ---- */

static uint16_t get16(const uint8_t *p) { return (uint16_t)(p[0] << 8 | p[1]); }

static uint32_t get32(const uint8_t *p) {
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | (uint32_t)p[3];
}

static uint64_t get64(const uint8_t *p) { return (uint64_t)get32(p) << 32 | get32(p + 4); }

static void put32(uint8_t *p, uint32_t v) {
    for (int i = 0; i < 4; i++)
        p[i] = (uint8_t)(v >> (24 - 8 * i));
}

static void put64(uint8_t *p, uint64_t v) {
    put32(p, (uint32_t)(v >> 32));
    put32(p + 4, (uint32_t)v);
}

/* ---- Packets ---- */

typedef struct {
    uint8_t key[MAX_KEYS][KEY_BYTES]; /* the first seals, all of them open */
    uint32_t token[MAX_KEYS];
    int count;
} Keys;

typedef enum { INTACT, MALFORMED, MALFORMED_WITH_NONCE, FORGED } Verdict;

static const uint8_t MAGIC[4] = {'S', 'K', 'P', '1'};

static int known_type(uint8_t type) { return type >= PROBE && type <= FOLLOW_UP; }

static uint32_t check_sum(const uint8_t *data, size_t length) {
    return crc_update(crc_update(0, data, CRC_AT), data + HEADER_BYTES, length - HEADER_BYTES);
}

static Verdict verdict(const Keys *keys, const uint8_t *data, size_t length) {
    if (length < MIN_PACKET_BYTES || length > MAX_PACKET_BYTES) {
        int quoted = length >= QUOTE_BYTES && memcmp(data, MAGIC, 4) == 0 && data[4] == VERSION &&
                     known_type(data[TYPE_AT]);
        return quoted ? MALFORMED_WITH_NONCE : MALFORMED;
    }
    if (memcmp(data, MAGIC, 4) != 0)
        return MALFORMED;
    if (data[4] != VERSION || check_sum(data, length) != get32(data + CRC_AT) ||
        !known_type(data[TYPE_AT]))
        return MALFORMED_WITH_NONCE;
    int sealed = (get16(data + FLAGS_AT) & FLAG_SEALED) != 0;
    if (sealed != (keys->count > 0))
        return FORGED;
    if (!sealed)
        return INTACT;
    /* All keys are tried and all bytes compared: how long it takes says nothing of a tag. */
    int found = 0;
    for (int k = 0; k < keys->count; k++) {
        uint8_t tag[TAG_BYTES], different = 0;
        blake_keyed(keys->key[k], data, TAG_AT, data + HEADER_BYTES, length - HEADER_BYTES, tag);
        for (int i = 0; i < TAG_BYTES; i++)
            different |= tag[i] ^ data[TAG_AT + i];
        found |= different == 0;
    }
    return found ? INTACT : FORGED;
}

/* Fill in header, tag and check sum before the padding, which is there. */
static void seal(const Keys *keys, uint8_t *data, size_t length, int type, int flags,
                 uint64_t nonce, uint64_t t2, uint64_t t3, uint32_t reply_key) {
    memcpy(data, MAGIC, 4);
    data[4] = VERSION;
    data[TYPE_AT] = (uint8_t)type;
    data[FLAGS_AT] = 0;
    data[FLAGS_AT + 1] = (uint8_t)(flags | (keys->count ? FLAG_SEALED : 0));
    put64(data + NONCE_AT, nonce);
    put64(data + T2_AT, t2);
    put64(data + T3_AT, t3);
    put32(data + REPLY_KEY_AT, reply_key);
    if (keys->count)
        blake_keyed(keys->key[0], data, TAG_AT, data + HEADER_BYTES, length - HEADER_BYTES,
                    data + TAG_AT);
    else
        memset(data + TAG_AT, 0, TAG_BYTES);
    put32(data + CRC_AT, check_sum(data, length));
}

#endif
