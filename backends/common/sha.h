/* sha.h - computes hashes, for names that are derived from other names. */
#ifndef DLOCK_SHA_H
#define DLOCK_SHA_H

#include <stddef.h>

enum { SHA256_BYTES = 32, SHA1_BYTES = 20 };

/* Hashes `n` bytes of data; the bytes of the hash are in their usual order. */
void sha_256(unsigned char out[SHA256_BYTES], const void *data, size_t n);

/* SHA-256 with other numbers to begin with; its last 4 bytes do not count. */
void sha_224(unsigned char out[SHA256_BYTES], const void *data, size_t n);

/* SHA-1, since older programs derive names with it.  It protects nothing any more. */
void sha_1(unsigned char out[SHA1_BYTES], const void *data, size_t n);

#endif
