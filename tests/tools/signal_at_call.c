/* Preloaded into the command by test_command_signals.cpp: signal LANEWISE_SIGNAL arrives at moment LANEWISE_SIGNAL_AT,
 * counted from 1: right before and right after each call that makes, fills, renames or removes a file. Files may become
 * LANEWISE_FILE_LIMIT bytes large; the test's own report may become larger. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/types.h>

__attribute__((constructor)) static void set_limit(void) {
  const char* bytes = getenv("LANEWISE_FILE_LIMIT");
  struct rlimit limit;
  if (!bytes || getrlimit(RLIMIT_FSIZE, &limit)) return;
  limit.rlim_cur = (rlim_t)atol(bytes);
  setrlimit(RLIMIT_FSIZE, &limit);
}

static void moment(void) {
  static int count = 0;
  const char* at = getenv("LANEWISE_SIGNAL_AT");
  const char* number = getenv("LANEWISE_SIGNAL");
  if (at && number && ++count == atoi(at)) raise(atoi(number));
}

/* ISO C has no conversion from void* to a function. */
static void next(const char* name, void* function) {
  void* const symbol = dlsym(RTLD_NEXT, name);
  memcpy(function, &symbol, sizeof symbol);
}

/* The program's `open`: Meson asks for 64-bit offsets, which gives it another name. */
int open64(const char* path, int flags, ...) {
  int (*real)(const char*, int, ...);
  mode_t mode;
  int result;
  va_list arguments;
  next("open64", &real);
  if (!(flags & O_CREAT)) return real(path, flags);
  va_start(arguments, flags);
  mode = va_arg(arguments, mode_t);
  va_end(arguments);
  moment();
  result = real(path, flags, mode);
  moment();
  return result;
}

ssize_t write(int descriptor, const void* from, size_t count) {
  ssize_t (*real)(int, const void*, size_t);
  ssize_t result;
  next("write", &real);
  moment();
  result = real(descriptor, from, count);
  moment();
  return result;
}

int rename(const char* from, const char* to) {
  int (*real)(const char*, const char*);
  int result;
  next("rename", &real);
  moment();
  result = real(from, to);
  moment();
  return result;
}

int unlink(const char* path) {
  int (*real)(const char*);
  int result;
  next("unlink", &real);
  moment();
  result = real(path);
  moment();
  return result;
}
