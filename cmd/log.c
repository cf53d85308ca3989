/* log.c - writes the lines of --log. */
#include "log.h"

#include "json.h"
#include "mask.h"
#include "record.h"
#include "say.h"
#include "text.h"

#include "backends/common/libc.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

/* A test's dlock has another one. */
#ifndef LOG_SOCKET
#define LOG_SOCKET "/dev/log"
#endif

/* The sentence has so much of a line, and the object the rest. */
enum { WORDS_BYTES = 1600 };

static unsigned dropped;  /* lines so far */
static unsigned told;     /* of them, in a line that was written */
static const char *cause; /* why the last one was */

/* ---- the places ---- */

/* glibc's syslog(3) would wait for a reader that does not read. */
static bool
send_to_syslog(const char *line, size_t n)
{
	struct sockaddr_un to = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	ssize_t sent = -1;

	snprintf(to.sun_path, sizeof to.sun_path, "%s", LOG_SOCKET);
	if (fd >= 0)
		sent = sendto(fd, line, n, MSG_DONTWAIT | MSG_NOSIGNAL,
		    (struct sockaddr *)&to, sizeof to);
	if (sent != (ssize_t)n)
		cause = strerror(errno);
	if (fd >= 0)
		close(fd);
	return sent == (ssize_t)n;
}

/* Other kinds of files do harm: what is appended to a disk lies at its beginning. */
static bool
is_fit(int fd, struct stat *st)
{
	if (libc_stat_of(fd, st) != 0)
		cause = strerror(errno);
	else if (S_ISREG(st->st_mode) || S_ISFIFO(st->st_mode) || S_ISCHR(st->st_mode))
		return true;
	else
		cause = "it is no regular file, no pipe and no character device";
	return false;
}

/*
 * Does this file end within a line, of which there was room for a part only?  No where it may not
 * be read, as far as we know.  While another process writes, it may look so: then an empty line
 * comes of it.
 */
static bool
ends_within_line(const char *path, const struct stat *st)
{
	char last = '\n';
	int fd;

	if (!S_ISREG(st->st_mode) || st->st_size == 0)
		return false;
	fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	if (fd < 0)
		return false;
	if (pread(fd, &last, 1, st->st_size - 1) != 1)
		last = '\n';
	close(fd);
	return last != '\n';
}

static bool
append_to_file(const char *path, const char *line, size_t n)
{
	/* O_NONBLOCK: a pipe without a reader is refused, and a full one does not block */
	int fd = open(path,
	    O_WRONLY | O_APPEND | O_CREAT | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, 0644);
	struct iovec parts[] = {{"\n", 0}, {(void *)line, n}};
	struct stat st;
	ssize_t sent = -1;
	bool whole = false;

	if (fd < 0) {
		cause = strerror(errno);
		return false;
	}
	if (is_fit(fd, &st)) {
		parts[0].iov_len = ends_within_line(path, &st);
		sent = writev(fd, parts, 2); /* with O_APPEND in one piece */
		whole = sent == (ssize_t)(parts[0].iov_len + n);
		if (!whole)
			cause = sent < 0 ? strerror(errno)
					 : "there was room for a part of it only";
	}
	close(fd);
	return whole;
}

static bool
put_into_place(const struct params_log *to, const char *line, size_t n)
{
	switch (to->kind) {
	case LOG_NOWHERE:
		break;
	case LOG_TO_SYSLOG:
		return send_to_syslog(line, n);
	case LOG_TO_FILE:
		return append_to_file(to->path, line, n);
	case LOG_TO_FD:
		if (say_bytes(to->fd, line, n, SAY_AT_ONCE) == n)
			return true;
		cause = "its reader is gone, or does not read";
	}
	return false;
}

/* A file has an end (RLIMIT_FSIZE), a pipe loses its reader: neither may kill us. */
static bool
put_unharmed(const struct params_log *to, const char *line, size_t n)
{
	const struct sigaction ignored = {.sa_handler = SIG_IGN};
	struct sigaction pipe, size;
	bool done;

	sigaction(SIGPIPE, &ignored, &pipe);
	sigaction(SIGXFSZ, &ignored, &size);
	done = put_into_place(to, line, n);
	sigaction(SIGPIPE, &pipe, NULL);
	sigaction(SIGXFSZ, &size, NULL);
	return done;
}

/* ---- a line ---- */

/* As syslogd and journald read it: facility user; the time is the sender's, local. */
static size_t
put_syslog_head(char *out, size_t size, enum log_weight weight, pid_t pid)
{
	static const int severities[] = {
	    [LOG_USUAL] = 6, [LOG_NOTABLE] = 5, [LOG_TROUBLE] = 4};
	static const char months[] = "JanFebMarAprMayJunJulAugSepOctNovDec";
	const time_t now = time(NULL);
	struct tm tm = {0};

	localtime_r(&now, &tm);
	return snprintf(out, size,
	    "<%d>%.3s %2d %02d:%02d:%02d dlock[%d]: ", 1 << 3 | severities[weight],
	    months + (ptrdiff_t)3 * tm.tm_mon, tm.tm_mday, tm.tm_hour, tm.tm_min,
	    tm.tm_sec, (int)pid);
}

static size_t
put_head(char *out, size_t size, const struct params_log *to, const struct log_line *l,
    const char *host)
{
	pid_t pid = l->pid ? l->pid : getpid();

	if (to->kind == LOG_TO_SYSLOG)
		return put_syslog_head(out, size, l->weight, pid);
	return snprintf(out, size,
	    "%s %.64s dlock[%d]: ", text_time_utc(instant_epoch()).text, host, (int)pid);
}

/* Writes the sentence, cut between characters, and a blank. */
static size_t
put_words(char *out, const struct log_line *l, const struct record *self)
{
	static char words[2 * WORDS_BYTES];
	char who[700];
	size_t n;

	record_words(self, who, sizeof who);
	snprintf(words, sizeof words, "%s%s%s", l->before, who, l->after);
	mask_spoken(words);
	n = text_whole(words, WORDS_BYTES);
	return snprintf(
	    out, WORDS_BYTES + 8, "%.*s%s ", (int)n, words, words[n] ? "..." : "");
}

/* Writes the facts, long texts last: a value that does not fit is left out. */
static void
put_facts(struct json *j, const struct params *p, const struct log_line *l,
    const struct record *self)
{
	static char message[2 * WORDS_BYTES];

	json_put_number(j, "v", 1);
	json_put_time(j, "time", instant_epoch());
	json_put_string(j, "event", l->event);
	json_put_string(j, "key", l->key ? l->key : p->keys[0]);
	if (l->token)
		json_put_number(j, "token", (int64_t)l->token);
	if (l->has_status)
		json_put_number(j, "status", l->status);
	if (l->signal)
		json_put_number(j, "signal", l->signal);
	json_put_seconds(j, "waited_s", l->waited >= 0 ? l->waited : NEVER);
	json_put_seconds(j, "held_s", l->held >= 0 ? l->held : NEVER);
	json_put_string(j, "who", self->who);
	json_put_string(j, "why", self->why);
	json_put_string(j, "server", l->server);
	json_put_string(j, "host", self->host);
	if (l->pid)
		json_put_number(j, "pid", l->pid);
	json_put_string(j, "command", self->command);
	if (l->force)
		json_put_truth(j, "force", true);
	json_put_string(j, "id", l->id);
	if (l->has_until)
		json_put_time(j, "until", l->until);
	if (dropped > told)
		json_put_number(j, "dropped", dropped - told);
	json_put_string(j, "holder", l->holder);
	if (p->nkeys > 1 && !l->key)
		json_put_strings(j, "keys", p->keys, p->nkeys);
	if (l->message && *l->message) {
		snprintf(message, sizeof message, "%s", l->message);
		mask_spoken(message);
		json_put_string(j, "message", message);
	}
}

void
log_write(const struct params *p, const struct log_line *l)
{
	char line[LOG_BYTES];
	struct record_own own;
	const struct params_log *to = &p->show.log;
	struct json j;
	size_t n;

	if (to->kind == LOG_NOWHERE)
		return;
	record_find_own(&own, p, l->pid);
	n = put_head(line, 200, to, l, own.host);
	n += put_words(line + n, l, &own.said);
	json_begin(&j, line + n, sizeof line - n - 1);
	put_facts(&j, p, l, &own.said);
	json_end(&j);
	n += j.used;
	if (to->kind != LOG_TO_SYSLOG) /* a datagram is a line */
		line[n++] = '\n';
	if (put_unharmed(to, line, n))
		told = dropped;
	else
		dropped++;
}

void
log_end(const struct params *p)
{
	const struct params_log *to = &p->show.log;
	char place[sizeof "descriptor " + 12];

	if (dropped == 0)
		return;
	snprintf(place, sizeof place, "descriptor %d", to->fd);
	say_last("the log (%s) lacks %u of its lines: %s",
	    to->kind == LOG_TO_FD         ? place
		: to->kind == LOG_TO_FILE ? text_shown(to->path).text
					  : "syslog",
	    dropped, cause);
}
