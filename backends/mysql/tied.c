/* tied.c - asks for a lock that ends with its session, and keeps it. */
#include "tied.h"

#include <stdio.h>

/* a wait in the server, at the end of which one loses the place */
#define CHUNK (3 * NS_PER_S)

/* ---- the session ---- */

/*
 * Is a table of ours in an engine without transactions?  Each is named by itself: so only
 * that one is opened.
 */
#define IS_FOREIGN(table) \
	"EXISTS (SELECT 1 FROM information_schema.tables WHERE table_schema = DATABASE() " \
	"AND table_name = '" table "' AND engine <> 'InnoDB')"
static const char unfit_sql[] = IS_FOREIGN("dlock_rows") " OR " IS_FOREIGN(
    "dlock_grants");

/* A lock of this session: is it one for all who come to this server? */
static enum rc
check_fit(struct mysql *my, struct fault *f)
{
	const struct session *s = &my->session;

	if (s->server.is_unfit)
		return fault_set(f, RC_CONFIG,
		    "%s has dlock_rows or dlock_grants in another engine than InnoDB, which locks no rows: "
		    "ALTER TABLE dlock_rows ENGINE = InnoDB, and the same for dlock_grants",
		    s->where);
	if (!s->server.is_direct)
		return fault_set(f, RC_CONFIG,
		    "%s is reached through a proxy, which may lend our session to others "
		    "(mode=lease can live with that)",
		    s->where);
	if (s->server.is_galera)
		return fault_set(f, RC_CONFIG,
		    "%s is a node of a cluster (wsrep_on), and another node would not see such a lock "
		    "(mode=lease can live with that)",
		    s->where);
	return RC_OK;
}

/* What MySQL says where there is such a group; NULL where there is none. */
static const char group_sql[] = "SHOW GLOBAL VARIABLES LIKE "
				"'group_replication_single_primary_mode'";

/* Every member of a multi-primary group has row locks of its own. */
static enum rc
check_group(struct mysql *my, instant until, struct fault *f)
{
	const struct shape shape = {2, true};
	MYSQL_RES *r;
	struct row row;
	instant sent;
	bool many;
	enum rc rc;

	if (my->session.server.is_mariadb)
		return RC_OK;
	rc = session_ask_here(&my->session, group_sql, &shape, until, &sent, &r, f);
	if (rc != RC_OK)
		return rc;
	row = row_first(my->session.my, r);
	many = row_words(&row, 1) && row_words(&row, 1)[0] == 'O' &&
	    row_words(&row, 1)[1] == 'F';
	my->session.my->free_result(r);
	return !many
	    ? RC_OK
	    : fault_set(f, RC_CONFIG,
		  "%s is one of several primaries, and another one would not see such a lock "
		  "(mode=lease can live with that)",
		  my->session.where);
}

/* In whole seconds, and never less than the lease. */
static unsigned
lease_seconds(const struct mysql *my)
{
	return (unsigned)instant_first(
	    (my->claim->ttl + NS_PER_S - 1) / NS_PER_S, 31536000);
}

enum rc
tied_open(struct mysql *my, struct tied *b, instant until, struct fault *f)
{
	struct session *s = &my->session;
	enum rc rc;

	s->purpose.idle_s = lease_seconds(my);
	s->purpose.unfit_sql = unfit_sql;
	(void)session_is_open(s);
	rc = session_open(s, until, f);
	if (rc != RC_OK || b->serial == s->serial)
		return rc;
	rc = check_fit(my, f);
	if (rc == RC_OK)
		rc = check_group(my, until, f);
	if (rc == RC_OK)
		b->serial = s->serial;
	else
		session_close(s);
	return rc;
}

enum rc
tied_ask(struct mysql *my, const char *sql, const struct shape *shape, instant until,
    instant *sent, MYSQL_RES **ret, struct fault *f)
{
	enum rc rc = session_ask_here(&my->session, sql, shape, until, sent, ret, f);

	if (rc != RC_OK)
		session_close(&my->session);
	return rc;
}

/* ---- acquire ---- */

/* How long to wait in the server this time. */
static int64_t
chunk_ms(instant until)
{
	instant now = instant_now(), wake = instant_first(now + CHUNK, until);

	return wake > now ? ns_to_ms(wake - now) : 1;
}

/* Chunk after chunk, and between them a look at who is there. */
static enum rc
wait_in_server(struct mysql *my, const struct tied_way *way, instant until,
    struct grant *g, struct fault *f)
{
	bool got = false;
	enum rc rc;

	do {
		rc = way->wait(my, chunk_ms(until), until, &got, g, f);
		if (rc == RC_OK && !got && instant_now() >= until)
			return fault_set(f, RC_BUSY, "%s: still held", my->session.where);
		if (rc == RC_OK && !got)
			rc = way->first(my,
			    retry_answer(instant_now(), ASK_PATIENCE, until), &got, g, f);
		if (rc == RC_OK) {
			retry_end_outage(&my->patience);
		} else {
			got = false; /* what it had got ended with the session */
			rc = mysql_try_again(my, rc, true, until);
		}
	} while (rc == RC_OK && !got);
	return rc;
}

enum rc
tied_acquire(struct mysql *my, const struct tied_way *way, instant until, struct grant *g,
    struct fault *f)
{
	struct retry *p = &my->patience;
	instant first_by = retry_first(p, until);
	bool got = false;
	enum rc rc;

	do
		rc = way->first(my, retry_attempt_by(p, first_by), &got, g, f);
	while (retry_first_again(p, my->base.host, until, &rc));

	if (rc == RC_OK && !got)
		rc = until ? wait_in_server(my, way, until, g, f)
			   : fault_set(f, RC_BUSY, "%s: held", my->session.where);
	if (rc != RC_OK)
		session_close(&my->session); /* whatever it may have got */
	return rc;
}

void
tied_granted(
    struct mysql *my, struct tied *b, uint64_t token, instant sent, struct grant *g)
{
	b->held = true;
	my->base.host->alert = session_fd(&my->session);
	*g = (struct grant){.token = token,
	    .sent = sent,
	    .lease = my->claim->ttl,
	    .anchor = session_fd(&my->session)};
}

/* ---- renew and release ---- */

static enum rc
tied_lost(struct mysql *my, struct fault *f)
{
	return fault_set(f, RC_LOST, "the session at %s has ended, and the lock with it",
	    my->session.where);
}

/* One boolean, "still ours"; NULL: the server is read-only, and another may give the lock to others. */
static enum rc
read_ours(struct mysql *my, MYSQL_RES *r, struct fault *f)
{
	struct row row = row_first(my->session.my, r);
	bool ours, fine = row_boolean(&row, 0, &ours), is_null = row_is_null(&row, 0);

	my->session.my->free_result(r);
	if (is_null)
		return fault_set(f, RC_LOST,
		    "%s has become read-only, perhaps a replica, and excludes nobody",
		    my->session.where);
	if (!fine)
		return mysql_makes_no_sense(my, RC_AGAIN, f);
	return ours
	    ? RC_OK
	    : fault_set(f, RC_LOST, "%s no longer has it as ours", my->session.where);
}

/* The heartbeat that is out is the one we wait for; otherwise there goes one. */
static enum rc
send_beat(struct mysql *my, struct tied *b, const char *sql, instant until, MYSQL_RES **r,
    struct fault *f)
{
	struct session *s = &my->session;
	enum rc rc = RC_OK;

	if (!session_is_open(s))
		return RC_AGAIN;
	if (!session_is_busy(s)) {
		b->beat_sent = instant_now();
		rc = session_send(s, sql, until, f);
	}
	return rc == RC_OK ? session_receive(s, &(struct shape){1, false}, until, r, f)
			   : rc;
}

enum rc
tied_renew(struct mysql *my, struct tied *b, const char *sql, instant until,
    struct grant *g, struct fault *f)
{
	struct host *host = my->base.host;
	MYSQL_RES *r;
	enum rc rc;

	host->alert = -1;
	rc = send_beat(my, b, sql, until, &r, f);
	if (rc == RC_OK)
		rc = read_ours(my, r, f);
	else if (rc != RC_STOP && !my->session.mysql)
		rc = tied_lost(my, f);
	else if (rc != RC_STOP)
		rc = RC_AGAIN;
	if (rc == RC_OK) {
		g->sent = b->beat_sent;
		g->lease = my->claim->ttl;
	}
	if (rc != RC_LOST)
		host->alert = session_fd(&my->session);
	return rc;
}

/* An answer that is still out is read first; what it says is of the past. */
static enum rc
settle(struct mysql *my, instant until, struct fault *f)
{
	struct session *s = &my->session;
	MYSQL_RES *r;
	enum rc rc = RC_OK;

	if (!session_is_open(s))
		return tied_lost(my, f);
	if (session_is_busy(s)) {
		rc = session_receive(s, &(struct shape){1, false}, until, &r, f);
		if (rc == RC_OK)
			s->my->free_result(r);
	}
	if (!s->mysql)
		return tied_lost(my, f);
	return session_is_busy(s) ? rc : RC_OK;
}

enum rc
tied_release(
    struct mysql *my, struct tied *b, const char *sql, instant until, struct fault *f)
{
	MYSQL_RES *r;
	instant sent;
	enum rc rc;

	if (!b->held)
		return RC_OK;
	my->base.host->alert = -1;
	rc = settle(my, until, f);
	if (rc == RC_OK)
		rc = session_ask_here(
		    &my->session, sql, &(struct shape){1, false}, until, &sent, &r, f);
	if (rc == RC_OK)
		rc = read_ours(my, r, f);
	b->held = false;
	session_close(&my->session); /* if nothing else, this gives it back */
	return rc;
}
