/*
 * conf.c - Goal of these tests: whatever stands in a configuration file is taken as it
 * was written, or refused in one sentence.
 */
#include "cmd/conf.h"
#include "tests/fuzz/fuzz.h"

/* Not what is tested here: no backend at all is needed to read a file. */
const struct backend file_backend = {
    .name = "file", .schemes = (const char *const[]){"file", NULL}};

static struct said_list all;

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
check_list(const char *copy, size_t n)
{
	for (const struct said *s = all.first; s; s = s->next) {
		CLAIM(!s->next || s->origin->by <= s->next->origin->by);
		CLAIM(said_in_file(s));
		check_value(copy, n, s->value, s->line);
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
	static struct params params;

	CLAIM(text && copy);
	memcpy(text, data, size);
	memcpy(copy, data, size);
	said_init(&all, CMD_RUN);
	if (conf_take(&all, &t, &fault) != RC_OK)
		CLAIM(strncmp(fault.text, "f:", 2) == 0 && fault.text[2] >= '1');
	else {
		check_list(copy, size);
		memset(&params, 0, sizeof params);
		(void)said_apply(&all, 0, OPTIONS, &params, &fault);
	}
	free(text);
	free(copy);
	return 0;
}
