/*
 * address.h - where a Redis server is and who we are to it, from a URL.
 *
 *	redis://[[USER]:PASSWORD@]HOST[:PORT][/DB]
 *	redis+unix://[[USER]:PASSWORD@]/PATH[?db=DB]
 *	redis+sentinel://[[USER]:PASSWORD@]HOST[:PORT][,HOST[:PORT]...]/MASTER[/DB]
 *	redis+cluster://[[USER]:PASSWORD@]HOST[:PORT][,HOST[:PORT]...]
 *	redlock://[[USER]:PASSWORD@]HOST[:PORT],HOST[:PORT],HOST[:PORT]...[/DB]
 *
 * With rediss instead of redis, and redlocks, TLS is spoken to every server, sentinels too.
 *
 * HOST is a name, an IPv4 address, or an IPv6 one in brackets; user, password
 * and MASTER may have %XX.  User and password are those of the servers that
 * keep the locks, not of the sentinels.
 */
#ifndef DLOCK_REDIS_ADDRESS_H
#define DLOCK_REDIS_ADDRESS_H

#include "backends/backend.h"
#include "backends/common/endpoint.h"
#include "backends/common/tls.h"

enum { ADDRESS_HOSTS = 16, REDLOCK_LEAST = 3, REDLOCK_MOST = 15 };

enum form {
	FORM_SINGLE,   /* one server */
	FORM_SENTINEL, /* sentinels, who know where the master is */
	FORM_CLUSTER,  /* some nodes of a cluster, who know the others */
	FORM_REDLOCK,  /* independent masters: quorum.h makes single ones of them */
};

struct address {
	enum form form;
	size_t n;         /* of hosts: 1 to ADDRESS_HOSTS */
	char path[108];   /* of a unix socket, else "" */
	char master[128]; /* as the sentinels call it, else "" */
	char user[128];
	char password[512];
	int db;
	bool secure; /* TLS is to be spoken */
	/* by this, from when the store is open; NULL: plainly; not owned */
	struct tls *tls;
	struct endpoint hosts[ADDRESS_HOSTS]; /* of a unix socket: one, host "" */
};

/*
 * RC_OK, or RC_USAGE (RC_CONFIG: what the form cannot have) with what is wrong; never
 * repeats the password.  url NULL: 127.0.0.1:6379.
 */
enum rc address_parse(struct address *, const char *url, struct fault *);

/*
 * For people: "redis 10.0.0.5:6379", "redis master m of the sentinels h1:26379,h2:26379",
 * "redis cluster h1:6379", "redlock h1:6379,h2:6379,h3:6379".
 */
void address_print(const struct address *, char *out, size_t size);

#endif
