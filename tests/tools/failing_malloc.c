/* Preloaded into the command by test_command_allocation.cpp: allocation number LANEWISE_FAIL_AT fails, or that and all
 * after it where LANEWISE_FAIL_ON is set too. Counts from the program's own start on: what the loader takes is not its.
 * With LANEWISE_COUNT_TO, a file that gets the number of allocations at the end. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

extern void* __libc_malloc(size_t);
extern void* __libc_calloc(size_t, size_t);
extern void* __libc_realloc(void*, size_t);
extern void* __libc_memalign(size_t, size_t);

static long count = 0, fail_at = 0;
static int counts = 0, fail_on = 0;

__attribute__((constructor)) static void start(void) {
  const char* at = getenv("LANEWISE_FAIL_AT");
  fail_at = at ? atol(at) : 0;
  fail_on = getenv("LANEWISE_FAIL_ON") != NULL;
  counts = 1;
}

__attribute__((destructor)) static void end(void) {
  const char* path = getenv("LANEWISE_COUNT_TO");
  counts = 0;
  if (path) {
    FILE* file = fopen(path, "w");
    if (file) {
      fprintf(file, "%ld", count);
      fclose(file);
    }
  }
}

static int fails(void) {
  if (!counts) return 0;
  const long n = __atomic_add_fetch(&count, 1, __ATOMIC_RELAXED);
  if (fail_at == 0 || n < fail_at || (n > fail_at && !fail_on)) return 0;
  errno = ENOMEM;
  return 1;
}

void* malloc(size_t size) { return fails() ? NULL : __libc_malloc(size); }
void* calloc(size_t n, size_t size) { return fails() ? NULL : __libc_calloc(n, size); }
void* realloc(void* old, size_t size) { return fails() ? NULL : __libc_realloc(old, size); }
void* memalign(size_t alignment, size_t size) { return fails() ? NULL : __libc_memalign(alignment, size); }
void* aligned_alloc(size_t alignment, size_t size) { return memalign(alignment, size); }
int posix_memalign(void** memory, size_t alignment, size_t size) {
  *memory = memalign(alignment, size);
  return *memory ? 0 : ENOMEM;
}
