#include "targets.hpp"

#include <strings.h>

#include <cstdlib>
#include <cstring>

#include <hwy/targets.h>

#include "kernels/kernel_table.hpp"
#include "status.hpp"

namespace lanewise {
namespace {

// Asked once, on first use.
struct Machine {
  int64_t supported = hwy::SupportedTargets();
  char variable[32] = "";  // LANEWISE_TARGET, cut off where no target name is that long

  Machine() {
    if (const char* value = std::getenv("LANEWISE_TARGET")) std::strncpy(variable, value, sizeof variable - 1);
  }
};

const Machine& machine() {
  static const Machine once;
  return once;
}

// "AVX2, SSE2 ...": all compiled targets.
void list_targets(char* text, size_t size) {
  text[0] = '\0';
  for (int32_t i = 0; i < target_count(); ++i) {
    if (i > 0) std::strncat(text, ", ", size - std::strlen(text) - 1);
    std::strncat(text, target_name(target_at(i)), size - std::strlen(text) - 1);
  }
}

}  // namespace

int32_t target_count() { return static_cast<int32_t>(__builtin_popcountll(static_cast<uint64_t>(compiled_targets()))); }

int64_t target_at(int32_t index) {
  uint64_t targets = static_cast<uint64_t>(compiled_targets());
  if (index < 0) return 0;
  for (; index > 0 && targets != 0; --index) targets &= targets - 1;  // Highway numbers better targets lower
  return static_cast<int64_t>(targets & (~targets + 1));
}

const char* target_name(int64_t target) { return target == 0 ? nullptr : hwy::TargetName(target); }

bool target_is_supported(int64_t target) { return (machine().supported & compiled_targets() & target) != 0; }

int64_t best_target() {
  for (int32_t i = 0; i < target_count(); ++i) {
    if (target_is_supported(target_at(i))) return target_at(i);
  }
  return 0;
}

lw_status choose_target(const char* name, int64_t& target) {
  const char* origin = "target";
  if (name == nullptr && machine().variable[0] != '\0') {
    name = machine().variable;
    origin = "LANEWISE_TARGET";
  }
  target = name == nullptr ? best_target() : 0;
  if (target != 0) return ok();
  for (int32_t i = 0; name != nullptr && i < target_count(); ++i) {
    const int64_t named = target_at(i);
    if (strcasecmp(name, target_name(named)) != 0) continue;
    if (!target_is_supported(named))
      return failure(LW_UNSUPPORTED, "%s is %s, which this CPU cannot run", origin, target_name(named));
    target = named;
    return ok();
  }
  char list[160];
  list_targets(list, sizeof list);
  if (name == nullptr) return failure(LW_UNSUPPORTED, "this CPU runs none of the compiled targets (%s)", list);
  return failure(LW_INVALID_ARGUMENT, "%s is '%.31s'; allowed is %s", origin, name, list);
}

}  // namespace lanewise
