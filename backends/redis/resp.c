/* resp.c - measures replies before they are parsed, and says what an error reply means. */
#include "resp.h"

#include "backends/common/append.h"

#include <stdlib.h>
#include <string.h>

enum { TLS_ALERT = 0x15 }; /* what TLS begins with that we did not ask for */

enum { INBOX_LEAST = 1024 };

/* ---- commands ---- */

/* Not by hiredis: to format each number as it does is most of what a question costs us. */
char *
resp_put_count(char *to, char kind, size_t n)
{
	*to++ = kind;
	return mempcpy(append_number(to, to + RESP_WORD_BYTES - 1, n), "\r\n", 2);
}

char *
resp_put_word(char *to, const char *word, size_t n)
{
	to = mempcpy(resp_put_count(to, '$', n), word, n);
	return mempcpy(to, "\r\n", 2);
}

char *
resp_write(const resp_words *commands, size_t n)
{
	size_t room = 1;
	char *text, *to;

	for (size_t i = 0; i < n; i++) {
		room += RESP_WORD_BYTES;
		for (size_t j = 0; commands[i][j]; j++)
			room += RESP_WORD_BYTES + strlen(commands[i][j]);
	}
	text = to = malloc(room);
	for (size_t i = 0; text && i < n; i++) {
		size_t count = 0;

		while (commands[i][count])
			count++;
		to = resp_put_count(to, '*', count);
		for (size_t j = 0; j < count; j++)
			to = resp_put_word(to, commands[i][j], strlen(commands[i][j]));
	}
	if (text)
		*to = '\0';
	return text;
}

/* ---- how long a reply is ---- */

/* The number in a line such as ":-12\r\n" (without its first byte); false: none. */
static bool
line_number(const char *s, size_t n, long *ret)
{
	size_t sign = n > 0 && *s == '-';

	if (n <= sign || n - sign > 18)
		return false;
	*ret = 0;
	for (size_t i = sign; i < n; i++) {
		if (s[i] < '0' || s[i] > '9')
			return false;
		*ret = *ret * 10 + (s[i] - '0');
	}
	*ret = sign ? -*ret : *ret;
	return true;
}

const struct resp_bounds resp_usual = {RESP_BYTES, RESP_MEMBERS, RESP_DEPTH},
			 resp_pages = {1 << 20, 4096, RESP_DEPTH + 1};

static ssize_t reply_length(
    const char *buf, size_t n, const struct resp_bounds *b, int depth);

/* "$N\r\n" of `line` bytes, then N bytes and "\r\n"; N is -1 for nothing. */
static ssize_t
bulk_length(
    const char *buf, size_t n, size_t line, long bytes, const struct resp_bounds *b)
{
	size_t end = line + bytes + 2;

	if (bytes == -1)
		return line;
	if (bytes < 0 || (size_t)bytes > b->bytes)
		return -1;
	if (n < end)
		return 0;
	return memcmp(buf + end - 2, "\r\n", 2) == 0 ? (ssize_t)end : -1;
}

static ssize_t
array_length(const char *buf, size_t n, size_t line, long members,
    const struct resp_bounds *b, int depth)
{
	size_t used = line;

	if (members == -1)
		return line;
	if (members < 0 || members > b->members || depth == b->depth)
		return -1;
	for (long i = 0; i < members; i++) {
		ssize_t one = reply_length(buf + used, n - used, b, depth + 1);

		if (one <= 0)
			return one;
		used += one;
	}
	return used;
}

static ssize_t
reply_length(const char *buf, size_t n, const struct resp_bounds *b, int depth)
{
	const char *end = n ? memchr(buf, '\n', n) : NULL;
	size_t line;
	long number;

	if (n == 0)
		return 0;
	if (!strchr("+-:$*", *buf) || !*buf)
		return -1;
	if (!end)
		return n < b->bytes ? 0 : -1;
	line = end - buf + 1;
	if (line < 3 || end[-1] != '\r' || memchr(buf, '\r', line - 2))
		return -1;
	if (*buf == '+' || *buf == '-')
		return line;
	if (!line_number(buf + 1, line - 3, &number))
		return -1;
	if (*buf == '$')
		return bulk_length(buf, n, line, number, b);
	if (*buf == '*')
		return array_length(buf, n, line, number, b, depth);
	return line;
}

ssize_t
resp_length(const char *buf, size_t n, const struct resp_bounds *b)
{
	ssize_t length = reply_length(buf, n, b, 0);

	if (length > (ssize_t)b->bytes || (length == 0 && n >= b->bytes))
		return -1;
	return length;
}

/* ---- replies ---- */

/* There is room for more.  It begins small: most replies are, and fewer pages are touched. */
static bool
inbox_grow(struct inbox *in, const struct resp_bounds *b)
{
	size_t size = in->size > 0 ? 4 * in->size : INBOX_LEAST;
	char *bytes;

	if (in->used < in->size)
		return true;
	if (size > b->bytes)
		size = b->bytes;
	bytes = realloc(in->bytes, size);
	if (!bytes)
		return false;
	in->bytes = bytes;
	in->size = size;
	return true;
}

bool
inbox_open(struct inbox *in, const struct resp_bounds *b)
{
	in->reader = redisReaderCreate();
	return in->reader && inbox_grow(in, b);
}

void
inbox_close(struct inbox *in)
{
	if (in->reader)
		redisReaderFree(in->reader);
	free(in->bytes);
	*in = (struct inbox){.used = 0};
}

enum rc
inbox_take(
    struct inbox *in, const struct resp_bounds *b, redisReply **reply, const char **wrong)
{
	ssize_t length = resp_length(in->bytes, in->used, b);
	void *built = NULL;

	*reply = NULL;
	*wrong = "cannot be read: out of memory";
	if (length == 0)
		return inbox_grow(in, b) ? RC_OK : RC_SYSTEM;
	*wrong = *in->bytes == TLS_ALERT
	    ? "answers in TLS: is that its TLS port (rediss://)?"
	    : "does not answer as Redis does: is this a Redis server?";
	if (length < 0)
		return RC_PROTOCOL;
	if (redisReaderFeed(in->reader, in->bytes, length) != REDIS_OK ||
	    redisReaderGetReply(in->reader, &built) != REDIS_OK || !built) {
		bool full = in->reader->err == REDIS_ERR_OOM;

		*wrong = full ? "cannot be read: out of memory"
			      : "sent what is no Redis reply";
		return full ? RC_SYSTEM : RC_PROTOCOL;
	}
	in->used -= length;
	memmove(in->bytes, in->bytes + length, in->used);
	*reply = built;
	return RC_OK;
}

/* ---- what an error says ---- */

#define CAPITALS "ABCDEFGHIJKLMNOPQRSTUVWXYZ"

/*
 * A code is the first word.  Behind ERR, which tells nothing, is another one, or words; and so
 * behind the place where a script has failed: "ERR Error running script (call to f_6a):
 * @user_script:1: -READONLY You can't write".
 */
bool
resp_says(const char *text, const char *what)
{
	bool is_code = what[strspn(what, CAPITALS)] == '\0',
	     generic = strncmp(text, "ERR ", 4) == 0;
	size_t n = strlen(what);
	const char *at = generic ? text + 4 : text;

	while (strncmp(at, what, n) != 0 || (is_code && at[n] != ' ' && at[n] != '\0')) {
		at = generic ? strstr(at, ": ") : NULL;
		if (!at)
			return false;
		at += at[2] == '-' ? 3 : 2;
	}
	return true;
}

#define CLUSTER \
	"it is one node of a cluster, or that is down: redis+cluster://HOST is its URL"

#define MOVING "the hash slot of this key is moving to another node"

static const char no_command[] =
    "it does not know a command that dlock needs, or a proxy does not pass it";

#define UNDECLARED \
	"it hides keys that a script does not name: start it with --default_lua_flags=allow-undeclared-keys"

static const char right_to_lock[] = "allow the user +@all -@dangerous +info";

static const struct meaning {
	const char *what; /* as resp_says() */
	enum rc rc;
	enum resp_next next;
	const char *hint;
} meanings[] = {
    /* first: behind it stands what we have said */
    {"unknown command 'AUTH'", RC_DENIED, RESP_KEEP,
	"it knows no passwords: leave the password out"},
    {"unknown command `AUTH`", RC_DENIED, RESP_KEEP,
	"it knows no passwords: leave the password out"},
    {"unknown command", RC_CONFIG, RESP_KEEP, no_command},
    {"Unknown Redis command called from script", RC_CONFIG, RESP_KEEP, no_command},
    {"Unknown command called from", RC_CONFIG, RESP_KEEP, no_command},
    {"unknown subcommand", RC_CONFIG, RESP_KEEP, no_command},
    {"Unknown subcommand", RC_CONFIG, RESP_KEEP, no_command}, /* Redis 6 */
    {"NOAUTH", RC_DENIED, RESP_KEEP,
	"it wants a password: put it into the URL or -O password-file=FILE"},
    {"unauthenticated", RC_DENIED, RESP_KEEP,
	"it wants a password: put it into the URL or -O password-file=FILE"},
    {"WRONGPASS", RC_DENIED, RESP_KEEP, "wrong user or password"},
    {"invalid password", RC_DENIED, RESP_KEEP, "wrong password"},
    {"operation not permitted", RC_DENIED, RESP_KEEP,
	"it wants a password: put it into the URL or -O password-file=FILE"},
    {"AUTH <password> called without any password", RC_DENIED, RESP_KEEP,
	"it has no password for this user: leave the password out"},
    {"wrong number of arguments for 'auth'", RC_DENIED, RESP_KEEP,
	"it knows no users: leave the user's name out"},
    {"Client sent AUTH, but no password is set", RC_DENIED, RESP_KEEP,
	"it has no password: leave the password out"},
    {"DENIED", RC_DENIED, RESP_KEEP,
	"give it a password, or protected-mode no, for clients of other machines"},
    {"NOPERM", RC_DENIED, RESP_KEEP, right_to_lock},
    {"The user executing the script can't", RC_DENIED, RESP_KEEP, right_to_lock},
    {"ACL failure in script", RC_DENIED, RESP_KEEP, right_to_lock}, /* Redis 8, Valkey */
    {"WRONGTYPE", RC_PROTOCOL, RESP_KEEP,
	"another program has stored something under this key"},
    {"MOVED", RC_CONFIG, RESP_MOVED, CLUSTER},
    {"ASK", RC_CONFIG, RESP_ASK, CLUSTER},
    {"CROSSSLOT", RC_CONFIG, RESP_KEEP,
	"a brace in this key puts its data into two hash slots of the cluster: use no brace, or one {tag}"},
    {"CLUSTERDOWN", RC_CONFIG, RESP_ELSEWHERE, CLUSTER},
    {"SELECT is not allowed in cluster mode", RC_CONFIG, RESP_KEEP, CLUSTER},
    {"This instance has cluster support disabled", RC_CONFIG, RESP_KEEP,
	"it is no node of a cluster: redis://HOST is its URL"},
    {"Script attempted to access a non local key", RC_AGAIN, RESP_LATER, MOVING},
    {"Lua script attempted to access a non local key", RC_AGAIN, RESP_LATER, MOVING},
    {"UNBLOCKED", RC_AGAIN, RESP_ELSEWHERE, "it is no longer the master"},
    {"READONLY", RC_CONFIG, RESP_ELSEWHERE, "it is a replica: name the master"},
    {"DB index is out of range", RC_CONFIG, RESP_KEEP, "it has no such database"},
    {"LOADING", RC_AGAIN, RESP_ELSEWHERE, "it is still loading its data: try again"},
    {"MASTERDOWN", RC_AGAIN, RESP_ELSEWHERE, "it is a replica without its master"},
    {"BUSY", RC_AGAIN, RESP_ELSEWHERE, "it is busy with a script: try again"},
    {"OOM", RC_AGAIN, RESP_KEEP, "it is out of memory: raise maxmemory"},
    {"command not allowed when used memory", RC_AGAIN, RESP_KEEP,
	"it is out of memory: raise maxmemory"},
    {"MISCONF", RC_AGAIN, RESP_KEEP, "it cannot save to disk and refuses writes"},
    {"NOREPLICAS", RC_AGAIN, RESP_KEEP, "too few replicas are connected to it"},
    {"max number of clients", RC_AGAIN, RESP_ELSEWHERE,
	"it has too many clients: raise maxclients"},
    {"TRYAGAIN", RC_AGAIN, RESP_LATER, "try again"},
    {"syntax error", RC_CONFIG, RESP_KEEP, no_command},
    {"wrong number of arguments", RC_CONFIG, RESP_KEEP, no_command},
};

/*
 * What services and proxies say of commands that they do not pass, in many words and anywhere,
 * where nothing above is said.
 */
static const struct meaning phrases[] = {
    {"undeclared key", RC_CONFIG, RESP_KEEP, UNDECLARED}, /* Dragonfly */
    {"not allowed", RC_CONFIG, RESP_KEEP, no_command},
    {"not support", RC_CONFIG, RESP_KEEP, no_command},
    {"unsupported", RC_CONFIG, RESP_KEEP, no_command},
    {"bad lua script", RC_CONFIG, RESP_KEEP, no_command},
    {"is disabled", RC_CONFIG, RESP_KEEP, no_command},
    {"support disabled", RC_CONFIG, RESP_KEEP, no_command},         /* Garnet */
    {"unknown command", RC_CONFIG, RESP_KEEP, no_command},          /* in other letters */
    {"command is not available", RC_CONFIG, RESP_KEEP, no_command}, /* Upstash */
    {"command not found", RC_CONFIG, RESP_KEEP, no_command},
    {"forbid", RC_CONFIG, RESP_KEEP, no_command},  /* Predixy */
    {"auth permission deny", RC_DENIED, RESP_KEEP, /* Predixy */
	"it wants a password, or one that may write"},
    {"illegal address", RC_DENIED, RESP_KEEP, /* Alibaba's */
	"let its list of addresses have this machine's"},
};

/* NULL: none is known. */
static const struct meaning *
error_meaning(const char *text)
{
	for (size_t i = 0; i < sizeof meanings / sizeof *meanings; i++)
		if (resp_says(text, meanings[i].what))
			return &meanings[i];
	for (size_t i = 0; i < sizeof phrases / sizeof *phrases; i++)
		if (strcasestr(text, phrases[i].what))
			return &phrases[i];
	return NULL;
}

enum rc
resp_error(const char *text, const char **hint)
{
	const struct meaning *m = error_meaning(text);

	*hint = m ? m->hint : NULL;
	/* it speaks Redis's language: what nobody has foreseen may pass */
	return m ? m->rc : RC_AGAIN;
}

void
resp_rights(char *out, size_t size, const char *hint, bool looks, const char *key)
{
	static const char to_look[] = "+@read +time +eval_ro +evalsha_ro";
	static const char beside[] = "and the names beside it";
	int n = key && strncmp(key, "dlock:{", 7) == 0
	    ? (int)(strrchr(key, ':') + 1 - key)
	    : 0;
	bool native = n > 7;

	if (hint != right_to_lock)
		snprintf(out, size, "%s", hint ? hint : "");
	else if (!key && looks)
		snprintf(out, size, "to look, allow the user %%R~dlock:* %s", to_look);
	else if (!key)
		snprintf(out, size, "%s", hint);
	else if (native && looks)
		snprintf(
		    out, size, "to look, allow the user %%R~%.*s* %s", n, key, to_look);
	else if (native)
		snprintf(out, size,
		    "allow the user ~%.*s* &%.*s* +@all -@dangerous +info", n, key, n,
		    key);
	else if (looks)
		snprintf(out, size, "to look, allow the user %%R~%s %s, %s", key, beside,
		    to_look);
	else
		snprintf(out, size, "allow the user ~%s %s, +@all -@dangerous +info", key,
		    beside);
}

enum resp_next
resp_next(const char *text, bool cluster)
{
	const struct meaning *m = error_meaning(text);

	return m && (cluster || m->next == RESP_ELSEWHERE) ? m->next : RESP_KEEP;
}

/* "ERR unknown command 'EVALSHA'", "NOPERM ... to run the 'evalsha' command": each in many words. */
bool
resp_is_no_scripts(const char *text)
{
	const struct meaning *m = error_meaning(text);

	return ((m && m->hint == no_command) || resp_says(text, "NOPERM")) &&
	    (strcasestr(text, "'eval") || strcasestr(text, "`eval") ||
		strcasestr(text, "|eval") || strcasestr(text, "command eval") ||
		strcasestr(text, "scripting support disabled"));
}
