// A case with its plan, its tensors and its workspace: ready to run.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "attention_case.hpp"
#include "peaks.hpp"
#include "team.hpp"

namespace lanewise::bench {

class PreparedCase {
 public:
  virtual ~PreparedCase() = default;
  // Runs it once. The first run is made by prepare().
  virtual void run() = 0;
  // What there is to say beside the name.
  virtual std::string label() const = 0;
  // Memory that every run reads.
  virtual std::vector<Region> read_regions() const = 0;
};

// Fails with a message in `problem` if the case cannot run here.
std::unique_ptr<PreparedCase> prepare(const AttentionCase& c, std::string& problem);

// Seconds of one of `runs` runs that follow one another.
double seconds_of(PreparedCase& prepared, int64_t runs, Clock clock = Clock::kWall);

// Runs that together last long enough for either clock (200 us): a thread's own time is not kept to the microsecond.
int64_t runs_worth_timing(PreparedCase& prepared);

}  // namespace lanewise::bench
