/*
 * openssl.h - loads OpenSSL when it is needed and not before.
 *
 * Linking it would cost every start of dlock, on whatever backend, more than a
 * millisecond.  So it is loaded (dl.h) when somebody wants TLS, and called through a
 * table: ssl->SSL_read(...) is SSL_read(...).  Its headers give the types.  One dlock works
 * with 1.1 and 3 alike, since all of these functions are in both.
 */
#ifndef DLOCK_OPENSSL_H
#define DLOCK_OPENSSL_H

#include "backends/backend.h"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

/* The functions of libssl and libcrypto that we call; all of them are in 1.1.0. */
/* clang-format off */
#define OPENSSL_FUNCTIONS(X) \
	X(TLS_client_method) X(SSL_CTX_new) X(SSL_CTX_free) X(SSL_CTX_ctrl) \
	X(SSL_CTX_load_verify_locations) X(SSL_CTX_set_default_verify_dir) \
	X(SSL_CTX_set_default_verify_file) X(SSL_CTX_use_certificate_chain_file) \
	X(SSL_CTX_use_PrivateKey_file) X(SSL_CTX_set_default_passwd_cb) \
	X(SSL_CTX_set_default_passwd_cb_userdata) X(SSL_CTX_set_client_cert_cb) \
	X(SSL_CTX_set_verify) X(SSL_new) X(SSL_free) X(SSL_ctrl) X(SSL_set_ex_data) \
	X(SSL_get_ex_data) X(SSL_set_bio) X(SSL_set_connect_state) X(SSL_get0_param) \
	X(SSL_get_verify_result) X(SSL_get_error) X(SSL_do_handshake) X(SSL_read) \
	X(SSL_peek) X(SSL_write) X(SSL_shutdown) X(BIO_new) X(BIO_free) X(BIO_s_mem) \
	X(BIO_read) X(BIO_write) X(X509_VERIFY_PARAM_set_hostflags) \
	X(X509_VERIFY_PARAM_set1_host) X(X509_VERIFY_PARAM_set1_ip_asc) \
	X(X509_verify_cert_error_string) X(ERR_clear_error) X(ERR_get_error) \
	X(ERR_reason_error_string)
/* clang-format on */

struct openssl {
#define X(name) __typeof__(&(name)) name;
	OPENSSL_FUNCTIONS(X)
#undef X
};

/*
 * Gives the table.  RC_CONFIG: libssl.so.3 (or .1.1) is not installed, or lacks a
 * function; RC_SYSTEM: it could not be loaded.
 */
enum rc openssl_load(const struct openssl **ret, struct fault *);

#endif
