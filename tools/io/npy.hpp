// npy files (numpy.lib.format, versions 1.0 to 3.0): one array. Read: little- and big-endian, C and Fortran order, of
// the types of io::Type; bf16 has no npy form. Written: version 1.0, little-endian, C order, the bytes NumPy itself
// would write.
#pragma once

#include <string>

#include "io/tensor.hpp"

namespace lanewise::io {

// The tensor's name is `name`. Throws Error for anything that is not one whole array.
Tensor read_npy(const std::string& path, std::string name);

// Writes the whole file or none.
void write_npy(const std::string& path, const Tensor& tensor);

}  // namespace lanewise::io
