/*
 * tls.c - puts TLS on a stream, by OpenSSL working on memory.  The bytes that it sends and
 * receives pass no inlet, since it may itself stand behind one.  A dlock that was built without
 * OpenSSL's headers has no TLS, and never makes a struct tls.
 */
#include "tls.h"

#include "inlet.h"
#include "setting.h"
#ifdef HAVE_OPENSSL
#include "openssl.h"
#endif

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

/* The user's settings; NULL: not said. */
struct tls_settings {
	const char *cacert;     /* a file of CAs in PEM form */
	const char *cert, *key; /* files of ours in PEM form, both or none */
	const char *name;       /* what the certificate is for, if not the host's name */
};

#ifdef HAVE_OPENSSL

/*
 * The low bits of an error are its reason.  That of an alert is SSL_AD_REASON_OFFSET + its
 * number.
 */
enum { REASON_MASK = 0xfff, ALERT_MOST = 255 };

enum {
	PIECE = 16 * 1024, /* what one recv or send takes */
	PIECES = 8,        /* so many are read before others have their turn */
};

struct tls {
	struct tls_settings settings;
	SSL_CTX *context;
	bool encrypted; /* the key file is, so OpenSSL has asked for a passphrase */
	bool directory; /* the CAs are those of the system's directory */
	bool unknown;   /* we do not know the issuer of the server's certificate */
};

/* Encrypted bytes that are being sent. */
struct piece {
	size_t at, n;
	char bytes[PIECE];
};

/* The TLS of one connection, which its stream owns. */
struct layer {
	struct tls *tls;
	char name[256]; /* what the server's certificate is to be for */
	SSL *ssl;
	BIO *in, *out; /* what came, what is to go; owned by ssl */
	bool shaken;   /* the handshake is over */
	bool wanted;   /* the server has asked for a certificate, and we have none */
	bool broken;   /* it cannot be used any more; `error` says why, or 0 */
	unsigned long error;
	size_t owed; /* bytes of a write that are encrypted, but have not all been sent */
	struct piece piece; /* on its way */
};

static const struct openssl *lib; /* once it is loaded */

/* ---- bytes between the library and the socket ---- */

/* Sends all that the library has written.  False with errno: some is left. */
static bool
layer_flush(struct stream *s)
{
	struct layer *t = s->own;

	for (;;) {
		ssize_t sent;

		if (t->piece.at == t->piece.n) {
			int n = lib->BIO_read(
			    t->out, t->piece.bytes, sizeof t->piece.bytes);

			t->piece.at = 0;
			t->piece.n = n > 0 ? n : 0;
		}
		if (t->piece.n == 0)
			return true;
		sent = inlet_send(s->fd, t->piece.bytes + t->piece.at,
		    t->piece.n - t->piece.at, MSG_NOSIGNAL);
		if (sent < 0)
			return false;
		t->piece.at += sent;
	}
}

/* Receives bytes for the library.  Returns as recv(2) does. */
static ssize_t
layer_feed(struct stream *s)
{
	struct layer *t = s->own;
	char piece[PIECE];
	ssize_t n = inlet_recv(s->fd, piece, sizeof piece, 0);

	if (n > 0 && lib->BIO_write(t->in, piece, n) != n) {
		errno = ENOMEM;
		return -1;
	}
	return n;
}

/* Marks the layer as broken, and keeps the library's first error. */
static ssize_t
layer_break(struct layer *t)
{
	t->broken = true;
	t->error = lib->ERR_get_error();
	errno = EPROTO;
	return -1;
}

/* Calls the library.  Returns as read(2) does; -1 with EAGAIN: the library wants to read. */
static ssize_t
layer_call(struct layer *t, int (*call)(SSL *, void *, int), void *to, size_t size)
{
	int n;

	lib->ERR_clear_error();
	n = call(t->ssl, to, size);
	if (n > 0)
		return n;
	n = lib->SSL_get_error(t->ssl, n);
	if (n == SSL_ERROR_ZERO_RETURN)
		return 0;
	if (n != SSL_ERROR_WANT_READ)
		return layer_break(t);
	errno = EAGAIN;
	return -1;
}

/*
 * Calls the library until it is satisfied or all that has come is read.  Returns as read(2) does,
 * with s->wants on EAGAIN.  The library's output is sent even after an error, since it is
 * the alert that tells the server.
 */
static ssize_t
layer_pump(struct stream *s, int (*call)(SSL *, void *, int), void *to, size_t size)
{
	struct layer *t = s->own;

	for (int pieces = 0;; pieces++) {
		ssize_t n = layer_call(t, call, to, size), fed;
		int error = errno;
		bool sent = layer_flush(s);

		s->wants = sent ? POLLIN : POLLOUT;
		if (!sent && n < 0 && error == EAGAIN)
			return -1;
		errno = error;
		if (n >= 0 || error != EAGAIN || pieces == PIECES)
			return n;
		fed = layer_feed(s);
		if (fed <= 0)
			return fed;
	}
}

static int
shake(SSL *ssl, void *to, int size)
{
	(void)to, (void)size;
	return lib->SSL_do_handshake(ssl);
}

/* Does the handshake, before all else.  > 0: it is over; 0 and -1 as read(2). */
static ssize_t
layer_shake(struct stream *s)
{
	struct layer *t = s->own;
	ssize_t n = t->shaken ? 1 : layer_pump(s, shake, NULL, 0);

	if (n > 0 && !t->shaken) {
		t->shaken = true;
		s->hint = t->wanted
		    ? ": it may want a client certificate (-O cert=FILE -O key=FILE)"
		    : NULL;
	}
	return n;
}

/* ---- the row of stream_ops ---- */

static void
layer_free(struct layer *t)
{
	if (t->ssl)
		lib->SSL_free(t->ssl);
	free(t);
}

/* Encrypts all parts.  They go into memory, so a write is never cut short. */
static bool
layer_encrypt(struct layer *t, const struct iovec *parts, int n)
{
	lib->ERR_clear_error();
	for (int i = 0; i < n; i++) {
		int size = parts[i].iov_len;

		if (size > 0 && lib->SSL_write(t->ssl, parts[i].iov_base, size) != size)
			return false;
		t->owed += size;
	}
	return true;
}

/* Sends the parts.  The caller calls it again with the same parts until all are sent. */
static ssize_t
tls_write(struct stream *s, const struct iovec *parts, int n)
{
	struct layer *t = s->own;
	ssize_t shaken = layer_shake(s);
	size_t sent;

	if (shaken <= 0) {
		errno = shaken == 0 ? EPIPE : errno;
		return -1;
	}
	if (t->owed == 0 && !layer_encrypt(t, parts, n))
		return layer_break(t);
	s->wants = POLLOUT;
	if (!layer_flush(s))
		return -1;
	sent = t->owed;
	t->owed = 0;
	return sent;
}

static ssize_t
tls_read(struct stream *s, void *to, size_t size)
{
	ssize_t shaken = layer_shake(s);

	return shaken > 0 ? layer_pump(s, lib->SSL_read, to, size) : shaken;
}

/*
 * Is there nothing to read?  Bytes of the protocol, such as a ticket for the next session, do not
 * count.
 */
static bool
tls_is_quiet(struct stream *s)
{
	char byte;

	return layer_pump(s, lib->SSL_peek, &byte, 1) < 0 && errno == EAGAIN;
}

/* Says goodbye, without waiting for anything. */
static void
tls_leave(struct stream *s)
{
	struct layer *t = s->own;

	lib->ERR_clear_error();
	if (!t->broken && lib->SSL_shutdown(t->ssl) >= 0)
		layer_flush(s);
	lib->ERR_clear_error();
	layer_free(t);
}

/* ---- reasons ---- */

/*
 * Says what is wrong with the server's certificate; `code` is X509_verify_cert_error_string()'s.
 */
static enum rc
explain_certificate(const struct stream *s, long code, struct fault *f)
{
	const struct layer *t = s->own;

	switch (code) {
	case X509_V_ERR_CERT_HAS_EXPIRED:
		return fault_set(
		    f, RC_CONFIG, "%s has a certificate that has expired", s->where);
	case X509_V_ERR_CERT_NOT_YET_VALID:
		return fault_set(f, RC_CONFIG,
		    "%s has a certificate that is not valid yet: do the clocks differ?",
		    s->where);
	case X509_V_ERR_HOSTNAME_MISMATCH:
	case X509_V_ERR_IP_ADDRESS_MISMATCH:
		return fault_set(f, RC_CONFIG,
		    "%s has a certificate that is not for %s (-O tls-name=NAME names what it is for)",
		    s->where, t->name);
	}
	t->tls->unknown = code == X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT ||
	    (code >= X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT &&
		code <= X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE);
	if (!t->tls->unknown)
		return fault_set(f, RC_CONFIG,
		    "%s has a certificate that is not accepted: %s", s->where,
		    lib->X509_verify_cert_error_string(code));
	return fault_set(f, RC_CONFIG,
	    "%s has a certificate that no CA we trust has signed (%s): name its CA with -O cacert=FILE",
	    s->where, lib->X509_verify_cert_error_string(code));
}

static bool
is_about_certificate(int alert)
{
	return alert == SSL_AD_HANDSHAKE_FAILURE || alert == SSL_AD_UNKNOWN_CA ||
	    alert == SSL_AD_ACCESS_DENIED || alert == SSL_AD_CERTIFICATE_REQUIRED ||
	    (alert >= SSL_AD_BAD_CERTIFICATE && alert <= SSL_AD_CERTIFICATE_UNKNOWN);
}

static enum rc
explain_alert(const struct stream *s, int alert, const char *why, struct fault *f)
{
	const struct layer *t = s->own;

	if (t->wanted && is_about_certificate(alert))
		return fault_set(f, RC_DENIED,
		    "%s wants a client certificate: name it with -O cert=FILE -O key=FILE",
		    s->where);
	if (t->tls->settings.cert && is_about_certificate(alert))
		return fault_set(f, RC_DENIED,
		    "%s does not accept the client certificate %s: %s", s->where,
		    t->tls->settings.cert, why);
	return fault_set(f, alert == SSL_AD_INTERNAL_ERROR ? RC_AGAIN : RC_CONFIG,
	    "%s refuses TLS with us: %s", s->where, why);
}

/* Says why the layer broke: what the server sent, or an error of our own side. */
static enum rc
explain_error(const struct stream *s, unsigned long error, struct fault *f)
{
	const struct layer *t = s->own;
	long code = lib->SSL_get_verify_result(t->ssl);
	const char *why = lib->ERR_reason_error_string(error);
	int reason = error & REASON_MASK;

	why = why ? why : "for an unknown reason";
	if (code != 0)
		return explain_certificate(s, code, f);
	if (reason > SSL_AD_REASON_OFFSET && reason <= SSL_AD_REASON_OFFSET + ALERT_MOST)
		return explain_alert(s, reason - SSL_AD_REASON_OFFSET, why, f);
	if (t->shaken)
		return fault_set(f, RC_AGAIN, "%s sent damaged data: %s", s->where, why);
	if (reason == SSL_R_UNSUPPORTED_PROTOCOL)
		return fault_set(f, RC_CONFIG, "%s has no TLS 1.2 or newer", s->where);
	return fault_set(f, RC_PROTOCOL,
	    "%s does not answer in TLS (%s): is that its TLS port?", s->where, why);
}

/*
 * Says why the connection failed.  A server that closed it may have sent an alert that we have
 * not read yet.
 */
static enum rc
tls_explain(struct stream *s, struct fault *f)
{
	struct layer *t = s->own;
	char byte;

	if (!t->broken && layer_feed(s) > 0)
		layer_call(t, lib->SSL_peek, &byte, 1);
	return t->broken && t->error != 0 ? explain_error(s, t->error, f)
					  : stream_hung_up(s, f);
}

static const struct stream_ops tls_ops = {
    tls_write, tls_read, tls_is_quiet, tls_explain, tls_leave};

/* ---- the handshake ---- */

/* Makes the layer of one connection; NULL: no memory. */
static struct layer *
layer_new(struct tls *tls, const char *host)
{
	struct layer *t = calloc(1, sizeof *t);
	const char *name = tls->settings.name ? tls->settings.name : host;
	/* certificates have an address without its zone, and a name without its last dot */
	size_t n = strcspn(name, "%");
	X509_VERIFY_PARAM *p;

	if (!t)
		return NULL;
	n -= n > 1 && name[n - 1] == '.';
	snprintf(t->name, sizeof t->name, "%.*s", (int)n, name);
	t->tls = tls;
	t->ssl = lib->SSL_new(tls->context);
	t->in = lib->BIO_new(lib->BIO_s_mem());
	t->out = lib->BIO_new(lib->BIO_s_mem());
	if (!t->ssl || !t->in || !t->out) {
		lib->BIO_free(t->in);
		lib->BIO_free(t->out);
		layer_free(t);
		return NULL;
	}
	lib->SSL_set_bio(t->ssl, t->in, t->out);
	lib->SSL_set_connect_state(t->ssl);
	p = lib->SSL_get0_param(t->ssl);
	lib->X509_VERIFY_PARAM_set_hostflags(p, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
	/* SNI takes no address, and a certificate has addresses in a field of their own */
	if (lib->SSL_set_ex_data(t->ssl, 0, t) &&
	    (lib->X509_VERIFY_PARAM_set1_ip_asc(p, t->name) ||
		(lib->X509_VERIFY_PARAM_set1_host(p, t->name, strlen(t->name)) &&
		    lib->SSL_ctrl(t->ssl, SSL_CTRL_SET_TLSEXT_HOSTNAME,
			TLSEXT_NAMETYPE_host_name, t->name))))
		return t;
	layer_free(t);
	return NULL;
}

bool
tls_can_retry(const struct tls *t)
{
	return t->directory && t->unknown;
}

enum rc
tls_start(struct tls *t, struct stream *s, const char *host, struct fault *f)
{
	struct layer *layer;

	/* the system's file of all CAs may have one that its directory lacks */
	if (tls_can_retry(t)) {
		t->directory = false;
		lib->SSL_CTX_set_default_verify_file(t->context);
	}
	layer = layer_new(t, host);
	if (!layer) {
		stream_close(s);
		return fault_set(f, RC_SYSTEM, "out of memory");
	}
	s->ops = &tls_ops;
	s->own = layer;
	s->hint = ": is that its TLS port?";
	return RC_OK;
}

/* ---- what we trust, and who we are ---- */

static int
refuse_passphrase(char *out, int size, int writing, void *tls)
{
	(void)out, (void)size, (void)writing;
	((struct tls *)tls)->encrypted = true;
	return -1;
}

static int
note_wanted(SSL *ssl, X509 **cert, EVP_PKEY **key)
{
	struct layer *t = lib->SSL_get_ex_data(ssl, 0);

	(void)cert, (void)key;
	t->wanted = true;
	return 0; /* none */
}

static enum rc
file_refused(const char *name, const char *file, struct fault *f)
{
	unsigned long error = lib->ERR_get_error();
	const char *why = error ? lib->ERR_reason_error_string(error) : NULL;

	return fault_set(f, RC_CONFIG, "%s %s cannot be used: %s", name, file,
	    why ? why : "it is not in PEM form");
}

static enum rc
load_authorities(struct tls *t, struct fault *f)
{
	const char *name = t->settings.cacert ? "cacert" : "SSL_CERT_FILE",
		   *file = t->settings.cacert ? t->settings.cacert : getenv(name);
	enum rc rc;

	t->directory = !file || !*file;
	if (t->directory)
		return lib->SSL_CTX_set_default_verify_dir(t->context)
		    ? RC_OK
		    : fault_set(f, RC_SYSTEM, "out of memory");
	rc = setting_file(name, file, false, f);
	if (rc == RC_OK && !lib->SSL_CTX_load_verify_locations(t->context, file, NULL))
		rc = file_refused(name, file, f);
	return rc;
}

static enum rc
load_ours(struct tls *t, struct fault *f)
{
	const char *cert = t->settings.cert, *key = t->settings.key;
	enum rc rc = RC_OK;

	if (cert)
		rc = setting_file("cert", cert, false, f);
	if (cert && rc == RC_OK)
		rc = setting_file("key", key, true, f);
	if (!cert || rc != RC_OK)
		return rc;
	if (lib->SSL_CTX_use_certificate_chain_file(t->context, cert) <= 0)
		return file_refused("cert", cert, f);
	if (lib->SSL_CTX_use_PrivateKey_file(t->context, key, SSL_FILETYPE_PEM) > 0)
		return RC_OK;
	if (!t->encrypted)
		return file_refused("key", key, f);
	return fault_set(f, RC_CONFIG,
	    "key %s is encrypted, and dlock cannot ask for its passphrase: keep it in a file without one",
	    key);
}

/* OpenSSL reads this directory again whenever it checks a certificate. */
static const char *const file_variables[] = {"SSL_CERT_DIR", NULL};

static enum rc
tls_open(struct tls **ret, const struct tls_settings *settings, struct fault *f)
{
	struct tls *t;
	enum rc rc;

	if (!settings->cert != !settings->key)
		return fault_set(f, RC_USAGE, "-O cert=FILE and -O key=FILE go together");
	rc = openssl_load(&lib, f);
	if (rc != RC_OK)
		return rc;
	t = calloc(1, sizeof *t);
	if (!t)
		return fault_set(f, RC_SYSTEM, "out of memory");
	t->settings = *settings;
	setting_keep_directory(file_variables);
	t->context = lib->SSL_CTX_new(lib->TLS_client_method());
	if (t->context &&
	    lib->SSL_CTX_ctrl(
		t->context, SSL_CTRL_SET_MIN_PROTO_VERSION, TLS1_2_VERSION, NULL)) {
		lib->SSL_CTX_set_verify(t->context, SSL_VERIFY_PEER, NULL);
		lib->SSL_CTX_set_default_passwd_cb(t->context, refuse_passphrase);
		lib->SSL_CTX_set_default_passwd_cb_userdata(t->context, t);
		lib->SSL_CTX_set_client_cert_cb(t->context, note_wanted);
		rc = load_authorities(t, f);
	} else {
		rc = fault_set(
		    f, RC_SYSTEM, "OpenSSL cannot be used: is its openssl.cnf damaged?");
	}
	if (rc == RC_OK)
		rc = load_ours(t, f);
	lib->ERR_clear_error();
	if (rc == RC_OK)
		*ret = t;
	else
		tls_close(t);
	return rc;
}

enum rc
tls_again(struct tls **ret, const struct tls *t, struct fault *f)
{
	return tls_open(ret, &t->settings, f);
}

void
tls_close(struct tls *t)
{
	if (!t)
		return;
	if (t->context)
		lib->SSL_CTX_free(t->context);
	free(t);
}

#else

static enum rc
tls_open(struct tls **ret, const struct tls_settings *settings, struct fault *f)
{
	(void)ret, (void)settings;
	return fault_set(f, RC_CONFIG,
	    "TLS is not compiled in: this dlock was built without OpenSSL's headers (libssl-dev), as the static program is");
}

enum rc
tls_start(struct tls *t, struct stream *s, const char *host, struct fault *f)
{
	(void)s, (void)host;
	return tls_open(&t, NULL, f);
}

enum rc
tls_again(struct tls **ret, const struct tls *t, struct fault *f)
{
	(void)t;
	return tls_open(ret, NULL, f);
}

bool
tls_can_retry(const struct tls *t)
{
	return t && false;
}

void
tls_close(struct tls *t)
{
	(void)t;
}

#endif

/* ---- settings ---- */

enum rc
tls_set(struct store *s, const char *value, struct fault *f)
{
	(void)s, (void)value, (void)f;
	return RC_OK;
}

enum rc
tls_open_if(bool wanted, const char *scheme, struct tls **ret, const struct site *site,
    struct fault *f)
{
	struct tls_settings s = {.cert = NULL};

	*ret = NULL;
	for (size_t i = 0; i < site->nsettings; i++) {
		const char *name = site->settings[i].name,
			   *value = site->settings[i].value;
		const char **to = strcmp(name, "cacert") == 0 ? &s.cacert
		    : strcmp(name, "cert") == 0               ? &s.cert
		    : strcmp(name, "key") == 0                ? &s.key
		    : strcmp(name, "tls-name") == 0           ? &s.name
							      : NULL;

		if (to && !*value)
			return fault_set(f, RC_USAGE, "-O %s= names nothing", name);
		if (to)
			*to = value;
	}
	if (wanted)
		return tls_open(ret, &s, f);
	return s.cacert || s.cert || s.key || s.name
	    ? fault_set(f, RC_USAGE,
		  "-O cacert=, cert=, key= and tls-name= are for TLS: %s in the URL",
		  scheme)
	    : RC_OK;
}
