// lanewise's own floating-point environment: round to nearest even, denormals kept, exceptions masked. Hosts run with
// other modes (flush-to-zero, another rounding, traps); the bits of a result must not.
#pragma once

#include <cstdint>

namespace lanewise {

// Set on construction in the calling thread, restored with its flags on destruction. The functions are not inlined, so
// that no arithmetic moves across them.
class FpEnvironment {
 public:
  FpEnvironment();
  ~FpEnvironment();
  FpEnvironment(const FpEnvironment&) = delete;
  FpEnvironment& operator=(const FpEnvironment&) = delete;

 private:
  [[maybe_unused]] uint64_t control_ = 0;
  [[maybe_unused]] uint64_t status_ = 0;
};

}  // namespace lanewise
