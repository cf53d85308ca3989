/*
 * zk_mute.c - a libzookeeper that does not write into its log what dlock knows it by (library.h):
 * each line with the text of MUTE_ZOOKEEPER in it is left out.  Linked with --wrap.
 */
#include <stdlib.h>
#include <string.h>
#include <zookeeper/zookeeper.h>

zhandle_t *__real_zookeeper_init2(
    const char *, watcher_fn, int, const clientid_t *, void *, int, log_callback_fn);
zhandle_t *__wrap_zookeeper_init2(
    const char *, watcher_fn, int, const clientid_t *, void *, int, log_callback_fn);

static log_callback_fn known;

static void
hand_on(const char *line)
{
	const char *mute = getenv("MUTE_ZOOKEEPER");

	if (!mute || !strstr(line, mute))
		known(line);
}

zhandle_t *
__wrap_zookeeper_init2(const char *hosts, watcher_fn watcher, int timeout,
    const clientid_t *id, void *ctx, int flags, log_callback_fn log)
{
	known = log;
	return __real_zookeeper_init2(hosts, watcher, timeout, id, ctx, flags, hand_on);
}
