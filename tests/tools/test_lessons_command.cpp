// `lanewise worked-example`, `weights` and `scale-study` as a user meets them, and docs/WHY-SQRT-DK.md, whose tables and
// pictures must be what the command makes now.
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "command.hpp"
#include "io/npy.hpp"
#include "io/safetensors.hpp"

namespace lanewise::test {
namespace {

using Json = nlohmann::json;

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

// Fits a terminal of 80 columns and holds nothing but printable ASCII.
bool plain_80_columns(const std::string& text) {
  size_t column = 0;
  for (const char c : text) {
    column = c == '\n' ? 0 : column + 1;
    if (column > 80 || (c != '\n' && (c < 0x20 || c > 0x7e))) return false;
  }
  return true;
}

std::string row_text(const Json& row) {
  std::string text;
  for (const Json& value : row) {
    char number[32];
    std::snprintf(number, sizeof number, "  %.4f", value.get<double>());
    text += number;
  }
  return text;
}

// Runs of spaces become two: columns are as wide as their widest number.
std::string evenly_spaced(const std::string& text) {
  std::string even;
  for (size_t n = 0; n < text.size(); ++n) {
    if (text[n] != ' ' || even.size() < 2 || even.compare(even.size() - 2, 2, "  ") != 0) even += text[n];
  }
  return even;
}

std::vector<std::string> words_of(const std::string& line) {
  std::istringstream stream(line);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

std::string root() { return std::string(LANEWISE_TEST_DATA) + "/../../"; }

// An XML document in which every element is closed by its own name.
bool well_formed(const std::string& xml) {
  std::vector<std::string> open;
  for (size_t at = xml.find('<'); at != std::string::npos; at = xml.find('<', at + 1)) {
    const size_t end = xml.find('>', at);
    if (end == std::string::npos) return false;
    const std::string tag = xml.substr(at + 1, end - at - 1);
    if (tag.back() == '/') continue;
    const std::string name = tag.substr(0, tag.find(' '));
    if (name[0] != '/') {
      open.push_back(name);
    } else {
      if (open.empty() || "/" + open.back() != name) return false;
      open.pop_back();
    }
  }
  return open.empty() && xml.rfind("<svg ", 0) == 0;
}

}  // namespace

TEST_CASE("worked-example prints the numbers of worked.json", "[lessons]") {
  const Json worked = Json::parse(read_bytes(data_file("worked.json")));
  for (const Json& entry : worked["attention"]) {
    const std::string name = entry["name"];
    INFO(name);
    std::vector<std::string> arguments = {"worked-example"};
    if (name != "three_tokens") arguments = {"worked-example", "--file", data_file("worked.json"), "--name", name};
    const Outcome outcome = lanewise_command(arguments);
    INFO(outcome.out << outcome.err);
    REQUIRE(outcome.code == 0);
    CHECK(outcome.err.empty());
    CHECK(plain_80_columns(outcome.out));
    const std::string printed = evenly_spaced(outcome.out);
    for (const char* matrix : {"scores", "scaled_scores", "weights", "output"}) {
      for (const Json& row : entry[matrix]) {
        // Twice: by the kernel and by the reference.
        const std::string text = row_text(row);
        const size_t first = printed.find(text);
        CHECK(first != std::string::npos);
        CHECK(printed.find(text, first + 1) != std::string::npos);
      }
    }
  }
  const Outcome outcome = lanewise_command({"worked-example"});
  CHECK(has(outcome.out, "the same bits\n"));
  CHECK(has(outcome.out, "k2   1.0000  1.0000   0.6065  2.2131  1.7944"));  // the online softmax
}

TEST_CASE("worked-example walks through files, heads and rules", "[lessons]") {
  TempDir dir;
  write_bytes(dir / "small.json",
              R"({"q": [[1, 2]], "k": [[3, -1], [0.5, 0]], "v": [[1, 0, 2], [0, 1, 4]], "scale": 2})");
  Outcome outcome = lanewise_command({"worked-example", "--file", dir / "small.json"});
  CHECK(outcome.code == 0);
  CHECK(has(outcome.out, "2.0000  1.0000"));  // (3 - 2, 0.5) times 2
  outcome = lanewise_command({"worked-example", data_file("real/minilm_layer5_len61.safetensors"), "--head", "3",
                              "--causal", "--query", "60"});
  CHECK(outcome.code == 0);
  CHECK(plain_80_columns(outcome.out));
  CHECK(has(outcome.out, "k60"));
  outcome = lanewise_command({"worked-example", "--softcap", "2"});
  CHECK(outcome.code == 0);
  CHECK(has(outcome.out, "before it: softcap"));
}

TEST_CASE("weights of the real heads: sharp, diffuse, a sink", "[lessons]") {
  TempDir dir;
  const std::string sharp = data_file("real/minilm_layer0_len61.safetensors");
  Outcome outcome =
      lanewise_command({"weights", sharp, "--heads", "2,4", "--csv", dir / "w.csv", "--svg", dir / "w.svg"});
  REQUIRE(outcome.code == 0);
  CHECK(outcome.err.empty());
  CHECK(plain_80_columns(outcome.out));
  CHECK(has(outcome.out, "head 2: queries down"));
  CHECK(well_formed(read_bytes(dir / "w.svg")));
  // Every row adds up to 1, the kernel agrees with the reference, and weights times v are the file's expected output.
  const io::SafetensorsFile file(sharp);
  const io::Tensor v = file.read("v"), out = file.read("out");
  std::ifstream csv(dir / "w.csv");
  std::string line;
  std::getline(csv, line);
  CHECK(line == "sequence,head,query,key,visible,weight,reference");
  double sum = 0, mixed = 0, worst = 0, largest = 0, sharpest = 0;
  int64_t lines = 0;
  while (std::getline(csv, line)) {
    long long b, h, i, j;
    int visible;
    double weight, reference;
    REQUIRE(std::sscanf(line.c_str(), "%lld,%lld,%lld,%lld,%d,%lf,%lf", &b, &h, &i, &j, &visible, &weight,
                        &reference) == 7);
    CHECK((visible == 1 && std::fabs(weight - reference) < 4e-6));
    ++lines;
    if (j == 0) sum = mixed = largest = 0;
    sum += weight;
    largest = std::fmax(largest, weight);
    mixed += reference * io::element(v, (h * 61 + j) * 32);
    if (j < 60) continue;
    worst = std::fmax(worst, std::fmax(std::fabs(sum - 1), std::fabs(mixed - io::element(out, (h * 61 + i) * 32))));
    if (h == 2) sharpest += largest / 61;
  }
  CHECK(lines == 2 * 61 * 61);
  CHECK(worst < 2e-6);
  CHECK(sharpest > 0.99);

  outcome = lanewise_command({"weights", data_file("real/smollm2_layer15_len200_causal.safetensors"), "--causal",
                              "--no-picture", "--svg", dir / "sink.svg"});
  REQUIRE(outcome.code == 0);
  CHECK(well_formed(read_bytes(dir / "sink.svg")));
  std::istringstream table(outcome.out);
  for (int n = 0; n < 9 && std::getline(table, line); ++n) {
    const std::vector<std::string> words = words_of(line);
    if (words[0] == "6") CHECK(std::fabs(std::stod(words[4]) - 0.73) < 0.01);  // the README of the data says so
  }
}

TEST_CASE("weights do not look at v, which may be missing or of another shape", "[lessons]") {
  TempDir dir;
  io::Tensor q = io::make_tensor("q", io::Type::f32, {2, 2}, std::vector<float>{1, 2, 3, 4});
  io::Tensor k = io::make_tensor("k", io::Type::f32, {3, 2}, std::vector<float>{1, 0, 2, 1, 0, 3});
  io::Tensor v = io::make_tensor("v", io::Type::i32, {5}, std::vector<int32_t>{1, 2, 3, 4, 5});
  io::write_safetensors(dir / "qk.safetensors", {&q, &k});
  io::write_safetensors(dir / "qkv.safetensors", {&q, &k, &v});
  io::write_npy(dir / "q.npy", q);
  io::write_npy(dir / "k.npy", k);
  const Outcome expected = lanewise_command({"weights", dir / "qk.safetensors"});
  INFO(expected.err);
  CHECK(expected.code == 0);
  CHECK(has(expected.out, "sequence 0 of 1; 1 of 1 heads\n"));
  const std::vector<std::vector<std::string>> others = {
      {"weights", dir / "qkv.safetensors"},
      {"weights", "--q", dir / "q.npy", "--k", dir / "k.npy"},
      {"weights", "--q", dir / "q.npy", "--k", dir / "k.npy", "--v", "/nowhere.npy"}};
  for (const std::vector<std::string>& arguments : others) {
    const Outcome outcome = lanewise_command(arguments);
    INFO(outcome.err);
    CHECK(outcome.code == 0);
    CHECK(outcome.out == expected.out);
  }
  const Outcome no_k = lanewise_command({"weights", "--q", dir / "q.npy"});
  CHECK(no_k.code == 2);
  CHECK(has(no_k.err, "tensor 'k' is missing (IN.safetensors, or --q and --k)"));
}

TEST_CASE("weights: one key, one query, labels, hidden rows", "[lessons]") {
  TempDir dir;
  const auto small = [&](int64_t queries, int64_t keys) {
    io::Tensor q =
        io::make_tensor("q", io::Type::f32, {queries, 2}, std::vector<float>(static_cast<size_t>(queries * 2), 1));
    io::Tensor k = io::make_tensor("k", io::Type::f32, {keys, 2}, std::vector<float>(static_cast<size_t>(keys * 2), 1));
    io::Tensor v = io::make_tensor("v", io::Type::f32, {keys, 1}, std::vector<float>(static_cast<size_t>(keys), 1));
    io::write_safetensors(dir / "s.safetensors", {&q, &k, &v});
  };
  write_bytes(dir / "labels.txt", "<one> & \xff\r\ntwo");
  for (const auto& [queries, keys] : {std::pair<int64_t, int64_t>{1, 1}, {3, 1}, {1, 300}, {2, 2}, {5, 2}}) {
    INFO(queries << " queries, " << keys << " keys");
    small(queries, keys);
    std::vector<std::string> arguments = {"weights", dir / "s.safetensors", "--causal", "--svg", dir / "w.svg"};
    if (keys == 2) arguments.insert(arguments.end(), {"--labels", dir / "labels.txt"});
    const Outcome outcome = lanewise_command(arguments);
    INFO(outcome.err);
    CHECK(outcome.code == 0);
    CHECK(plain_80_columns(outcome.out));
    CHECK(has(outcome.out, "rows see no key") == (queries > keys));
    const std::string svg = read_bytes(dir / "w.svg");
    CHECK(well_formed(svg));
    CHECK_FALSE(has(svg, "nan"));
    CHECK(has(svg, "&lt;one&gt; &amp; \xef\xbf\xbd") == (keys == 2));
  }
}

TEST_CASE("lessons: wrong input is one clear line", "[lessons]") {
  TempDir dir;
  const std::string real = data_file("real/minilm_layer0_len61.safetensors");
  write_bytes(dir / "labels.txt", "one\ntwo\n");
  write_bytes(dir / "bad.json", "{\"q\": [[1, 2], [3]], \"k\": 1}");
  write_bytes(dir / "broken.json", "{");
  io::Tensor large = io::make_tensor("q", io::Type::f32, {3000, 1}, std::vector<float>(3000, 1));
  io::Tensor k = io::make_tensor("k", io::Type::f32, {3000, 1}, std::vector<float>(3000, 1));
  io::Tensor v = io::make_tensor("v", io::Type::f32, {3000, 1}, std::vector<float>(3000, 1));
  io::write_safetensors(dir / "large.safetensors", {&large, &k, &v});
  const std::vector<std::vector<std::string>> table = {
      {"weights"},
      {"weights", "/nowhere.safetensors"},
      {"weights", dir / "labels.txt"},
      {"weights", dir / "large.safetensors"},
      {"weights", real, "--heads", "12"},
      {"weights", real, "--heads", "-1"},
      {"weights", real, "--batch", "1"},
      {"weights", real, "--labels", dir / "labels.txt"},
      {"weights", real, "--labels", "/nowhere"},
      {"weights", real, "--svg", "/nowhere/w.svg"},
      {"weights", real, "--svg", dir / ""},
      {"weights", real, "--target", "none"},
      {"worked-example", "--file", dir / "bad.json"},
      {"worked-example", "--file", dir / "broken.json"},
      {"worked-example", "--file", "/nowhere.json"},
      {"worked-example", "--file", data_file("worked.json"), "--name", "none"},
      {"worked-example", "--file", real, "--head", "12"},
      {"worked-example", "--file", dir / "large.safetensors"},
      {"worked-example", "--part", "none"},
      {"worked-example", "--query", "3"},
      {"scale-study", "--part", "none"},
      {"scale-study", "--part", "real"},
      {"scale-study", "--samples", "0"},
      {"scale-study", "--samples", "x"},
      {"scale-study", "--keys", "100000"},
      {"scale-study", "--dims", "16,0"},
      {"scale-study", "--growth", "nan"},
      {"scale-study", "--growth", "50", "--layers", "50"},
      {"scale-study", "--svg", "/nowhere"},
      {"scale-study", "--real", dir / "labels.txt"},
      {"scale-study", "--target", "none"},
  };
  for (const std::vector<std::string>& arguments : table) {
    std::string text;
    for (const std::string& argument : arguments) text += argument + " ";
    const Outcome outcome = lanewise_command(arguments);
    INFO(text << "\n" << outcome.out << outcome.err);
    CHECK(outcome.code == 2);
    CHECK(is_one_clear_line(outcome.err));
    CHECK(outcome.out.empty());
  }
}

TEST_CASE("scale-study: sizes by option, small ones too", "[lessons]") {
  TempDir dir;
  for (const std::vector<std::string>& sizes : std::vector<std::vector<std::string>>{
           {"--samples", "2", "--draws", "1", "--keys", "1", "--dim", "1", "--dims", "1", "--layers", "0"},
           {"--samples", "100", "--draws", "2", "--keys", "7", "--dim", "3", "--dims", "2,4096", "--layers", "30",
            "--growth", "0.5"}}) {
    std::vector<std::string> arguments = {"scale-study", "--svg", dir / ""};
    arguments.insert(arguments.end(), sizes.begin(), sizes.end());
    const Outcome outcome = lanewise_command(arguments);
    INFO(outcome.out << outcome.err);
    CHECK(outcome.code == 0);
    for (const char* name : {"variance.svg", "saturation.svg", "experiment.svg", "layers.svg"}) {
      const std::string svg = read_bytes(dir / name);
      CHECK(well_formed(svg));
      CHECK_FALSE(has(svg, "nan"));
      CHECK_FALSE(has(svg, "inf"));
    }
  }
}

TEST_CASE("docs/WHY-SQRT-DK.md shows what the command makes now", "[lessons]") {
  TempDir dir;
  const std::string document = read_bytes(root() + "docs/WHY-SQRT-DK.md");
  REQUIRE(document.size() > 1000);
  const std::string begin = "<!-- lanewise ", fence = " -->\n```text\n";
  int blocks = 0;
  for (size_t at = document.find(begin); at != std::string::npos; at = document.find(begin, at + 1), ++blocks) {
    const size_t end = document.find(fence, at);
    REQUIRE(end < document.find('\n', at));
    std::vector<std::string> arguments = words_of(document.substr(at + begin.size(), end - at - begin.size()));
    for (std::string& argument : arguments) {
      if (argument.rfind("tests/", 0) == 0) argument = root() + argument;
      const std::string pictures = "docs/pictures";
      if (argument.rfind(pictures, 0) == 0)
        argument = (dir / "") + argument.substr(std::min(argument.size(), pictures.size() + 1));
    }
    const Outcome outcome = lanewise_command(arguments);
    INFO(outcome.err << "stale; to renew: tools/update_lessons.py build/tools/lanewise");
    CHECK(outcome.code == 0);
    CHECK(plain_80_columns(outcome.out));
    const size_t text = end + fence.size();
    CHECK(document.substr(text, document.find("```", text) - text) == outcome.out);
  }
  CHECK(blocks >= 10);
  std::set<std::string> made, kept;
  for (const auto& entry : std::filesystem::directory_iterator(dir / "")) made.insert(entry.path().filename().string());
  for (const auto& entry : std::filesystem::directory_iterator(root() + "docs/pictures")) {
    const std::string name = entry.path().filename().string();
    if (document.find(name) != std::string::npos) kept.insert(name);  // other documents have pictures too
  }
  CHECK(made == kept);
  for (const std::string& name : made) {
    INFO(name);
    const std::string svg = read_bytes(dir / name);
    CHECK(read_bytes(root() + "docs/pictures/" + name) == svg);
    CHECK(well_formed(svg));
    CHECK(has(svg, "prefers-color-scheme:dark"));
    CHECK(has(document, "(pictures/" + name + ")"));
  }
  CHECK(has(read_bytes(root() + "README.md"), "docs/WHY-SQRT-DK.md"));
}

}  // namespace lanewise::test
