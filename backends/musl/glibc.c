/*
 * glibc.c - what archives that were compiled against glibc need on top of musl (make static).
 *
 * Debian has hiredis, jansson and libzookeeper as archives for glibc, with fortify.  musl
 * has glibc's ABI in what these call: errno, the tables of ctype.h, the place of the stack
 * protector's value, a FILE that is only handed on.  What is checked here is the data of the
 * C library that they look into.  The rest is what fortify calls: `room` is the size of
 * `to`, SIZE_MAX where the compiler did not know it.
 */
#include <limits.h>
#include <locale.h>
#include <netdb.h>
#include <pthread.h>
#include <pwd.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/utsname.h>
#include <time.h>

#define AS_IN_GLIBC(fact) _Static_assert(fact, "otherwise in glibc")

AS_IN_GLIBC(sizeof(long) == 8 && sizeof(struct timeval) == 16);
AS_IN_GLIBC(offsetof(struct addrinfo, ai_addrlen) == 16 && sizeof(socklen_t) == 4);
AS_IN_GLIBC(offsetof(struct addrinfo, ai_addr) == 24 && sizeof(struct addrinfo) == 48);
AS_IN_GLIBC(offsetof(struct addrinfo, ai_canonname) == 32 && AI_ADDRCONFIG == 32);
AS_IN_GLIBC(EAI_NONAME == -2 && EAI_AGAIN == -3 && EAI_SYSTEM == -11);
AS_IN_GLIBC(offsetof(struct lconv, decimal_point) == 0);
AS_IN_GLIBC(offsetof(struct passwd, pw_dir) == 32 && sizeof(struct passwd) == 48);
AS_IN_GLIBC(offsetof(struct tm, tm_zone) == 48 && sizeof(struct utsname) == 390);
/* Locks may need less room than in glibc; all zeros make one in both. */
AS_IN_GLIBC(sizeof(pthread_mutex_t) <= 40 && sizeof(pthread_cond_t) <= 48);
AS_IN_GLIBC(sizeof(pthread_mutexattr_t) <= 4 && PTHREAD_MUTEX_RECURSIVE == 1);
AS_IN_GLIBC(sizeof(pthread_t) == 8 && sizeof(pthread_key_t) == 4);

void *__memcpy_chk(void *to, const void *from, size_t n, size_t room);
char *__strncpy_chk(char *to, const char *from, size_t n, size_t room);
int __vsnprintf_chk(char *to, size_t n, int flag, size_t room, const char *, va_list);
int __snprintf_chk(char *to, size_t n, int flag, size_t room, const char *, ...);
int __sprintf_chk(char *to, int flag, size_t room, const char *, ...);
int __fprintf_chk(FILE *to, int flag, const char *, ...);
long long __isoc23_strtoll(const char *, char **, int base);

/* `n`, if there is room for it. */
static size_t
fit(size_t n, size_t room)
{
	if (n > room)
		abort();
	return n;
}

void *
__memcpy_chk(void *to, const void *from, size_t n, size_t room)
{
	return memcpy(to, from, fit(n, room));
}

char *
__strncpy_chk(char *to, const char *from, size_t n, size_t room)
{
	return strncpy(to, from, fit(n, room));
}

int
__vsnprintf_chk(char *to, size_t n, int flag, size_t room, const char *format, va_list ap)
{
	(void)flag;
	return vsnprintf(to, fit(n, room), format, ap);
}

int
__snprintf_chk(char *to, size_t n, int flag, size_t room, const char *format, ...)
{
	va_list ap;
	int length;

	(void)flag;
	va_start(ap, format);
	length = vsnprintf(to, fit(n, room), format, ap);
	va_end(ap);
	return length;
}

int
__sprintf_chk(char *to, int flag, size_t room, const char *format, ...)
{
	va_list ap;
	int length;

	(void)flag;
	va_start(ap, format);
	length = vsnprintf(to, room < INT_MAX ? room : INT_MAX, format, ap);
	va_end(ap);
	if (length >= 0)
		fit(length + (size_t)1, room);
	return length;
}

int
__fprintf_chk(FILE *to, int flag, const char *format, ...)
{
	va_list ap;
	int length;

	(void)flag;
	va_start(ap, format);
	length = vfprintf(to, format, ap);
	va_end(ap);
	return length;
}

/* What glibc's headers make of strtoll() from 2.38 on.  jansson asks for base 10. */
long long
__isoc23_strtoll(const char *text, char **end, int base)
{
	return strtoll(text, end, base);
}
