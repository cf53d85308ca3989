/* reply.c - the lines that memcached answers with. */
#include "reply.h"

#include <string.h>

/* All of `text` as a decimal number. */
static bool
read_number(const char *text, uint64_t *ret)
{
	size_t n = strspn(text, "0123456789");

	*ret = 0;
	if (n == 0 || n > 19 || text[n] != '\0')
		return false;
	for (size_t i = 0; i < n; i++)
		*ret = *ret * 10 + (uint64_t)(text[i] - '0');
	return true;
}

/* The word at *rest, which goes on behind it; "" at the end. */
static char *
next_word(char **rest)
{
	char *word = *rest;
	size_t n = strcspn(word, " ");

	*rest = word + n + (word[n] == ' ');
	word[n] = '\0';
	return word;
}

/* "c17", "t30", "t-1"; false: a flag that we never asked for. */
static bool
read_flag(struct reply *r, const char *flag)
{
	uint64_t number;

	/* what others have made of it by vivifying or invalidating: no matter of ours */
	if (strcmp(flag, "W") == 0 || strcmp(flag, "X") == 0 || strcmp(flag, "Z") == 0)
		return true;
	if (strcmp(flag, "t-1") == 0) {
		r->ttl = TTL_NONE;
		return true;
	}
	if (!read_number(flag + 1, &number))
		return false;
	if (*flag == 'c')
		r->cas = number;
	else if (*flag == 't' && number <= INT32_MAX)
		r->ttl = (int64_t)number;
	else
		return false;
	return true;
}

/* The flags behind HD, VA and others; some have none. */
static enum reply_code
read_flags(struct reply *r, enum reply_code code, char *rest)
{
	uint64_t size;

	if (code == REPLY_VA) {
		if (!read_number(next_word(&rest), &size) || size > INT32_MAX)
			return REPLY_STRANGE;
		r->size = size;
	}
	while (*rest)
		if (!read_flag(r, next_word(&rest)))
			return REPLY_STRANGE;
	return code;
}

static enum reply_code
read_stat(struct reply *r, char *rest)
{
	r->name = next_word(&rest);
	r->value = rest;
	return *r->name ? REPLY_STAT : REPLY_STRANGE;
}

static enum reply_code
read_key(struct reply *r, char *word)
{
	r->name = word + strlen("key=");
	return *r->name ? REPLY_KEY : REPLY_STRANGE;
}

static const struct {
	const char *word;
	enum reply_code code;
	bool flags; /* may follow; else the rest is anything */
} words[] = {
    {"HD", REPLY_HD, true},
    {"VA", REPLY_VA, true},
    {"EN", REPLY_EN, true},
    {"NF", REPLY_NF, true},
    {"NS", REPLY_NS, true},
    {"EX", REPLY_EX, true},
    {"MN", REPLY_MN, true},
    {"OK", REPLY_OK, true},
    {"STORED", REPLY_OK, true},
    {"END", REPLY_END, true},
    {"BUSY", REPLY_BUSY, false},
    {"ERROR", REPLY_ERROR, false},
    {"CLIENT_ERROR", REPLY_ERROR, false},
    {"SERVER_ERROR", REPLY_ERROR, false},
};

/* Of any other line than STAT and key=; its error in two pieces. */
static enum reply_code
read_other(struct reply *r, const char *word, char *rest)
{
	for (size_t i = 0; i < sizeof words / sizeof *words; i++)
		if (strcmp(word, words[i].word) == 0) {
			r->name = word;
			r->value = rest;
			return words[i].flags ? read_flags(r, words[i].code, rest)
					      : words[i].code;
		}
	return REPLY_STRANGE;
}

void
reply_read(struct reply *r, char *line)
{
	char *rest = line, *word = next_word(&rest);

	*r = (struct reply){.ttl = TTL_UNTOLD};
	if (strcmp(word, "STAT") == 0)
		r->code = read_stat(r, rest);
	else if (strncmp(word, "key=", 4) == 0)
		r->code = read_key(r, word);
	else
		r->code = read_other(r, word, rest);
}

#define OLD "dlock needs memcached 1.6.10 or newer"

/* In order of search. */
static const struct meaning {
	const char *text;
	enum rc rc;
	const char *hint;
} meanings[] = {
    {"unauthenticated", RC_DENIED,
	"it wants a user and password: put them into the URL, or the password into -O password-file=FILE"},
    {"authentication failure", RC_DENIED, "wrong user or password"},
    {"metadump not allowed", RC_CONFIG, "it lets nobody list its keys (-X): name a key"},
    {"lru crawler disabled", RC_CONFIG,
	"it cannot list its keys (-o no_lru_crawler): name a key"},
    {"out of memory", RC_AGAIN,
	"its memory is full and it evicts nothing (-M): raise -m"},
    {"oo many open connections", RC_AGAIN, "raise its -c"},
    {"object too large", RC_CONFIG, "its -I is too small for a lock: 16k will do"},
    {"SERVER_ERROR", RC_AGAIN, NULL},
    {"CLIENT_ERROR", RC_PROTOCOL, OLD},
    {"ERROR", RC_CONFIG, OLD},
};

enum rc
reply_error(const char *line, const char **hint)
{
	const struct meaning *m = meanings;

	while (!strstr(line, m->text) && m < meanings + sizeof meanings / sizeof *m - 1)
		m++;
	*hint = m->hint;
	return m->rc;
}
