/* sha.h - hashes, for names that stand for others. */
#ifndef DLOCK_SHA_H
#define DLOCK_SHA_H

#include <stddef.h>

enum { SHA256_BYTES = 32, SHA1_BYTES = 20 };

/* The hash of `n` bytes of data, in its usual order. */
void sha_256(unsigned char out[SHA256_BYTES], const void *data, size_t n);

/* The same with other numbers to begin with; its last 4 bytes do not count. */
void sha_224(unsigned char out[SHA256_BYTES], const void *data, size_t n);

/* What older programs derive names with; it protects nothing any more. */
void sha_1(unsigned char out[SHA1_BYTES], const void *data, size_t n);

#endif
