/* main.c - dispatch: finds the subcommand. */
#include "cmd.h"

#include "say.h"
#include "status.h"

#include <fcntl.h>
#include <string.h>
#include <sys/auxv.h>

/* A descriptor that is closed now would be given to a socket of ours and written to as "stderr". */
static void
occupy_standard_descriptors(void)
{
	for (int fd = 0; fd <= 2; fd++)
		if (fcntl(fd, F_GETFD) < 0)
			open("/dev/null", O_RDWR | O_CLOEXEC);
}

int
main(int argc, char **argv)
{
	const struct cmd *c;

	occupy_standard_descriptors();
	if (getauxval(AT_SECURE)) {
		say_last("refuses to run set-uid or set-gid: install it without those bits");
		return STATUS_CONFIG;
	}
	if (argc < 2) {
		say_last("say what to do: dlock run -k KEY -- COMMAND (dlock help explains)");
		return STATUS_USAGE;
	}
	if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)
		return cmd_help(argv + 2);
	if (strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "-V") == 0)
		return cmd_version(argv + 2);
	c = cmd_named(argv[1]);
	return c ? c->run(argv + 2) : cmd_refuse(argv[1]);
}
