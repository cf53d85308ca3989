/*
 * names.h - what programs make the names and numbers of their locks of, on either database.
 */
#ifndef DLOCK_SQL_NAMES_H
#define DLOCK_SQL_NAMES_H

#include "backends/backend.h"

#include <stddef.h>
#include <stdint.h>

/* What the Ruby gem with_advisory_lock puts before a name. */
#define NAMES_PREFIX_VARIABLE "WITH_ADVISORY_LOCK_PREFIX"

/* CRC-32, as zlib and Ethernet have it; `crc` 0, or that of what stands before. */
uint32_t names_crc32(uint32_t crc, const void *data, size_t n);

/* Java's String.hashCode() of UTF-8. */
int32_t names_java_hash(const char *text);

/* From this the migrations of Rails have their lock, by the name of the database. */
int64_t names_rails(const char *database);

/* What golang-migrate makes of a CRC-32. */
uint32_t names_golang_migrate(uint32_t crc);

/* As backend.runs_own: the program, if argv is that for which -O derive= derives the lock. */
const char *names_runs_own(const struct site *, char *const *argv);

#endif
