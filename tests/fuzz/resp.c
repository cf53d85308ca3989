/*
 * resp.c - Goal of these tests: what is let in from a Redis server is small
 * and whole, hiredis agrees about where it ends, and an error never surprises.
 */
#include "backends/redis/resp.h"
#include "tests/fuzz/fuzz.h"

#include <hiredis/hiredis.h>

/*
 * What has been let in is one whole reply to hiredis too, unless it refuses it (a number
 * such as 007).
 */
static void
hiredis_agrees(const char *buf, size_t n)
{
	redisReader *reader = redisReaderCreate();
	void *reply = NULL;

	CLAIM(reader);
	CLAIM(redisReaderFeed(reader, buf, n) == REDIS_OK);
	if (redisReaderGetReply(reader, &reply) == REDIS_OK) {
		CLAIM(reply != NULL);
		freeReplyObject(reply);
		reply = NULL;
		CLAIM(redisReaderGetReply(reader, &reply) == REDIS_OK && reply == NULL);
	} else {
		CLAIM(reader->err == REDIS_ERR_PROTOCOL);
	}
	redisReaderFree(reader);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *buf = malloc(size ? size : 1), *text = fuzz_string(data, size);
	const char *hint = "";
	ssize_t length;
	enum rc rc;

	CLAIM(buf);
	memcpy(buf, data, size);
	length = resp_length(buf, size);
	CLAIM(length >= -1 && length <= (ssize_t)size && length <= RESP_BYTES);
	if (length > 0) {
		hiredis_agrees(buf, length);
		CLAIM(resp_length(buf, length) == length); /* whatever follows */
		for (ssize_t cut = 0; cut < length; cut += 1 + length / 64)
			CLAIM(resp_length(buf, cut) == 0);
	}
	rc = resp_error(text, &hint);
	CLAIM(rc == RC_DENIED || rc == RC_CONFIG || rc == RC_PROTOCOL || rc == RC_AGAIN);
	free(buf);
	free(text);
	return 0;
}
