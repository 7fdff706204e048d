#include "layout.h"
#include "lanewise_0_1.h"

#define LAYOUT layout_frozen
#include "layout-inl.h"
