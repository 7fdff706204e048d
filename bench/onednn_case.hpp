// The same attention by oneDNN: matmul, softmax, matmul, with the score matrix in memory. Full attention on float32
// alone.
#pragma once

#include <memory>
#include <string>

#include "attention_case.hpp"
#include "prepared_case.hpp"

namespace lanewise::bench {

// Fails, with the reason in `problem`, in a build without oneDNN and for cases that three primitives cannot express.
std::unique_ptr<PreparedCase> prepare_onednn(const AttentionCase& c, std::string& problem);

}  // namespace lanewise::bench
