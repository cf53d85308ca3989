/*
 * runs.c - Goal of these tests: whatever line stands among the runs, what is read of it
 * is within bounds and is written as it was.
 */
#include "backends/file/block.h"
#include "backends/file/runs.h"
#include "tests/fuzz/fuzz.h"

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const struct job job = {.once = "a", .cooldown = NS_PER_S};
	char *text = malloc(size ? size : 1), line[RUN_LINE];
	struct host host = {.seen.holding.held = -1};
	struct fault fault = {""};
	struct run r, back;
	size_t n;

	CLAIM(text);
	memcpy(text, data, size);
	if (!memchr(text, '\n', size) && run_parse(&r, text, size)) {
		CLAIM(r.begin >= 0 && r.begin < NUMBER_LIMIT && r.end >= 0 &&
		    r.token >= 0 && r.status >= 0 && r.status <= 255);
		n = run_format(&r, line);
		CLAIM(n < sizeof line && line[n - 1] == '\n' &&
		    run_parse(&back, line, n - 1));
		CLAIM(back.begin == r.begin && back.status == r.status &&
		    strcmp(back.id, r.id) == 0 && strcmp(back.record, r.record) == 0);
		CLAIM(run_refuse(&host, &r, &job, false, r.begin, &fault) ==
		    (r.status == 0 ? RC_DONE : RC_OK));
		CLAIM(r.status != 0 ||
		    (strncmp(fault.text, "ID a ", 5) == 0) == (strcmp(r.id, "a") == 0));
	}
	free(text);
	return 0;
}
