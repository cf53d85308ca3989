/*
 * command.h - one run of a script for a claim, put together word by word; what each
 * dialect says alike.
 */
#ifndef DLOCK_REDIS_COMMAND_H
#define DLOCK_REDIS_COMMAND_H

#include "dialect.h"

enum {
	/* behind operation and owner, at most */
	OPERANDS = 7,
	ARGUMENTS = 3 + NAMES + 2 + 2 + OPERANDS, /* of the command */
};

/* A command that is being put together; the texts of its numbers are kept here. */
struct command {
	const char *argv[ARGUMENTS];
	size_t lengths[ARGUMENTS];
	int argc;
	char numbers[5][24];
	char kind[16];
	int n;
};

/* EVALSHA and the hash; `whole`: EVAL and the script.  The number of keys follows. */
void command_begin(struct command *, const struct script *, bool whole);

void command_text(struct command *, const char *);
void command_number(struct command *, uint64_t);

/* Operation, owner, and what follows them as long as there is no job. */
void command_operation(struct command *, const struct claim *, const struct request *);

/* As dialect.write. */
int command_end(char **command, const struct command *);

/* As dialect.write and dialect.read of the other tools' dialects. */
int command_write(char **command, const struct names *, const struct claim *,
    const struct request *, const struct script *, bool whole);
enum reading command_read(struct answer *, const struct request *, const redisReply *);

#endif
