// lw_status values: a code and a printf-formatted message, no allocation.
#pragma once

#include <cstdarg>
#include <cstdint>
#include <cstdio>

#include "lanewise/lanewise.h"

namespace lanewise {

inline lw_status ok() {
  lw_status status;
  status.code = LW_OK;
  status.message[0] = '\0';
  return status;
}

__attribute__((format(printf, 2, 3))) inline lw_status failure(int32_t code, const char* format, ...) {
  lw_status status;
  status.code = code;
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(status.message, sizeof status.message, format, arguments);
  va_end(arguments);
  return status;
}

}  // namespace lanewise
