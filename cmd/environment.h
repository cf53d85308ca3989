/*
 * environment.h - the variables that tell a command of its lock, and how one variable is read.
 *
 * variables.h has the variables with which users set options.
 */
#ifndef DLOCK_ENVIRONMENT_H
#define DLOCK_ENVIRONMENT_H

/* The variables of the command, or of the process that has asked for a hold. */
enum variable {
	VAR_KEY,
	VAR_TOKEN,
	VAR_TOKENS, /* with several keys: a JSON object key -> token */
	VAR_SLOT,   /* with --limit */
	VAR_OWNER,
	VAR_BACKEND,
	VAR_KEEPER, /* the keeper's address, and those of the outer dlocks */
	VARIABLES
};
extern const char *const environment_names[VARIABLES];

/* The value of a variable that is set and not empty, or NULL. */
const char *environment_get(const char *name);

#endif
