/* text.c - see text.h. */
#include "text.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

size_t
utf8_next(const char *s, size_t n, uint32_t *ret)
{
	static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
	const unsigned char *u = (const unsigned char *)s;
	size_t len = u[0] < 0x80 ? 1 : u[0] >> 5 == 6 ? 2 : u[0] >> 4 == 14 ? 3 : u[0] >> 3 == 30 ? 4 : 0;
	uint32_t c = len == 1 ? u[0] : u[0] & (0x7f >> len);

	if (len == 0 || len > n)
		return 0;
	for (size_t i = 1; i < len; i++) {
		if (u[i] >> 6 != 2)
			return 0;
		c = c << 6 | (u[i] & 0x3f);
	}
	if (c < least[len] || c > 0x10ffff || (c >= 0xd800 && c <= 0xdfff))
		return 0;
	*ret = c;
	return len;
}

/* Characters that show nothing and change how their neighbours look. */
static bool
is_deceptive(uint32_t c)
{
	return c == 0xad || c == 0x61c || (c >= 0x200b && c <= 0x200f) || (c >= 0x2028 && c <= 0x202e) ||
	    (c >= 0x2060 && c <= 0x206f) || c == 0xfeff || (c >= 0xfff9 && c <= 0xfffb) ||
	    (c >= 0xe0000 && c <= 0xe007f);
}

static bool
is_control(uint32_t c)
{
	return c < 0x20 || (c >= 0x7f && c <= 0x9f);
}

char *
text_clean(char *out, size_t size, const char *text, size_t n)
{
	size_t used = 0;

	for (size_t i = 0; i < n;) {
		uint32_t c = 0;
		size_t len = utf8_next(text + i, n - i, &c);
		char shown[16];

		if (len == 0)
			snprintf(shown, sizeof shown, "\\x%02X", (unsigned char)text[i]);
		else if (is_control(c))
			snprintf(shown, sizeof shown, "\\x%02X", (unsigned)c);
		else if (is_deceptive(c))
			snprintf(shown, sizeof shown, "\\u%04X", (unsigned)c);
		else
			snprintf(shown, sizeof shown, "%.*s", (int)len, text + i);
		if (used + strlen(shown) + 4 > size) {
			memcpy(out + used, "...", 4);
			return out;
		}
		memcpy(out + used, shown, strlen(shown));
		used += strlen(shown);
		i += len ? len : 1;
	}
	out[used] = '\0';
	return out;
}
