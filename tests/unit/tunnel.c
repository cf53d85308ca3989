/* tunnel.c - what passes between a library's socket calls and TLS, which is played here. */
#include "backends/zk/tunnel.h"

#include "backends/common/inlet.h"

#include "backends/common/stream.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* ---- a TLS that changes no byte, but takes all that has come at once ---- */

static struct {
	char in[64];
	size_t at, n;
	int stuck; /* so many writes cannot go on yet */
	int error; /* of each read */
	char name[64];
	size_t ends;
} tls;

static ssize_t
fail_with(int error)
{
	errno = error;
	return -1;
}

static ssize_t
tls_write(struct stream *s, const struct iovec *parts, int n)
{
	assert_int_equal(n, 1);
	s->wants = POLLOUT;
	if (tls.stuck > 0) {
		tls.stuck--;
		return fail_with(EAGAIN);
	}
	return inlet_send(s->fd, parts->iov_base, parts->iov_len, 0);
}

static ssize_t
tls_read(struct stream *s, void *to, size_t size)
{
	ssize_t n;

	if (tls.error)
		return fail_with(tls.error);
	if (tls.at == tls.n) {
		n = inlet_recv(s->fd, tls.in, sizeof tls.in, MSG_DONTWAIT);
		if (n <= 0)
			return n;
		tls.at = 0;
		tls.n = (size_t)n;
	}
	size = size < tls.n - tls.at ? size : tls.n - tls.at;
	memcpy(to, tls.in + tls.at, size);
	tls.at += size;
	return (ssize_t)size;
}

static enum rc
tls_explain(struct stream *s, struct fault *f)
{
	return fault_set(f, RC_DENIED, "%s does not like us", s->where);
}

static void
tls_end(struct stream *s)
{
	(void)s;
	tls.ends++;
}

static const struct stream_ops row = {tls_write, tls_read, NULL, tls_explain, tls_end};

enum rc __wrap_tls_again(struct tls **, const struct tls *, struct fault *);
enum rc
__wrap_tls_again(struct tls **ret, const struct tls *t, struct fault *f)
{
	(void)t, (void)f;
	*ret = NULL;
	return RC_OK;
}

enum rc __wrap_tls_start(struct tls *, struct stream *, const char *, struct fault *);
enum rc
__wrap_tls_start(struct tls *t, struct stream *s, const char *host, struct fault *f)
{
	(void)t, (void)f;
	snprintf(tls.name, sizeof tls.name, "%s", host);
	s->ops = &row;
	s->hint = ": is that its TLS port?";
	return RC_OK;
}

void __wrap_tls_close(struct tls *);
void
__wrap_tls_close(struct tls *t)
{
	assert_null(t);
}

/* ---- a connection ---- */

static struct hosts hosts;
static struct tunnel *tunnel;
static int listener, ours, theirs;

static void
connect_both(void)
{
	struct sockaddr_in at = {
	    .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t size = sizeof at;

	listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	ours = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(listener, (struct sockaddr *)&at, size), 0);
	assert_int_equal(listen(listener, 1), 0);
	assert_int_equal(getsockname(listener, (struct sockaddr *)&at, &size), 0);
	assert_int_equal(connect(ours, (struct sockaddr *)&at, size), 0);
	theirs = accept(listener, NULL, NULL);
	hosts = (struct hosts){.n = 2, .names = "one:1,[::1]:2,two.example:3"};
	hosts.name_of[0] = 1;
	hosts.name_of[1] = 2;
	snprintf(hosts.list, sizeof hosts.list, "::1:2,127.0.0.1:%d", ntohs(at.sin_port));
}

static int
setup(void **state)
{
	struct fault f;

	(void)state;
	memset(&tls, 0, sizeof tls);
	connect_both();
	assert_int_equal(tunnel_open(&tunnel, NULL, &hosts, &f), RC_OK);
	return 0;
}

static int
teardown(void **state)
{
	(void)state;
	tunnel_close(tunnel);
	close(ours);
	close(theirs);
	close(listener);
	return 0;
}

static void
expect(const char *words)
{
	char got[64] = "";
	size_t n = 0;

	while (n < strlen(words))
		n += (size_t)recv(theirs, got + n, sizeof got - 1 - n, 0);
	assert_string_equal(got, words);
	assert_int_equal(recv(theirs, got, sizeof got, MSG_DONTWAIT), -1);
}

static short
poll_for(short events, int timeout)
{
	struct pollfd at[] = {
	    {.fd = listener, .events = POLLIN}, {.fd = ours, .events = events}};
	int n = tunnel_poll(tunnel, at, 2, timeout);

	assert_int_equal(at[0].revents, 0);
	assert_int_equal(at[1].events, events);
	assert_int_equal(n, at[1].revents != 0);
	return at[1].revents;
}

static void
send_all(const char *words)
{
	assert_int_equal(
	    tunnel_send(tunnel, ours, words, strlen(words), 0), strlen(words));
}

/* ---- what is received ---- */

static void
test_no_byte_that_tls_has_taken_is_left_lying(void **state)
{
	struct pollfd kernel = {.fd = ours, .events = POLLIN};
	char got[16];

	(void)state;
	send_all("hello");
	assert_int_equal(poll_for(POLLIN, 0), 0);
	assert_int_equal(send(theirs, "0123456789", 10, 0), 10);
	assert_int_equal(poll_for(POLLIN, 5000), POLLIN);
	assert_int_equal(tunnel_recv(tunnel, ours, got, 4), 4);
	/* the kernel has none left, and would let the library sleep */
	assert_int_equal(inlet_poll(&kernel, 1, 0), 0);
	assert_int_equal(poll_for(POLLIN, 5000), POLLIN);
	assert_int_equal(poll_for(POLLOUT | POLLIN, 5000), POLLOUT | POLLIN);
	assert_int_equal(poll_for(POLLOUT, 5000), POLLOUT);
	assert_int_equal(tunnel_recv(tunnel, ours, got + 4, 12), 6);
	assert_memory_equal(got, "0123456789", 10);
	/* whether that was all is known by a read alone */
	assert_int_equal(poll_for(POLLIN, 5000), POLLIN);
	assert_int_equal(tunnel_recv(tunnel, ours, got, 4), -1);
	assert_int_equal(errno, EAGAIN);
	assert_int_equal(poll_for(POLLIN, 20), 0);
}

static void
test_a_library_that_does_not_poll_receives_nothing(void **state)
{
	struct fault f;
	char got[16];

	(void)state;
	send_all("hello");
	assert_int_equal(send(theirs, "0", 1, 0), 1);
	assert_int_equal(tunnel_recv(tunnel, ours, got, 4), -1);
	assert_int_equal(errno, ENOTSUP);
	assert_int_equal(tunnel_end(tunnel, &f), RC_CONFIG);
	assert_non_null(strstr(f.text, "libzookeeper"));
}

/* ---- what is sent ---- */

static void
test_it_is_told_the_name_of_the_host_that_has_the_address(void **state)
{
	(void)state;
	assert_false(tunnel_has_begun(tunnel));
	send_all("hello");
	assert_true(tunnel_has_begun(tunnel));
	assert_string_equal(tls.name, "two.example");
	expect("hello");
}

static void
test_to_an_address_of_no_host_nothing_is_sent(void **state)
{
	char got;

	(void)state;
	hosts.n = 1;
	assert_int_equal(tunnel_send(tunnel, ours, "hello", 5, 0), -1);
	assert_int_equal(errno, EHOSTUNREACH);
	assert_int_equal(recv(theirs, &got, 1, MSG_DONTWAIT), -1);
}

static void
test_a_length_travels_with_what_follows(void **state)
{
	(void)state;
	assert_int_equal(tunnel_send(tunnel, ours, "len", 3, MSG_MORE), 3);
	assert_int_equal(poll_for(POLLOUT, 0), POLLOUT);
	expect("");
	send_all("gth");
	expect("length");
}

static void
test_what_cannot_go_is_kept_and_goes_while_the_library_waits(void **state)
{
	(void)state;
	tls.stuck = 2;
	send_all("hello");
	assert_false(tunnel_is_flushed(tunnel));
	assert_int_equal(tunnel_send(tunnel, ours, "more", 4, 0), -1);
	assert_int_equal(errno, EAGAIN);
	/* it waits for nothing but to read */
	assert_int_equal(poll_for(POLLIN, 1), 0);
	assert_true(tunnel_is_flushed(tunnel));
	expect("hello");
	assert_int_equal(send(theirs, "0", 1, 0), 1);
	tls.stuck = 1;
	send_all("more");
	assert_int_equal(poll_for(POLLIN | POLLOUT, 5000), POLLIN | POLLOUT);
	expect("more");
}

/* ---- its end ---- */

static void
test_why_it_has_failed_is_kept_until_the_library_gives_it_up(void **state)
{
	struct fault f;
	char got[16];

	(void)state;
	send_all("hello");
	assert_int_equal(poll_for(POLLIN, 0), 0);
	tls.error = EPROTO;
	assert_int_equal(tunnel_recv(tunnel, ours, got, 4), -1);
	assert_int_equal(errno, EPROTO);
	assert_int_equal(poll_for(POLLIN, 5000), POLLIN);
	assert_int_equal(tunnel_end(tunnel, &f), RC_DENIED);
	assert_string_equal(f.text, "zks two.example:3 does not like us");
	assert_int_equal(tls.ends, 1);
	assert_int_equal(tunnel_end(tunnel, &f), RC_OK);
	assert_int_equal(tunnel_recv(tunnel, ours, got, 4), -1);
	assert_int_equal(errno, ENOTCONN);
}

static void
test_an_end_without_a_word_is_explained_before_the_first_word_only(void **state)
{
	struct fault f;
	char got[16];

	(void)state;
	send_all("hello");
	assert_int_equal(poll_for(POLLIN, 0), 0);
	shutdown(theirs, SHUT_WR);
	assert_int_equal(tunnel_recv(tunnel, ours, got, 4), -1);
	assert_int_equal(tunnel_end(tunnel, &f), RC_DENIED);
	teardown(NULL);
	setup(NULL);
	send_all("hello");
	assert_int_equal(poll_for(POLLIN, 0), 0);
	assert_int_equal(send(theirs, "0", 1, 0), 1);
	shutdown(theirs, SHUT_WR);
	assert_int_equal(tunnel_recv(tunnel, ours, got, 4), 1);
	assert_int_equal(tunnel_recv(tunnel, ours, got, 4), 0);
	assert_int_equal(tunnel_end(tunnel, &f), RC_OK);
}

static void
test_another_connection_begins_anew(void **state)
{
	int before = ours;

	(void)state;
	tls.stuck = 1;
	send_all("lost");
	close(theirs);
	close(listener);
	connect_both();
	send_all("hello");
	assert_int_equal(tls.ends, 1);
	expect("hello");
	close(before);
}

int
main(void)
{
#define T(test) cmocka_unit_test_setup_teardown(test, setup, teardown)
	const struct CMUnitTest tests[] = {
	    T(test_no_byte_that_tls_has_taken_is_left_lying),
	    T(test_a_library_that_does_not_poll_receives_nothing),
	    T(test_it_is_told_the_name_of_the_host_that_has_the_address),
	    T(test_to_an_address_of_no_host_nothing_is_sent),
	    T(test_a_length_travels_with_what_follows),
	    T(test_what_cannot_go_is_kept_and_goes_while_the_library_waits),
	    T(test_why_it_has_failed_is_kept_until_the_library_gives_it_up),
	    T(test_an_end_without_a_word_is_explained_before_the_first_word_only),
	    T(test_another_connection_begins_anew),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
