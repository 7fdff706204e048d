#include <lanewise/lanewise.h>

#include "layout.h"

#define LAYOUT layout_now
#include "layout-inl.h"
