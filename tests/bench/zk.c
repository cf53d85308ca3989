/*
 * zk.c - the least that a lock costs with libzookeeper_mt, for bench.py:
 *
 *	bench_zk HOST:PORT PATH
 *		connects, makes an ephemeral sequential node in PATH (a container
 *		that is there), lists PATH, deletes the node, closes the session.
 *
 * It waits for nothing that is not needed: the first two requests are made
 * before there is a connection and travel together.  What does not succeed ends
 * it with status 1.
 */
#include <err.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <zookeeper/zookeeper.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t answered = PTHREAD_COND_INITIALIZER;
static int answers;
static char node[1024];

static void
count(int rc)
{
	if (rc != ZOK)
		errx(1, "%s", zerror(rc));
	pthread_mutex_lock(&mutex);
	answers++;
	pthread_cond_signal(&answered);
	pthread_mutex_unlock(&mutex);
}

static void
await(int n)
{
	pthread_mutex_lock(&mutex);
	while (answers < n)
		pthread_cond_wait(&answered, &mutex);
	pthread_mutex_unlock(&mutex);
}

static void
created(int rc, const char *name, const struct Stat *stat, const void *data)
{
	(void)stat, (void)data;
	snprintf(node, sizeof node, "%s", name ? name : "");
	count(rc);
}

static void
listed(int rc, const struct String_vector *names, const void *data)
{
	(void)names, (void)data;
	count(rc);
}

static void
deleted(int rc, const void *data)
{
	(void)data;
	count(rc);
}

static void
watch(zhandle_t *zh, int type, int state, const char *path, void *context)
{
	(void)zh, (void)type, (void)state, (void)path, (void)context;
}

int
main(int argc, char **argv)
{
	char path[1024];
	zhandle_t *zh;

	if (argc != 3)
		errx(64, "usage: bench_zk HOST:PORT PATH");
	snprintf(path, sizeof path, "%s/_c_00000000-0000-0000-0000-000000000000-lock-",
	    argv[2]);
	zoo_set_debug_level(ZOO_LOG_LEVEL_ERROR);
	zh = zookeeper_init(argv[1], watch, 30000, NULL, NULL, 0);
	if (!zh)
		err(1, "zookeeper_init");
	if (zoo_acreate2(zh, path, "probe", 5, &ZOO_OPEN_ACL_UNSAFE,
		ZOO_EPHEMERAL_SEQUENTIAL, created, NULL) != ZOK ||
	    zoo_aget_children(zh, argv[2], 0, listed, NULL) != ZOK)
		errx(1, "cannot ask");
	await(2);
	if (zoo_adelete(zh, node, -1, deleted, NULL) != ZOK)
		errx(1, "cannot ask");
	await(3);
	return zookeeper_close(zh) == ZOK ? 0 : 1;
}
