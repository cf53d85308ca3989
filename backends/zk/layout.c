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

/* As it stands in names, but without "-". */
static void
mark_owner(char out[OWNER_CHARS + 1], const char *owner)
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

bool
child_owner(char out[OWNER_CHARS + 1], const struct child *c)
{
	size_t n = 0;

	for (const char *s = c->owner; s && n < OWNER_CHARS && *s; s++)
		if (*s != '-')
			out[n++] = *s;
	out[n] = '\0';
	return n == OWNER_CHARS && has_hex(out, OWNER_CHARS);
}

bool
child_has_owner(const struct child *c, const char *owner)
{
	char wanted[OWNER_CHARS + 1], got[OWNER_CHARS + 1];

	mark_owner(wanted, owner);
	return child_owner(got, c) && strcmp(wanted, got) == 0;
}

/* A dlock's, of a name in which that ends at `end`; NULL: it is another's. */
static const char *
owner_in(enum naming naming, const char *name, const char *end)
{
	const char *owner;

	if (naming == NAMING_UUID)
		return starts_with(name, "_c_") &&
			strnlen(name, VERSION_AT) == VERSION_AT && name[VERSION_AT] == 'd'
		    ? name + strlen("_c_")
		    : NULL;
	if (end - name < OWNER_CHARS)
		return NULL;
	owner = end - OWNER_CHARS;
	if (!has_hex(owner, OWNER_CHARS) || owner[MARK_AT] != 'd')
		return NULL;
	if (naming == NAMING_OWNER)
		return owner == name ? owner : NULL;
	return owner > name && owner[-1] == '.' ? owner : NULL;
}

/* ---- numbers ---- */

/*
 * The number that the server has given, at the end of a name and after that tag: ten characters;
 * one that is negative (after 2^31 of them) has its sign, and may have ten digits besides.
 * NULL: there is none.
 */
static const char *
number_after(const char *name, const char *tag)
{
	size_t n = strlen(name);

	for (size_t length = NUMBER + 1; length >= NUMBER; length--) {
		const char *s = length <= n ? name + n - length : name;
		bool negative = *s == '-';

		if (length <= n && (length == NUMBER || negative) &&
		    strspn(s + negative, "0123456789") == length - negative &&
		    ends_with(name, s, tag))
			return s;
	}
	return NULL;
}

/* As ZooKeeper's recipes write one: in C in hexadecimal, in Java as a long, which has a sign. */
static bool
is_session(const char *s, const char *end)
{
	s += s < end && *s == '-';
	return s < end && has_hex(s, end - s);
}

/*
 * Hosts have "-" in their names: the last tag counts, and a host's in rw-seq may be called
 * "lockbox".  The older of menagerie's two locks (K/lock-<n>) sees all that begins with "lock";
 * all of Curator's recipes put a uuid before that.
 */
static void
read_forms(const struct layout *l, struct child *c)
{
	const char *name = c->name;

	for (const struct form *form = l->forms; form->tag; form++) {
		const char *number = number_after(name, form->tag), *end;
		size_t head = *form->head ? strlen(form->head) + 1 : 0;

		if (!number || !starts_with(name, form->head))
			continue;
		end = number - strlen(form->tag);
		if (*form->head ? number_after(name, "-R-") || number_after(name, "-W-")
				: end == name && l->naming != NAMING_OWNER)
			continue;
		if (*form->head && l->naming == NAMING_OWNER &&
		    !is_session(name + head, end))
			continue;
		while (form->thread && end > name && isdigit((unsigned char)end[-1]))
			end--;
		end -= form->thread && end > name && end[-1] == '-';
		c->rank = number;
		c->kind = form->kind;
		c->owner = owner_in(l->naming, name + head, end);
		c->what = c->owner ? CHILD_DLOCKS : CHILD_OTHERS;
		c->blind = false;
		return;
	}
}

/*
 * Whoever finds a node with its own host and thread takes it for its own: no virtual
 * machine comes to such a thread.
 */
void
layout_name(char out[PREFIX_BYTES], const struct layout *l, const struct claim *claim)
{
	const struct form *form = l->forms;
	char who[PREFIX_BYTES], more[32] = "", digits[16], o[OWNER_CHARS + 1],
				host[HOST_CHARS + 1] = "";

	while (form->tag && form->kind != claim->kind)
		form++;
	form = form->tag ? form : l->forms;
	*out = '\0';
	if (!form->tag)
		return;
	mark_owner(o, claim->owner);
	gethostname(host, sizeof host - 1);
	for (char *c = host; *c; c++)
		if (!isalnum((unsigned char)*c) && *c != '-' && *c != '.')
			*c = '_';
	if (l->naming == NAMING_OWNER)
		snprintf(who, sizeof who, "%s", o);
	else if (l->naming == NAMING_UUID)
		snprintf(who, sizeof who, "_c_%.8s-%.4s-%.4s-%.4s-%.12s-", o, o + 8,
		    o + 12, o + 16, o + 20);
	else
		snprintf(who, sizeof who, "%s.%s", host, o);
	snprintf(digits, sizeof digits, "%.15s", claim->owner);
	if (form->kind == KIND_LIMIT)
		snprintf(more, sizeof more, "%u-",
		    claim->limit <= LIMIT_MAX ? claim->limit : LIMIT_MAX);
	if (form->thread)
		snprintf(more, sizeof more, "-%llu",
		    (1ULL << 60) + strtoull(digits, NULL, 16));
	snprintf(out, PREFIX_BYTES, "%s%s%.100s%s%s", form->head, *form->head ? "-" : "",
	    who, more, form->tag);
}

const char *
layout_semaphore(const char *name)
{
	if (strlen(name) == OWNER_CHARS && has_hex(name, OWNER_CHARS))
		return "kazoo";
	return starts_with(name, "permit-") && number_after(name, "-") ? "menagerie"
								       : NULL;
}

/* ---- Curator ---- */

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

/* What a client of another layout has made has no place. */
static void
read_curators(struct child *c)
{
	const char *name = c->name;

	if (strcmp(name, "locks") == 0 || strcmp(name, "leases") == 0 ||
	    strcmp(name, "slots") == 0) {
		c->what = CHILD_PART;
		c->blind = false;
	}
	c->owner = owner_in(NAMING_UUID, name, NULL);
	if (!c->owner &&
	    (strstr(name, "__lock__") || strstr(name, "__rlock__") ||
		starts_with(name, "permit-")))
		return;
	read_forms(layouts, c);
	if (c->kind == KIND_LIMIT && (c->limit = limit_before(name, c->rank)) == 0)
		c->kind = KIND_EXCLUSIVE;
}

/* ---- all of them ---- */

#define QUEUED (CAP_FAIR | CAP_SHARED | CAP_JOB | CAP_REVOKE | CAP_FORCE | CAP_FREEZE)

/*
 * A freeze is the first of all to the layout's users: what they read as its number is less
 * than any, or 0, which only a holder can have that was there before.  All end in a number:
 * go-zookeeper reads one in each child's name, after the last "-" or "__", or fails.
 */
const struct layout layouts[] = {
    {"curator", "Apache Curator", "a lock of Apache Curator's", QUEUED | CAP_LIMIT,
	NAMING_UUID,
	{{KIND_EXCLUSIVE, "", "lock-", false}, {KIND_WRITER, "", "__WRIT__", false},
	    {KIND_SHARED, "", "__READ__", false}, {KIND_LIMIT, "", "unit-", false}},
	.recipes = true, .listens = true,
	.freezes = {{"", "-freeze-", "-__WRIT__-0000000001"},
	    {"/locks", "-freeze-", "-__WRIT__-0000000001"}}},
    {"plain", "clients for which one node is the lock", "a node that is the lock",
	CAP_JOB | CAP_REVOKE | CAP_FORCE, .single = true},
    {"rw-seq", "clients that queue as <host>-R-<n> and <host>-W-<n>", "a host's lock",
	QUEUED, NAMING_LABEL,
	{{KIND_EXCLUSIVE, "", "-W-", false}, {KIND_SHARED, "", "-R-", false}},
	.lasting = true, .freezes = {{"", "-freeze-", "-W-0000000000"}}},
    {"kazoo", "kazoo", "a lock of kazoo's", QUEUED, NAMING_OWNER,
	{{KIND_EXCLUSIVE, "", "__lock__", false}, {KIND_SHARED, "", "__rlock__", false}},
	.lasting = true, .counts = true,
	.freezes = {{"", "-freeze-", "-__lock__-0000000001"}}},
    {"menagerie", "menagerie", "a lock of menagerie's", QUEUED, NAMING_LABEL,
	{{KIND_EXCLUSIVE, "lock", "-", true}, {KIND_WRITER, "writeLock", "-", false},
	    {KIND_SHARED, "readLock", "-", false}},
	.recipes = true, .lasting = true,
	.freezes = {{"", "lock-freeze-", "-0000000000"},
	    {"", "writeLock-freeze-", "-0000000000"}}},
    {"recipes", "ZooKeeper's own recipe", "a lock of ZooKeeper's own recipe",
	CAP_FAIR | CAP_REVOKE | CAP_FORCE | CAP_FREEZE, NAMING_OWNER,
	{{KIND_EXCLUSIVE, "x", "-", false}}, .lasting = true,
	.freezes = {{"", "-freeze-", "-0000000000"}}},
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

struct freeze_parts
layout_freeze(const char *name)
{
	struct freeze_parts f = {.length = 0};

	if (*name != '-' && *name != 'l' && *name != 'w')
		return f; /* most names */
	for (const struct layout *l = layouts; l->name; l++)
		for (const struct freeze_form *form = l->freezes;
		     form < l->freezes + FREEZES && form->head; form++) {
			if (!starts_with(name, form->head))
				continue;
			f.length = length_in(name, form);
			f.forms = l->freezes;
			f.core = name + strlen(form->head);
			f.n = strlen(f.core);
			if (f.length == 0)
				continue;
			f.n -= strlen(form->tail);
			return f;
		}
	return f;
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

	if (layout_freeze(name).length > 0)
		c.what = CHILD_FREEZE;
	else if (l->naming == NAMING_UUID)
		read_curators(&c);
	else
		read_forms(l, &c);
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
