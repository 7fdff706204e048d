// tools/io: round trips, conversions, and files that are not what they say.
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <cstring>
#include <limits>

#include "io/npy.hpp"
#include "io/safetensors.hpp"
#include "temp_dir.hpp"

namespace lanewise::test {
namespace {

using io::Error;
using io::make_tensor;
using io::Tensor;
using io::Type;

bool same(const Tensor& a, const Tensor& b) {
  return a.name == b.name && a.type == b.type && a.shape == b.shape && a.bytes.size() == b.bytes.size() &&
         std::memcmp(a.bytes.data(), b.bytes.data(), a.bytes.size()) == 0;
}

Tensor counting(const std::string& name, Type type, std::vector<int64_t> shape) {
  Tensor tensor = make_tensor(name, type, std::move(shape));
  for (size_t i = 0; i < tensor.bytes.size(); ++i) tensor.bytes.data()[i] = static_cast<uint8_t>(i * 37 + 11);
  return tensor;
}

constexpr Type kTypes[] = {Type::f64, Type::f32, Type::bf16, Type::f16, Type::i64, Type::i32, Type::u8, Type::boolean};

// The message of the Error that reading throws; empty if it throws none.
template <class Read>
std::string message_of(const Read& read) {
  try {
    read();
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

bool is_one_line(const std::string& text) { return text.find('\n') == std::string::npos; }

struct WrongFile {
  const char* name;
  std::string bytes;
  const char* message;  // what the Error of reading says
};

template <class Read>
void check_refused(const std::vector<WrongFile>& files, const std::string& file_name, const Read& read) {
  TempDir dir;
  for (const WrongFile& file : files) {
    INFO(file.name);
    write_bytes(dir / file_name, file.bytes);
    const std::string message = message_of([&] { read(dir / file_name); });
    INFO(message);
    CHECK(message.find(file.message) != std::string::npos);
    CHECK(message.find(file_name) != std::string::npos);
    CHECK(is_one_line(message));
  }
}

}  // namespace

TEST_CASE("safetensors: what is written is read back", "[io]") {
  TempDir dir;
  std::vector<Tensor> tensors;
  for (const Type type : kTypes) tensors.push_back(counting(std::string("t") + io::type_name(type), type, {2, 3, 5}));
  tensors.push_back(counting("scalar", Type::f32, {}));
  tensors.push_back(counting("empty", Type::f32, {3, 0, 4}));
  tensors.push_back(counting("after \"empty\"", Type::u8, {7}));
  std::vector<const Tensor*> pointers;
  for (const Tensor& tensor : tensors) pointers.push_back(&tensor);
  io::write_safetensors(dir / "a.safetensors", pointers, {{"scale", "0.125"}});
  const io::SafetensorsFile file(dir / "a.safetensors");
  CHECK(file.entries().size() == tensors.size());
  CHECK(file.metadata().at("scale") == "0.125");
  for (const Tensor& tensor : tensors) CHECK(same(file.read(tensor.name), tensor));
  CHECK(file.find("nothing") == nullptr);
  CHECK(message_of([&] { file.read("nothing"); }).find("has no tensor 'nothing'") != std::string::npos);
  CHECK(dir.count() == 1);
}

TEST_CASE("safetensors: a file written by hand is read", "[io]") {
  TempDir dir;
  const std::string header =
      R"({"b":{"dtype":"I32","shape":[2],"data_offsets":[1,9]},"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}  )";
  write_bytes(dir / "a", safetensors_bytes(header, std::string("\x05\x01\0\0\0\xff\xff\xff\xff", 9)));
  const io::SafetensorsFile file(dir / "a");
  CHECK(file.entries()[0].name == "a");
  const Tensor b = file.read("b");  // not aligned in the file, aligned in memory
  CHECK(reinterpret_cast<uintptr_t>(b.bytes.data()) % 64 == 0);
  CHECK(b.as<int32_t>()[0] == 1);
  CHECK(b.as<int32_t>()[1] == -1);
}

TEST_CASE("safetensors: wrong files give one line that says what is wrong", "[io]") {
  const std::string tensor = R"("dtype":"F32","shape":[2],"data_offsets":[0,8])";
  const std::string eight(8, 'x');
  const std::vector<WrongFile> table = {
      {"empty file", "", "too short"},
      {"seven bytes", "1234567", "too short"},
      {"length without header", little_endian(4, 8), "truncated"},
      {"huge header length", little_endian(UINT64_MAX, 8) + "{}", "over the limit"},
      {"header length of a text file", "This is some text, not tensors", "over the limit"},
      {"header length one too long", little_endian(3, 8) + "{}", "truncated"},
      {"header of no bytes", safetensors_bytes("", ""), "does not start with '{'"},
      {"header is a list", safetensors_bytes("[]", ""), "does not start with '{'"},
      {"header is cut", safetensors_bytes("{\"a\":", ""), "not valid JSON"},
      {"header with text behind it", safetensors_bytes("{} x", ""), "not valid JSON"},
      {"header is not UTF-8", safetensors_bytes("{\"\xff\":1}", ""), "not valid JSON"},
      {"header is nested", safetensors_bytes("{\"a\":[[[[[[[[1]]]]]]]]}", ""), "nested too deeply"},
      {"header nested without end", safetensors_bytes("{\"a\":" + std::string(100000, '['), ""), "nested too deeply"},
      {"entry is a number", safetensors_bytes(R"({"a":1})", ""), "not an object"},
      {"no shape", safetensors_bytes(R"({"a":{"dtype":"F32","data_offsets":[0,8]}})", eight), "must have dtype"},
      {"extra key", safetensors_bytes("{\"a\":{" + tensor + ",\"x\":1}}", eight), "nothing else"},
      {"unknown type", safetensors_bytes(R"({"a":{"dtype":"F8_E4M3","shape":[8],"data_offsets":[0,8]}})", eight),
       "'F8_E4M3' is not supported"},
      {"type is a number", safetensors_bytes(R"({"a":{"dtype":3,"shape":[8],"data_offsets":[0,8]}})", eight),
       "dtype is not a string"},
      {"shape is a number", safetensors_bytes(R"({"a":{"dtype":"F32","shape":2,"data_offsets":[0,8]}})", eight),
       "shape is not a list"},
      {"negative size", safetensors_bytes(R"({"a":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}})", eight),
       "not a size"},
      {"fractional size", safetensors_bytes(R"({"a":{"dtype":"F32","shape":[2.0],"data_offsets":[0,8]}})", eight),
       "not a size"},
      {"size over 64 bits",
       safetensors_bytes(R"({"a":{"dtype":"F32","shape":[99999999999999999999],"data_offsets":[0,8]}})", eight),
       "not a size"},
      {"sizes overflow",
       safetensors_bytes(R"({"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,8]}})", eight),
       "overflows"},
      {"bytes overflow",
       safetensors_bytes(R"({"a":{"dtype":"F64","shape":[2305843009213693952],"data_offsets":[0,8]}})", eight),
       "overflows"},
      {"three offsets", safetensors_bytes(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8,9]}})", eight),
       "not a pair"},
      {"negative offset", safetensors_bytes(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[-8,0]}})", eight),
       "not a pair"},
      {"offsets reversed", safetensors_bytes(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}})", eight),
       "end before they begin"},
      {"data cut", safetensors_bytes("{\"a\":{" + tensor + "}}", "1234567"), "truncated?"},
      {"offsets beyond the file",
       safetensors_bytes(
           R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[9223372036854775799,9223372036854775807]}})", eight),
       "beyond"},
      {"shape larger than bytes", safetensors_bytes(R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})", eight),
       "needs 12"},
      {"shape smaller than bytes",
       safetensors_bytes(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,8]}})", eight), "needs 4"},
      {"gap", safetensors_bytes(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}})", eight), "gap"},
      {"bytes of no tensor", safetensors_bytes(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})", eight),
       "belong to no tensor"},
      {"overlap",
       safetensors_bytes(
           R"({"a":{"dtype":"U8","shape":[5],"data_offsets":[0,5]},"b":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}})",
           eight),
       "overlaps"},
      {"same name twice", safetensors_bytes("{\"a\":{" + tensor + "},\"a\":{" + tensor + "}}", eight), "'a' twice"},
      {"same key twice",
       safetensors_bytes(R"({"a":{"dtype":"F32","dtype":"F32","shape":[2],"data_offsets":[0,8]}})", eight),
       "'dtype' twice"},
      {"metadata is a list", safetensors_bytes(R"({"__metadata__":[1]})", ""), "__metadata__ is not an object"},
      {"metadata holds a number", safetensors_bytes(R"({"__metadata__":{"a":1}})", ""), "is not a string"},
      {"line feed in a name", safetensors_bytes(R"({"a\nb":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})", eight),
       "'a\\x0ab'"},
  };
  check_refused(table, "bad.safetensors", [](const std::string& path) { io::SafetensorsFile file(path); });
}

TEST_CASE("safetensors: every cut of a good file is refused", "[io]") {
  TempDir dir;
  const Tensor a = counting("a", Type::f32, {3}), b = counting("b", Type::boolean, {5});
  io::write_safetensors(dir / "good", {&a, &b});
  const std::string bytes = read_bytes(dir / "good");
  for (size_t n = 0; n < bytes.size(); ++n) {
    write_bytes(dir / "cut", bytes.substr(0, n));
    INFO(n);
    CHECK(!message_of([&] { io::SafetensorsFile file(dir / "cut"); }).empty());
  }
}

TEST_CASE("safetensors: a changed byte never does worse than an error", "[io]") {
  TempDir dir;
  const Tensor a = counting("a", Type::f32, {3}), b = counting("b", Type::boolean, {5});
  io::write_safetensors(dir / "good", {&a, &b});
  const std::string bytes = read_bytes(dir / "good");
  for (size_t n = 0; n < bytes.size(); ++n) {
    for (const int change : {1, 2, 16, 128}) {
      std::string changed = bytes;
      changed[n] = static_cast<char>(changed[n] ^ change);
      write_bytes(dir / "changed", changed);
      message_of([&] {
        const io::SafetensorsFile file(dir / "changed");
        for (const io::TensorEntry& entry : file.entries()) file.read(entry);
      });
    }
  }
  SUCCEED();
}

TEST_CASE("npy: what is written is read back", "[io]") {
  TempDir dir;
  for (const Type type : kTypes) {
    if (type == Type::bf16) continue;
    for (const std::vector<int64_t>& shape :
         std::vector<std::vector<int64_t>>{{}, {4}, {2, 3}, {2, 0, 3}, {2, 3, 4, 5}}) {
      const Tensor tensor = counting("x", type, shape);
      io::write_npy(dir / "x.npy", tensor);
      CHECK(same(io::read_npy(dir / "x.npy", "x"), tensor));
      CHECK(read_bytes(dir / "x.npy").size() - tensor.bytes.size() == 128);
    }
  }
  CHECK(message_of([&] { io::write_npy(dir / "b.npy", counting("b", Type::bf16, {2})); }).find("no bf16") !=
        std::string::npos);
  CHECK(dir.count() == 1);
}

TEST_CASE("npy: big-endian, Fortran order, other versions and spellings", "[io]") {
  TempDir dir;
  const auto read = [&](const std::string& bytes) {
    write_bytes(dir / "x.npy", bytes);
    return io::read_npy(dir / "x.npy", "x");
  };
  const std::string plain = "{'descr': '<i4', 'fortran_order': False, 'shape': (3,), }\n";
  const std::string three = little_endian(1, 4) + little_endian(2, 4) + little_endian(3, 4);
  for (const int version : {1, 2, 3}) CHECK(read(npy_bytes(plain, three, version)).as<int32_t>()[2] == 3);
  CHECK(read(npy_bytes("{\"shape\":(3,),\"fortran_order\":False,\"descr\":\"<i4\"}", three)).as<int32_t>()[1] == 2);
  CHECK(read(npy_bytes("{'descr': '>i4', 'fortran_order': True, 'shape': (3,)}",
                       std::string("\0\0\0\1\0\0\0\2\0\0\1\0", 12)))
            .as<int32_t>()[2] == 256);
  CHECK(read(npy_bytes("{'descr': '|b1', 'fortran_order': False, 'shape': ()}", "\1")).shape.empty());
  // Column by column: element [i, j, k] of shape (2, 3, 2) is 100 i + 10 j + k.
  std::string columns;
  for (uint8_t k = 0; k < 2; ++k) {
    for (uint8_t j = 0; j < 3; ++j) {
      for (uint8_t i = 0; i < 2; ++i) columns += static_cast<char>(100 * i + 10 * j + k);
    }
  }
  const Tensor fortran = read(npy_bytes("{'descr': '|u1', 'fortran_order': True, 'shape': (2, 3, 2)}", columns));
  for (uint8_t n = 0; n < 12; ++n) CHECK(fortran.as<uint8_t>()[n] == 100 * (n / 6) + 10 * (n / 2 % 3) + n % 2);
}

TEST_CASE("npy: wrong files give one line that says what is wrong", "[io]") {
  const std::string eight(8, 'x');
  const auto header = [](const std::string& descr, const std::string& shape) {
    return "{'descr': " + descr + ", 'fortran_order': False, 'shape': " + shape + "}";
  };
  const std::vector<WrongFile> table = {
      {"empty file", "", "too short"},
      {"magic alone", "\x93NUMPY", "too short"},
      {"text", "this is a text, not an array", "not an npy file"},
      {"version 4", npy_bytes(header("'<f4'", "(2,)"), eight, 4), "version 4"},
      {"version 0", std::string("\x93NUMPY\0\0\0\0", 10), "version 0"},
      {"header cut", npy_bytes(header("'<f4'", "(2,)"), "").substr(0, 30), "truncated"},
      {"version 2 cut in its length", std::string("\x93NUMPY\2\0\1\0\0", 11), "truncated"},
      {"huge header", std::string("\x93NUMPY\2\0\xff\xff\xff\xff", 12) + eight, "over the limit"},
      {"no dictionary", npy_bytes("[]", ""), "malformed"},
      {"empty header", npy_bytes("", ""), "malformed"},
      {"unfinished dictionary", npy_bytes("{'descr': '<f4', ", ""), "malformed"},
      {"unfinished string", npy_bytes("{'descr", ""), "string without end"},
      {"no shape", npy_bytes("{'descr': '<f4', 'fortran_order': False}", eight), "lacks"},
      {"key twice", npy_bytes("{'descr': '<f4', 'descr': '<f4'}", eight), "unexpected key 'descr'"},
      {"unknown key", npy_bytes("{'order': 1}", eight), "unexpected key 'order'"},
      {"text behind the dictionary", npy_bytes(header("'<f4'", "(2,)") + " x", eight), "after its dictionary"},
      {"order is a number", npy_bytes("{'descr': '<f4', 'fortran_order': 0, 'shape': (2,)}", eight),
       "neither True nor False"},
      {"records", npy_bytes(header("[('a', '<f4')]", "(2,)"), eight), "records"},
      {"complex", npy_bytes(header("'<c8'", "(1,)"), eight), "'<c8' is not supported"},
      {"objects", npy_bytes(header("'|O'", "(1,)"), eight), "'|O' is not supported"},
      {"wrong byte order mark", npy_bytes(header("'?f4'", "(2,)"), eight), "not supported"},
      {"shape is a number", npy_bytes(header("'<f4'", "2"), eight), "malformed"},
      {"negative size", npy_bytes(header("'<f4'", "(-2,)"), eight), "not a size"},
      {"size over 64 bits", npy_bytes(header("'<f4'", "(99999999999999999999,)"), eight), "overflows"},
      {"sizes overflow", npy_bytes(header("'<f4'", "(4294967296, 4294967296)"), eight), "overflows"},
      {"bytes overflow", npy_bytes(header("'<f8'", "(2305843009213693952,)"), eight), "overflows"},
      {"data cut", npy_bytes(header("'<f4'", "(3,)"), eight), "truncated"},
      {"data too long", npy_bytes(header("'<f4'", "(1,)"), eight), "too long"},
      {"claims a terabyte", npy_bytes(header("'<f4'", "(274877906944,)"), eight), "truncated"},
  };
  check_refused(table, "bad.npy", [](const std::string& path) { io::read_npy(path, "x"); });
}

TEST_CASE("files that cannot be opened or written", "[io]") {
  TempDir dir;
  const Tensor a = counting("a", Type::f32, {3});
  CHECK(message_of([&] { io::SafetensorsFile file(dir / "none"); }).find("cannot be opened: No such file") !=
        std::string::npos);
  CHECK(message_of([&] { io::SafetensorsFile file(dir / "."); }).find("is a directory") != std::string::npos);
  CHECK(message_of([&] { io::read_npy("/dev/null", "x"); }).find("not a regular file") != std::string::npos);
  CHECK(message_of([&] { io::write_npy(dir / "no/x.npy", a); }).find("cannot be written: No such file") !=
        std::string::npos);
  CHECK(message_of([&] { io::write_npy(dir / ".", a); }).find("is a directory") != std::string::npos);
  CHECK(message_of([&] { io::write_npy("", a); }).find("empty name") != std::string::npos);
  const Tensor again = counting("a", Type::f32, {3});
  CHECK(message_of([&] {
          io::write_safetensors(dir / "x", {&a, &again});
        }).find("the name is taken") != std::string::npos);
  CHECK(dir.count() == 0);
}

TEST_CASE("a failed write leaves the file that was there", "[io]") {
  TempDir dir;
  write_bytes(dir / "x", "old");
  {
    io::OutputFile file(dir / "x");
    file.write("new", 3);
    CHECK(dir.count() == 2);
  }
  CHECK(read_bytes(dir / "x") == "old");
  CHECK(dir.count() == 1);
  std::filesystem::create_symlink(dir / "x", dir / "link");
  io::OutputFile file(dir / "link");
  file.write("new", 3);
  file.commit();
  CHECK(read_bytes(dir / "x") == "new");
  CHECK(std::filesystem::is_symlink(dir / "link"));
  CHECK(dir.count() == 2);
  const Tensor a = counting("a", Type::f32, {3});
  io::write_npy("/dev/null", a);
  CHECK(std::filesystem::is_character_file("/dev/null"));
}

TEST_CASE("conversions between float types round once, to nearest even", "[io]") {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const uint16_t half = static_cast<uint16_t>(bits);
    const float f16 = io::float_from_f16(half), bf16 = io::float_from_bf16(half);
    if (std::isnan(f16)) {
      CHECK(std::isnan(io::float_from_f16(io::f16_from_double(static_cast<double>(f16)))));
    } else if (io::f16_from_double(static_cast<double>(f16)) != half) {
      FAIL("f16 " << bits);
    }
    if (std::isnan(bf16)) {
      CHECK(std::isnan(io::float_from_bf16(io::bf16_from_double(static_cast<double>(bf16)))));
    } else if (io::bf16_from_double(static_cast<double>(bf16)) != half) {
      FAIL("bf16 " << bits);
    }
  }
  CHECK(io::float_from_f16(0x0001) == 0x1p-24f);
  CHECK(io::float_from_f16(0x7bff) == 65504.0f);
  CHECK(io::f16_from_double(65519.99) == 0x7bff);
  CHECK(io::f16_from_double(65520.0) == 0x7c00);
  CHECK(io::f16_from_double(0x1p-25) == 0x0000);  // half the smallest: to even
  CHECK(io::f16_from_double(0x1.00000000001p-25) == 0x0001);
  CHECK(io::f16_from_double(1 + 0x1p-11) == 0x3c00);            // tie
  CHECK(io::f16_from_double(1 + 0x1p-11 + 0x1p-50) == 0x3c01);  // rounding to float first would make it a tie
  CHECK(io::bf16_from_double(1 + 0x1p-8) == 0x3f80);
  CHECK(io::bf16_from_double(1 + 0x1p-8 + 0x1p-50) == 0x3f81);
  CHECK(io::bf16_from_double(1e300) == 0x7f80);
  CHECK(io::bf16_from_double(-1e300) == 0xff80);
  CHECK(io::bf16_from_double(static_cast<double>(std::numeric_limits<float>::max())) == 0x7f80);
  const Tensor values = make_tensor("x", Type::f64, {3}, std::vector<double>{1.5, -0.1, 1e40});
  CHECK(io::convert(values, Type::f32).as<float>()[1] == -0.1f);
  CHECK(std::isinf(io::element(io::convert(values, Type::bf16), 2)));
  CHECK(message_of([&] { io::convert(counting("i", Type::i32, {1}), Type::f32); }).find("cannot be converted") !=
        std::string::npos);
}

TEST_CASE("integers fit or are refused", "[io]") {
  const Tensor good = make_tensor("n", Type::i64, {2}, std::vector<int64_t>{-5, 2147483647});
  CHECK(io::to_i32(good).as<int32_t>()[0] == -5);
  const Tensor large = make_tensor("n", Type::i64, {1}, std::vector<int64_t>{2147483648});
  CHECK(message_of([&] { io::to_i32(large); }).find("does not fit") != std::string::npos);
  CHECK(message_of([&] { io::to_i32(counting("x", Type::f32, {1})); }).find("I32 is needed") != std::string::npos);
  CHECK(message_of([&] {
          make_tensor("x", Type::f64, {int64_t{1} << 62, 8});
        }).find("not a possible size") != std::string::npos);
  CHECK(message_of([&] { make_tensor("x", Type::u8, {int64_t{1} << 60}); }).find("out of memory") != std::string::npos);
}

}  // namespace lanewise::test
