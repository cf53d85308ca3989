/* layout.c - names the nodes of each layout, and reads their names. */
#include "layout.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
	NUMBER = 10,
	MARK_AT = 12,    /* of the "d" in an owner */
	VERSION_AT = 17, /* and in "_c_01234567-0123-d" */
	RANDOM = 16,     /* digits in the name of a freeze */
	LENGTH_DIGITS = 12,
	HOST_CHARS = 64,
};

static bool
starts_with(const char *name, const char *head)
{
	return strncmp(name, head, strlen(head)) == 0;
}

static bool
ends_with(const char *start, const char *end, const char *tag)
{
	size_t n = strlen(tag);

	return (size_t)(end - start) >= n && memcmp(end - n, tag, n) == 0;
}

/* ---- owners ---- */

void
layout_owner(char out[OWNER_CHARS + 1], const char *owner)
{
	snprintf(out, OWNER_CHARS + 1, "%s", owner);
	if (strlen(out) > MARK_AT)
		out[MARK_AT] = 'd';
}

static bool
has_hex(const char *s, size_t n)
{
	return strspn(s, "0123456789abcdef") >= n;
}

/* An owner of a dlock that ends at `end`; NULL: there is none. */
static const char *
owner_before(const char *name, const char *end)
{
	const char *owner = end - OWNER_CHARS;

	return end - name >= OWNER_CHARS && has_hex(owner, OWNER_CHARS) &&
		owner[MARK_AT] == 'd'
	    ? owner
	    : NULL;
}

/* In names of Curator's kind it has "-" between its parts. */
bool
child_has_owner(const struct child *c, const char *owner)
{
	char wanted[OWNER_CHARS + 1];
	size_t n = 0;

	layout_owner(wanted, owner);
	for (const char *s = c->owner; s && *s && n < OWNER_CHARS; s++)
		if (*s != '-' && *s != wanted[n++])
			return false;
	return n == OWNER_CHARS && strlen(wanted) == OWNER_CHARS;
}

/* This host, and the owner: what stands where other clients have the name of their host. */
static void
print_label(char out[PREFIX_BYTES], const char *owner)
{
	char host[HOST_CHARS + 1] = "", marked[OWNER_CHARS + 1];

	gethostname(host, sizeof host - 1);
	for (char *c = host; *c; c++)
		if (!isalnum((unsigned char)*c) && *c != '-' && *c != '.')
			*c = '_';
	layout_owner(marked, owner);
	snprintf(out, PREFIX_BYTES, "%s.%s", host, marked);
}

/* Of a label that ends at `end`. */
static const char *
owner_of_label(const char *name, const char *end)
{
	const char *owner = owner_before(name, end);

	return owner && owner > name && owner[-1] == '.' ? owner : NULL;
}

/* ---- numbers ---- */

/*
 * The number that the server has given, at the end of a name; one that is negative (after
 * 2^31 of them) has its sign.  NULL: there is none.
 */
static const char *
number_at_end(const char *name)
{
	size_t n = strlen(name);
	const char *s = n > NUMBER ? name + n - NUMBER : name;

	if (s == name || strspn(s, "0123456789") != NUMBER)
		return NULL;
	return s - name >= 2 && s[-1] == '-' && (s[-2] == '-' || s[-2] == '_') ? s - 1
									       : s;
}

static void
note_place(struct child *c, const char *number, enum lock_kind kind, const char *owner)
{
	c->rank = number;
	c->kind = kind;
	c->owner = owner;
	c->what = owner ? CHILD_DLOCKS : CHILD_OTHERS;
	c->blind = false;
}

/* ---- kazoo ---- */

/* Whatever stands before the tag; a uuid, mostly. */
static void
kazoo_read(struct child *c)
{
	const char *number = number_at_end(c->name), *end;

	if (!number)
		return;
	if (ends_with(c->name, number, "__rlock__")) {
		end = number - strlen("__rlock__");
		note_place(c, number, KIND_SHARED, owner_before(c->name, end));
	} else if (ends_with(c->name, number, "__lock__")) {
		end = number - strlen("__lock__");
		note_place(c, number, KIND_EXCLUSIVE, owner_before(c->name, end));
	}
	if (c->owner && c->owner != c->name) /* it is the whole of what stands there */
		note_place(c, number, c->kind, NULL);
}

static void
kazoo_name(char out[PREFIX_BYTES], const struct claim *claim)
{
	char owner[OWNER_CHARS + 1];

	layout_owner(owner, claim->owner);
	snprintf(out, PREFIX_BYTES, "%s%s", owner,
	    claim->kind == KIND_SHARED ? "__rlock__" : "__lock__");
}

/* ---- menagerie ---- */

/* A host's in rw-seq may be called "lockbox". */
static bool
is_hosts(const char *name, const char *number)
{
	return ends_with(name, number, "-R-") || ends_with(name, number, "-W-");
}

/*
 * Of the older of its two locks (K/lock-<n>) to the newer, it sees all that begins
 * with "lock"; its read-write lock sees "readLock" and "writeLock".
 */
static void
menagerie_read(struct child *c)
{
	const char *number = number_at_end(c->name), *end;
	enum lock_kind kind = starts_with(c->name, "readLock") ? KIND_SHARED
	    : starts_with(c->name, "writeLock")                ? KIND_WRITER
							       : KIND_EXCLUSIVE;

	if (!number || number[-1] != '-' || is_hosts(c->name, number) ||
	    (kind == KIND_EXCLUSIVE && !starts_with(c->name, "lock")))
		return;
	end = number - 1;
	if (kind == KIND_EXCLUSIVE) { /* the thread stands there, too */
		while (end > c->name && isdigit((unsigned char)end[-1]))
			end--;
		end -= end > c->name && end[-1] == '-';
	}
	note_place(c, number, kind, owner_of_label(c->name, end));
}

const char *
layout_semaphore(const char *name)
{
	if (strlen(name) == OWNER_CHARS && has_hex(name, OWNER_CHARS))
		return "kazoo";
	return number_at_end(name) && starts_with(name, "permit-") ? "menagerie" : NULL;
}

/*
 * Whoever finds a node with its own host and thread takes it for its own: no virtual
 * machine comes to such a thread.
 */
static unsigned long long
thread_of(const char *owner)
{
	char digits[16];

	snprintf(digits, sizeof digits, "%.15s", owner);
	return (1ULL << 60) + strtoull(digits, NULL, 16);
}

static void
menagerie_name(char out[PREFIX_BYTES], const struct claim *claim)
{
	char label[PREFIX_BYTES];

	print_label(label, claim->owner);
	if (claim->kind == KIND_EXCLUSIVE)
		snprintf(out, PREFIX_BYTES, "lock-%.100s-%llu-", label,
		    thread_of(claim->owner));
	else
		snprintf(out, PREFIX_BYTES, "%s-%.100s-",
		    claim->kind == KIND_SHARED ? "readLock" : "writeLock", label);
}

/* ---- rw-seq ---- */

/* Hosts have "-" in their names: the last two count. */
static void
rw_seq_read(struct child *c)
{
	const char *number = number_at_end(c->name), *end;
	bool read;

	if (!number || number - c->name < 4)
		return;
	end = number - strlen("-R-");
	read = ends_with(c->name, number, "-R-");
	if (read || ends_with(c->name, number, "-W-"))
		note_place(c, number, read ? KIND_SHARED : KIND_EXCLUSIVE,
		    owner_of_label(c->name, end));
}

static void
rw_seq_name(char out[PREFIX_BYTES], const struct claim *claim)
{
	char label[PREFIX_BYTES];

	print_label(label, claim->owner);
	snprintf(out, PREFIX_BYTES, "%.100s-%s-", label,
	    claim->kind == KIND_SHARED ? "R" : "W");
}

/* ---- Curator ---- */

static const char *const tags[] = {"lock-", "unit-", "__READ__", "__WRIT__"};

enum { TAGS = sizeof tags / sizeof *tags };

static bool
is_after_tag(const char *name, const char *s)
{
	for (size_t i = 0; i < TAGS; i++)
		if (ends_with(name, s, tags[i]))
			return true;
	return false;
}

/* What follows the last tag; mostly a number of ten digits. */
static const char *
rank_after_tag(const char *name)
{
	size_t n = strlen(name);
	const char *s = n > NUMBER ? name + n - NUMBER : name;

	if (strspn(s, "0123456789") == NUMBER && is_after_tag(name, s))
		return s;
	for (s = name + n; s > name; s--)
		if (is_after_tag(name, s))
			return s;
	return name;
}

/* The N of "...-N-unit-"; 0: it is none. */
static unsigned
limit_before(const char *name, const char *end)
{
	const char *s = end - strlen("-unit-");
	unsigned limit = 0, place = 1;

	if (!ends_with(name, end, "-unit-"))
		return 0;
	for (; s > name && isdigit((unsigned char)s[-1]) && place <= LIMIT_MAX;
	     place *= 10)
		limit += (*--s - '0') * place;
	return s > name && s[-1] == '-' && limit <= LIMIT_MAX ? limit : 0;
}

static bool
is_curators_dlock(const char *name)
{
	return starts_with(name, "_c_") && strnlen(name, VERSION_AT) == VERSION_AT &&
	    name[VERSION_AT] == 'd';
}

static bool
is_part(const char *name)
{
	return strcmp(name, "locks") == 0 || strcmp(name, "leases") == 0 ||
	    strcmp(name, "slots") == 0;
}

/* Does the number that the server gives stand there?  One that is negative has its sign. */
static bool
is_place(const char *rank)
{
	bool negative = *rank == '-';
	size_t digits = strspn(rank + negative, "0123456789");

	return rank[negative + digits] == '\0' &&
	    (digits == NUMBER || (negative && digits == NUMBER - 1));
}

/*
 * Has a client of another layout made it?  All of Curator's recipes put a uuid before "lock-<n>";
 * menagerie puts nothing there.
 */
static bool
is_unlike_curators(const struct child *c, const char *rank)
{
	return strstr(c->name, "__lock__") || strstr(c->name, "__rlock__") ||
	    starts_with(c->name, "permit-") ||
	    (starts_with(c->name, "lock-") && rank == c->name + strlen("lock-"));
}

static void
curator_read(struct child *c)
{
	const char *rank = rank_after_tag(c->name);
	bool has_place = rank != c->name && is_place(rank);

	if (is_part(c->name)) {
		c->what = CHILD_PART;
		c->blind = false;
	}
	if (is_curators_dlock(c->name))
		c->owner = c->name + strlen("_c_");
	if (!has_place || (!c->owner && is_unlike_curators(c, rank)))
		return;
	note_place(c, rank, KIND_EXCLUSIVE, c->owner);
	if (ends_with(c->name, rank, "__READ__"))
		c->kind = KIND_SHARED;
	else if (ends_with(c->name, rank, "__WRIT__"))
		c->kind = KIND_WRITER;
	else if ((c->limit = limit_before(c->name, rank)) > 0)
		c->kind = KIND_LIMIT;
}

static void
curator_name(char out[PREFIX_BYTES], const struct claim *claim)
{
	static const char *const kinds[] = {[KIND_EXCLUSIVE] = "lock-",
	    [KIND_WRITER] = "__WRIT__",
	    [KIND_SHARED] = "__READ__"};
	const char *o = claim->owner;
	int n = snprintf(out, PREFIX_BYTES, "_c_%.8s-%.4s-d%.3s-%.4s-%.12s-", o, o + 8,
	    o + 13, o + 16, o + 20);

	if (claim->kind == KIND_LIMIT)
		snprintf(out + n, PREFIX_BYTES - n, "%u-unit-",
		    claim->limit <= LIMIT_MAX ? claim->limit : LIMIT_MAX);
	else
		snprintf(out + n, PREFIX_BYTES - n, "%s", kinds[claim->kind]);
}

/* ---- plain ---- */

static void
plain_name(char out[PREFIX_BYTES], const struct claim *claim)
{
	(void)claim;
	*out = '\0';
}

static void
read_plain(struct child *c)
{
	(void)c;
}

/* ---- all of them ---- */

#define STEERED (CAP_REVOKE | CAP_FORCE)

/*
 * A freeze is the first of all to the layout's users: what they read as its number is less
 * than any, or 0, which only a holder can have that was there before.  All end in a number:
 * go-zookeeper reads one in each child's name, after the last "-" or "__", or fails.
 */
const struct layout layouts[] = {
    {"curator", "Apache Curator", "a lock of Apache Curator's",
	CAP_FAIR | CAP_SHARED | CAP_LIMIT | CAP_JOB | STEERED | CAP_FREEZE,
	.recipes = true, .listens = true,
	.freezes = {{"", "-freeze-", "-__WRIT__-0000000001"},
	    {"/locks", "-freeze-", "-__WRIT__-0000000001"}},
	.name_node = curator_name, .read = curator_read},
    {"plain", "clients for which one node is the lock", "a node that is the lock",
	CAP_JOB | STEERED, .single = true, .name_node = plain_name, .read = read_plain},
    {"rw-seq", "clients that queue as <host>-R-<n> and <host>-W-<n>", "a host's lock",
	CAP_FAIR | CAP_SHARED | CAP_JOB | STEERED | CAP_FREEZE, .lasting = true,
	.freezes = {{"", "-freeze-", "-W-0000000000"}}, .name_node = rw_seq_name,
	.read = rw_seq_read},
    {"kazoo", "kazoo", "a lock of kazoo's",
	CAP_FAIR | CAP_SHARED | CAP_JOB | STEERED | CAP_FREEZE, .lasting = true,
	.counts = true, .freezes = {{"", "-freeze-", "-__lock__-0000000001"}},
	.name_node = kazoo_name, .read = kazoo_read},
    {"menagerie", "menagerie", "a lock of menagerie's",
	CAP_FAIR | CAP_SHARED | CAP_JOB | STEERED | CAP_FREEZE, .recipes = true,
	.lasting = true,
	.freezes = {{"", "lock-freeze-", "-0000000000"},
	    {"", "writeLock-freeze-", "-0000000000"}},
	.name_node = menagerie_name, .read = menagerie_read},
    {0},
};

const struct layout *
layout_named(const char *name)
{
	for (const struct layout *l = layouts; l->name; l++)
		if (strcmp(l->name, name) == 0)
			return l;
	return NULL;
}

/* ---- freezes ---- */

static int64_t
length_in(const char *name, const struct freeze_form *form)
{
	const char *s = name + strlen(form->head);
	size_t digits;

	if (strspn(s, "0123456789abcdef") != RANDOM || s[RANDOM] != '-')
		return 0;
	s += RANDOM + 1;
	if (starts_with(s, "inf") && strcmp(s + strlen("inf"), form->tail) == 0)
		return NEVER;
	digits = strspn(s, "0123456789");
	if (digits == 0 || digits > LENGTH_DIGITS || strcmp(s + digits, form->tail) != 0)
		return 0;
	return strtoll(s, NULL, 10) * NS_PER_MS;
}

/* *length: the freeze's; 0 if there is none. */
static const struct layout *
find_freeze(const char *name, int *form, int64_t *length)
{
	*length = 0;
	if (*name != '-' && *name != 'l' && *name != 'w')
		return NULL; /* most names */
	for (const struct layout *l = layouts; l->name; l++)
		for (*form = 0; *form < FREEZES && l->freezes[*form].head; ++*form) {
			if (!starts_with(name, l->freezes[*form].head))
				continue;
			*length = length_in(name, &l->freezes[*form]);
			if (*length > 0)
				return l;
		}
	return NULL;
}

const struct freeze_form *
layout_freeze_form(const char *name)
{
	int form;
	int64_t length;
	const struct layout *l = find_freeze(name, &form, &length);

	return l ? &l->freezes[form] : NULL;
}

const struct freeze_form *
layout_freeze_forms(const char *name)
{
	int form;
	int64_t length;
	const struct layout *l = find_freeze(name, &form, &length);

	return l ? l->freezes : NULL;
}

int64_t
layout_freeze_length(const char *name)
{
	int form;
	int64_t length;

	find_freeze(name, &form, &length);
	return length;
}

/* ---- names ---- */

struct child
layout_read(const struct layout *l, const char *name)
{
	struct child c = {.name = name,
	    .rank = name,
	    .what = CHILD_FOREIGN,
	    .blind = *name != '\0',
	    .kind = KIND_EXCLUSIVE};

	if (layout_freeze_length(name) > 0)
		c.what = CHILD_FREEZE;
	else
		l->read(&c);
	return c;
}

const struct layout *
layout_of(const char *name, struct child *ret)
{
	for (const struct layout *l = layouts + 1; l->name; l++) {
		*ret = layout_read(l, name);
		if (ret->what == CHILD_DLOCKS || ret->what == CHILD_OTHERS)
			return l;
	}
	*ret = layout_read(layouts, name);
	return ret->what == CHILD_FOREIGN ? NULL : layouts;
}
