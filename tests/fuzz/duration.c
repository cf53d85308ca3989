/*
 * duration.c - Goal of these tests: every text is a duration or none, and what is one
 * survives being printed.
 */
#include "backends/common/instant.h"
#include "cmd/parse.h"
#include "tests/fuzz/fuzz.h"

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *s = fuzz_string(data, size);
	int64_t ns = -7, back = -7, again = -7;
	long number = -7;
	bool truth = false;
	int sig = -7;

	if (parse_duration(s, &ns)) {
		CLAIM(ns >= 0);
		CLAIM(strspn(s, "0123456789.wdhmsinf") == strlen(s));
		CLAIM(parse_duration(parse_span(ns).text, &back));
		CLAIM(back <= ns && (ns == NEVER) == (back == NEVER));
		CLAIM(ns == NEVER ||
		    ns - back <= (ns < 10 * NS_PER_S ? NS_PER_S / 10 : ns / 10));
		CLAIM(parse_duration(parse_span(back).text, &again) && again == back);
	} else {
		CLAIM(ns == -7);
	}
	if (parse_number(s, 1, 65535, &number))
		CLAIM(number >= 1 && number <= 65535 && strtol(s, NULL, 10) == number);
	else
		CLAIM(number == -7);
	if (parse_signal(s, &sig))
		CLAIM(sig > 0 && sig <= 64);
	else
		CLAIM(sig == -7);
	parse_truth(s, &truth);
	free(s);
	return 0;
}
