/* plain.c - the string dialect: SET NX PX, and compare-and-delete. */
#include "command.h"
#include "resp.h"
#include "side.h"
#include "transaction.h"

static void
string_names(struct names *names, const struct claim *claim)
{
	side_names(names, &dialect_string, claim->key);
}

static int
string_write(char **command, const struct names *names, const struct claim *claim,
    const struct request *r, bool whole)
{
	return command_write(command, names, claim, r, &script_string, whole);
}

static enum reading
string_read(struct answer *a, const struct request *r, const redisReply *reply)
{
	return reply->type == REDIS_REPLY_ERROR && resp_is_no_scripts(reply->str)
	    ? READ_NO_SCRIPTS
	    : command_read(a, r, reply);
}

const struct dialect dialect_string = {
    .name = "string",
    .lacks = CAP_FAIR | CAP_SHARED | CAP_LIMIT | CAP_JOB | CAP_REVOKE | CAP_FREEZE,
    .claims = &script_string,
    .looks = &script_string,
    .names = string_names,
    .write = string_write,
    .read = string_read,
    .plainly = transaction_run,
};
