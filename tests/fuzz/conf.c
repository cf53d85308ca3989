/*
 * conf.c - Goal of these tests: whatever stands in a configuration file is taken as it
 * was written, or refused in one sentence.
 */
#include "cmd/sources.h"
#include "tests/fuzz/fuzz.h"

/* Not what is tested here: no backend at all is needed to read a file. */
const struct backend file_backend = {
    .name = "file", .schemes = (const char *const[]){"file", NULL}};

static struct sources all;

/* Every value that counts is a piece of the text, on its line, without blanks around it. */
static void
check_value(const char *copy, size_t n, const char *value, int line)
{
	const char *at = copy, *end = copy + n, *newline;
	size_t length = strlen(value);

	CLAIM(line > 0);
	while (--line > 0) {
		at = memchr(at, '\n', end - at);
		CLAIM(at);
		at++;
	}
	newline = memchr(at, '\n', end - at);
	if (!newline)
		newline = end;
	CLAIM(length == 0 || memmem(at, newline - at, value, length));
	CLAIM(length == 0 || (value[0] != ' ' && value[length - 1] != ' '));
	/* nothing but blanks stands behind it */
	for (const char *rest = newline; length > 0 && rest[-1] != value[length - 1];
	     rest--)
		CLAIM(strchr(" \t\r", rest[-1]) && rest > at);
}

static void
check_sources(const char *copy, size_t n)
{
	for (size_t i = 0; i < all.n; i++) {
		const struct source *s = &all.list[i];

		CLAIM(i == 0 || all.list[i - 1].kind <= s->kind);
		for (int o = 0; sources_filed(s) && o < OPTIONS; o++)
			if (s->value[o])
				check_value(copy, n, s->value[o], s->line[o]);
	}
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const char *const keys[] = {"deploy/web", "build"};
	char *text = malloc(size + 1), *copy = malloc(size + 1);
	struct conf_text t = {.text = text,
	    .n = size,
	    .shown = "f",
	    .user = true,
	    .profile = "ci",
	    .keys = keys,
	    .nkeys = size % 3};
	struct fault fault = {""};
	static struct plan plan;

	CLAIM(text && copy);
	memcpy(text, data, size);
	memcpy(copy, data, size);
	sources_init(&all, CMD_RUN);
	if (conf_take(&all, &t, &fault) != RC_OK)
		CLAIM(strncmp(fault.text, "f:", 2) == 0 && fault.text[2] >= '1');
	else {
		check_sources(copy, size);
		memset(&plan, 0, sizeof plan);
		(void)sources_apply(&all, 0, OPTIONS, &plan, &fault);
	}
	free(text);
	free(copy);
	return 0;
}
