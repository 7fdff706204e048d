// The parts of rows-in-lanes, one table a target, so that bench_kernels can time each alone. Contracts:
// src/kernels/*-inl.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "src/kernels/kernel_table.hpp"

namespace lanewise::bench {

inline constexpr size_t kMostVectors = 4;

struct KernelParts {
  size_t lanes = 0;        // of a vector
  size_t max_vectors = 0;  // of a tile

  // Each over a block of 256 keys, for a tile of (index + 1) vectors; nullptr beyond max_vectors.
  void (*scores[kMostVectors])(const float* q, const float* k, int64_t stride, int64_t qk_dim, float* scores) = {};
  void (*probs[kMostVectors])(float* scores) = {};
  void (*values[kMostVectors])(const float* probs, const float* v, int64_t stride, int64_t v_dim, float* acc) = {};

  void (*store_rows)(const ResultTensor& to, int64_t rows, size_t vectors, size_t v_dim, const float* from) = nullptr;
  void (*pack)(const KeyTensor& keys, int64_t dim, float* packed, int64_t stride) = nullptr;  // 256 keys
};

KernelParts kernel_parts_for(int64_t target);

}  // namespace lanewise::bench
