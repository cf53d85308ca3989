/*
 * admin.c - calls a backend's admin_ops one by one, for tests that look beneath the
 * subcommands.
 *
 *	dlock-admin BACKEND URL|- [-O NAME=VALUE]... each [--jobs | KEY [brief]]
 *	... revoke KEY TOKEN OWNER|- RECORD [force]
 *	... freeze KEY RECORD [SECONDS]
 *	... thaw KEY
 *	... forget KEY [ID]
 *	... caps
 *
 * Prints one line an entry (name=value, tabs between them; values with bytes that are
 * not printable are shown as \xNN), then "rc NAME TEXT".  Exits 0 for RC_OK, else 1.
 */
#include "backends/backend.h"
#include "backends/registry.h"
#include "cmd/look.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define PATIENCE (20 * NS_PER_S)

static void
print_text(const char *name, const char *text)
{
	if (!text)
		return;
	printf("\t%s=", name);
	for (const unsigned char *c = (const unsigned char *)text; *c; c++)
		if (*c < ' ' || *c > '~' || *c == '\\')
			printf("\\x%02X", *c);
		else
			putchar(*c);
}

static void
print_foreign(const struct foreign *f)
{
	if (!f)
		return;
	print_text("foreign", f->what);
	print_text("who", f->who);
	print_text("host", f->host);
	printf("\tpid=%" PRId64, f->pid);
}

static bool
see(void *ctx, const struct entry *e, int64_t now)
{
	static const char *const kinds[] = {"holder", "waiter", "waiting", "freeze",
	    "last", "good", "done", "shown", "unknown"};

	(void)ctx;
	printf("%s", kinds[e->kind]);
	print_text("key", e->key);
	printf("\tlock=%d\tlimit=%u\ttoken=%" PRIu64
	       "\tslot=%d\tposition=%u\tcount=%" PRIu64 "\tsince=%" PRId64
	       "\tuntil=%" PRId64 "\tnow=%" PRId64 "\trevoked=%d\tstatus=%d",
	    e->lock, e->limit, e->token, e->slot, e->position, e->count, e->since,
	    e->until, now, e->revoked, e->status);
	print_text("owner", e->owner);
	print_text("record", e->record);
	print_text("once", e->once);
	print_text("what", e->what);
	print_foreign(e->foreign);
	putchar('\n');
	fflush(stdout);
	return true;
}

static enum rc
each(struct store *s, char **args, struct fault *f)
{
	bool jobs = args[0] && strcmp(args[0], "--jobs") == 0;
	struct look l = {.key = jobs ? NULL : args[0],
	    .jobs = jobs,
	    .brief = args[0] && args[1],
	    .until = instant_after(instant_now(), PATIENCE),
	    .patience = PATIENCE,
	    .see = see};

	return s->backend->admin->each(s, &l, f);
}

static enum rc
revoke_grant(struct store *s, char **args, struct fault *f)
{
	struct target t = {args[0], strtoull(args[1], NULL, 10),
	    strcmp(args[2], "-") == 0 ? NULL : args[2]};

	return s->backend->admin->revoke(
	    s, &t, args[3], args[4] != NULL, instant_after(instant_now(), PATIENCE), f);
}

static enum rc
call(struct store *s, char **args, struct fault *f)
{
	const struct admin_ops *ops = s->backend->admin;
	instant until = instant_after(instant_now(), PATIENCE);
	const char *what = args[0];

	if (!ops)
		return fault_set(f, RC_CONFIG, "this backend can only lock");
	if (strcmp(what, "each") == 0)
		return each(s, args + 1, f);
	if (strcmp(what, "revoke") == 0)
		return revoke_grant(s, args + 1, f);
	if (strcmp(what, "freeze") == 0)
		return ops->freeze(s, args[1], args[2],
		    args[3] ? (int64_t)(atof(args[3]) * NS_PER_S) : NEVER, until, f);
	if (strcmp(what, "forget") == 0)
		return ops->forget(s, args[1], args[2], until, f);
	return ops->thaw(s, args[1], until, f);
}

/* What the store can do, without a question to its server. */
static void
print_caps(const struct store *s)
{
	static const struct {
		unsigned cap;
		const char *name;
	} rows[] = {{CAP_FAIR, "fair"}, {CAP_SHARED, "shared"}, {CAP_LIMIT, "limit"},
	    {CAP_JOB, "job"}, {CAP_REVOKE, "revoke"}, {CAP_FORCE, "force"},
	    {CAP_FREEZE, "freeze"}};

	printf("caps");
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
		if (s->caps & rows[i].cap)
			printf(" %s", rows[i].name);
	putchar('\n');
}

int
main(int argc, char **argv)
{
	struct setting settings[8];
	struct site site = {.settings = settings};
	const struct backend *b = argc > 3 ? registry_named(argv[1]) : NULL;
	char **args = argv + 3;
	struct fault f = {""};
	struct store *s = NULL;
	struct host h;
	enum rc rc;

	if (!b)
		return 2;
	site.url = strcmp(argv[2], "-") == 0 ? NULL : argv[2];
	while (args[0] && args[1] && strcmp(args[0], "-O") == 0 && site.nsettings < 8) {
		char *equals = strchr(args[1], '=');

		if (!equals)
			return 2;
		*equals = '\0';
		settings[site.nsettings++] = (struct setting){args[1], equals + 1};
		args += 2;
	}
	look_host(&h);
	rc = b->open(&s, &h, &site, &f);
	if (rc == RC_OK && args[0] && strcmp(args[0], "caps") == 0)
		print_caps(s);
	else if (rc == RC_OK && args[0])
		rc = call(s, args, &f);
	printf("rc %s %s\n", fault_rc_name(rc), f.text);
	if (s)
		b->close(s);
	return rc != RC_OK;
}
