/*
 * openssl.h - OpenSSL, when it is needed and not before.
 *
 * Linking it would cost every start of dlock, on whatever backend, more than a
 * millisecond.  So it is loaded (dl.h) when somebody wants TLS, and called through a
 * table: ssl->SSL_read(...) is SSL_read(...).
 *
 * Its functions are declared here and not taken from its headers: nobody who builds
 * dlock needs them, and one dlock works with 1.1 and 3 alike.  tests/unit/openssl.c
 * compares with the headers.
 */
#ifndef DLOCK_OPENSSL_H
#define DLOCK_OPENSSL_H

#include "backends/backend.h"

struct ssl_ctx_st;
struct ssl_method_st;
struct ssl_st;
struct bio_st;
struct bio_method_st;
struct x509_st;
struct evp_pkey_st;
struct x509_store_ctx_st;
struct X509_VERIFY_PARAM_st;

/* X(result, name, arguments) of libssl and libcrypto, all of them since 1.1.0. */
#define OPENSSL_FUNCTIONS(X) \
	X(const struct ssl_method_st *, TLS_client_method, (void)) \
	X(struct ssl_ctx_st *, SSL_CTX_new, (const struct ssl_method_st *)) \
	X(void, SSL_CTX_free, (struct ssl_ctx_st *)) \
	X(long, SSL_CTX_ctrl, (struct ssl_ctx_st *, int, long, void *)) \
	X(int, SSL_CTX_load_verify_locations, \
	    (struct ssl_ctx_st *, const char *, const char *)) \
	X(int, SSL_CTX_set_default_verify_dir, (struct ssl_ctx_st *)) \
	X(int, SSL_CTX_set_default_verify_file, (struct ssl_ctx_st *)) \
	X(int, SSL_CTX_use_certificate_chain_file, (struct ssl_ctx_st *, const char *)) \
	X(int, SSL_CTX_use_PrivateKey_file, (struct ssl_ctx_st *, const char *, int)) \
	X(void, SSL_CTX_set_default_passwd_cb, \
	    (struct ssl_ctx_st *, int (*)(char *, int, int, void *))) \
	X(void, SSL_CTX_set_default_passwd_cb_userdata, (struct ssl_ctx_st *, void *)) \
	X(void, SSL_CTX_set_client_cert_cb, \
	    (struct ssl_ctx_st *, \
		int (*)(struct ssl_st *, struct x509_st **, struct evp_pkey_st **))) \
	X(void, SSL_CTX_set_verify, \
	    (struct ssl_ctx_st *, int, int (*)(int, struct x509_store_ctx_st *))) \
	X(struct ssl_st *, SSL_new, (struct ssl_ctx_st *)) \
	X(void, SSL_free, (struct ssl_st *)) \
	X(long, SSL_ctrl, (struct ssl_st *, int, long, void *)) \
	X(int, SSL_set_ex_data, (struct ssl_st *, int, void *)) \
	X(void *, SSL_get_ex_data, (const struct ssl_st *, int)) \
	X(void, SSL_set_bio, (struct ssl_st *, struct bio_st *, struct bio_st *)) \
	X(void, SSL_set_connect_state, (struct ssl_st *)) \
	X(struct X509_VERIFY_PARAM_st *, SSL_get0_param, (struct ssl_st *)) \
	X(long, SSL_get_verify_result, (const struct ssl_st *)) \
	X(int, SSL_get_error, (const struct ssl_st *, int)) \
	X(int, SSL_do_handshake, (struct ssl_st *)) \
	X(int, SSL_read, (struct ssl_st *, void *, int)) \
	X(int, SSL_peek, (struct ssl_st *, void *, int)) \
	X(int, SSL_write, (struct ssl_st *, const void *, int)) \
	X(int, SSL_shutdown, (struct ssl_st *)) \
	X(struct bio_st *, BIO_new, (const struct bio_method_st *)) \
	X(int, BIO_free, (struct bio_st *)) \
	X(const struct bio_method_st *, BIO_s_mem, (void)) \
	X(int, BIO_read, (struct bio_st *, void *, int)) \
	X(int, BIO_write, (struct bio_st *, const void *, int)) \
	X(void, X509_VERIFY_PARAM_set_hostflags, \
	    (struct X509_VERIFY_PARAM_st *, unsigned)) \
	X(int, X509_VERIFY_PARAM_set1_host, \
	    (struct X509_VERIFY_PARAM_st *, const char *, size_t)) \
	X(int, X509_VERIFY_PARAM_set1_ip_asc, \
	    (struct X509_VERIFY_PARAM_st *, const char *)) \
	X(const char *, X509_verify_cert_error_string, (long)) \
	X(void, ERR_clear_error, (void)) \
	X(unsigned long, ERR_get_error, (void)) \
	X(const char *, ERR_reason_error_string, (unsigned long))

struct openssl {
#define X(result, name, arguments) result(*name) arguments;
	OPENSSL_FUNCTIONS(X)
#undef X
};

/*
 * Gives the table.  RC_CONFIG: libssl.so.3 (or .1.1) is not installed, or lacks a
 * function; RC_SYSTEM: it could not be loaded.
 */
enum rc openssl_load(const struct openssl **ret, struct fault *);

#endif
