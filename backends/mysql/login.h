/*
 * login.h - the server to connect to, and the user to log in as.
 *
 *	mysql://[USER[:PASSWORD]@][HOST[:PORT]][/DATABASE]      or mariadb://
 *
 * HOST is a name, an IPv4 address, or an IPv6 one in brackets; user, password and
 * database may have %XX.  As MySQL's own programs have it, no host, or localhost without
 * a port, is the server's unix socket; localhost with a port is TCP.
 *
 * What is not stated comes from the option files (my.cnf: the groups client,
 * client-server, client-mariadb and dlock): host, port, socket, user, password, and those
 * of TLS.  So no password need stand in a URL.  The database does not come from there (but
 * for mode=named): it is called dlock where none is named.
 */
#ifndef DLOCK_MYSQL_LOGIN_H
#define DLOCK_MYSQL_LOGIN_H

#include "backends/backend.h"

/* What is asked of TLS. */
enum tls_wish {
	TLS_UNSAID, /* as the option files say; else none, but with a CA or certificate */
	TLS_OFF,    /* none */
	TLS_ENCRYPT, /* whatever the other end is */
	TLS_VERIFY,  /* the server's certificate is from a CA of ours, and for its name */
};

struct login {
	char host[256];     /* "": the option files', or the unix socket */
	int port;           /* 0: not stated */
	const char *socket; /* -O socket=; NULL: not stated; the setting's own text */
	char user[128];     /* "": not stated */
	char password[512];
	bool has_password; /* perhaps an empty one */
	char database[65]; /* "": not stated */
	struct {
		enum tls_wish wish;
		/* files; NULL: not stated; the settings' own texts */
		const char *cacert, *cert, *key;
	} tls;
};

/*
 * Reads the URL (NULL: nothing is stated) into *a, all else of which is left alone.
 * RC_OK, or RC_USAGE with what is wrong; never repeats the password.
 */
enum rc login_parse(struct login *a, const char *url, struct fault *);

/*
 * When all is read: RC_USAGE, if the parts contradict each other.  A CA or a certificate asks
 * for TLS_VERIFY.
 */
enum rc login_check(struct login *, struct fault *);

/* For people: "mysql db1:3306/app". */
void login_print(const struct login *, char *out, size_t size);

#endif
