// Tables of wrong calls: a right one with one change, which a status must refuse by name before the first write.
#pragma once

#include <catch2/catch_test_macros.hpp>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "lanewise/lanewise.h"

namespace lanewise::test {

template <class Call>
struct Wrong {
  const char* name;   // the argument, as the message must name it
  const char* value;  // as the message must show it; "" where there is none to show
  std::function<void(Call&)> change;
  int32_t code = LW_INVALID_ARGUMENT;
};

// A change to one field of the call `c`, with the text of its value.
#define WRONG(name, value, statement)       \
  {                                         \
    name, value, [](auto& c) { statement; } \
  }

// Call() is a right call: run() makes it, untouched() says that no byte of outputs, inputs and workspace has changed.
template <class Call>
void check_refused(const std::vector<Wrong<Call>>& table) {
  {
    Call good;
    const lw_status status = good.run();
    REQUIRE(std::string(status.message) == "");
    CHECK(status.code == LW_OK);
    CHECK_FALSE(good.untouched());
  }
  for (const Wrong<Call>& wrong : table) {
    Call call;
    wrong.change(call);
    const lw_status status = call.run();
    const std::string message = status.message;
    INFO(wrong.name << " " << wrong.value << ": status " << status.code << " \"" << message << "\"");
    CHECK(status.code == wrong.code);
    CHECK(message.find(wrong.name) != std::string::npos);
    CHECK(message.find(wrong.value) != std::string::npos);
    CHECK(message.size() < sizeof status.message - 1);
    CHECK(call.untouched());
  }
}

}  // namespace lanewise::test
