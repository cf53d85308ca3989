/*
 * sha.c - SHA-256, SHA-224 and SHA-1, of FIPS 180-4, for the names of advisory locks.
 *
 * The servers can compute them, too, but asking would cost one more round trip.
 */
#include "sha.h"

#include <stdint.h>
#include <string.h>

enum { BLOCK_BYTES = 64, LENGTH_BYTES = 8 };

static const uint32_t round_constants[64] = {0x428a2f98, 0x71374491, 0xb5c0fbcf,
    0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5, 0xd807aa98, 0x12835b01,
    0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174, 0xe49b69c1,
    0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351,
    0x14292967, 0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb,
    0x81c2c92e, 0x92722c85, 0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819,
    0xd6990624, 0xf40e3585, 0x106aa070, 0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5,
    0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3, 0x748f82ee, 0x78a5636f, 0x84c87814,
    0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

static uint32_t
rotate(uint32_t x, int n)
{
	return x >> n | x << (32 - n);
}

/* Spreads the 64 bytes of a block over 64 words. */
static void
schedule(uint32_t w[64], const unsigned char *block)
{
	for (int i = 0; i < 16; i++)
		w[i] = (uint32_t)block[4 * i] << 24 | block[4 * i + 1] << 16 |
		    block[4 * i + 2] << 8 | block[4 * i + 3];
	for (int i = 16; i < 64; i++)
		w[i] = w[i - 16] +
		    (rotate(w[i - 15], 7) ^ rotate(w[i - 15], 18) ^ w[i - 15] >> 3) +
		    w[i - 7] +
		    (rotate(w[i - 2], 17) ^ rotate(w[i - 2], 19) ^ w[i - 2] >> 10);
}

static void
mix_block(uint32_t state[8], const unsigned char *block)
{
	uint32_t w[64], v[8];

	schedule(w, block);
	memcpy(v, state, sizeof v);
	for (int i = 0; i < 64; i++) {
		uint32_t choice = (v[4] & v[5]) ^ (~v[4] & v[6]);
		uint32_t majority = (v[0] & v[1]) ^ (v[0] & v[2]) ^ (v[1] & v[2]);
		uint32_t t1 = v[7] +
		    (rotate(v[4], 6) ^ rotate(v[4], 11) ^ rotate(v[4], 25)) + choice +
		    round_constants[i] + w[i];
		uint32_t t2 = (rotate(v[0], 2) ^ rotate(v[0], 13) ^ rotate(v[0], 22)) +
		    majority;

		memmove(v + 1, v, 7 * sizeof *v);
		v[4] += t1;
		v[0] = t1 + t2;
	}
	for (int i = 0; i < 8; i++)
		state[i] += v[i];
}

static uint32_t
rotate_left(uint32_t x, int n)
{
	return rotate(x, 32 - n);
}

/* Mixes a block into the state of SHA-1, which has five words. */
static void
mix_block_1(uint32_t state[8], const unsigned char *block)
{
	static const uint32_t constants[] = {
	    0x5a827999, 0x6ed9eba1, 0x8f1bbcdc, 0xca62c1d6};
	uint32_t w[80], v[5];

	for (int i = 0; i < 16; i++)
		w[i] = (uint32_t)block[4 * i] << 24 | block[4 * i + 1] << 16 |
		    block[4 * i + 2] << 8 | block[4 * i + 3];
	for (int i = 16; i < 80; i++)
		w[i] = rotate_left(w[i - 3] ^ w[i - 8] ^ w[i - 14] ^ w[i - 16], 1);
	memcpy(v, state, sizeof v);
	for (int i = 0; i < 80; i++) {
		uint32_t f = i < 20     ? (v[1] & v[2]) | (~v[1] & v[3])
		    : i >= 40 && i < 60 ? (v[1] & v[2]) | (v[1] & v[3]) | (v[2] & v[3])
					: v[1] ^ v[2] ^ v[3];
		uint32_t t = rotate_left(v[0], 5) + f + v[4] + constants[i / 20] + w[i];

		memmove(v + 1, v, 4 * sizeof *v);
		v[2] = rotate_left(v[2], 30);
		v[0] = t;
	}
	for (int i = 0; i < 5; i++)
		state[i] += v[i];
}

static void
hash_all(void (*mix)(uint32_t *, const unsigned char *), unsigned char *out, size_t nout,
    uint32_t state[8], const void *data, size_t n)
{
	unsigned char end[2 * BLOCK_BYTES] = {0};
	const unsigned char *p = data;
	size_t left = n, blocks;

	for (; left >= BLOCK_BYTES; left -= BLOCK_BYTES, p += BLOCK_BYTES)
		mix(state, p);
	/*
	 * The rest, a one bit, zeros, and the length in bits: one block, or two where
	 * that does not fit.
	 */
	memcpy(end, p, left);
	end[left] = 0x80;
	blocks = left + 1 + LENGTH_BYTES <= BLOCK_BYTES ? 1 : 2;
	for (int i = 0; i < LENGTH_BYTES; i++)
		end[blocks * BLOCK_BYTES - 1 - i] = (uint64_t)n * 8 >> 8 * i;
	for (size_t i = 0; i < blocks; i++)
		mix(state, end + i * BLOCK_BYTES);
	for (size_t i = 0; i < nout; i++)
		out[i] = state[i / 4] >> (24 - 8 * (i % 4));
}

void
sha_256(unsigned char out[SHA256_BYTES], const void *data, size_t n)
{
	uint32_t state[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f,
	    0x9b05688c, 0x1f83d9ab, 0x5be0cd19};

	hash_all(mix_block, out, SHA256_BYTES, state, data, n);
}

void
sha_224(unsigned char out[SHA256_BYTES], const void *data, size_t n)
{
	uint32_t state[8] = {0xc1059ed8, 0x367cd507, 0x3070dd17, 0xf70e5939, 0xffc00b31,
	    0x68581511, 0x64f98fa7, 0xbefa4fa4};

	hash_all(mix_block, out, SHA256_BYTES, state, data, n);
}

void
sha_1(unsigned char out[SHA1_BYTES], const void *data, size_t n)
{
	uint32_t state[8] = {0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476, 0xc3d2e1f0};

	hash_all(mix_block_1, out, SHA1_BYTES, state, data, n);
}
