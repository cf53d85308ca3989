/*
 * block.c - Goal of these tests: whatever stands in a lock file, its numbers are within
 * bounds and its record is one line.
 */
#include "backends/file/block.h"
#include "backends/file/place.h"
#include "tests/fuzz/fuzz.h"

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	size_t n = size < BLOCK_BYTES ? size : BLOCK_BYTES;
	char *text = malloc(n ? n : 1), block[BLOCK_BYTES];
	struct block h, back;

	CLAIM(text);
	memcpy(text, data, n);
	if (!block_parse(&h, text, n))
		CLAIM(h.next == 1 && h.token == 0 && h.granted == 0 && !*h.record);
	free(text);
	CLAIM(h.next >= 1 && h.next < NUMBER_LIMIT);
	CLAIM(h.token >= 0 && h.token < NUMBER_LIMIT);
	CLAIM(h.granted >= 0 && h.granted < NUMBER_LIMIT);
	CLAIM(h.freeze >= 0 && h.freeze < NUMBER_LIMIT);
	CLAIM(
	    h.byte >= 0 && h.byte < BYTE(RANGES, 0) && NUMBER_OF(h.byte) < NUMBER_LIMIT);
	CLAIM(!*h.owner || strlen(h.owner) == OWNER_CHARS);
	CLAIM(memchr(h.record, '\0', sizeof h.record) && !strchr(h.record, '\n'));
	CLAIM(block_age(&h, 1795232537955312) >= -1);
	CLAIM(block_next_token(&h, 1795232537955312) > h.token);
	block_format(&h, block);
	CLAIM(block_parse(&back, block, sizeof block));
	CLAIM(back.next == h.next && back.token == h.token && back.granted == h.granted &&
	    back.freeze == h.freeze && back.byte == h.byte &&
	    strcmp(back.owner, h.owner) == 0 && strcmp(back.record, h.record) == 0);
	return 0;
}
