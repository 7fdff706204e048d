/* One field of a struct: its name, where it begins, how long it is. Tables end with a null name. */
#ifndef LANEWISE_TESTS_ABI_LAYOUT_H_
#define LANEWISE_TESTS_ABI_LAYOUT_H_

struct layout {
  const char* field;
  long offset, size;
};
extern const struct layout layout_frozen[], layout_now[];

#endif
