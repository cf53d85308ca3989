/* utf8.c - asks jansson, which is strict: it takes no surrogates and nothing overlong. */
#include "utf8.h"

#include <jansson.h>

bool
utf8_is_valid(const char *text)
{
	json_t *j = json_string(text);
	bool is_valid = j != NULL;

	json_decref(j);
	return is_valid;
}
