// Every rule of the library once, as something to add to a case: tests go through the list, or through its pairs.
#pragma once

#include <cstdint>
#include <vector>

#include "case.hpp"

namespace lanewise::test {

struct NamedRule {
  const char* name;
  // The case's sizes; masks and biases are made for them.
  void (*add)(Case& c, int64_t batch, int64_t heads, int64_t q_len, int64_t kv_len);
};

const std::vector<NamedRule>& rule_list();

}  // namespace lanewise::test
