/*
 * sha.c - Goal of these tests: the hash is that of the standard, whatever the length
 * of the data.
 */
#include "backends/common/sha.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void
is_hash(const void *data, size_t n, const char *expected)
{
	unsigned char hash[SHA256_BYTES];
	char text[2 * SHA256_BYTES + 1];

	sha_256(hash, data, n);
	for (int i = 0; i < SHA256_BYTES; i++)
		snprintf(text + 2 * i, 3, "%02x", hash[i]);
	assert_string_equal(text, expected);
}

/*
 * The examples of FIPS 180 (NIST, "Secure Hash Standard", and its page of examples with
 * intermediate values).
 */
static void
examples_of_the_standard(void **state)
{
	static const char two_blocks[] =
	    "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
	static const char long_one[] =
	    "abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmnhijklmno"
	    "ijklmnopjklmnopqklmnopqrlmnopqrsmnopqrstnopqrstu";

	(void)state;
	is_hash(
	    "", 0, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
	is_hash(
	    "abc", 3, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
	is_hash(two_blocks, strlen(two_blocks),
	    "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
	is_hash(long_one, strlen(long_one),
	    "cf5b16a778af8380036ce59e7b0492370b249b11e8f07a51afac45037afee9d1");
}

/* the first words of its examples for SHA-224 */
static void
the_shorter_one(void **state)
{
	static const unsigned char expected[] = {0x23, 0x09, 0x7d, 0x22, 0x34, 0x05, 0xd8,
	    0x22, 0x86, 0x42, 0xa4, 0x77, 0xbd, 0xa2, 0x55, 0xb3, 0x2a, 0xad, 0xbc, 0xe4,
	    0xbd, 0xa0, 0xb3, 0xf7, 0xe3, 0x6c, 0x9d, 0xa7};
	unsigned char hash[SHA256_BYTES];

	(void)state;
	sha_224(hash, "abc", 3);
	assert_memory_equal(hash, expected, sizeof expected);
}

static void
a_million_letters(void **state)
{
	char *letters = malloc(1000000);

	(void)state;
	assert_non_null(letters);
	memset(letters, 'a', 1000000);
	is_hash(letters, 1000000,
	    "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
	free(letters);
}

/* Where the padding takes a block more; from hashlib. */
static void
ends_of_blocks(void **state)
{
	static const char *const of_length[] = {
	    "94abcc11f65698688ffc2858efb9b3d55f20c579abaad82735ae6817887595f4",
	    "493a700b8fd71c2a186c018e1d3a9b1bebbcec358a13daa67e76a788fddc2e07",
	    "d4bacb34b88e17aabe42b5e49c36ab951d4fe19a13c11410eebbc73265e4edfe",
	    "2519b49bcf69feac270ac3c8631539e8caed4c7e6a62c6cc5511228a61780745",
	    "f39cdc2584758c99cf81c1f41d2572f54e17066afffc9d187aeafe5f7cbe2122",
	    "4faa65f0aeec8078317ebc05630903148e3a809f66bb1b68ce6f50139f0dc051",
	    "64fa0bb88d882a997cac9b2506f0ed5a5003259d2b316815aaff3f1d026c7390",
	    "69cd344d20fee04179a672ea3b2929da884e03975100369c926dedc642b5a364",
	};
	static const size_t lengths[] = {55, 56, 63, 64, 65, 119, 120, 128};
	char letters[128];

	(void)state;
	memset(letters, 'k', sizeof letters);
	for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
		is_hash(letters, lengths[i], of_length[i]);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(examples_of_the_standard),
	    cmocka_unit_test(the_shorter_one),
	    cmocka_unit_test(a_million_letters),
	    cmocka_unit_test(ends_of_blocks),
	};

	return cmocka_run_group_tests_name("sha", tests, NULL, NULL);
}
