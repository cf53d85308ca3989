/*
 * tls.c - the least that any program must do to ask a Redis behind TLS something: load
 * OpenSSL, read a CA, connect, make the handshake, PING, take leave.
 *
 *	tls PORT CAFILE
 */
#include <arpa/inet.h>
#include <openssl/ssl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

static int
connect_to(int port)
{
	struct sockaddr_in a = {.sin_family = AF_INET,
	    .sin_port = htons(port),
	    .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	return connect(fd, (struct sockaddr *)&a, sizeof a) == 0 ? fd : -1;
}

int
main(int argc, char **argv)
{
	SSL_CTX *context = SSL_CTX_new(TLS_client_method());
	SSL *ssl;
	char answer[7];

	if (argc != 3 || SSL_CTX_load_verify_locations(context, argv[2], NULL) != 1)
		return 2;
	SSL_CTX_set_verify(context, SSL_VERIFY_PEER, NULL);
	ssl = SSL_new(context);
	if (SSL_set_fd(ssl, connect_to(atoi(argv[1]))) != 1 || SSL_connect(ssl) != 1 ||
	    SSL_write(ssl, "PING\r\n", 6) != 6 ||
	    SSL_read(ssl, answer, sizeof answer) != sizeof answer)
		return 1;
	SSL_shutdown(ssl);
	return memcmp(answer, "+PONG\r\n", sizeof answer) != 0;
}
